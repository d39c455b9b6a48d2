package pg

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// While the network carries nothing, calls hang on connections that may never answer, also
// once it is back: each would wait for its deadline, and so would all that wait for it. So
// the first call that does not reach the database begins a series of probes, each over a new
// connection. An outage has ended when a probe is answered that was sent later than one that
// was not: then all connections are closed that are older than that one and on which nothing
// has arrived since. Younger ones may just be being made; they are closed if they still hear
// nothing after the time of a probe.
const (
	// probeEvery lies between two probes, less up to a third of it by chance: the time after
	// which the end of an outage is noticed.
	probeEvery = 600 * time.Millisecond
	// probeTimeout bounds one probe for each host of the URL. On a busy machine a connection
	// can take a second.
	probeTimeout = 2 * time.Second
	// maxProbes bounds the probes that wait for an answer at once.
	maxProbes = 8
	// seriesEvery is the least time between two series of probes: calls that take too long on a
	// busy server must not add a connection each.
	seriesEvery = time.Second
)

// recovery is how a store gets over outages. All who call Recover hear of each: one of them
// probes for all, and the next goes on where it ends.
type recovery struct {
	broken chan struct{} // capacity 1: a call has not reached the database
	lead   chan struct{} // capacity 1: its holder probes, and alone uses the times below
	// recovered is the end of the latest outage, probed that of the latest series of probes.
	recovered, probed time.Time

	mu      sync.Mutex
	callers map[chan time.Duration]struct{} // of Recover; each has a capacity of 1
}

func newRecovery() recovery {
	return recovery{broken: make(chan struct{}, 1), lead: make(chan struct{}, 1), callers: map[chan time.Duration]struct{}{}}
}

// Recover calls answered at the end of each outage, with the time for which the database was
// probed, by the local clock, until ctx ends. By then the connections that were silent during
// the outage are closed. Outages that end while answered runs become one. It is no outage that
// a connection is lost, or that a call takes too long, if the next probe is answered. Any
// number of goroutines may call it.
func (s Server) Recover(ctx context.Context, answered func(away time.Duration)) error {
	r := &s.db.recovery
	ended := make(chan time.Duration, 1)
	r.mu.Lock()
	r.callers[ended] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.callers, ended)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case away := <-ended:
			answered(away)
		case r.lead <- struct{}{}:
			if err := s.db.recoverForAll(ctx, ended); err != nil {
				return err
			}
		}
	}
}

// recoverForAll waits for a break and tells all callers of Recover if it was an outage. Its
// caller holds the lead, which ends here.
func (s *DB) recoverForAll(ctx context.Context, own chan time.Duration) error {
	r := &s.recovery
	defer func() { <-r.lead }()
	if len(own) > 0 { // the former holder told of an outage
		return nil
	}
	err := s.awaitBreak(ctx)
	var away time.Duration
	if err == nil {
		away, err = s.recoverOnce(ctx)
	}
	if err != nil {
		lifecycle.Nudge(r.broken) // the next holder goes on with it
		return err
	}
	if away == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ended := range r.callers {
		select {
		case ended <- away:
		default: // it has not looked since the former one
		}
	}
	return nil
}

// recoverOnce probes the database until it answers. It returns how long it was away; 0: there
// was no outage.
func (s *DB) recoverOnce(ctx context.Context) (away time.Duration, err error) {
	begin := time.Now()
	unanswered, err := s.probes(ctx)
	s.recovery.probed = time.Now()
	if err != nil || unanswered.IsZero() {
		return 0, err
	}
	s.recovery.recovered = time.Now()
	s.Pool.Reset()
	s.lines.closeDead(unanswered)
	s.forgetPlaces()
	return time.Since(begin), nil
}

