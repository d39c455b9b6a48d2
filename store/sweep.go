package store

import (
	"sync"
	"time"
)

const (
	// sweepSlack is how far behind the moment before last a look at what is due
	// begins: a transaction that set a time may commit later.
	sweepSlack = 10 * time.Second
	// sweepWhole is how often such a look begins at the beginning, should
	// something have committed later still.
	sweepWhole = time.Minute
)

// sweep is the low-water mark of due times and leases. New ones are never in
// the past, so a look that saw all that was due then need not be repeated: it
// would walk over whatever is dead since the oldest snapshot began. The zero
// value begins at the beginning.
type sweep struct {
	mu     sync.Mutex
	floor  *time.Time // by the database's clock; nil: from the beginning
	last   *time.Time // of the latest look
	before *time.Time // of the one before
	whole  time.Time  // by our clock; when a look began at the beginning
}

// begin is where a look begins; nil is the beginning.
func (s *sweep) begin(now time.Time) *time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = nil
	if s.before != nil && now.Sub(s.whole) < sweepWhole {
		from := s.before.Add(-sweepSlack)
		s.floor = &from
	} else {
		s.whole = now
	}
	return s.floor
}

// from is where the latest look began: what it has found is found there again.
func (s *sweep) from() *time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floor
}

// looked notes that a look was made at a moment by the database's clock.
func (s *sweep) looked(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.last = s.last, &at
}
