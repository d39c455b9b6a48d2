package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// keepIsolated stores the items that batches have isolated, in the transaction of the
// reports and after them: if the report of the same claim was accepted. A repetition
// after a lost answer stores the same.
// Index: the primary keys.
var keepIsolated = compile(`
update tasker.batches d set isolated = jsonb_build_object('token', r.token, 'items', r.items::jsonb)
from ` + stmt.HiddenList[isolatedItems]("r") + `
where d.task_uuid = any (array[r.task_uuid]) and d.step_no = r.step_no
  and exists (select from tasker.board s where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.step_no + 1 and s.step_no = r.step_no
              and s.token = r.token and s.outcome = {success})`)

// isolatedItems are the items that a claim has isolated.
type isolatedItems struct {
	stepKey
	Token int64
	Items json.RawMessage
}

// isolatedRows are the reports with isolated items; nil if there are none, as mostly.
func isolatedRows(reports []Report, order []int) (rows []isolatedItems) {
	for _, i := range order {
		if r := &reports[i]; r.Isolated != nil {
			rows = append(rows, isolatedItems{stepKey{r.TaskUUID, r.Step}, r.Token, r.Isolated})
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
var readIsolated = compile(`
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
func (s *Store) Isolated(ctx context.Context, task uuid.UUID, f IsolatedFilter, afterStep, afterNo, limit int) ([]Isolated, error) {
	return readAll[Isolated](ctx, s, "isolated", "read the isolated items", f.read(task, afterStep, afterNo, limit))
}

func (f *IsolatedFilter) read(task uuid.UUID, afterStep, afterNo, limit int) stmt.Call {
	return readIsolated.With(args{"task": task, "after_step": afterStep, "after_no": afterNo, "worker": f.Worker, "batch": f.Batch,
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
var lockIsolated = compile(`
select from tasker.batches where task_uuid = @task and isolated is not null order by step_no for update`)

// markReplayed notes with items which task has them now.
// Index: the primary key.
var markReplayed = compile(`
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
var recordReplay = compile(`
insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
select @task, clock_timestamp(), t.state, t.state, @actor, @reason, jsonb_build_object('action', 'replay_isolated', 'items', @items::int, 'replayed_as', @next::uuid)
from (select coalesce((select task_state from tasker.board where task_uuid = @task and slot = 0),
                      (select task_state from tasker.step_attempts where task_uuid = @task and task_state is not null limit 1)) as state) t
where t.state is not null`)

// ReplayIsolated creates a task that processes isolated items again and marks them, in
// one transaction: no item gets into two tasks of replays that select unreplayed items.
// used counts the items; 0: there were none, and no task was created. The signals are to
// be published unless the store sends them itself.
func (s *Store) ReplayIsolated(ctx context.Context, r IsolatedReplay) (created CreatedTask, used int, signals []signal.Signal, err error) {
	err = s.transaction(ctx, "replay_isolated", "replay isolated items", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		created, used, signals = CreatedTask{}, 0, nil
		if _, err := run(ctx, tx, lockIsolated.With(args{"task": r.Of})); err != nil {
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
		return signals, nil
	})
	return created, used, signals, err
}

// createIn creates the task with the steps that count as done, and marks the
// items. The number of statements does not depend on either.
func (t *BegunTask) createIn(ctx context.Context, tx pgx.Tx, r *IsolatedReplay, items []Isolated) (time.Time, []signal.Signal, error) {
	row := t.NewTask
	row.begun = t.Progress
	create, _, err := creation([]NewTask{row}, []bool{true}, nil)
	if err != nil {
		return time.Time{}, nil, err
	}
	accepted := make(acceptedTasks, 1)
	if err := accepted.create(ctx, tx, create); err != nil {
		return time.Time{}, nil, err
	}
	requestedAt, ok := accepted[t.UUID]
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
	markReplayed.With(args{"task": r.Of, "m": keys, "next": t.UUID}).Queue(b)
	recordReplay.With(args{"task": r.Of, "actor": r.Actor, "reason": r.Reason, "items": len(items), "next": t.UUID}).Queue(b)
	return requestedAt, w.signals(), tx.SendBatch(ctx, b).Close()
}

// writes are the first steps of the task, as if they had followed its creation.
func (t *BegunTask) writes(actor string) (*writes, error) {
	taken := &TakenTask{UUID: t.UUID, Plan: t.Plan, State: workflow.TaskPending, Priority: t.Priority, Progress: t.Progress}
	w := writes{topics: signalSet{}}
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
