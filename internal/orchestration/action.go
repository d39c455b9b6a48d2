package orchestration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// ActionKind names an action as the API does.
type ActionKind string

// The kinds. Those on steps need Action.Step, or Action.StepName in bulk.
const (
	ActionCancel           ActionKind = workflow.ActionCancel   // a live task: everything under way is cancelled
	ActionFail             ActionKind = workflow.ActionFail     // a live task: it ends as error, live steps can be reset
	ActionResetForRetry    ActionKind = workflow.ActionReset    // a failed step: as if it had never run
	ActionResolveManually  ActionKind = workflow.ActionResolve  // a step that has not ended well, or a live task: done without a result
	ActionCompleteManually ActionKind = workflow.ActionComplete // a step that has not ended well: done with the given result
	ActionRunAgain         ActionKind = workflow.ActionRunAgain // an ended step, and all that depends on it
	ActionReleaseLease     ActionKind = "release_lease"         // a running step: its lease ends now
	ActionReprioritise     ActionKind = "reprioritise"          // a live task
)

// actionKinds lists all kinds.
func actionKinds() []ActionKind {
	return []ActionKind{ActionCancel, ActionFail, ActionResetForRetry, ActionResolveManually, ActionCompleteManually,
		ActionRunAgain, ActionReleaseLease, ActionReprioritise}
}

// Action is an operator's request to change a task.
type Action struct {
	Kind     ActionKind
	Step     *uuid.UUID      // nil: the task
	StepName string          // instead of Step, where tasks differ
	Result   json.RawMessage // of complete_manually: in place of the handler's result
	Metadata json.RawMessage // recorded with the action; nil: none
	Priority *int            // of reprioritise
	// Edit changes the context of the task, of run_again and reset_for_retry; nil:
	// unchanged.
	Edit   *ContextEdit
	Actor  string // required; who did it
	Reason string // required; why

	record     *store.ActionRecord       // nil: the engine acts, not an operator
	deadLetter workflow.DeadLetterReason // of cancel and fail by a sweep
	// still leaves out the taken tasks to which the reason of a sweep does not apply any
	// more; nil: it applies to all.
	still func(ctx context.Context, taken *store.Taken) error
}

// ContextEdit is how an operator changes the context of a task that exists.
type ContextEdit = submission.ContextEdit

// TransitionError says that an action does not fit the state of a step or task.
type TransitionError = workflow.NotAllowedError

func (a *Action) onStep() bool { return a.Step != nil || a.StepName != "" }

// check validates everything that needs no task.
func (a *Action) check() error {
	var c submission.Checker
	answerable(&c, a.Actor, a.Reason)
	switch a.Kind {
	case ActionCancel, ActionFail:
		if a.onStep() {
			c.Add("%s applies to tasks and takes no step", a.Kind)
		}
	case ActionResetForRetry, ActionCompleteManually, ActionRunAgain, ActionReleaseLease:
		if !a.onStep() {
			c.Add("%s needs a step", a.Kind)
		}
	case ActionReprioritise:
		if p := a.Priority; p == nil || *p < priorities.Min || *p > priorities.Max {
			c.Add("reprioritise needs a priority between %d and %d", priorities.Min, priorities.Max)
		}
	case ActionResolveManually:
	default:
		c.Add("unknown action %q; there are %s", a.Kind, joinKinds())
	}
	a.checkEdit(&c)
	if a.Metadata != nil {
		if err := checkPlain("metadata", a.Metadata); err != nil {
			c.Add("%s", err)
		}
	}
	if a.Kind == ActionCompleteManually {
		if len(a.Result) == 0 {
			c.Add("complete_manually needs a result")
		} else if err := checkPlain("result", a.Result); err != nil {
			c.Add("%s", err)
		}
	}
	return c.Err()
}

// bounded sets the bounds of an edited context.
func (a *Action) bounded(b submission.Bounds) {
	if a.Edit != nil {
		edit := *a.Edit // its caller's
		edit.Bounds, a.Edit = b, &edit
	}
}

func (a *Action) checkEdit(c *submission.Checker) {
	switch {
	case a.Edit == nil:
	case a.Kind != ActionRunAgain && a.Kind != ActionResetForRetry:
		c.Add("%s leaves the context of the task as it is", a.Kind)
	default:
		if err := a.Edit.Check(); err != nil {
			c.Add("%s", err)
		}
	}
}

// checkPlain checks any JSON value against the bounds of a context.
func checkPlain(name string, value json.RawMessage) error {
	return CheckContext(slices.Concat([]byte(`{"`+name+`":`), value, []byte(`}`)))
}

func joinKinds() string {
	var names []string
	for _, k := range actionKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// taking selects how tasks are taken for the action.
func (a *Action) taking() store.Taking {
	how := a.takingSteps()
	how.Context = a.Edit != nil
	how.BatchUUID = a.Step
	return how
}

func (a *Action) takingSteps() store.Taking {
	switch a.Kind {
	case ActionResetForRetry, ActionCompleteManually:
		return store.Taking{Spread: true, Batch: a.StepName, Reopen: []int16{int16(workflow.TaskError)}}
	case ActionResolveManually:
		if a.onStep() {
			return store.Taking{Spread: true, Batch: a.StepName, Reopen: []int16{int16(workflow.TaskError)}}
		}
	case ActionRunAgain:
		return store.Taking{Spread: true, Batch: a.StepName, Reopen: []int16{int16(workflow.TaskComplete), int16(workflow.TaskError),
			int16(workflow.TaskCancelled), int16(workflow.TaskResolvedManually)}}
	}
	return store.Taking{}
}

// input converts the action to an input of the rules and the number of its step.
func (a *Action) input(t *store.TakenTask) (in workflow.Input, step int, err error) {
	step = -1
	if a.onStep() {
		if step, err = a.step(t); err != nil {
			return nil, step, err
		}
	}
	o := workflow.Operation{Action: string(a.Kind), Step: step, Reason: a.Reason, DeadLetter: a.deadLetter, Result: a.Result}
	if !o.Decides() {
		return nil, step, fmt.Errorf("action %s has no rule", a.Kind)
	}
	return o, step, nil
}

// step finds the number of the step that the action names.
func (a *Action) step(t *store.TakenTask) (int, error) {
	if a.Step == nil {
		if no, known := t.Plan.StepNumber(a.StepName); known {
			return no, nil
		}
		if t.Batch > 0 {
			return t.Batch, nil
		}
		return -1, fmt.Errorf("step %q: %w", a.StepName, store.ErrNotFound)
	}
	no, run, ok := store.StepOf(t.UUID, *a.Step)
	if ok && (no < len(t.Plan.Steps) && run == 0 || no >= len(t.Plan.Steps) && no == t.Batch) {
		return no, nil
	}
	return -1, fmt.Errorf("step %s: %w", a.Step, store.ErrNotFound)
}
