package worker

import "time"

// deadlines watches the time limits of all executions with one timer: it is
// set for the earliest that was ever asked for and not seen to yet, so under
// load it hardly ever moves. Its fields are guarded by the slots' lock.
type deadlines struct {
	timer   *time.Timer
	at      time.Time // what timer is set for; zero: it is not
	passed  func()    // called in a goroutine of its own when some may have passed; it must not panic
	stopped bool
}

// watch sees to it that passed is called at a deadline.
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

// overdue ends the executions whose time limit has passed and returns those to
// report. Their permits come back when their handlers have really ended.
func (s *slots) overdue(now time.Time) (late []*execution) {
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
		case x.life.expire(): // else it was told to end before, which is why it will
			s.zombieLocked(x)
			s.settleLocked(x, false)
			late = append(late, x)
		}
	}
	if !next.IsZero() {
		s.deadlines.watch(next, now)
	}
	return late
}

// watchAgainAfter is the pause after a look at the deadlines that failed.
const watchAgainAfter = time.Second

// watchAgain has the deadlines looked at again after a look that failed.
func (s *slots) watchAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.deadlines.watch(now.Add(watchAgainAfter), now)
}

// limitLocked begins the time of a handler.
func (s *slots) limitLocked(x *execution, now time.Time) {
	x.deadline = now.Add(x.job.limit)
	x.life.limit(x.deadline)
	s.deadlines.watch(x.deadline, now)
}

// close ends the watching of deadlines and the contexts of what still runs.
func (s *slots) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlines.stopped = true
	if s.deadlines.timer != nil {
		s.deadlines.timer.Stop()
	}
	for _, x := range s.running {
		x.life.end(cause)
	}
}
