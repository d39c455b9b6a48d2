package store

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Batch is the work of a step that was created at run time.
type Batch struct {
	Template int                   `json:"template"` // the plan's step that it instantiates
	Name     string                `json:"name"`
	Cursor   workflow.CursorConfig `json:"cursor"`
	NoOp     bool                  `json:"no_op"`         // a placeholder without work
	First    int                   `json:"first" sql:"-"` // the first step of its group
	// Run is how many batches of the task had its number before it, see BatchUUID.
	Run int `json:"run"`
	// Since is a token: attempts of the step with greater ones belong to this batch,
	// others to those that had its number before.
	Since int64 `json:"since"`
	// Isolated counts the items that the handler could not process; read only with tasks.
	Isolated int `json:"-" sql:",omitzero"`
}

// countIsolated is the number of items that the newest attempt a of the batch d
// has isolated.
const countIsolated = `case when a.outcome = {success} and (d.isolated ->> 'token')::bigint = a.token then jsonb_array_length(d.isolated -> 'items') else 0 end`

// recordBatches records the steps created at run time. All claims of earlier steps with
// their numbers have smaller tokens.
// Index: the primary key of former batches.
var recordBatches = compile(`
insert into tasker.batches (task_uuid, step_no, template_no, first_no, name, cursor, no_op, run, since)
select d.task_uuid, d.step_no, d.template_no, d.first_no, d.name, d.cursor::jsonb, d.no_op,
       coalesce((select run + 1 from tasker.former_batches where task_uuid = d.task_uuid and step_no = d.step_no order by run desc limit 1), 0),
       (select nextval('tasker.claim_token'))
from ` + stmt.List[newBatch]("d"))

// newBatch is a step created at run time.
type newBatch struct {
	TaskUUID   uuid.UUID
	StepNo     int `sql:",smallint"`
	TemplateNo int `sql:",smallint"`
	FirstNo    int `sql:",smallint"`
	Name       string
	Cursor     json.RawMessage
	NoOp       bool
}

// readOutcomes reads the results that name the steps to create.
// Index: the primary key.
var readOutcomes = compile(`
select k.at, s.result from ` + stmt.OrderedHiddenList[stepKey]("k") + `
cross join lateral (select result from tasker.board where task_uuid = k.task_uuid and slot = any (array[0, k.step_no + 1]) and step_no = k.step_no limit 1) s`)

// readOutcomes reads the results of steps that create others. It runs no statement if
// there are none.
func (t *Taken) readOutcomes(ctx context.Context) error {
	var keys []stepKey
	var steps []*TakenStep
	for i := range t.Tasks {
		task := &t.Tasks[i]
		if task.Broken != nil || task.Unreadable != nil {
			continue
		}
		for j := range task.Reported {
			r := &task.Reported[j]
			if step := task.Plan.Step(task.Progress, r.Step); step != nil && step.Kind.Unfolds() && r.Outcome == workflow.OutcomeSuccess {
				keys, steps = append(keys, stepKey{task.UUID, r.Step}), append(steps, r)
			}
		}
	}
	if len(steps) == 0 {
		return nil
	}
	type row struct {
		At     int
		Result json.RawMessage
	}
	return stmt.Each(ctx, t.conn, readOutcomes.With(args{"k": keys}), func(r *row) error {
		steps[r.At-1].Result = r.Result
		return nil
	})
}

// readBatches names the steps of tasks that were created at run time.
// Index: the primary key.
var readBatches = compile(`
select d.task_uuid, d.step_no, d.template_no as template, d.name, d.cursor - 'items' as cursor, d.no_op, d.run, d.since, case when d.isolated is null then 0 else (
    select ` + countIsolated + ` from tasker.step_attempts a where a.task_uuid = d.task_uuid and a.step_no = d.step_no order by a.token desc limit 1) end as isolated
from tasker.batches d where d.task_uuid = any (@tasks)`)

