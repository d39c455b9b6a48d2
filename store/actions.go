package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// Performed is an action of an operator or a sweep on a task, as recorded: the integrity
// check replays it.
type Performed struct {
	Kind   string
	Step   int // its number; negative: the task
	Reason string
	Result json.RawMessage // of a step completed by hand
	// Metadata is what the operator attached to the action; nil: nothing.
	Metadata json.RawMessage
	// Context is the task's new context, ContextBefore the old one; both nil: unchanged.
	Context, ContextBefore json.RawMessage
}

// takeTasks locks live tasks.
// Index: the primary key.
const takeTasks = `
select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false),
       t.progress, t.state <> 0, null::smallint, null::bigint, null::smallint, null::smallint, null::bool, null::bigint, 0
from tasker.board t where t.task_uuid = any ((select $1::uuid[])::uuid[]) and t.slot = 0
order by t.task_uuid for update`

// takenReports are the reported, not yet applied steps of locked tasks. It is a statement
// of its own, whose snapshot is younger than the locks, see take_reported.
// Index: the primary key.
const takenReports = `
select s.task_uuid, s.step_no, s.attempt, s.outcome, s.retryable, s.retry_after_ms
from unnest((select $1::uuid[])) h(task_uuid)
cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
order by s.task_uuid, s.step_no`

// reopenTasks moves ended tasks back to the board, without steps. Their recorded end is
// removed from the ledger; the event of the action implies it.
// Index: the primary keys.
const reopenTasks = `
with ended as materialized (
    select a.task_uuid, a.step_no, a.token, a.task_state, a.task_progress
    from unnest((select $1::uuid[])) r(task_uuid)
    join tasker.step_attempts a on a.task_uuid = r.task_uuid and a.task_state = any ((select $2::smallint[])::smallint[])
    for update of a
), bare as (
    delete from tasker.step_attempts a using ended e
    where a.task_uuid = e.task_uuid and a.step_no = e.step_no and a.token = e.token and a.step_no < 0
), cleared as (
    update tasker.step_attempts a set task_state = null, task_reason = null, task_progress = null
    from ended e where a.task_uuid = e.task_uuid and a.step_no = e.step_no and a.token = e.token and a.step_no >= 0
)
insert into tasker.board (task_uuid, slot, state, lane, queue, plan_id, task_state, priority, progress, requested_at, state_since,
                          updated_at, correlation_id, parent_correlation_id, context, dead_letter)
select e.task_uuid, 0, 0, 0, t.queue, t.plan_id, e.task_state, t.priority, e.task_progress, t.requested_at, clock_timestamp(),
       clock_timestamp(), t.correlation_id, t.parent_correlation_id,
       case when octet_length(t.context::text) <= ` + inlineContext + ` then t.context end,
       case when exists (select from tasker.dlq_entries d where d.task_uuid = e.task_uuid and d.resolution = 1) then true end
from ended e join tasker.tasks t on t.task_uuid = e.task_uuid
on conflict do nothing`

// Taking says how tasks are taken for an action.
type Taking struct {
	// Reopen lists the terminal states from which tasks are reopened.
	Reopen []int16
	// Spread is for actions on steps: a task with a step in its own row gets a separate
	// row for it, so that others can be added.
	Spread bool
	// Batch is the name of a step that may have been created at run time; empty: none to
	// look up. See TakenTask.Batch.
	Batch string
	// BatchUUID is the same by the UUID of such a step; nil: none to look up.
	BatchUUID *uuid.UUID
	// Context requests the contexts of the tasks, see TakenTask.Context.
	Context bool
}

// TakeTask takes one live task; it waits for locks. The error wraps ErrTaskEnded or
// ErrNotFound if the task is not alive.
func (s *Store) TakeTask(ctx context.Context, task uuid.UUID) (*Taken, error) {
	taken, err := s.TakeTasks(ctx, []uuid.UUID{task}, Taking{})
	if err != nil || len(taken.Tasks) > 0 {
		return taken, err
	}
	defer taken.Release()
	return taken, classify("take the task", whyNotAlive(ctx, taken.conn, task))
}

// WhyNotAlive returns why a task could not be taken: ErrTaskEnded or ErrNotFound,
// wrapped.
func (s *Store) WhyNotAlive(ctx context.Context, task uuid.UUID) error {
	return s.repeatable(ctx, "why_not_alive", "look for the task", func(ctx context.Context, db *conn) error {
		return whyNotAlive(ctx, db, task)
	})
}

