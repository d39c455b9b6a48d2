package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// reasonInvalidOutcome is the prefix of the reason of a decision or a batchable step whose
// result asks for impossible steps; the rest says why.
const reasonInvalidOutcome = "invalid_outcome"

// Unfolds reports whether the result of a step of this kind creates steps.
func (k StepKind) Unfolds() bool { return k == KindDecision || k == KindBatchable }

// joinsExisting reports whether the step waits for its existing parents instead of all.
func (s *PlanStep) joinsExisting() bool {
	return s.Kind == KindDeferredConvergence || s.Join == JoinExisting
}

// unfolding computes which steps an outcome creates. It goes through the plan in the order
// of numbers, in which parents come first.
//
// A step that does not exist yet is either possible or ruled out: the decisions that lead to
// it have ended without it. A join of existing parents waits for a possible parent, and
// ignores one that is ruled out.
type unfolding struct {
	plan     *Plan
	progress *Progress
	by       *PlanStep // the step of the outcome; nil: only the present state is needed
	named    []int     // the choice of a decision
	made     *Group    // made by a batchable step

	exists   []bool
	possible []bool // does not exist, and can still be created
	below    []bool // depends on by, directly or not
	branch   []bool // the same, through plain steps only
	created  []int
	odd      string // how the outcome should have been written
}

func newUnfolding(plan *Plan, progress *Progress) *unfolding {
	n := len(plan.Steps)
	flags := make([]bool, 4*n)
	u := &unfolding{plan: plan, progress: progress,
		exists: flags[:n:n], possible: flags[n : 2*n : 2*n], below: flags[2*n : 3*n : 3*n], branch: flags[3*n:]}
	for no := range plan.Steps {
		u.exists[no] = progress.Steps[no].Status != StatusNotCreated
	}
	for i := range progress.Groups {
		u.exists[progress.Groups[i].Template] = true
	}
	return u
}

// run computes what exists afterwards and what is still possible. Its error is for the
// author of the template or the handler.
func (u *unfolding) run() error {
	if u.by != nil {
		u.below[u.by.No], u.branch[u.by.No] = true, true
		if u.made != nil {
			u.exists[u.made.Template] = true
		}
	}
	for no := range u.plan.Steps {
		s := &u.plan.Steps[no]
		if u.by != nil && no != u.by.No {
			u.below[no] = slices.ContainsFunc(s.Parents, func(p int) bool { return u.below[p] })
			u.branch[no] = s.Kind == KindStandard && !s.joinsExisting() && slices.ContainsFunc(s.Parents, func(p int) bool { return u.branch[p] })
		}
		if u.exists[no] {
			continue
		}
		if u.by != nil && u.below[no] {
			create, err := u.creates(s)
			if err != nil {
				return err
			}
			if create {
				u.exists[no] = true
				u.created = append(u.created, no)
				continue
			}
		}
		u.possible[no] = u.canCome(s)
	}
	return nil
}

// undecided reports whether the outcome of a step may still create others.
func (u *unfolding) undecided(no int) bool {
	return u.plan.Steps[no].Kind.Unfolds() && u.exists[no] && !u.progress.Steps[no].Status.satisfies() && (u.by == nil || no != u.by.No)
}

// creates reports whether the outcome creates a step that depends on it.
func (u *unfolding) creates(s *PlanStep) (bool, error) {
	chosen := slices.Contains(u.named, s.No)
	switch {
	case s.Kind == KindBatchWorker, s.Kind == KindCompensation:
		return false, nil // only its instances exist, or it is created when the task ends badly
	case s.joinsExisting():
		return chosen || slices.ContainsFunc(s.Parents, func(p int) bool { return u.exists[p] }) || u.joinsNothing(s), nil
	}
	missing := slices.IndexFunc(s.Parents, func(p int) bool { return !u.exists[p] })
	if chosen && missing >= 0 {
		return false, fmt.Errorf("step %q cannot be created without %q, which it depends on", s.Name, u.plan.Steps[s.Parents[missing]].Name)
	}
	if u.decidedBy(s) {
		return chosen, nil
	}
	if missing < 0 {
		return true, nil
	}
	return false, u.unsatisfiable(s)
}

// joinsNothing reports whether a join follows a decision for no branches: then the decision
// alone satisfies it. Behind a branch with decisions or batches of its own, the join belongs
// to those.
func (u *unfolding) joinsNothing(s *PlanStep) bool {
	if len(u.named) > 0 || u.made != nil || u.by.Kind != KindDecision {
		return false
	}
	near := false
	for _, p := range s.Parents {
		if u.possible[p] {
			return false
		}
		near = near || u.branch[p]
	}
	return near
}