// batchesOf reads the steps created at run time for tasks that have some, and their
// attempts.
func batchesOf(ctx context.Context, tx pgx.Tx, tasks []*Task, readers map[uuid.UUID]*taskReader, of parts) error {
	byID := map[uuid.UUID]*Task{}
	var ids []uuid.UUID
	for _, t := range tasks {
		if t.Progress != nil && len(t.Progress.Groups) > 0 {
			t.Batches = map[int]Batch{}
			byID[t.UUID], ids = t, append(ids, t.UUID)
			// Attempts that were read with other tasks include former batches.
			maps.DeleteFunc(readers[t.UUID].attempts, func(no int, _ []attemptRow) bool { return no >= len(t.Plan.Steps) })
		}
	}
	if ids == nil {
		return nil
	}
	b := &pgx.Batch{}
	type row struct {
		TaskUUID uuid.UUID
		StepNo   int
		Batch
	}
	readBatches.With(args{"tasks": ids}).Queue(b).Query(stmt.Rows(func(r *row) error {
		byID[r.TaskUUID].Batches[r.StepNo] = r.Batch
		return nil
	}))
	queueAttempts(b, readBatchAttempts, ids, of, readers)
	return tx.SendBatch(ctx, b).Close()
}

// batchableResult is the result of a batchable step without the list of all batches.
// Index: the primary key.
var batchableResult = compile(`
select result #- '{` + workflow.BatchOutcomeKey + `,cursor_configs}' from tasker.step_attempts
where task_uuid = @task and step_no = @step and outcome = {success} and jsonb_typeof(result) = 'object' order by token desc limit 1`)

// BatchableResult reads the result of the step that created batches, without the list of
// them; nil without one.
func (s *Store) BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error) {
	result, err := readOne[json.RawMessage](ctx, s, "batchable_result", "read the result of the step that made batches",
		batchableResult.With(args{"task": task, "step": step}))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return result, err
}

// BatchResult is the result of one batch.
type BatchResult struct {
	Step   int `sql:"step_no"`
	Name   string
	Cursor workflow.CursorConfig
	NoOp   bool
	Result json.RawMessage // nil: it has none
	// Isolated counts the items that its handler could not process.
	Isolated int
}

// readBatchResults reads the latest group of a batch worker, in the order in which the
// batches were created.
// Index: the primary keys.
var readBatchResults = compile(`
select d.step_no, d.name, d.cursor - 'items' as cursor, d.no_op, a.result, ` + countIsolated + ` as isolated
from tasker.batches d
left join lateral (select result, token, outcome from tasker.step_attempts where task_uuid = d.task_uuid and step_no = d.step_no and outcome = {success}
                   and token > d.since order by token desc limit 1) a on true
where d.task_uuid = @task and d.template_no = @template and d.step_no > @after
  and d.first_no = (select max(first_no) from tasker.batches where task_uuid = @task and template_no = @template)
order by d.step_no limit @limit`)

// BatchResults reads the results of the batches of one worker step of a task, at most
// limit, after a step's number; negative: from the first.
func (s *Store) BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]BatchResult, error) {
	return readAll[BatchResult](ctx, s, "batch_results", "read the results of batches",
		readBatchResults.With(args{"task": task, "template": template, "after": after, "limit": limit}))
}

// Index: the primary key.
var (
	batchNumbered = compile(`select step_no, name from tasker.batches where task_uuid = @task and step_no = @step and run = @run`)
	batchesNamed  = compile(`select task_uuid, max(step_no) as step_no from tasker.batches where task_uuid = any (@tasks) and name = @name group by 1`)
)

