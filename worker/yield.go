package worker

import "time"

// What the slots know of executions that have yielded. Such a one gives its
// permit back and keeps its claim; once its checkpoint is saved another
// execution of the same claim gets in line, behind everything that waits for a
// permit. What waits on the board comes before it too, if there is anything: the
// look that its permit pays for is made first.

// yieldLocked is the end of an execution that wants to go on; it reports
// whether its checkpoint is to be saved. After the loss of the claim or the
// time limit nobody goes on from it.
func (s *slots) yieldLocked(x *execution) bool {
	if x.phase != phaseRunning {
		return false
	}
	x.phase = phaseYielding
	s.yielding++
	return true
}

// endYieldLocked ends the saving of a checkpoint, unless the claim was given up
// meanwhile.
func (s *slots) endYieldLocked(x *execution) bool {
	if x.phase != phaseYielding || s.claims[x.key.Token] != x {
		return false
	}
	s.yielding--
	s.changedLocked()
	return true
}

// goOn puts next in the place of x, which has yielded and whose checkpoint is
// saved, and returns what begins at once. While draining nothing does.
func (s *slots) goOn(x, next *execution) (begin []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.endYieldLocked(x) {
		return nil
	}
	now := time.Now()
	x.phase = phaseGone
	next.since = now
	if x.leaseEnd.After(next.leaseEnd) { // a heartbeat came after the checkpoint
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

// beginLocked gives out the permits there are.
func (s *slots) beginLocked(now time.Time) (begin []*execution) {
	for x := s.nextLocked(now); x != nil; x = s.nextLocked(now) {
		begin = append(begin, x)
	}
	return begin
}

// giveUp ends an execution whose checkpoint was refused: its claim is lost.
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

// letOthersFirst keeps what has yielded from going on until the next look has
// ended.
func (s *slots) letOthersFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = true
}

// awaited reports whether what has yielded waits for the look that begins now.
func (s *slots) awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookFirst
}

// resume puts what has yielded in line, and returns what begins at once.
func (s *slots) resume() (begin []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = false
	s.waiting = append(s.waiting, s.yielded...)
	s.yielded = nil
	return s.beginLocked(time.Now())
}

// resume is the slots', after a look; the heartbeat is its net.
func (e *engine) resume() {
	for _, x := range e.slots.resume() {
		e.start(x)
	}
}

// asideLocked is how many of the claims in hand keep no room from others: what
// has yielded and is being saved, as many as there are permits at most.
func (s *slots) asideLocked() int {
	return min(s.yielding+len(s.yielded), s.limit)
}