// decidedBy reports whether a decision is among the parents: the step exists only if it is
// chosen.
func (u *unfolding) decidedBy(s *PlanStep) bool {
	return slices.ContainsFunc(s.Parents, func(p int) bool { return u.plan.Steps[p].Kind == KindDecision })
}

// unsatisfiable is the error of a plain step with some created parents and others that can
// never be created: it would wait for ever.
func (u *unfolding) unsatisfiable(s *PlanStep) error {
	came, out := -1, -1
	for _, p := range s.Parents {
		switch {
		case u.exists[p] && !u.plan.Steps[p].Initial:
			came = p
		case !u.exists[p] && !u.possible[p]:
			out = p
		}
	}
	if came < 0 || out < 0 {
		return nil
	}
	return fmt.Errorf("step %q depends on %q, which exists, and on %q, which was not created; with join: existing it waits for what exists",
		s.Name, u.plan.Steps[came].Name, u.plan.Steps[out].Name)
}

// canCome reports whether a later outcome may create the step.
func (u *unfolding) canCome(s *PlanStep) bool {
	may := func(p int) bool { return u.possible[p] || u.undecided(p) }
	if s.Kind == KindCompensation {
		return false // no outcome creates it
	}
	if s.Kind == KindBatchWorker || s.joinsExisting() {
		return slices.ContainsFunc(s.Parents, may)
	}
	if slices.ContainsFunc(s.Parents, func(p int) bool { return !u.exists[p] && !u.possible[p] }) {
		return false
	}
	if !u.decidedBy(s) {
		return slices.ContainsFunc(s.Parents, func(p int) bool { return u.possible[p] })
	}
	return slices.ContainsFunc(s.Parents, func(p int) bool { return u.plan.Steps[p].Kind == KindDecision && may(p) })
}

// unmet counts the parents that a step still waits for.
func (u *unfolding) unmet(s *PlanStep) (n uint16) {
	for _, p := range s.Parents {
		switch {
		case u.satisfied(p):
		case s.joinsExisting() && !u.exists[p] && !u.possible[p]: // ruled out
		default:
			n++
		}
	}
	return n
}

func (u *unfolding) satisfied(no int) bool {
	if u.plan.Steps[no].Kind == KindBatchWorker {
		g := u.progress.groupOf(no)
		return g != nil && g.Settled
	}
	return u.progress.Steps[no].Status.satisfies()
}

// NewBatch is a batch to store: the work of a step created at run time.
type NewBatch struct {
	Step     int // its number
	Template int // the step of the plan that it is an instance of
	First    int // the first step of its group
	Name     string
	Cursor   CursorConfig
	NoOp     bool // a placeholder: there is nothing to do
}

// Decided describes an outcome that has been followed.
type Decided struct {
	Step    int
	Created []int // steps of the plan
	Batches int
	Depth   int    // of a decision: how many decisions led here, itself included
	Odd     string // how the outcome should have been written; "" where it was
}

// outcome reads and prepares what the result of a step asks for; after an error, which is
// for the author of the handler, nothing has changed.
func (a *advancing) outcome(step *PlanStep, result json.RawMessage) (*unfolding, []NewBatch, error) {
	u := newUnfolding(a.plan, a.progress)
	u.by = step
	var batches []NewBatch
	var err error
	if step.Kind == KindDecision {
		u.named, err = a.chosen(u, step, result)
	} else {
		u.made, batches, err = a.batches(u, step, result)
	}
	if err == nil {
		err = u.run()
	}
	return u, batches, err
}

// chosen are the numbers of the steps that a decision names.
func (a *advancing) chosen(u *unfolding, step *PlanStep, result json.RawMessage) ([]int, error) {
	o, err := parseDecisionOutcome(result)
	if err != nil {
		return nil, err
	}
	u.odd = o.Odd
	if len(o.Steps) > 0 && a.rules.RefuseDecisions {
		return nil, errors.New("decisions are turned off (orchestration.decision_points.enabled)")
	}
	below := a.plan.descendants(step.No)
	named := make([]int, 0, len(o.Steps))
	for _, name := range o.Steps {
		no, ok := a.plan.StepNumber(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("the template has no step %.64q", name)
		case !below[no]:
			return nil, fmt.Errorf("step %q does not depend on the decision", name)
		case a.plan.Steps[no].Kind == KindBatchWorker, a.plan.Steps[no].Kind == KindCompensation:
			return nil, fmt.Errorf("step %q is of type %s: no decision creates it", name, a.plan.Steps[no].Kind)
		case !slices.Contains(named, no):
			named = append(named, no)
		}
	}
	if limit := a.rules.MaxDecisionSteps; limit > 0 && len(named) > limit {
		return nil, fmt.Errorf("the decision names %d steps; up to %d are allowed", len(named), limit)
	}
	if limit := a.rules.MaxDecisionDepth; limit > 0 && step.Depth > limit {
		return nil, fmt.Errorf("%d decisions led here; up to %d are allowed", step.Depth, limit)
	}
	return named, nil
}

