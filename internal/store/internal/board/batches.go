package board

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
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

// recordBatches records the steps created at run time. All claims of earlier steps with
// their numbers have smaller tokens.
// Index: the primary key of former batches.
var recordBatches = pg.Compile(`
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
var readOutcomes = pg.Compile(`
select k.at, s.result from ` + stmt.OrderedHiddenList[StepKey]("k") + `
cross join lateral (select result from tasker.board where task_uuid = k.task_uuid and slot = any (array[0, k.step_no + 1]) and step_no = k.step_no limit 1) s`)

// reports are the reported steps of the tasks whose records can be read.
func (t *Taken) reports() iter.Seq2[*TakenTask, *TakenStep] {
	return func(yield func(*TakenTask, *TakenStep) bool) {
		for i := range t.Tasks {
			task := &t.Tasks[i]
			for j := range task.Reported {
				if task.Broken == nil && task.Unreadable == nil && !yield(task, &task.Reported[j]) {
					return
				}
			}
		}
	}
}

// readOutcomes reads the results of steps that create others. It runs no statement if
// there are none.
func (t *Taken) readOutcomes(ctx context.Context) error {
	var keys []StepKey
	var steps []*TakenStep
	for task, r := range t.reports() {
		if step := task.Plan.Step(task.Progress, r.Step); step != nil && step.Kind.Unfolds() && r.Outcome == workflow.OutcomeSuccess {
			keys, steps = append(keys, StepKey{task.UUID, r.Step}), append(steps, r)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	type row struct {
		At     int
		Result json.RawMessage
	}
	return stmt.Each(ctx, t.conn, readOutcomes.With(pg.Args{"k": keys}), func(r *row) {
		steps[r.At-1].Result = r.Result
	})
}

// Index: the primary key.
var (
	batchNumbered = pg.Compile(`select step_no, name from tasker.batches where task_uuid = @task and step_no = @step and run = @run`)
	batchesNamed  = pg.Compile(`select task_uuid, max(step_no) as step_no from tasker.batches where task_uuid = any (@tasks) and name = @name group by 1`)
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
		named := batchNumbered.With(pg.Args{"task": task.UUID, "step": no, "run": run})
		if err := stmt.Each(ctx, t.conn, named, func(r *row) {
			task.Batch, task.BatchName = r.StepNo, r.Name
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
	return stmt.Each(ctx, t.conn, batchesNamed.With(pg.Args{"tasks": ids, "name": name}), func(k *StepKey) {
		t.Tasks[place[k.TaskUUID]].Batch, t.Tasks[place[k.TaskUUID]].BatchName = k.StepNo, name
	})
}

// The numbers of dropped batches are assigned again (see workflow.Group). tasker.batches
// has the present ones, one per number; those that tasks had before are moved to
// tasker.former_batches, which shows attempts and the replay of the records which batch
// had a number when.

// runsOfNumbers counts the batches that have had each number.
// Index: the primary keys.
var runsOfNumbers = pg.Compile(`
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
	return pg.Compile(`
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
	err := stmt.Each(ctx, t.conn, runsOfNumbers.With(pg.Args{"task": task}), func(r *row) {
		runs[r.StepNo] = r.Runs
	})
	if err != nil {
		return nil, pg.Classify("read the numbers of batches", err)
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

// keepIsolated stores the items that batches have isolated, in the transaction of the
// reports and after them: if the report of the same claim was accepted. A repetition
// after a lost answer stores the same.
// Index: the primary keys.
var keepIsolated = pg.Compile(`
update tasker.batches d set isolated = jsonb_build_object('token', r.token, 'items', r.items::jsonb)
from ` + stmt.HiddenList[isolatedItems]("r") + `
where d.task_uuid = any (array[r.task_uuid]) and d.step_no = r.step_no
  and exists (select from tasker.board s where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.step_no + 1 and s.step_no = r.step_no
              and s.token = r.token and s.outcome = {success})`)

// isolatedItems are the items that a claim has isolated.
type isolatedItems struct {
	StepKey
	Token int64
	Items json.RawMessage
}

// isolatedRows are the reports with isolated items; nil if there are none, as mostly.
func isolatedRows(reports []Report, order []int) (rows []isolatedItems) {
	for _, i := range order {
		if r := &reports[i]; r.Isolated != nil {
			rows = append(rows, isolatedItems{StepKey{r.TaskUUID, r.Step}, r.Token, r.Isolated})
		}
	}
	return rows
}

// Isolated is an item of a batch that its handler could not process.
type Isolated struct {
	Step     int `sql:"step_no"` // the batch
	Run      int // see BatchUUID
	No       int // in the batch, from 1 on
	Template int `sql:"template_no"` // the plan's step that the batch instantiates
	Batch    string
	Item     json.RawMessage // as the handler named it
	Error    json.RawMessage // {"message", "error_type", "error_code"?, "retryable"}
	// ReplayedAs is the latest task created to process it again; nil: none.
	ReplayedAs *uuid.UUID
}

// IsolatedFilter selects items of a task; zero values select all.
type IsolatedFilter struct {
	Worker    *int   // the plan's step of their batches
	Batch     string // its name
	Retryable *bool
	Replayed  *bool
}

// readIsolated lists items in the order of the batches: of the latest group of each
// worker step, and of each batch its newest attempt.
// Index: the primary keys.
var readIsolated = pg.Compile(`
select d.step_no, d.run, x.no::int as no, d.template_no, d.name as batch, x.item -> 'item' as item, x.item -> 'error' as error,
       (x.item ->> 'replayed_as')::uuid as replayed_as
from tasker.batches d
cross join lateral (select token, outcome from tasker.step_attempts
                    where task_uuid = d.task_uuid and step_no = d.step_no order by token desc limit 1) a
cross join lateral jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)
where d.task_uuid = @task and d.isolated is not null and a.outcome = {success} and a.token = (d.isolated ->> 'token')::bigint
  and d.first_no = (select max(first_no) from tasker.batches g where g.task_uuid = @task and g.template_no = d.template_no)
  and (d.step_no > @after_step or d.step_no = @after_step and x.no > @after_no)
  and (@worker::smallint is null or d.template_no = @worker) and (@batch = '' or d.name = @batch)
  and (@retryable::boolean is null or (x.item -> 'error' ->> 'retryable')::boolean = @retryable)
  and (@replayed::boolean is null or (x.item ? 'replayed_as') = @replayed)
order by d.step_no, x.no limit @limit`)

// Isolated lists up to limit isolated items of a task after item afterNo of batch
// afterStep; 0, 0: from the first.
func (s *Board) Isolated(ctx context.Context, task uuid.UUID, f IsolatedFilter, afterStep, afterNo, limit int) ([]Isolated, error) {
	return pg.ReadAll[Isolated](ctx, s.db, "isolated", "read the isolated items", f.read(task, afterStep, afterNo, limit))
}

func (f *IsolatedFilter) read(task uuid.UUID, afterStep, afterNo, limit int) stmt.Call {
	return readIsolated.With(pg.Args{"task": task, "after_step": afterStep, "after_no": afterNo, "worker": f.Worker, "batch": f.Batch,
		"retryable": f.Retryable, "replayed": f.Replayed, "limit": limit})
}

// IsolatedReplay is a task that processes isolated items again.
type IsolatedReplay struct {
	Of        uuid.UUID // the task of the items
	Filter    IsolatedFilter
	Limit     int       // items
	Processor uuid.UUID // recorded on the new task
	// Actor and Reason are of the action; both tasks record them.
	Actor, Reason string
	Worker        string // the name of the batch_worker step, recorded with the action
	// Make creates the task of the items, in their order. It is called once, with at
	// least one item, and may leave out the last ones: used is the number of items taken.
	Make func(items []Isolated) (task BegunTask, used int, err error)
}

// BegunTask is a new task of which some steps count as done.
type BegunTask struct {
	NewTask
	Progress *workflow.Progress
	Effects  *workflow.Effects
	Done     []Performed // the actions that completed these steps, in order
}

// lockIsolated serializes replays of a task's items.
// Index: the primary key.
var lockIsolated = pg.Compile(`
select from tasker.batches where task_uuid = @task and isolated is not null order by step_no for update`)

// markReplayed notes with items which task has them now.
// Index: the primary key.
var markReplayed = pg.Compile(`
with chosen as materialized (select * from ` + stmt.List[itemKey]("m") + `)
update tasker.batches d
set isolated = jsonb_set(d.isolated, '{items}', (
    select jsonb_agg(case when (d.step_no, x.no::int) in (select step_no, no from chosen)
                          then x.item || jsonb_build_object('replayed_as', @next::uuid) else x.item end order by x.no)
    from jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)))
