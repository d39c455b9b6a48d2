package engine

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Room in the slots: how many steps may be claimed, and when the next look is due.

// room returns how many steps may be claimed now. Without room a look is owed.
func (s *slots) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomLocked()
	s.owed, s.owedPermit = room == 0 && !s.draining, false
	return room
}

// beyond returns how many of so many claims would not begin at once.
func (s *slots) beyond(claims int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(claims-s.freeLocked(), 0)
}

// freeLocked returns how many claims would begin at once.
func (s *slots) freeLocked() int {
	return max(s.limit-len(s.running)-len(s.waiting)-s.promised, 0)
}

// atOnce returns how many of so many claims would begin at once. If none would, a look is
// owed as soon as a permit is free.
func (s *slots) atOnce(claims int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.freeLocked()
	s.owedPermit = free == 0 && !s.draining
	return min(claims, free)
}

func (s *slots) roomLocked() int {
	if s.draining || s.in[phaseReporting] >= s.maxPending {
		return 0
	}
	over := s.in[phaseYielding] + len(s.yielded) - s.asideLocked()
	return max(s.limit+s.aheadLocked()-len(s.running)-len(s.waiting)-s.promised-over, 0)
}

// setLimit changes the number of permits. Handlers beyond a smaller one keep theirs.
func (s *slots) setLimit(limit int) follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.owed = limit, s.owed || limit > s.limit && !s.draining
	return s.followsLocked(time.Now())
}

// owe records that there is more to claim than there was room for, and reports whether
// there is room again already.
func (s *slots) owe() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.owed = true
	return s.payLocked()
}

// oweAtEnd records that a look is due when something ends: it may make room under a limit.
func (s *slots) oweAtEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owedPermit = !s.draining
}

// payLocked reports whether the owed look should happen now.
func (s *slots) payLocked() bool {
	// Half of the steps claimed ahead run before the next claim: claims of one step each
	// would cost as much as claims of many.
	due := s.owed && len(s.waiting) <= s.aheadLocked()/2 || s.owedPermit && s.freeLocked() > 0
	if !due || s.roomLocked() == 0 {
		return false
	}
	s.owed, s.owedPermit = false, false
	return true
}

// promise reserves permits for up to want steps that are claimed on creation, and returns
// their number. Such steps bypass the steps that wait on the board, so there must be
// none: the latest look found less than it asked for, and no other is due.
func (s *slots) promise(want int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dry || s.owed || s.owedPermit || len(s.waiting)+s.in[phaseYielding]+len(s.yielded) > 0 || s.draining || s.in[phaseReporting] >= s.maxPending {
		return 0
	}
	room := min(want, max(s.limit-len(s.running)-s.promised, 0))
	s.promised += room
	return room
}

// looked records whether a look has left nothing visible on the board. It reports whether
// the look before had left nothing either: then the found steps are new since, or were
// missed.
func (s *slots) looked(dry bool) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.dry = s.dry, dry
	return before
}

// keep ends a promise: the steps claimed for it are about to be added.
func (s *slots) keep(room int) follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promised -= room
	return s.followsLocked(time.Now())
}

// Usage is a snapshot of the slots.
type Usage struct {
	Running   int // permits taken, zombies included
	Waiting   int // claims without a permit
	Reporting int // outcomes under way to the database
	Yielding  int // checkpoints under way to the database, of steps that run again
	Zombies   int // handlers still running after their end was reported or lost
}

// Usage returns the state of the permits and claims.
func (e *Engine) Usage() Usage { return e.slots.usage() }

func (s *slots) usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usageLocked()
}

func (s *slots) usageLocked() Usage {
	return Usage{Running: len(s.running), Waiting: len(s.waiting) + len(s.yielded), Reporting: s.in[phaseReporting],
		Yielding: s.in[phaseYielding], Zombies: s.zombies}
}

// RunningStep is a step whose handler runs.
type RunningStep struct {
	TaskUUID uuid.UUID     `json:"task_uuid"`
	StepUUID uuid.UUID     `json:"step_uuid"`
	Name     string        `json:"name"` // namespace/task/step
	Attempt  int           `json:"attempt"`
	Running  time.Duration `json:"running_ns"`
	Zombie   bool          `json:"zombie,omitempty"`
	Fraction float64       `json:"progress"`
	Message  string        `json:"message,omitempty"`
}

// Steps lists up to limit steps whose handlers run, the oldest first.
func (e *Engine) Steps(limit int) []RunningStep {
	s := e.slots
	s.mu.Lock()
	all := slices.Clone(s.running)
	slices.SortFunc(all, func(a, b *Execution) int { return a.began.Compare(b.began) })
	all = all[:min(len(all), limit)]
	steps := make([]RunningStep, len(all))
	for i, x := range all {
		steps[i] = RunningStep{TaskUUID: x.Key.TaskUUID, StepUUID: x.Claim.StepUUID(), Name: x.name(),
			Attempt: x.Claim.Attempt, Running: time.Since(x.began), Zombie: x.zombie}
	}
	s.mu.Unlock()
	for i, x := range all {
		steps[i].Fraction, steps[i].Message = x.Progress.Get()
	}
	return steps
}

// name requires the lock.
func (x *Execution) name() string {
	if x.job == nil {
		return ""
	}
	return x.job.name
}
