package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The names of operators' actions on tasks and steps, as in the API, in messages and in the
// records.
const (
	// ActionCancel ends a live task and everything on the board.
	ActionCancel = "cancel"
	// ActionFail ends a live task as failed. Steps in hand are cancelled and count as
	// failed, so that they can be reset; steps that wait for them keep waiting.
	ActionFail = "fail"
	// ActionReset enqueues a step that failed for good, as if it had never run.
	ActionReset = "reset_for_retry"
	// ActionResolve counts a step as done without a result, or ends a live task as
	// resolved by hand.
	ActionResolve = "resolve_manually"
	// ActionComplete counts a step as done with a result from an operator, which the caller
	// stores. The result of a decision or a batchable step says what to create, as a
	// handler's does.
	ActionComplete = "complete_manually"
	// ActionRunAgain repeats a step that has ended, and everything that depends on it,
	// directly or not, cancelling what is under way. A batch_worker step of the plan
	// stands for its failed batches.
	ActionRunAgain = "run_again"
)

// Operation is an action of an operator or a sweep, an Input of Advance.
type Operation struct {
	Action string
	Step   int // its number; negative: the task
	// Reason and DeadLetter are for actions that end the task. DeadLetter creates a
	// dead-letter entry too, as when the deadline has passed; 0: no entry, the action was
	// deliberate.
	Reason     string
	DeadLetter DeadLetterReason
	Result     json.RawMessage // of a step that is completed by hand
}

// Decides reports whether the operation is an input of the rules; others do not change what
// happens next, or need a step and have none.
func (o *Operation) Decides() bool {
	switch o.Action {
	case ActionCancel, ActionFail, ActionResolve:
		return true
	case ActionReset, ActionComplete, ActionRunAgain:
		return o.Step >= 0
	}
	return false
}

// NotAllowedError says that an operator's action does not fit the state of the
// step or the task. Its text is for the operator.
type NotAllowedError struct {
	Action string // as in the API
	Step   string // its name; empty: the task
	From   string // the state that does not allow it
}

// Error implements error.
func (e *NotAllowedError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("a task in state %s does not allow %s", e.From, e.Action)
	}
	return fmt.Sprintf("step %s in state %s does not allow %s", e.Step, e.From, e.Action)
}

// reopens reports whether the operation may reopen an ended task.
func (o *Operation) reopens(state TaskState) bool {
	switch o.Action {
	case ActionRunAgain:
		return true
	case ActionReset, ActionResolve, ActionComplete:
		return state == TaskError && o.Step >= 0
	}
	return false
}

// TooLate returns why an input is too late for a task in a state; nil: it is not.
func TooLate(state TaskState, in Input) error {
	o, operation := in.(Operation)
	switch {
	case !state.Terminal() || operation && o.reopens(state):
		return nil
	case operation:
		return &NotAllowedError{Action: o.Action, From: state.String()}
	}
	return fmt.Errorf("the task has ended as %s", state)
}

// operate applies an operation that Decides.
func (a *advancing) operate(o *Operation) error {
	switch {
	case o.Action == ActionCancel:
		return a.cancel(o)
	case o.Action == ActionFail:
		a.giveUp(o)
	case o.Action == ActionResolve && o.Step < 0:
		a.moved, a.ended, a.reason = true, TaskResolvedManually, o.Reason
		a.callOff()
	case o.Action == ActionReset:
		return a.reset(o.Step)
	case o.Action == ActionResolve:
		return a.endStep(o.Step, o.Action, StatusResolved, nil)
	case o.Action == ActionComplete:
		return a.endStep(o.Step, o.Action, StatusComplete, o.Result)
	case o.Action == ActionRunAgain:
		return a.runAgain(o.Step)
	default:
		return errors.New("unknown action")
	}
	return nil
}

func (a *advancing) cancel(o *Operation) error {
	if a.progress.Ending != 0 {
		return &NotAllowedError{Action: ActionCancel, From: compensating}
	}
	a.moved, a.reason = true, o.Reason
	a.callOff()
	a.endAs(TaskCancelled)
	a.deadLetter(o.DeadLetter)
	return nil
}

// operand returns the step that an action names.
func (a *advancing) operand(no int) (*StepProgress, *PlanStep, error) {
	step := a.plan.Step(a.progress, no)
	if step == nil {
		return nil, nil, fmt.Errorf("step %d does not exist", no)
	}
	a.moved = true
	return &a.progress.Steps[no], step, nil
}

