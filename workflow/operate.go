package workflow

import "fmt"

// Reset puts a step that failed for good back in line, as if it had never run.
type Reset struct{ Step int }

// Resolve counts a step as done although it brought no result.
type Resolve struct{ Step int }

// Complete counts a step as done with a result that an operator gives; the
// caller stores the result.
type Complete struct{ Step int }

// RunAgain runs a step that has ended once more, and everything that depends
// on it, directly or not. What of it is under way is called off.
type RunAgain struct{ Step int }

// ResolveTask ends a live task as resolved by hand.
type ResolveTask struct{ Reason string }

// Fail ends a live task as failed. The steps in hand are called off and count
// as failed, so that they can be reset; those that wait go on waiting for that.
type Fail struct {
	Reason string
	// DeadLetter gives the task to people too; 0: not.
	DeadLetter DeadLetterReason
}

func (Reset) input()       {}
func (Resolve) input()     {}
func (Complete) input()    {}
func (RunAgain) input()    {}
func (ResolveTask) input() {}
func (Fail) input()        {}

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

// reopens reports whether an input may bring an ended task back to life.
func reopens(state TaskState, in Input) bool {
	switch in.(type) {
	case RunAgain:
		return true
	case Reset, Resolve, Complete:
		return state == TaskError
	}
	return false
}

// ended is why an input has come too late.
func ended(state TaskState, in Input) error {
	var action string
	switch in.(type) {
	case Reset:
		action = actionReset
	case Resolve, ResolveTask:
		action = actionResolve
	case Complete:
		action = actionComplete
	case Fail:
		action = actionFail
	case Cancel:
		action = actionCancel
	default:
		return fmt.Errorf("the task has ended as %s", state)
	}
	return &NotAllowedError{Action: action, From: state.String()}
}

// The names of actions in messages, as in the API.
const (
	actionReset    = "reset_for_retry"
	actionResolve  = "resolve_manually"
	actionComplete = "complete_manually"
	actionRunAgain = "run_again"
	actionFail     = "fail"
	actionCancel   = "cancel"
)

// operate applies an operator's action; known is false for other inputs.
func (a *advancing) operate(in Input) (known bool, err error) {
	switch in := in.(type) {
	case Reset:
		return true, a.reset(in.Step)
	case Resolve:
		return true, a.settleStep(in.Step, actionResolve, StatusResolved)
	case Complete:
		return true, a.settleStep(in.Step, actionComplete, StatusComplete)
	case RunAgain:
		return true, a.runAgain(in.Step)
	case ResolveTask:
		a.moved, a.ended, a.reason = true, TaskResolvedManually, in.Reason
		a.callOff()
	case Fail:
		a.giveUp(in)
	default:
		return false, nil
	}
	return true, nil
}

// operand returns the step that an action names.
func (a *advancing) operand(no int) (*StepProgress, *PlanStep, error) {
	if no < 0 || no >= len(a.plan.Steps) {
		return nil, nil, fmt.Errorf("step %d does not exist", no)
	}
	a.moved = true
	return &a.progress.Steps[no], &a.plan.Steps[no], nil
}

func (a *advancing) reset(no int) error {
	s, step, err := a.operand(no)
	if err != nil {
		return err
	}
	if s.Status != StatusError {
		return &NotAllowedError{Action: actionReset, Step: step.Name, From: s.Status.String()}
	}
	a.renew(no)
	return nil
}

// renew makes a step wait for its parents again, or puts it on the board where
// they are all satisfied.
func (a *advancing) renew(no int) {
	s := &a.progress.Steps[no]
	*s = StepProgress{Status: StatusWaiting}
	for _, parent := range a.plan.Steps[no].Parents {
		if !a.progress.Steps[parent].Status.Satisfies() {
			s.Remaining++
		}
	}
	if s.Remaining == 0 {
		a.put(no, 0)
	}
}

// settleStep ends a step by hand and lets its children go on.
func (a *advancing) settleStep(no int, action string, as Status) error {
	s, step, err := a.operand(no)
	if err != nil {
		return err
	}
	switch s.Status {
	case StatusOnBoard, StatusScheduled:
		a.effects.Remove = append(a.effects.Remove, no)
	case StatusWaiting, StatusError:
	default:
		return &NotAllowedError{Action: action, Step: step.Name, From: s.Status.String()}
	}
	s.Status = as
	a.satisfied(step)
	return nil
}

// runAgain renews a step, all that depends on it, and what a cancellation of
// the task had called off.
func (a *advancing) runAgain(no int) error {
	s, step, err := a.operand(no)
	if err != nil {
		return err
	}
	if !s.Status.Ended() {
		return &NotAllowedError{Action: actionRunAgain, Step: step.Name, From: s.Status.String()}
	}
	again := make([]bool, len(a.plan.Steps))
	again[no] = true
	for at := range a.plan.Steps { // parents always have smaller numbers
		for _, parent := range a.plan.Steps[at].Parents {
			again[at] = again[at] || again[parent]
		}
		again[at] = again[at] || a.progress.Steps[at].Status == StatusCancelled
	}
	for at := range again { // first: a step looks at its parents when it is renewed
		s := &a.progress.Steps[at]
		again[at] = again[at] && s.Status != StatusNotCreated
		if !again[at] {
			continue
		}
		if s.Status == StatusOnBoard || s.Status == StatusScheduled {
			a.effects.Remove = append(a.effects.Remove, at)
		}
		s.Status = StatusWaiting
	}
	for at := range again {
		if again[at] {
			a.renew(at)
		}
	}
	return nil
}

// giveUp ends the task as failed.
func (a *advancing) giveUp(in Fail) {
	a.moved, a.ended, a.reason = true, TaskError, in.Reason
	a.effects.Put, a.effects.Retry = nil, nil
	a.deadLetter(in.DeadLetter)
	for no := range a.progress.Steps {
		s := &a.progress.Steps[no]
		if s.Status == StatusOnBoard || s.Status == StatusScheduled {
			s.Status = StatusError
			a.effects.Remove = append(a.effects.Remove, no)
		}
	}
}

// deadLetter gives the task to people, where there is a reason to.
func (a *advancing) deadLetter(reason DeadLetterReason) {
	if reason != 0 {
		*a.letter = DeadLetter{Reason: reason, Detail: a.reason, Step: -1}
		a.effects.DeadLetter = a.letter
	}
}

// callOff takes everything off the board and ends what has not ended.
func (a *advancing) callOff() {
	// It voids what this call had already decided to put on the board.
	a.effects.Put, a.effects.Retry = nil, nil
	for no := range a.progress.Steps {
		s := &a.progress.Steps[no]
		if s.Status == StatusOnBoard || s.Status == StatusScheduled {
			a.effects.Remove = append(a.effects.Remove, no)
		}
		if s.Status != StatusNotCreated && !s.Status.Ended() {
			s.Status = StatusCancelled
		}
	}
}