// batches makes the group that a batchable step asks for; nil: none, and no placeholder
// either, since its worker is unknown.
func (a *advancing) batches(u *unfolding, step *PlanStep, result json.RawMessage) (*Group, []NewBatch, error) {
	o, err := parseBatchOutcome(result)
	if err != nil {
		return nil, nil, err
	}
	u.odd = o.Odd
	if a.rules.RefuseBatches {
		return nil, nil, errors.New("batches are turned off (orchestration.batch_processing.enabled)")
	}
	if o.Bare {
		return nil, nil, nil
	}
	noOp := len(o.Cursors) == 0
	if noOp {
		if o.WorkerTemplate == "" {
			o.WorkerTemplate, _ = step.Handler.Initialization["worker_template_name"].(string)
		}
		if o.WorkerTemplate == "" {
			o.WorkerTemplate = a.plan.soleWorker(step)
		}
		if o.WorkerTemplate == "" {
			return nil, nil, nil
		}
		zero := json.RawMessage("0")
		o.Cursors = []CursorConfig{{BatchID: "000", Start: zero, End: zero}}
	}
	template, ok := a.plan.StepNumber(o.WorkerTemplate)
	if !ok || a.plan.Steps[template].Kind != KindBatchWorker || !slices.Contains(a.plan.Steps[template].Parents, step.No) {
		return nil, nil, fmt.Errorf("worker_template_name: %.64q is not a batch_worker that depends on the step", o.WorkerTemplate)
	}
	g := &Group{Batchable: step.No, Template: template, Count: len(o.Cursors)}
	switch limit := a.rules.MaxBatches; {
	case limit > 0 && g.Count > limit:
		return nil, nil, fmt.Errorf("%d batches are asked for; up to %d are allowed", g.Count, limit)
	case a.progress.groupOf(template) != nil:
		return nil, nil, fmt.Errorf("there are batches of %q already", o.WorkerTemplate)
	}
	if g.First, err = a.place(g); err != nil {
		return nil, nil, err
	}
	list := make([]NewBatch, g.Count)
	for i := range list {
		list[i] = NewBatch{Step: g.First + i, Template: template, First: g.First,
			Name: o.WorkerTemplate + "_" + o.Cursors[i].BatchID, Cursor: o.Cursors[i], NoOp: noOp}
	}
	return g, list, nil
}

// soleWorker is the name of the only batch worker that depends on a batchable step, if its
// batch_config names no worker_template. Templates written for Tasker name one, and get a
// placeholder only where the batchable step names it too.
func (p *Plan) soleWorker(step *PlanStep) (name string) {
	for i := range p.Steps {
		w := &p.Steps[i]
		if w.Kind != KindBatchWorker || !slices.Contains(w.Parents, step.No) {
			continue
		}
		if name != "" || w.Batch == nil || w.Batch.WorkerTemplate != "" {
			return ""
		}
		name = w.Name
	}
	return name
}

// unfold applies an outcome, after its step has been satisfied.
func (a *advancing) unfold(u *unfolding, batches []NewBatch) {
	for _, no := range u.created {
		a.progress.Steps[no] = StepProgress{Status: StatusWaiting}
	}
	if u.made != nil {
		a.progress.Groups = append(slices.Clip(a.progress.Groups), *u.made)
		a.progress.occupy(u.made, StepProgress{Status: StatusWaiting, Remaining: u.unmet(&a.plan.Steps[u.made.Template])})
		a.effects.Batches = append(a.effects.Batches, batches...)
	}
	a.effects.Decided = append(a.effects.Decided, Decided{Step: u.by.No, Created: u.created, Batches: len(batches), Depth: u.by.Depth, Odd: u.odd})
	for no := range a.plan.Steps {
		if s := &a.progress.Steps[no]; u.below[no] && s.Status == StatusWaiting {
			if s.Remaining = u.unmet(&a.plan.Steps[no]); s.Remaining == 0 {
				a.put(no, 0)
			}
		}
	}
}

// descendants are the steps that depend on a step, directly or not.
func (p *Plan) descendants(of int) []bool {
	below := make([]bool, len(p.Steps))
	for no := of + 1; no < len(p.Steps); no++ {
		below[no] = slices.ContainsFunc(p.Steps[no].Parents, func(parent int) bool { return parent == of || below[parent] })
	}
	return below
}
