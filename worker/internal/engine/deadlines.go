package engine

import "time"

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

// close stops the watch and ends the contexts of running executions.
func (s *slots) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlines.stopped = true
	if s.deadlines.timer != nil {
		s.deadlines.timer.Stop()
	}
	for _, x := range s.running {
		x.Ctx.end(cause)
	}
}