// TakeTasks takes the live ones of the tasks, in the order of their UUIDs, with their
// reported, not yet applied steps: those were accepted, so they precede the action. It
// waits for locks. The caller must release or commit the result, also an empty one.
func (s *Store) TakeTasks(ctx context.Context, tasks []uuid.UUID, how Taking) (*Taken, error) {
	taken := &Taken{store: s}
	ids := make(uuids, len(tasks))
	for i, id := range tasks {
		ids[i] = id
	}
	err := s.timed(ctx, "take_task", "take the task", func(ctx context.Context) error {
		return taken.beginAround(ctx, func(b *pgx.Batch) {
			if len(how.Reopen) > 0 {
				b.Queue(reopenTasks, ids, how.Reopen)
			}
			if how.Spread {
				b.Queue(lockTasks, ids) // the next statement's snapshot is younger than the locks
				b.Queue(spreadTasks, ids)
			}
		}, func(*pgx.Batch) {}, takeTasks, ids)
	})
	if err == nil {
		if err = taken.readReports(ctx); err != nil {
			err = classify("read what was reported", err)
		}
	}
	if err == nil && how.Batch != "" {
		if err = taken.findBatches(ctx, how.Batch); err != nil {
			err = classify("find the batch", err)
		}
	}
	if err == nil && how.BatchUUID != nil {
		if err = taken.findBatch(ctx, *how.BatchUUID); err != nil {
			err = classify("find the batch", err)
		}
	}
	if err == nil && how.Context {
		if err = taken.readContexts(ctx); err != nil {
			err = classify("read the contexts", err)
		}
	}
	if err != nil {
		taken.Release()
	}
	return taken, err
}

// places maps each task to its index in Tasks, and returns the ids of all.
func (t *Taken) places() (place map[uuid.UUID]int, ids uuids) {
	place, ids = make(map[uuid.UUID]int, len(t.Tasks)), make(uuids, len(t.Tasks))
	for i := range t.Tasks {
		place[t.Tasks[i].UUID], ids[i] = i, t.Tasks[i].UUID
	}
	return place, ids
}

// readReports reads the reported steps of the tasks.
func (t *Taken) readReports(ctx context.Context) error {
	_, ids := t.places()
	if len(ids) == 0 {
		return nil
	}
	rows, err := t.conn.Query(ctx, takenReports, ids)
	if err != nil {
		return err
	}
	if err := t.collectReports(rows); err != nil {
		return err
	}
	return t.readRest(ctx)
}

func whyNotAlive(ctx context.Context, db *conn, task uuid.UUID) error {
	var ended bool
	err := db.QueryRow(ctx, `select exists (select from tasker.tasks where task_uuid = $1)`, task).Scan(&ended)
	if err != nil {
		return err
	}
	if ended {
		return ErrTaskEnded
	}
	return ErrNotFound
}

// recordManual records results set by operators.
const recordManual = `
insert into tasker.step_attempts (task_uuid, step_no, attempt, token, enqueued_at, claimed_at, reported_at, applied_at, outcome, reason, result)
select m.task_uuid, m.step_no, 0, nextval('tasker.claim_token'), null, null, clock_timestamp(), clock_timestamp(), 1, '` + manualReason + `', m.result::jsonb
from unnest($1::uuid[], $2::smallint[], $3::text[]) m(task_uuid, step_no, result)`

// manualReason marks the attempt of a result set by an operator.
const manualReason = workflow.ActionComplete

// performed adds an action to the writes.
func (w *writes) performed(c *Change) error {
	a, e := c.Action, c.Effects
	to := c.Task.State
	if len(e.Changes) > 0 {
		to = e.Changes[0].To
	}
	meta := map[string]any{"action": a.Kind}
	if a.Step >= 0 {
		meta["step"] = a.Step
		if step := c.Task.Plan.Step(c.Task.Progress, a.Step); step != nil {
			meta["step_name"] = step.Name
		}
		if a.Step == c.Task.Batch && c.Task.BatchName != "" {
			meta["step_name"] = c.Task.BatchName // another step may get its number
		}
	}
	if a.Metadata != nil {
		meta["metadata"] = a.Metadata
	}
	if n := len(c.Task.Reported); n > 0 { // for the integrity check, which replays reports and action together
		meta["reports"] = n
	}
	if a.Context != nil {
		meta["context"] = map[string]json.RawMessage{"before": a.ContextBefore, "after": a.Context}
		w.edited.tasks, w.edited.contexts = append(w.edited.tasks, c.Task.UUID), append(w.edited.contexts, string(a.Context))
	}
	document, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("describe the action: %w", err)
	}
	text := string(document)
	w.events.row(c.Task.UUID, int16(c.Task.State), int16(to), c.Actor, a.Reason, &text)
	if a.Kind == workflow.ActionReset {
		w.resumed.add(c.Task.UUID, a.Step)
	}
	if a.Result != nil {
		w.manual.tasks = append(w.manual.tasks, c.Task.UUID)
		w.manual.steps = append(w.manual.steps, int16(a.Step)) // #nosec G115 -- at most MaxSteps
		w.manual.results = append(w.manual.results, string(a.Result))
	}
	return nil
}

// manualColumns are results set by operators.
type manualColumns struct {
	tasks   uuids
	steps   []int16
	results []string
}

// ownSlot returns the key of a claim in a task's own row after an action has moved the
// step.
func (k ClaimKey) ownSlot() (moved ClaimKey, possible bool) {
	if k.Slot != 0 {
		return k, false
	}
	k.Slot = k.Step + 1
	return k, true
}
