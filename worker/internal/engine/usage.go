package engine

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

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
	TaskUUID uuid.UUID
	StepUUID uuid.UUID
	Name     string // namespace/task/step
	Attempt  int
	Running  time.Duration
	Zombie   bool
	Fraction float64
	Message  string
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
