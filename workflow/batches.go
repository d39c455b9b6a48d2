package workflow

import (
	"encoding/binary"
	"fmt"
	"slices"
)

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
	var n [statusCount]int
	for i := range members {
		n[members[i].Status]++
	}
	onBoard := n[StatusOnBoard] + n[StatusScheduled]
	switch alive := onBoard+n[StatusWaiting] > 0; {
	case alive && step.FailureStrategy() == FailFast && a.failsNow(g):
		for no := g.First; no < g.First+g.Count; no++ {
			a.callOffStep(no)
		}
		return
	case alive:
		a.putBatches(g, a.parallel(step)-onBoard)
		return
	case n[StatusCancelled] > 0 || !step.tolerates(n[StatusError]+n[StatusTolerated], g.Count):
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

// Group is the batches that one batchable step has made: instances of a batch worker with
// consecutive numbers after the steps of the plan.
type Group struct {
	Batchable int // the step that made it
	Template  int // the step of the plan that its members are instances of
	First     int // the number of the first member
	Count     int // at least 1
	// Settled says that the group completed: every member has ended, and no more have
	// failed than tolerated.
	Settled bool
}

// Has reports whether a step is a member.
func (g *Group) Has(no int) bool { return no >= g.First && no < g.First+g.Count }

// MaxStepNumber bounds the numbers of all steps of a task, those created at run
// time included: a step's row of the board is numbered by a smallint.
const MaxStepNumber = 32_000

func encodeGroups(b []byte, groups []Group) {
	for i := range groups {
		g, e := &groups[i], b[i*progressPerGroup:][:progressPerGroup]
		binary.BigEndian.PutUint16(e, uint16(g.Batchable))    // #nosec G115 -- at most MaxStepNumber, as all of them
		binary.BigEndian.PutUint16(e[2:], uint16(g.Template)) // #nosec G115
		binary.BigEndian.PutUint16(e[4:], uint16(g.First))    // #nosec G115
		binary.BigEndian.PutUint16(e[6:], uint16(g.Count))    // #nosec G115
		var settled uint16
		if g.Settled {
			settled = 1
		}
		binary.BigEndian.PutUint16(e[8:], settled)
	}
}

func decodeGroups(b []byte, count, steps int) ([]Group, error) {
	if count == 0 {
		return nil, nil
	}
	groups := make([]Group, count)
	for i := range groups {
		e := b[i*progressPerGroup:][:progressPerGroup]
		g := Group{
			Batchable: int(binary.BigEndian.Uint16(e)), Template: int(binary.BigEndian.Uint16(e[2:])),
			First: int(binary.BigEndian.Uint16(e[4:])), Count: int(binary.BigEndian.Uint16(e[6:])),
			Settled: binary.BigEndian.Uint16(e[8:]) == 1,
		}
		if g.Count == 0 || g.First+g.Count > steps || e[8] != 0 || e[9] > 1 {
			return nil, fmt.Errorf("progress has a group of steps %d to %d among %d", g.First, g.First+g.Count-1, steps)
		}
		groups[i] = g
	}
	return groups, nil
}

// fits reports whether a progress can belong to a task of the plan.
func (g *Progress) fits(p *Plan) bool {
	if len(g.Steps) < len(p.Steps) {
		return false
	}
	for i := range g.Groups {
		if x := &g.Groups[i]; x.First < len(p.Steps) || x.Template >= len(p.Steps) || x.Batchable >= len(p.Steps) {
			return false
		}
	}
	return true
}

// Group returns the group that a step is a member of.
func (g *Progress) Group(no int) (*Group, bool) {
	for i := range g.Groups {
		if g.Groups[i].Has(no) {
			return &g.Groups[i], true
		}
	}
	return nil, false
}

// groupOf returns the group of instances of a batch worker of the plan.
func (g *Progress) groupOf(template int) *Group {
	for i := range g.Groups {
		if g.Groups[i].Template == template {
			return &g.Groups[i]
		}
	}
	return nil
}

// ParentsOf returns the steps whose results a step gets with its claim: its existing parents
// that are steps of the plan. A batch does not get the result of the step that made it: that
// describes all batches, and would be sent with each. A nil progress is that of a new task.
func (p *Plan) ParentsOf(progress *Progress, no int) []int {
	step := p.Step(progress, no)
	if step.Initial || progress == nil {
		return step.Parents
	}
	parents := make([]int, 0, len(step.Parents))
	for _, parent := range step.Parents {
		if progress.Steps[parent].Status != StatusNotCreated && (step.Kind != KindBatchWorker || p.Steps[parent].Kind != KindBatchable) {
			parents = append(parents, parent)
		}
	}
	return parents
}

// Step returns the plan step of a step of a task: itself, or for a step created at run time
// the one that it is an instance of; nil for an unknown or forgotten number.
func (p *Plan) Step(progress *Progress, no int) *PlanStep {
	if no >= 0 && no < len(p.Steps) {
		return &p.Steps[no]
	}
	if g, ok := progress.Group(no); ok {
		return &p.Steps[g.Template]
	}
	return nil
}

// The numbers of forgotten batches are reused, so that a step that makes batches can run any
// number of times: with first fit, a task of n workers with at most c batches each needs no
// more than (2n-1)c numbers after those of its plan, however often they run. The records
// show by other means which batch had a number when, see store.
//
// The entries of forgotten batches stay in the progress, empty. A program that only appends
// takes the next number after them, which was never used either.

// place chooses the numbers of a group: the first free consecutive ones after those of the
// plan. The error is for the author of the handler.
func (a *advancing) place(g *Group) (first int, err error) {
	taken := slices.Concat(a.progress.Groups, a.forgotten)
	if len(a.progress.Groups) == maxGroups {
		return 0, fmt.Errorf("the task has batches of %d steps; there cannot be more", maxGroups)
	}
	if a.rules.BatchesAt != nil {
		return a.placed(g, taken)
	}
	slices.SortFunc(taken, func(x, y Group) int { return x.First - y.First })
	first = len(a.plan.Steps)
	for i := range taken {
		if taken[i].First-first >= g.Count {
			break
		}
		first = max(first, taken[i].First+taken[i].Count)
	}
	if first+g.Count > MaxStepNumber {
		return 0, fmt.Errorf("%d batches are asked for; the task has no room for so many among its %d numbers", g.Count, MaxStepNumber)
	}
	return first, nil
}

// placed returns where a group was placed at the time.
func (a *advancing) placed(g *Group, taken []Group) (int, error) {
	first, err := a.rules.BatchesAt(g.Template, g.Count)
	if err != nil {
		return 0, err
	}
	for i := range taken {
		if x := &taken[i]; first < x.First+x.Count && x.First < first+g.Count {
			return 0, fmt.Errorf("batches were numbered %d to %d, among them the %d to %d of others", first, first+g.Count-1, x.First, x.First+x.Count-1)
		}
	}
	if first < len(a.plan.Steps) || first+g.Count > MaxStepNumber {
		return 0, fmt.Errorf("batches were numbered %d to %d: want %d to %d", first, first+g.Count-1, len(a.plan.Steps), MaxStepNumber-1)
	}
	return first, nil
}

// occupy gives the members of a group their entries.
func (g *Progress) occupy(group *Group, entry StepProgress) {
	end := group.First + group.Count
	if more := end - len(g.Steps); more > 0 {
		g.Steps = append(g.Steps, make([]StepProgress, more)...)
	}
	for no := group.First; no < end; no++ {
		g.Steps[no] = entry
	}
}
