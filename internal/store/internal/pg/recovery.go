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

// Recover waits until a call of this store does not reach the database, then probes it until
// it answers. It returns for how long it probed, by the local clock; 0 means that there was
// no outage: only a connection was lost, or a call took too long. After an outage it has
// closed the connections that were silent during it. One goroutine calls it, again and again.
func (s Server) Recover(ctx context.Context) (away time.Duration, err error) {
	db := s.db
	if err := db.awaitBreak(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	unanswered, err := db.probes(ctx)
	db.probed = time.Now()
	if err != nil || unanswered.IsZero() {
		return 0, err
	}
	db.recovered = time.Now()
	db.Pool.Reset()
	db.lines.closeDead(unanswered)
	db.forgetPlaces()
	return time.Since(begin), nil
}

// awaitBreak waits until a call does not reach the database. Meanwhile it closes connections
// that were begun before the end of the latest outage and have heard nothing yet.
func (s *DB) awaitBreak(ctx context.Context) error {
	for {
		var later <-chan time.Time
		if !s.recovered.IsZero() {
			later = time.After(time.Until(s.recovered.Add(probeTimeout)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.broken:
			return lifecycle.Pause(ctx, time.Until(s.probed.Add(seriesEvery)))
		case <-later:
			s.lines.closeUnheard(s.recovered)
			s.recovered = time.Time{}
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