where d.task_uuid = @task and d.step_no in (select step_no from chosen)`)

// itemKey names an item of a task's batches.
type itemKey struct {
	StepNo int `sql:",smallint"`
	No     int
}

// recordReplay records it in the history of the items' task.
// Index: the primary keys.
var recordReplay = pg.Compile(`
insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
select @task, clock_timestamp(), t.state, t.state, @actor, @reason, jsonb_build_object('action', 'replay_isolated', 'items', @items::int, 'replayed_as', @next::uuid)
from (select coalesce((select task_state from tasker.board where task_uuid = @task and slot = 0),
                      (select task_state from tasker.step_attempts where task_uuid = @task and task_state is not null limit 1)) as state) t
where t.state is not null`)

// ReplayIsolated creates a task that processes isolated items again and marks them, in
// one transaction: no item gets into two tasks of replays that select unreplayed items.
// used counts the items; 0: there were none, and no task was created. The signals are to
// be published unless the store sends them itself.
func (s *Board) ReplayIsolated(ctx context.Context, r IsolatedReplay) (created CreatedTask, used int, signals []signal.Signal, err error) {
	err = s.db.Transaction(ctx, "replay_isolated", "replay isolated items", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		created, used, signals = CreatedTask{}, 0, nil
		if _, err := pg.Run(ctx, tx, lockIsolated.With(pg.Args{"task": r.Of})); err != nil {
			return nil, err
		}
		// A statement of its own: its snapshot is younger than the locks.
		items, err := stmt.All[Isolated](ctx, tx, r.Filter.read(r.Of, 0, 0, r.Limit))
		if err != nil || len(items) == 0 {
			return nil, err
		}
		var task BegunTask
		if task, used, err = r.Make(items); err != nil {
			return nil, err
		}
		created.UUID = task.UUID
		if created.RequestedAt, signals, err = task.createIn(ctx, tx, &r, items[:used]); err != nil {
			return nil, err
		}
		if err = pg.InsertAction(ctx, tx, pg.OperatorAction{Actor: r.Actor, Action: "replay_isolated", Reason: r.Reason, Matched: used, Changed: used,
			Target: map[string]any{"task_uuid": r.Of, "worker": r.Worker, "items": used, "replayed_as": task.UUID}}); err != nil {
			return nil, err
		}
		signals = s.db.WithTransitions(signals)
		return signals, nil
	})
	return created, used, signals, err
}

// createIn creates the task with the steps that count as done, and marks the
// items. The number of statements does not depend on either.
func (t *BegunTask) createIn(ctx context.Context, tx pgx.Tx, r *IsolatedReplay, items []Isolated) (time.Time, []signal.Signal, error) {
	row := t.NewTask
	row.start = &workflow.Start{Progress: t.Progress} // its steps are put on the board below
	create, _ := Creation([]NewTask{row}, []bool{true}, nil)
	accepted := make(AcceptedTasks, 1)
	if err := accepted.create(ctx, tx, create); err != nil {
		return time.Time{}, nil, err
	}
	answer, ok := accepted[t.UUID]
	requestedAt := answer.RequestedAt
	if !ok {
		return time.Time{}, nil, fmt.Errorf("the task %s was not accepted", t.UUID)
	}
	w, err := t.writes(r.Actor)
	if err != nil {
		return requestedAt, nil, err
	}
	b := &pgx.Batch{}
	w.queue(b, r.Processor)
	keys := make([]itemKey, len(items))
	for i := range items {
		keys[i] = itemKey{items[i].Step, items[i].No}
	}
	markReplayed.With(pg.Args{"task": r.Of, "m": keys, "next": t.UUID}).Queue(b)
	recordReplay.With(pg.Args{"task": r.Of, "actor": r.Actor, "reason": r.Reason, "items": len(items), "next": t.UUID}).Queue(b)
	return requestedAt, w.signals(), tx.SendBatch(ctx, b).Close()
}

// writes are the first steps of the task, as if they had followed its creation.
func (t *BegunTask) writes(actor string) (*writes, error) {
	taken := &TakenTask{UUID: t.UUID, Plan: t.Plan, State: workflow.TaskPending, Priority: t.Priority, Progress: t.Progress}
	w := writes{topics: SignalSet{}}
	if err := w.add(&Change{Task: taken, Progress: t.Progress, Effects: t.Effects, Actor: actor}); err != nil {
		return nil, err
	}
	went := *t.Effects
	for i := range t.Done {
		if err := w.performed(&Change{Task: taken, Effects: &went, Actor: actor, Action: &t.Done[i]}); err != nil {
			return nil, err
		}
		taken.State, went.Changes = t.Effects.State, nil // the first of them has that effect
	}
	return &w, nil
}
