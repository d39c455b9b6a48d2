package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

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
const lockIsolated = `
select from tasker.batches where task_uuid = $1 and isolated is not null order by step_no for update`

// markReplayed notes with items which task has them now.
// Index: the primary key.
const markReplayed = `
with chosen as materialized (select * from unnest($2::smallint[], $3::int[]) m(step_no, no))
update tasker.batches d
set isolated = jsonb_set(d.isolated, '{items}', (
    select jsonb_agg(case when (d.step_no, x.no::int) in (select step_no, no from chosen)
                          then x.item || jsonb_build_object('replayed_as', $4::uuid) else x.item end order by x.no)
    from jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)))
where d.task_uuid = $1 and d.step_no in (select step_no from chosen)`

// recordReplay records it in the history of the items' task.
// Index: the primary keys.
const recordReplay = `
insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
select $1, clock_timestamp(), t.state, t.state, $2, $3, jsonb_build_object('action', 'replay_isolated', 'items', $4::int, 'replayed_as', $5::uuid)
from (select coalesce((select task_state from tasker.board where task_uuid = $1 and slot = 0),
                      (select task_state from tasker.step_attempts where task_uuid = $1 and task_state is not null limit 1)) as state) t
where t.state is not null`

// ReplayIsolated creates a task that processes isolated items again and marks them, in
// one transaction: no item gets into two tasks of replays that select unreplayed items.
// used counts the items; 0: there were none, and no task was created. The signals are to
// be published unless the store sends them itself.
func (s *Store) ReplayIsolated(ctx context.Context, r IsolatedReplay) (created CreatedTask, used int, signals []signal.Signal, err error) {
	err = s.call(ctx, "replay_isolated", "replay isolated items", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			created, used, signals = CreatedTask{}, 0, nil
			if _, err := tx.Exec(ctx, lockIsolated, r.Of); err != nil {
				return nil, err
			}
			// A statement of its own: its snapshot is younger than the locks.
			items, err := isolatedIn(ctx, tx, r.Of, r.Filter, 0, 0, r.Limit)
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
	})
	return created, used, signals, err
}

// createIn creates the task with the steps that count as done, and marks the
// items. The number of statements does not depend on either.
func (t *BegunTask) createIn(ctx context.Context, tx pgx.Tx, r *IsolatedReplay, items []Isolated) (time.Time, []signal.Signal, error) {
	row := t.NewTask
	row.begun = t.Progress
	args, _, err := createArguments([]NewTask{row}, []bool{true}, nil)
	if err != nil {
		return time.Time{}, nil, err
	}
	rows, err := tx.Query(ctx, createTasks, args...)
	if err != nil {
		return time.Time{}, nil, err
	}
	accepted := make(acceptedTasks, 1)
	if err := accepted.collect(rows); err != nil {
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
	steps, numbers := make([]int16, len(items)), make([]int32, len(items))
	for i := range items {
		steps[i], numbers[i] = int16(items[i].Step), int32(items[i].No) // #nosec G115 -- as they came
	}
	b.Queue(markReplayed, r.Of, steps, numbers, t.UUID)
	b.Queue(recordReplay, r.Of, r.Actor, r.Reason, len(items), t.UUID)
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
