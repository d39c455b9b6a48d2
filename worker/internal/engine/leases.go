package engine

import (
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/store"
)

// Leases in the slots: which claims to extend, and what follows from lost ones.

// held lists the claims to extend.
func (s *slots) held() []store.ClaimKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]store.ClaimKey, 0, len(s.claims))
	for _, x := range s.claims {
		if !x.forsaken.Load() {
			keys = append(keys, x.Key)
		}
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
			s.outlivedLocked(x)
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

// deadlines watches the time limits of all executions with one timer: it is set to the
// earliest limit not yet handled, so under load it hardly ever moves. Its fields are
// guarded by the slots' lock.
type deadlines struct {
	timer   *time.Timer
	at      time.Time // when the timer fires; zero: not set
	passed  func()    // called in its own goroutine when limits may have passed; must not panic
	stopped bool
}

// Watch ensures that passed is called at a deadline.
func (d *deadlines) watch(at, now time.Time) {
	if d.stopped || !d.at.IsZero() && !at.Before(d.at) {
		return
	}
	d.at = at
	if d.timer == nil {
		d.timer = time.AfterFunc(at.Sub(now), d.passed)
		return
	}
	d.timer.Reset(at.Sub(now))
}

// overdue ends the executions whose time limit has passed and returns those to report.
// Their permits come back when their handlers return.
func (s *slots) overdue(now time.Time) (late []*Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlines.at = time.Time{}
	var next time.Time
	for _, x := range s.running {
		switch {
		case x.phase != phaseRunning || x.deadline.IsZero():
		case x.deadline.After(now):
			if next.IsZero() || x.deadline.Before(next) {
				next = x.deadline
			}
		case x.Ctx.expire(): // else its context has ended already, for another reason
			s.zombieLocked(x, true)
			s.move(x, phaseRunning, phaseReporting)
			late = append(late, x)
		}
	}
	if !next.IsZero() {
		s.deadlines.watch(next, now)
	}
	return late
}

// watchAgainAfter is the delay after a failed look at the deadlines.
const watchAgainAfter = time.Second

// watchAgain schedules another look at the deadlines after a failed one.
func (s *slots) watchAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.deadlines.watch(now.Add(watchAgainAfter), now)
}

// limitLocked starts the time limit of a handler.
func (s *slots) limitLocked(x *Execution, now time.Time) {
	x.deadline = now.Add(x.job.limit)
	x.Ctx.limit(x.deadline)
	s.deadlines.watch(x.deadline, now)
}

// waits has the time of an execution that has a permit start anew: when it does not wait any
// more for the goroutine that runs it; nil: nothing.
func (s *slots) waits(x *Execution, still bool) {
	if x == nil {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch x.began = now; {
	case x.job == nil:
	case still:
		x.deadline = time.Time{}
		x.Ctx.limit(x.deadline)
	default:
		s.limitLocked(x, now)
	}
}

// close stops the watch and ends the contexts of running executions.
func (s *slots) close(cause error) {
	s.mu.Lock()
	s.deadlines.stopped = true
	if s.deadlines.timer != nil {
		s.deadlines.timer.Stop()
	}
	s.mu.Unlock()
	s.cancelAll(cause)
}
