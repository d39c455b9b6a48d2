package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/workflow"
)

// report is a recorded attempt as the rules' input.
type report struct {
	step int
	in   workflow.Input
}

// madeGroups are all groups of batches that tasks have had, in the order of creation.
// Index: the primary keys.
const madeGroups = `
select task_uuid, template_no, first_no, count(*)::int from (
    select task_uuid, template_no, first_no, created_at, since from tasker.batches where task_uuid = any ($1)
    union all
    select task_uuid, template_no, first_no, created_at, since from tasker.former_batches where task_uuid = any ($1)) d
group by task_uuid, template_no, first_no, created_at order by task_uuid, min(since), first_no`

// numbering gives the batches of a replay their recorded numbers: which ones are free
// depends on the version of the program that decided.
type numbering struct {
	left []auditedGroup
	err  error // the first; the rules would attribute it to a handler
}

// next is workflow.Rules.BatchesAt.
func (n *numbering) next(worker, count int) (first int, err error) {
	at := slices.IndexFunc(n.left, func(g auditedGroup) bool { return g.worker == worker })
	switch {
	case at < 0:
		err = fmt.Errorf("the %d batches of step %d are not on record", count, worker)
	case n.left[at].count != count:
		err = fmt.Errorf("%d batches of step %d are on record, %d by the ledger", n.left[at].count, worker, count)
	default:
		first = n.left[at].first
		n.left = slices.Concat(n.left[:at], n.left[at+1:])
	}
	n.err = cmp.Or(n.err, err)
	return first, err
}

// reports are those that were applied together.
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

// decidedWith reports whether the action was applied together with the reports gathered
// so far, and those of rest that are older: no record of a task lies between an action
// and its reports.
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

// replay repeats an action with the reports applied together with it; byHand are the
// results that came with actions.
func (act *auditedAction) replay(step func(...workflow.Input) error, byHand map[int][]byte, beside []workflow.Input) error {
	if act.step != nil {
		act.result = byHand[*act.step]
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
