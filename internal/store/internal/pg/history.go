package pg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A database can go back: a standby takes over that lacks the latest commits, or a backup
// is restored. Then numbers are drawn again, and this process's memory of the board is in
// the future: scans that begin there find nothing. So new connections and full scans
// query the database's position; if it is another server than before, or has drawn fewer
// numbers, all memory is dropped. A pooler keeps connections open while the server behind
// it changes, so new connections alone are not enough.
const (
	// whichServer is enough for a connection: a standby that takes over, a server on a
	// restored volume and a restarted one have other start times.
	whichServer = `select pg_postmaster_start_time()`
	// whereItStands detects a restored schema, too. Roles that may draw numbers may run
	// it.
	whereItStands = `select pg_postmaster_start_time(), coalesce(pg_sequence_last_value('tasker.step_seq'::regclass), 0)`
)

// history is the last known position of the database. It is safe for concurrent use.
type history struct {
	mu     sync.Mutex
	server time.Time // start time of the server; zero: unknown
	drawn  int64     // the greatest known drawn number
}

// Drew records a number that is on the board.
func (h *history) Drew(number int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drawn = max(h.drawn, number)
}

func (h *history) latest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drawn
}

// saw reports whether the database went back. drawn is the latest number by the answer,
// before the one known when the query was sent; both are 0 if unknown.
func (h *history) saw(server time.Time, before, drawn int64) (back bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := !h.server.IsZero()
	back = known && !server.Equal(h.server) || drawn < before
	if h.server = server; back {
		h.drawn = drawn
	}
	h.drawn = max(h.drawn, drawn)
	return back
}

// Sighting is a query of the database's position, with its answer.
type Sighting struct {
	before, drawn int64
	server        time.Time
}

// Ask adds the query to a batch, before the full scan.
func (s *DB) Ask(b *pgx.Batch) *Sighting {
	q := &Sighting{before: s.History.latest()}
	b.Queue(whereItStands).QueryRow(func(row pgx.Row) error { return row.Scan(&q.server, &q.drawn) })
	return q
}

// WentBack reports whether the database went back, and then drops all memory: the scan of
// the same batch began at the wrong place.
func (s *DB) WentBack(q *Sighting) bool {
	if !s.History.saw(q.server, q.before, q.drawn) {
		return false
	}
	s.forget()
	return true
}

// ScanAll sends a batch with a full scan, and repeats it if the first one began in the
// future.
func (s *DB) ScanAll(ctx context.Context, db *Conn, fill func(b *pgx.Batch)) error {
	for try := 1; ; try++ {
		b := &pgx.Batch{}
		q := s.Ask(b)
		fill(b)
		if err := db.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if !s.WentBack(q) || try == maxTries {
			return nil
		}
	}
}

// connected looks which server a new connection leads to, after first has been
// called; first may be nil.
func (s *DB) connected(first func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, c *pgx.Conn) error {
		if first != nil {
			if err := first(ctx, c); err != nil {
				return fmt.Errorf("after connecting: %w", err)
			}
		}
		var server time.Time
		if err := c.QueryRow(ctx, whichServer).Scan(&server); err != nil {
			return err
		}
		if s.History.saw(server, 0, 0) {
			s.forget()
		}
		return nil
	}
}

// memories are what rooms remember of the database.
type memories struct {
	mu     sync.Mutex
	drops  []func()
	places []func()
}

// Remember has drop called when the database turns out to be another server, or an older
// state of it. Numbers may have been assigned again.
func (s *DB) Remember(drop func()) {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	s.memories.drops = append(s.memories.drops, drop)
}

// RememberPlaces has drop called also when a connection is lost: a place where work begins,
// or a name that signals keep current, is true only for as long as nothing was missed.
func (s *DB) RememberPlaces(drop func()) {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	s.memories.places = append(s.memories.places, drop)
}

// forget drops all memory of the database.
func (s *DB) forget() {
	s.forgetPlaces()
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	for _, drop := range s.memories.drops {
		drop()
	}
	s.Opts.OnForget()
}

// forgetPlaces drops the memory of places.
func (s *DB) forgetPlaces() {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	for _, drop := range s.memories.places {
		drop()
	}
}

// shortOutage is for how long the database may be out of reach before that counts
// as an outage: a single connection that broke is replaced sooner.
const shortOutage = time.Second

// reach tracks since when the database has answered without an outage. It is safe for
// concurrent use.
type reach struct {
	mu     sync.Mutex
	since  time.Time // the end of the latest outage, or when the store was opened
	last   time.Time // the latest answer
	broken bool      // a connection broke, or could not be made, after it
	failed error     // the latest such failure, while broken
}

// note records how a flow ended, at now.
func (r *reach) note(err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case outOfReach(err):
		r.broken, r.failed = true, err
	case err != nil:
	default:
		if r.broken && now.Sub(r.last) >= shortOutage {
			r.since = now
		}
		r.last, r.broken, r.failed = now, false, nil
	}
}

// outOfReach reports whether an error means a broken connection, a failed one, or no
// answer at all. A statement that the server ended because it took too long does not
// count.
func outOfReach(err error) bool {
	return !errors.Is(err, context.Canceled) && (connectionGone(err) || errors.Is(err, context.DeadlineExceeded))
}

// connectionGone reports whether an error means a broken connection or a failed one.
func connectionGone(err error) bool {
	var dead *connectionLost
	var connect *pgconn.ConnectError
	return errors.As(err, &dead) || errors.As(err, &connect)
}

// ReachedSince returns since when the database has answered without an outage of a second
// or more, as far as the flows of this store have met one; otherwise when the store was
// opened. It is safe for concurrent use.
func (s Server) ReachedSince() time.Time {
	s.db.reach.mu.Lock()
	defer s.db.reach.mu.Unlock()
	return s.db.reach.since
}

// Outage returns when the database answered last, and the latest failure to reach it, if a
// flow of this store has met one since; otherwise the zero time. One failure may be a blip:
// the database is away when Ping fails as well. It is safe for concurrent use.
func (s Server) Outage() (since time.Time, failed error) {
	return s.db.reach.outage()
}

func (r *reach) outage() (since time.Time, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.broken {
		return time.Time{}, nil
	}
	return r.last, Redact(r.failed)
}