func (a *advancing) reset(no int) error {
	s, step, err := a.operand(no)
	if err != nil {
		return err
	}
	if s.Status != StatusError || a.undone(step) {
		return &NotAllowedError{Action: ActionReset, Step: a.name(no), From: a.standingOf(s, step)}
	}
	a.renew(no)
	a.recall(no)
	return nil
}

// recall brings back the batches that were cancelled because this one failed.
func (a *advancing) recall(no int) {
	g, member := a.progress.Group(no)
	if !member {
		return
	}
	for other := g.First; other < g.First+g.Count; other++ {
		if a.progress.Steps[other].Status == StatusCancelled {
			a.renew(other)
		}
	}
}

// renew makes a step wait for its parents again, or puts it on the board where
// they are all satisfied. Batches come on the board when their group settles.
func (a *advancing) renew(no int) {
	s := &a.progress.Steps[no]
	*s = StepProgress{Status: StatusWaiting}
	step := a.plan.Step(a.progress, no)
	if !step.Initial {
		s.Remaining = a.standing().unmet(step)
	} else {
		for _, parent := range step.Parents {
			if !a.progress.Steps[parent].Status.satisfies() {
				s.Remaining++
			}
		}
	}
	if s.Remaining == 0 && no < len(a.plan.Steps) {
		a.put(no, 0)
	}
}

// standing is the state of what exists and can still be created.
func (a *advancing) standing() *unfolding {
	u := newUnfolding(a.plan, a.progress)
	_ = u.run() // without an outcome there can be no fault
	return u
}

// endStep ends a step by hand and releases its children. A decision that is resolved without
// a result has no branches.
func (a *advancing) endStep(no int, action string, as Status, result json.RawMessage) error {
	s, step, err := a.operand(no)
	if err != nil {
		return err
	}
	onBoard := s.Status.onBoard()
	if !onBoard && s.Status != StatusWaiting && s.Status != StatusError || a.undone(step) {
		return &NotAllowedError{Action: action, Step: a.name(no), From: a.standingOf(s, step)}
	}
	var u *unfolding
	var batches []NewBatch
	if step.Kind.Unfolds() {
		if as == StatusResolved {
			result = nothingToCreate
		}
		if u, batches, err = a.outcome(step, result); err != nil {
			return &InvalidOutcomeError{Step: step.Name, Problem: err.Error()}
		}
	}
	if onBoard {
		a.takeOff(no)
	}
	s.Status = as
	a.recall(no)
	if u != nil {
		a.unfold(u, batches)
		return nil
	}
	a.satisfied(step)
	return nil
}

// takeOff takes a step off the board. A step that this decision put there was never there; a
// step that was to be retried has an attempt to record, as failed and not as cancelled.
func (a *advancing) takeOff(no int) {
	e := a.effects
	if at := slices.IndexFunc(e.Put, func(p PutStep) bool { return p.Step == no }); at >= 0 {
		e.Put = slices.Delete(e.Put, at, at+1)
		return
	}
	if at := slices.IndexFunc(e.Retry, func(r RetryStep) bool { return r.Step == no }); at >= 0 {
		e.End = append(e.End, EndStep{Step: no, Outcome: e.Retry[at].Outcome})
		e.Retry = slices.Delete(e.Retry, at, at+1)
		return
	}
	e.Remove = append(e.Remove, no)
}

// nothingToCreate is the result of a decision or a batchable step that was resolved without
// one.
var nothingToCreate = json.RawMessage(`{"` + DecisionOutcomeKey + `":{"type":"no_branches"},"` + BatchOutcomeKey + `":{"type":"no_batches"}}`)

// InvalidOutcomeError says that an operator's result for a decision or a batchable step does
// not say what to create. Its text is for the operator.
type InvalidOutcomeError struct{ Step, Problem string }

// Error implements error.
func (e *InvalidOutcomeError) Error() string {
	return fmt.Sprintf("the result for step %s: %s", e.Step, e.Problem)
}