// awaitBreak waits until a call does not reach the database. Meanwhile it closes connections
// that were begun before the end of the latest outage and have heard nothing yet.
func (s *DB) awaitBreak(ctx context.Context) error {
	r := &s.recovery
	for {
		var later <-chan time.Time
		if !r.recovered.IsZero() {
			later = time.After(time.Until(r.recovered.Add(probeTimeout)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.broken:
			return lifecycle.Pause(ctx, time.Until(r.probed.Add(seriesEvery)))
		case <-later:
			s.lines.closeUnheard(r.recovered)
			r.recovered = time.Time{}
		}
	}
}

// probes probes the database until it answers. It returns when the latest probe was sent that
// was sent before the answered one and was not answered; zero: there was none.
func (s *DB) probes(ctx context.Context) (unanswered time.Time, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group conc.WaitGroup
	defer group.Wait()
	defer cancel()
	answered := make(chan time.Time, maxProbes) // when the probe before the answered one was sent
	free := make(chan struct{}, maxProbes)
	var latest time.Time // when the latest probe was sent
	for {
		select {
		case free <- struct{}{}:
			before := latest
			latest = time.Now()
			group.Go(func() {
				defer func() { <-free }()
				if s.answers(ctx) {
					answered <- before // without waiting: no more than that are under way
				}
			})
		default: // as many as may wait for an answer do
		}
		timer := time.NewTimer(probeEvery - rand.N(probeEvery/3))
		select {
		case <-ctx.Done():
			timer.Stop()
			return time.Time{}, ctx.Err()
		case before := <-answered:
			timer.Stop()
			return before, nil
		case <-timer.C:
		}
	}
}

// answers reports whether the database answers over a new connection. A server that refuses
// it, since it has too many or wants other credentials, answers; one that starts or stops
// does not.
func (s *DB) answers(ctx context.Context) bool {
	config := s.probe.Config().ConnConfig
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+len(config.Fallbacks))*probeTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		err = conn.Ping(ctx)
		_ = conn.Close(ctx) // it has answered, or not
	}
	code := ServerCode(err)
	return err == nil || len(code) == 5 && code[:2] != "57"
}

// Unwatched returns the options for a pool whose connections [Server.Recover] leaves alone,
// such as one of connections that wait for their user.
func (o Options) Unwatched() Options {
	o.lines = nil
	return o
}

// lines are the open network connections of a store. It is safe for concurrent use.
type lines struct {
	began time.Time // by which time is told, whatever the clock does

	mu   sync.Mutex
	open map[*line]struct{}
}

func newLines() *lines { return &lines{began: time.Now(), open: map[*line]struct{}{}} }

// at is a moment in nanoseconds since began.
func (l *lines) at(t time.Time) int64 { return t.Sub(l.began).Nanoseconds() }

// line is one of them, or one that is being made.
type line struct {
	net.Conn
	of      *lines
	born    int64        // when it was begun, in nanoseconds since began
	heard   atomic.Int64 // when something arrived last, in nanoseconds since began; 0: never
	abandon context.CancelFunc
}

// dialing returns a function that dials as dial does and remembers the connection.
func (l *lines) dialing(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		made := &line{of: l, born: l.at(time.Now()), abandon: cancel}
		l.add(made)
		conn, err := dial(ctx, network, address)
		if err != nil {
			l.remove(made)
			return nil, err
		}
		l.mu.Lock()
		made.Conn = conn
		l.mu.Unlock()
		if err := ctx.Err(); err != nil { // close came before
			_ = made.Close()
			return nil, err
		}
		return made, nil
	}
}

func (l *lines) add(one *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[one] = struct{}{}
}

func (l *lines) remove(one *line) {
	one.abandon()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, one)
}

// closeDead closes the connections that are older than a time and have heard nothing since.
func (l *lines) closeDead(since time.Time) {
	l.close(func(one *line) bool { return max(one.born, one.heard.Load()) < l.at(since) })
}

// closeUnheard closes the connections that are older than a time and have never heard anything.
func (l *lines) closeUnheard(before time.Time) {
	l.close(func(one *line) bool { return one.born < l.at(before) && one.heard.Load() == 0 })
}

// close closes some connections, also those that are being made.
func (l *lines) close(dead func(one *line) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.open {
		if !dead(one) {
			continue
		}
		one.abandon()
		if one.Conn != nil {
			_ = one.Conn.Close() // who waits for it gets the error
		}
	}
}

// Read implements net.Conn.
func (c *line) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(c.of.at(time.Now()))
	}
	return n, err
}

// Close implements net.Conn.
func (c *line) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}
