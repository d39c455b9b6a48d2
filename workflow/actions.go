package workflow

import "encoding/json"

// The names of operators' actions on tasks and steps, as in the API, in messages and in
// the records.
const (
	ActionCancel   = "cancel"            // a live task
	ActionFail     = "fail"              // a live task
	ActionReset    = "reset_for_retry"   // a step
	ActionResolve  = "resolve_manually"  // a step, or a live task
	ActionComplete = "complete_manually" // a step
	ActionRunAgain = "run_again"         // a step
)

// Operation is an action of an operator or a sweep.
type Operation struct {
	Action string
	Step   int // its number; negative: the task
	// Reason and DeadLetter are for actions that end the task; 0: no dead-letter entry.
	Reason     string
	DeadLetter DeadLetterReason
	Result     json.RawMessage // of a step that is completed by hand
}

// Input converts the operation to an input of the rules. decides is false for an operation
// that does not change what happens next, or that needs a step and has none.
func (o Operation) Input() (in Input, decides bool) {
	switch {
	case o.Action == ActionCancel:
		return Cancel{Reason: o.Reason, DeadLetter: o.DeadLetter}, true
	case o.Action == ActionFail:
		return Fail{Reason: o.Reason, DeadLetter: o.DeadLetter}, true
	case o.Action == ActionResolve && o.Step < 0:
		return ResolveTask{Reason: o.Reason}, true
	case o.Step < 0:
		return nil, false
	}
	switch o.Action {
	case ActionReset:
		return Reset{Step: o.Step}, true
	case ActionResolve:
		return Resolve{Step: o.Step}, true
	case ActionComplete:
		return Complete{Step: o.Step, Result: o.Result}, true
	case ActionRunAgain:
		return RunAgain{Step: o.Step}, true
	}
	return nil, false
}
