package store

import (
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/workflow"
)

// report is a recorded attempt as the rules know it.
type report struct {
	step int
	in   workflow.Input
}

// reports are those that were decided about together.
type reports []report

// inputs are in the order of steps, in which they were read from the board.
func (r reports) inputs() []workflow.Input {
	slices.SortStableFunc(r, func(a, b report) int { return a.step - b.step })
	list := make([]workflow.Input, len(r))
	for i := range r {
		list[i] = r[i].in
	}
	return list
}

// decidedWith reports whether the action was decided about together with the reports
// that have just been gathered, and those of the rest that are older than it:
// nothing of a task is recorded between an action and its reports.
func (act *auditedAction) decidedWith(gathered int, rest []auditedAttempt) bool {
	for i := range rest {
		if act.at.Before(rest[i].at) {
			break
		}
		if _, ok := rest[i].input(); ok {
			gathered++
		}
	}
	return act.reports > 0 && gathered > 0 && gathered <= act.reports
}

// replay does an action once more, beside the reports that were decided about
// with it; given are the results that came with actions.
func (act *auditedAction) replay(step func(...workflow.Input) error, given map[int][]byte, beside []workflow.Input) error {
	if act.step != nil {
		act.result = given[*act.step]
	}
	if in, decides := act.input(); decides {
		beside = append(beside, in)
	}
	if len(beside) == 0 {
		return nil
	}
	if err := step(beside...); err != nil {
		return fmt.Errorf("action %s: %w", act.kind, err)
	}
	return nil
}
