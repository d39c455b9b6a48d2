package worker

import (
	"slices"
	"time"
)

// usage is a snapshot of the slots.
type usage struct {
	running   int // permits taken, zombies included
	waiting   int // claims without a permit
	reporting int // outcomes under way to the database
	yielding  int // checkpoints under way to the database, of steps that run again
	zombies   int // handlers still running after their end was reported or lost
}

func (s *slots) usage() usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usageLocked()
}

func (s *slots) usageLocked() usage {
	return usage{running: len(s.running), waiting: len(s.waiting) + len(s.yielded), reporting: s.in[phaseReporting], yielding: s.in[phaseYielding], zombies: s.zombies}
}

// steps lists up to limit executions that have a permit, the oldest first.
func (s *slots) steps(limit int) []RunningStep {
	s.mu.Lock()
	all := slices.Clone(s.running)
	slices.SortFunc(all, func(a, b *execution) int { return a.began.Compare(b.began) })
	all = all[:min(len(all), limit)]
	steps := make([]RunningStep, len(all))
	for i, x := range all {
		steps[i] = RunningStep{TaskUUID: x.key.TaskUUID, StepUUID: x.claim.StepUUID(), Name: x.name(),
			Attempt: x.claim.Attempt, Running: time.Since(x.began), Zombie: x.zombie}
	}
	s.mu.Unlock()
	for i, x := range all {
		steps[i].Fraction, steps[i].Message = x.progress.get()
	}
	return steps
}

// name requires the lock.
func (x *execution) name() string {
	if x.job == nil {
		return ""
	}
	return x.job.name
}
