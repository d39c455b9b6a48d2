package worker

import "time"

// Yielded executions in the slots. A yielded execution frees its permit and keeps its
// claim; after its checkpoint is saved another execution of the same claim is enqueued
// behind all that wait for a permit. Steps on the board come before it too: the look that
// its permit pays for is made first.

// yieldLocked ends an execution that yields; it reports whether its checkpoint is to be
// saved: not after the loss of the claim or the time limit.
func (s *slots) yieldLocked(x *execution) bool {
	if x.phase != phaseRunning {
		return false
	}
	x.phase = phaseYielding
	s.yielding++
	return true
}

// endYieldLocked ends the saving of a checkpoint, unless the claim was given up in the
// meantime.
func (s *slots) endYieldLocked(x *execution) bool {
	if x.phase != phaseYielding || s.claims[x.key.Token] != x {
		return false
	}
	s.yielding--
	s.changedLocked()
	return true
}

// goOn replaces x, which has yielded and whose checkpoint is saved, by next and returns
// what begins at once: nothing while draining.
func (s *slots) goOn(x, next *execution) (begin []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.endYieldLocked(x) {
		return nil
	}
	now := time.Now()
	x.phase = phaseGone
	next.since = now
	if x.leaseEnd.After(next.leaseEnd) { // extended by a heartbeat after the checkpoint
		next.leaseEnd = x.leaseEnd
	}
	s.claims[next.key.Token] = next
	if s.lookFirst && !s.draining {
		s.yielded = append(s.yielded, next)
		return nil
	}
	s.waiting = append(s.waiting, next)
	return s.beginLocked(now)
}

// beginLocked assigns the free permits.
func (s *slots) beginLocked(now time.Time) (begin []*execution) {
	for x := s.nextLocked(now); x != nil; x = s.nextLocked(now) {
		begin = append(begin, x)
	}
	return begin
}

// giveUp ends an execution whose checkpoint was rejected: its claim is lost.
func (s *slots) giveUp(x *execution) []*execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.endYieldLocked(x) {
		return nil
	}
	x.phase, x.lost = phaseGone, true
	delete(s.claims, x.key.Token)
	return []*execution{x}
}

// failYield turns a yield into an outcome to report.
func (s *slots) failYield(x *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.endYieldLocked(x) {
		return false
	}
	x.phase = phaseReporting
	s.reporting++
	return true
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

// resume enqueues the yielded steps and returns what begins at once.
func (s *slots) resume() (begin []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = false
	s.waiting = append(s.waiting, s.yielded...)
	s.yielded = nil
	return s.beginLocked(time.Now())
}

// resume calls the slots' after a look; the heartbeat is its fallback.
func (e *engine) resume() {
	for _, x := range e.slots.resume() {
		e.start(x)
	}
}

// asideLocked returns how many held claims take no room: yielded ones that are being
// saved, at most as many as there are permits.
func (s *slots) asideLocked() int {
	return min(s.yielding+len(s.yielded), s.limit)
}
