package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

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
}

// note records how a flow ended, at now.
func (r *reach) note(err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case outOfReach(err):
		r.broken = true
	case err != nil:
	default:
		if r.broken && now.Sub(r.last) >= shortOutage {
			r.since = now
		}
		r.last, r.broken = now, false
	}
}

// outOfReach reports whether an error means a broken connection, a failed one, or no
// answer at all. A statement that the server ended because it took too long does not
// count.
func outOfReach(err error) bool {
	var dead *connectionLost
	var connect *pgconn.ConnectError
	return !errors.Is(err, context.Canceled) && (errors.As(err, &dead) || errors.As(err, &connect) || errors.Is(err, context.DeadlineExceeded))
}

// ReachedSince returns since when the database has answered without an outage of a second
// or more, as far as the flows of this store have met one; otherwise when the store was
// opened. It is safe for concurrent use.
func (s *Store) ReachedSince() time.Time {
	s.reach.mu.Lock()
	defer s.reach.mu.Unlock()
	return s.reach.since
}
