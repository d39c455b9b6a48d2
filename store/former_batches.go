package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// The numbers of dropped batches are assigned again (see workflow.Group). tasker.batches
// has the present ones, one per number; those that tasks had before are moved to
// tasker.former_batches, which shows attempts and the replay of the records which batch
// had a number when.

// runsOfNumbers counts the batches that have had each number.
// Index: the primary keys.
const runsOfNumbers = `
select step_no, max(run) + 1 from (
    select step_no, run from tasker.batches where task_uuid = $1
    union all
    select step_no, run from tasker.former_batches where task_uuid = $1) d group by step_no`

const (
	moveBatches = `
with gone as (
    delete from tasker.batches d
    using unnest((select $1::uuid[]), (select $2::smallint[]), (select $3::smallint[]), (select $4::smallint[])) g(task_uuid, template_no, first_no, members)
    where d.task_uuid = any (array[g.task_uuid]) and `
	movedBatches = `
    returning d.task_uuid, d.since, d.created_at, d.run, d.step_no, d.template_no, d.first_no, d.no_op, d.name, d.cursor, d.isolated
)
insert into tasker.former_batches (task_uuid, since, created_at, run, step_no, template_no, first_no, no_op, name, cursor, isolated)
select task_uuid, since, created_at, run, step_no, template_no, first_no, no_op, name, cursor, isolated from gone`

	// forgetBatches removes groups that tasks no longer have from the present ones.
	// Index: the primary key.
	forgetBatches = moveBatches + `d.template_no = g.template_no and d.first_no = g.first_no` + movedBatches

	// clearNumbers makes room for groups. What it finds was dropped by an older version
	// of the program, which left such batches in place.
	// Index: the primary key.
	clearNumbers = moveBatches + `(d.template_no = g.template_no or d.step_no between g.first_no and g.first_no + g.members - 1)` + movedBatches
)

// NextRuns returns how many batches of a task have had each used number so far: the Run
// of the next batch with it.
func (t *Taken) NextRuns(ctx context.Context, task uuid.UUID) (map[int]int, error) {
	rows, err := t.conn.Query(ctx, runsOfNumbers, task)
	if err != nil {
		return nil, classify("read the numbers of batches", err)
	}
	runs := map[int]int{}
	var no, run int
	_, err = pgx.ForEachRow(rows, []any{&no, &run}, func() error {
		runs[no] = run
		return nil
	})
	if err != nil {
		return nil, classify("read the numbers of batches", err)
	}
	return runs, nil
}

// groupColumns are groups of batches, column by column.
type groupColumns struct {
	tasks                      uuids
	templates, firsts, members []int16
}

func (c *groupColumns) add(task uuid.UUID, g *workflow.Group) {
	c.tasks = append(c.tasks, task)
	c.templates, c.firsts, c.members = append(c.templates, int16(g.Template)), append(c.firsts, int16(g.First)), append(c.members, int16(g.Count)) // #nosec G115 -- at most workflow.MaxStepNumber
}

func (c *groupColumns) arguments() []any { return []any{c.tasks, c.templates, c.firsts, c.members} }

// queue adds the statement that removes the groups, if there are any.
func (c *groupColumns) queue(b *pgx.Batch) {
	if len(c.tasks) > 0 {
		b.Queue(forgetBatches, c.arguments()...)
	}
}

// regroup records the groups of batches that a task gets, and those that it no longer
// has: earlier ones, and those created and dropped by the same decision.
func (w *writes) regroup(c *Change) {
	t := c.Task
	for _, g := range groupsOf(c.Effects.Batches) {
		w.cleared.add(t.UUID, &g)
		if !hasGroup(c.Progress, &g) {
			w.former.add(t.UUID, &g)
		}
	}
	for i := range t.Progress.Groups {
		if g := &t.Progress.Groups[i]; !hasGroup(c.Progress, g) {
			w.former.add(t.UUID, g)
		}
	}
}

// groupsOf are the groups of batches; those of one group are adjacent.
func groupsOf(batches []workflow.NewBatch) (list []workflow.Group) {
	for i := range batches {
		b, last := &batches[i], len(list)-1
		if last < 0 || list[last].First != b.First {
			list, last = append(list, workflow.Group{Template: b.Template, First: b.First}), last+1
		}
		list[last].Count++
	}
	return list
}

func hasGroup(p *workflow.Progress, g *workflow.Group) bool {
	x, ok := p.Group(g.First)
	return ok && x.First == g.First && x.Template == g.Template
}
