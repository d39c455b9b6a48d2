package engine

import (
	"slices"
	"time"

	"github.com/tasker-go/tasker/store"
)

// Leases in the slots: which claims to extend, and what follows from lost ones.

// held lists the claims to extend.
func (s *slots) held() []store.ClaimKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]store.ClaimKey, 0, len(s.claims))
	for _, x := range s.claims {
		keys = append(keys, x.Key)
	}
	return keys
}

// extended records that the leases of claims end no earlier than at end.
func (s *slots) extended(keys []store.ClaimKey, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if x := s.claims[k.Token]; x != nil {
			x.leaseEnd = end
		}
	}
}

// lose gives up the claims with the given tokens and ends their handlers. A claim whose
// outcome is being reported is left to the report: it may have been accepted already,
// which looks the same here. A yielded one is left to its checkpoint, and one being
// handed back to that answer.
func (s *slots) lose(tokens []int64) (lost []*Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range tokens {
		if x := s.claims[token]; x != nil && s.loseLocked(x) {
			lost = append(lost, x)
		}
	}
	return lost
}

// expire gives up the claims whose leases ended more than grace ago, and returns the time
// until the next one; negative without one.
func (s *slots) expire(now time.Time, grace time.Duration) (lost []*Execution, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = -1
	for _, x := range s.claims {
		if x.phase != phaseWaiting && x.phase != phaseRunning {
			continue
		}
		left := x.leaseEnd.Add(grace).Sub(now)
		if left <= 0 {
			s.loseLocked(x)
			lost = append(lost, x)
		} else if next < 0 || left < next {
			next = left
		}
	}
	return lost, next
}

func (s *slots) loseLocked(x *Execution) bool {
	switch {
	case s.move(x, phaseWaiting, phaseLost):
		is := func(w *Execution) bool { return w == x }
		s.waiting, s.yielded = slices.DeleteFunc(s.waiting, is), slices.DeleteFunc(s.yielded, is)
	case s.move(x, phaseRunning, phaseLost):
		s.zombieLocked(x, true)
		x.Ctx.end(ErrLeaseLost)
	default:
		return false
	}
	return true
}
