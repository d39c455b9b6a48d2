package engine

import "time"

// Yielded executions in the slots. A yielded execution frees its permit and keeps its
// claim; after its checkpoint is saved another execution of the same claim is enqueued
// behind all that wait for a permit. Steps on the board come before it too: the look that
// its permit pays for is made first.

// goOn replaces x, which has yielded and whose checkpoint is saved, by next, unless the
// claim was given up in the meantime. Nothing begins while draining.
func (s *slots) goOn(x, next *Execution) (f follows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.move(x, phaseYielding, phaseGone) {
		return f
	}
	now := time.Now()
	if x.leaseEnd.After(next.leaseEnd) { // extended by a heartbeat after the checkpoint
		next.leaseEnd = x.leaseEnd
	}
	s.holdLocked(next, now)
	if s.lookFirst && !s.draining {
		s.yielded = append(s.yielded, next)
		return f
	}
	s.waiting = append(s.waiting, next)
	return s.followsLocked(now)
}

// endYield ends an execution whose checkpoint was not saved: its claim is lost, or it is
// to be reported as failed. It returns false if the claim was given up in the meantime.
func (s *slots) endYield(x *Execution, to phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.move(x, phaseYielding, to)
}

// letOthersFirst keeps yielded steps waiting until the next look has ended.
func (s *slots) letOthersFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = true
}

// awaited reports whether yielded steps wait for the look that begins now.
func (s *slots) awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookFirst
}

// resume enqueues the yielded steps.
func (s *slots) resume() follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = false
	s.waiting = append(s.waiting, s.yielded...)
	s.yielded = nil
	return s.followsLocked(time.Now())
}

// asideLocked returns how many held claims take no room: yielded ones that are being
// saved, at most as many as there are permits.
func (s *slots) asideLocked() int {
	return min(s.in[phaseYielding]+len(s.yielded), s.limit)
}