// runAgain renews a step, all that depends on it, and the steps that a cancellation of the
// task had ended. Steps that decisions and batchable steps among them created are forgotten:
// they decide anew.
func (a *advancing) runAgain(no int) error {
	s, step, err := a.operand(no)
	if err != nil {
		return err
	}
	group, failed := a.failedBatches(no)
	if !s.Status.Ended() && len(failed) == 0 || step.Kind == KindCompensation {
		return &NotAllowedError{Action: ActionRunAgain, Step: a.name(no), From: s.Status.String()}
	}
	again := a.dependents(no, step)
	a.progress.Ending = 0
	if group != nil {
		group.Settled, again[no] = false, untouched // the step itself never exists
		for _, at := range failed {
			again[at] = renewed
		}
	}
	var anew []int
	for at := range again { // first: a step looks at its parents when it is renewed
		s := &a.progress.Steps[at]
		if again[at] == untouched || s.Status == StatusNotCreated {
			continue
		}
		if s.Status.onBoard() {
			a.takeOff(at)
		}
		if again[at] == forgotten {
			*s = StepProgress{}
			continue
		}
		s.Status = StatusWaiting
		anew = append(anew, at)
	}
	a.progress.Groups = slices.DeleteFunc(a.progress.Groups, func(g Group) bool {
		gone := again[g.First] == forgotten
		if gone {
			a.forgotten = append(a.forgotten, g)
		}
		return gone
	})
	if len(a.progress.Groups) == 0 {
		a.progress.Groups = nil
	}
	for _, at := range anew {
		a.renew(at)
	}
	return nil
}

// failedBatches are the failed batches of a worker step of the plan.
func (a *advancing) failedBatches(no int) (*Group, []int) {
	var failed []int
	g := a.progress.groupOf(no)
	if g == nil {
		return nil, nil
	}
	for at := g.First; at < g.First+g.Count; at++ {
		switch a.progress.Steps[at].Status {
		case StatusError, StatusTolerated, StatusCancelled:
			failed = append(failed, at)
		}
	}
	return g, failed
}

// The effects on a step when another one runs again.
const (
	untouched = iota
	renewed   // it runs again too
	forgotten // it may or may not be created again
)

// dependents returns the effect on each step.
func (a *advancing) dependents(no int, step *PlanStep) []uint8 {
	again := make([]uint8, len(a.progress.Steps))
	again[no] = renewed
	reached := func(s *PlanStep) (fate uint8) {
		for _, p := range s.Parents {
			if again[p] == forgotten || again[p] == renewed && a.plan.Steps[p].Kind.Unfolds() && !s.Initial {
				return forgotten
			}
			fate = max(fate, again[p])
		}
		return fate
	}
	for at := range a.plan.Steps { // parents always have smaller numbers
		s := &a.plan.Steps[at]
		switch {
		case s.Kind == KindCompensation:
			again[at] = forgotten // its compensation is forgotten
			continue
		case at != no:
			again[at] = reached(s)
		}
		if s.Undo >= 0 && a.progress.Steps[s.Undo].Status != StatusNotCreated {
			again[at] = max(again[at], renewed) // its work has been undone
		}
		if again[at] == renewed && a.progress.Steps[at].Status == StatusNotCreated && a.progress.groupOf(at) == nil {
			again[at] = untouched // no branch has led to it
		}
		if step.Kind == KindBatchWorker && at == step.No {
			again[at] = renewed // its own step is never created; the steps after the batch run again
		}
		if again[at] == untouched && a.progress.Steps[at].Status == StatusCancelled {
			again[at] = renewed
		}
	}
	for i := range a.progress.Groups {
		g := &a.progress.Groups[i]
		for at := g.First; at < g.First+g.Count; at++ {
			switch s := a.progress.Steps[at]; {
			case at == no:
			case step.No == g.Template: // only the named one
				if s.Status == StatusCancelled {
					again[at] = renewed
				}
			default:
				again[at] = again[g.Template]
				if again[at] == untouched && s.Status == StatusCancelled {
					again[at] = renewed
				}
			}
			if again[at] == renewed {
				g.Settled = false
			}
		}
	}
	return again
}

// giveUp ends the task as failed.
func (a *advancing) giveUp(o *Operation) {
	a.moved, a.reason = true, o.Reason
	a.deadLetter(o.DeadLetter)
	defer a.endAs(TaskError)
	for no := range a.progress.Steps {
		if s := &a.progress.Steps[no]; s.Status.onBoard() {
			s.Status = StatusError
			a.takeOff(no)
		}
	}
}

// deadLetter creates a dead-letter entry, if there is a reason.
func (a *advancing) deadLetter(reason DeadLetterReason) {
	if reason != 0 {
		*a.letter = DeadLetter{Reason: reason, Detail: a.reason, Step: -1}
		a.effects.DeadLetter = a.letter
	}
}

// callOff takes everything off the board and ends what has not ended.
func (a *advancing) callOff() {
	for no := range a.progress.Steps {
		a.callOffStep(no)
	}
}

// callOffStep cancels a step that has not ended.
func (a *advancing) callOffStep(no int) {
	s := &a.progress.Steps[no]
	if s.Status.onBoard() {
		a.takeOff(no)
	}
	if s.Status != StatusNotCreated && !s.Status.Ended() {
		s.Status = StatusCancelled
	}
}