// findBatch sets Batch of the task to which the batch with the UUID belongs.
func (t *Taken) findBatch(ctx context.Context, id uuid.UUID) error {
	for i := range t.Tasks {
		task := &t.Tasks[i]
		no, run, ok := StepOf(task.UUID, id)
		if !ok || task.Plan == nil || no < len(task.Plan.Steps) {
			continue
		}
		type row struct {
			StepNo int
			Name   string
		}
		named := batchNumbered.With(args{"task": task.UUID, "step": no, "run": run})
		if err := stmt.Each(ctx, t.conn, named, func(r *row) error {
			task.Batch, task.BatchName = r.StepNo, r.Name
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// findBatches sets Batch of the tasks that have such a step, to the youngest of that
// name.
func (t *Taken) findBatches(ctx context.Context, name string) error {
	place := map[uuid.UUID]int{}
	var ids []uuid.UUID
	for i := range t.Tasks {
		if p := t.Tasks[i].Progress; p != nil && len(p.Groups) > 0 {
			place[t.Tasks[i].UUID], ids = i, append(ids, t.Tasks[i].UUID)
		}
	}
	if ids == nil {
		return nil
	}
	return stmt.Each(ctx, t.conn, batchesNamed.With(args{"tasks": ids, "name": name}), func(k *stepKey) error {
		t.Tasks[place[k.TaskUUID]].Batch, t.Tasks[place[k.TaskUUID]].BatchName = k.StepNo, name
		return nil
	})
}

// The numbers of dropped batches are assigned again (see workflow.Group). tasker.batches
// has the present ones, one per number; those that tasks had before are moved to
// tasker.former_batches, which shows attempts and the replay of the records which batch
// had a number when.

// runsOfNumbers counts the batches that have had each number.
// Index: the primary keys.
var runsOfNumbers = compile(`
select step_no, max(run) + 1 as runs from (
    select step_no, run from tasker.batches where task_uuid = @task
    union all
    select step_no, run from tasker.former_batches where task_uuid = @task) d group by step_no`)

var (
	// forgetBatches removes groups that tasks no longer have from the present ones.
	// Index: the primary key.
	forgetBatches = moveBatches(`d.template_no = g.template_no and d.first_no = g.first_no`)

	// clearNumbers makes room for groups. What it finds was dropped by an older version
	// of the program, which left such batches in place.
	// Index: the primary key.
	clearNumbers = moveBatches(`(d.template_no = g.template_no or d.step_no between g.first_no and g.first_no + g.members - 1)`)
)

// moveBatches is a statement that moves the batches d of groups g to the former ones.
func moveBatches(where string) *stmt.Statement {
	return compile(`
with gone as (
    delete from tasker.batches d
    using ` + stmt.HiddenList[group]("g") + `
    where d.task_uuid = any (array[g.task_uuid]) and ` + where + `
    returning d.task_uuid, d.since, d.created_at, d.run, d.step_no, d.template_no, d.first_no, d.no_op, d.name, d.cursor, d.isolated
)
insert into tasker.former_batches (task_uuid, since, created_at, run, step_no, template_no, first_no, no_op, name, cursor, isolated)
select task_uuid, since, created_at, run, step_no, template_no, first_no, no_op, name, cursor, isolated from gone`)
}

// NextRuns returns how many batches of a task have had each used number so far: the Run
// of the next batch with it.
func (t *Taken) NextRuns(ctx context.Context, task uuid.UUID) (map[int]int, error) {
	type row struct{ StepNo, Runs int }
	runs := map[int]int{}
	err := stmt.Each(ctx, t.conn, runsOfNumbers.With(args{"task": task}), func(r *row) error {
		runs[r.StepNo] = r.Runs
		return nil
	})
	if err != nil {
		return nil, classify("read the numbers of batches", err)
	}
	return runs, nil
}

// group is a group of batches of a task.
type group struct {
	TaskUUID   uuid.UUID
	TemplateNo int `sql:",smallint"`
	FirstNo    int `sql:",smallint"`
	Members    int `sql:",smallint"`
}

func groupOf(task uuid.UUID, g *workflow.Group) group {
	return group{task, g.Template, g.First, g.Count}
}

// regroup records the groups of batches that a task gets, and those that it no longer
// has: earlier ones, and those created and dropped by the same decision.
func (w *writes) regroup(c *Change) {
	t := c.Task
	for _, g := range groupsOf(c.Effects.Batches) {
		w.cleared = append(w.cleared, groupOf(t.UUID, &g))
		if !hasGroup(c.Progress, &g) {
			w.former = append(w.former, groupOf(t.UUID, &g))
		}
	}
	for i := range t.Progress.Groups {
		if g := &t.Progress.Groups[i]; !hasGroup(c.Progress, g) {
			w.former = append(w.former, groupOf(t.UUID, g))
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
