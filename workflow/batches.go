package workflow

import "slices"

// The failure strategies of batches (batch_config.failure_strategy). Handlers get the
// strategy too, for the items inside a batch.
const (
	// FailFast cancels the other batches when one fails for good.
	FailFast = "fail_fast"
	// ContinueOnFailure lets the others end; then the group fails, unless the template
	// tolerates as many failures.
	ContinueOnFailure = "continue_on_failure"
	// IsolateFailed lets the others end and continues without the failed ones, unless the
	// template limits their number.
	IsolateFailed = "isolate"
)

// releaseBatches counts down the parents of a worker's batches, which come on the board
// with advanceGroups.
func (a *advancing) releaseBatches(template int) {
	g := a.progress.groupOf(template)
	if g == nil {
		return
	}
	for no := g.First; no < g.First+g.Count; no++ {
		if s := &a.progress.Steps[no]; s.Status == StatusWaiting && s.Remaining > 0 {
			s.Remaining--
		}
	}
}

// advanceGroups advances groups of batches: it puts as many on the board as allowed and,
// when all have ended, releases the steps that follow.
func (a *advancing) advanceGroups() {
	// By index: advancing one may not change the list, but members move.
	for i := range a.progress.Groups {
		if g := &a.progress.Groups[i]; !g.Settled {
			a.advanceGroup(g)
		}
	}
}

func (a *advancing) advanceGroup(g *Group) {
	step := &a.plan.Steps[g.Template]
	members := a.progress.Steps[g.First : g.First+g.Count]
	var n Tally
	for i := range members {
		n.count(members[i].Status)
	}
	if n.Waiting+n.OnBoard+n.Scheduled > 0 && step.FailureStrategy() == FailFast && a.failsNow(g) {
		a.callOffBatches(g)
		return
	}
	if n.Waiting+n.OnBoard+n.Scheduled > 0 {
		a.putBatches(g, a.parallel(step)-n.OnBoard-n.Scheduled)
		return
	}
	if n.Cancelled > 0 || !step.tolerates(n.Error, g.Count) {
		return // it waits for an operator, or the task ends
	}
	g.Settled = true
	for i := range members {
		if members[i].Status == StatusError {
			members[i].Status = StatusTolerated
		}
	}
	a.release(step)
}

// failsNow reports whether a batch of the group fails for good in this decision; an
// earlier failure does not cancel batches that an operator brought back.
func (a *advancing) failsNow(g *Group) bool {
	return slices.ContainsFunc(a.effects.End, func(e EndStep) bool { return e.Outcome == OutcomeError && g.Has(e.Step) })
}

// putBatches puts the next batches on the board, up to room.
func (a *advancing) putBatches(g *Group, room int) {
	for no := g.First; no < g.First+g.Count && room > 0; no++ {
		if s := &a.progress.Steps[no]; s.Status == StatusWaiting && s.Remaining == 0 {
			a.put(no, 0)
			room--
		}
	}
}

// parallel is how many batches of a step may be on the board at once.
func (a *advancing) parallel(step *PlanStep) int {
	limit := a.rules.MaxParallelBatches
	if step.Batch != nil && step.Batch.Parallelism > 0 && (limit <= 0 || step.Batch.Parallelism < limit) {
		limit = step.Batch.Parallelism
	}
	if limit <= 0 {
		return MaxStepNumber
	}
	return limit
}

// callOffBatches cancels the batches that have not ended.
func (a *advancing) callOffBatches(g *Group) {
	for no := g.First; no < g.First+g.Count; no++ {
		s := &a.progress.Steps[no]
		if s.Status == StatusOnBoard || s.Status == StatusScheduled {
			a.takeOff(no)
		}
		if !s.Status.Ended() {
			s.Status = StatusCancelled
		}
	}
}

// FailureStrategy says what happens to the other batches when one fails for good.
func (s *PlanStep) FailureStrategy() string {
	if s.Batch == nil || s.Batch.FailureStrategy == "" {
		return FailFast
	}
	return s.Batch.FailureStrategy
}

// tolerates reports whether the steps after a group may run although some of its batches
// have failed.
func (s *PlanStep) tolerates(failed, count int) bool {
	switch b := s.Batch; {
	case failed == 0:
		return true
	case b == nil:
		return false
	case b.MaxFailedWorkers != nil && failed > *b.MaxFailedWorkers:
		return false
	case b.MinSuccessRatio != nil && float64(count-failed) < *b.MinSuccessRatio*float64(count):
		return false
	case b.MaxFailedWorkers == nil && b.MinSuccessRatio == nil:
		return s.FailureStrategy() == IsolateFailed && failed < count
	default:
		return s.FailureStrategy() != FailFast
	}
}
