package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
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
var takeTasks = pg.Compile(`
select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false) as watched, coalesce(t.dead_letter, false) as dead_letter,
       coalesce(t.awaited, false) as awaited, t.progress, t.state <> {no_step} as inline, null::smallint as step_no, null::bigint as seq,
       null::smallint as attempt, null::smallint as outcome, null::bool as retryable, null::bigint as retry_after_ms, 0 as skipped, t.trace
from tasker.board t where t.task_uuid = any ((select @tasks::uuid[])::uuid[]) and t.slot = 0
order by t.task_uuid for update`)

// takenReports are the reported, not yet applied steps of locked tasks. It is a statement
// of its own, whose snapshot is younger than the locks, see take_reported.
// Index: the primary key.
var takenReports = pg.Compile(`
select s.task_uuid, s.step_no, s.attempt, s.outcome, s.retryable, s.retry_after_ms
from unnest((select @tasks::uuid[])) h(task_uuid)
cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
order by s.task_uuid, s.step_no`)

// reopenTasks moves ended tasks back to the board, without steps. Their recorded end is
// removed from the ledger; the event of the action implies it.
// Index: the primary keys.
var reopenTasks = pg.Compile(`
with ended as materialized (
    select a.task_uuid, a.step_no, a.token, a.task_state, a.task_progress
    from unnest((select @tasks::uuid[])) r(task_uuid)
    join tasker.step_attempts a on a.task_uuid = r.task_uuid and a.task_state = any ((select @states::smallint[])::smallint[])
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
       case when exists (select from tasker.dlq_entries d where d.task_uuid = e.task_uuid and d.resolution = {pending}) then true end
from ended e join tasker.tasks t on t.task_uuid = e.task_uuid
on conflict do nothing`)

// LockTasks locks tasks in the global order. Of two whose last dependencies are met
// at once, the second sees the changes of the first.
var LockTasks = pg.Compile(`
select from tasker.board where task_uuid = any (@tasks::uuid[]) and slot = 0 order by task_uuid for update`)

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

// WhyNotAlive returns why a task could not be taken: ErrTaskEnded or ErrNotFound,
// wrapped.
func (s *Board) WhyNotAlive(ctx context.Context, task uuid.UUID) error {
	return s.db.Repeatable(ctx, "why_not_alive", "look for the task", func(ctx context.Context, db *pg.Conn) error {
		return whyNotAlive(ctx, db, task)
	})
}

// TakeTasks takes the live ones of the tasks, in the order of their UUIDs, with their
// reported, not yet applied steps: those were accepted, so they precede the action. It
// waits for locks. The caller must release or commit the result, also an empty one.
func (s *Board) TakeTasks(ctx context.Context, tasks []uuid.UUID, how Taking) (*Taken, error) {
	for {
		taken, err := s.takeTasks(ctx, tasks, how)
		if err != nil || !how.Spread || !slices.ContainsFunc(taken.Tasks, func(t TakenTask) bool { return t.Inline }) {
			return taken, err
		}
		// A task came to the board, reopened or created, after the others were locked and spread. It
		// stays there unless it ends, so the next look finds it.
		taken.Release()
	}
}

func (s *Board) takeTasks(ctx context.Context, tasks []uuid.UUID, how Taking) (*Taken, error) {
	taken := &Taken{store: s}
	ids := pg.Column(tasks, func(id *uuid.UUID) [16]byte { return *id })
	err := s.db.Timed(ctx, "take_task", "take the task", func(ctx context.Context) error {
		return taken.begin(ctx, func(b *pgx.Batch) {
			if len(how.Reopen) > 0 {
				reopenTasks.With(pg.Args{"tasks": ids, "states": how.Reopen}).Queue(b)
			}
			if how.Spread {
				LockTasks.With(pg.Args{"tasks": ids}).Queue(b) // the next statement's snapshot is younger than the locks
				spreadTasks.With(pg.Args{"tasks": ids}).Queue(b)
			}
		}, takeTasks.With(pg.Args{"tasks": ids}), nothing)
	})
	for _, part := range []struct {
		wanted bool
		doing  string
		read   func(context.Context) error
	}{
		{true, "read what was reported", taken.readReports},
		{how.Batch != "", "find the batch", func(ctx context.Context) error { return taken.findBatches(ctx, how.Batch) }},
		{how.BatchUUID != nil, "find the batch", func(ctx context.Context) error { return taken.findBatch(ctx, *how.BatchUUID) }},
		{how.Context, "read the contexts", taken.readContexts},
	} {
		if err == nil && part.wanted {
			if err = part.read(ctx); err != nil {
				err = pg.Classify(part.doing, err)
			}
		}
	}
	if err != nil {
		taken.Release()
	}
	return taken, err
}

// places maps each task to its index in Tasks, and returns the ids of all.
func (t *Taken) places() (place map[uuid.UUID]int, ids pg.UUIDs) {
	place, ids = make(map[uuid.UUID]int, len(t.Tasks)), make(pg.UUIDs, len(t.Tasks))
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
	reports := takenReports.With(pg.Args{"tasks": ids})
	rows, err := t.conn.Query(ctx, reports.SQL, reports.Args...)
	if err != nil {
		return err
	}
	if err := t.collectReports(rows); err != nil {
		return err
	}
	return t.readRest(ctx)
}

// Keep leaves out the tasks that a statement about all of them does not return: a decision
// from before they were taken does not hold for these any more.
func (t *Taken) Keep(ctx context.Context, doing string, still func(tasks pg.UUIDs) stmt.Call) error {
	_, ids := t.places()
	kept, err := stmt.All[uuid.UUID](ctx, t.conn, still(ids))
	if err != nil {
		return pg.Classify(doing, err)
	}
	t.Tasks = slices.DeleteFunc(t.Tasks, func(task TakenTask) bool { return !slices.Contains(kept, task.UUID) })
	return nil
}

// Record adds the changed tasks to the record of an operator's action.
func (t *Taken) Record(ctx context.Context, record *pg.ActionRecord, changed int) error {
	if err := record.Add(ctx, t.conn, changed); err != nil {
		return pg.Classify("record the operator's action", err)
	}
	return nil
}

var taskExists = pg.Compile(`select exists (select from tasker.tasks where task_uuid = @task)`)

func whyNotAlive(ctx context.Context, db *pg.Conn, task uuid.UUID) error {
	ended, err := stmt.One[bool](ctx, db, taskExists.With(pg.Args{"task": task}))
	if err != nil {
		return err
	}
	if ended {
		return pg.ErrTaskEnded
	}
	return pg.ErrNotFound
}

// recordManual records results set by operators.
var recordManual = pg.Compile(`
insert into tasker.step_attempts (task_uuid, step_no, attempt, token, enqueued_at, claimed_at, reported_at, applied_at, outcome, reason, result)
select m.task_uuid, m.step_no, 0, nextval('tasker.claim_token'), null, null, clock_timestamp(), clock_timestamp(), {success}, '` + ManualReason + `', m.result::jsonb
from ` + stmt.List[manualResult]("m") + ` where ` + recording(`m.task_uuid, 0, m.step_no, 0, {success}, null, null`))

// ManualReason marks the attempt of a result set by an operator.
const ManualReason = workflow.ActionComplete

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
		w.edited = append(w.edited, editedTask{c.Task.UUID, string(a.Context)})
	}
	document, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("describe the action: %w", err)
	}
	w.events = append(w.events, taskEvent{c.Task.UUID, c.Task.State, to, c.Actor, a.Reason, document})
	if a.Kind == workflow.ActionReset {
		w.resumed = append(w.resumed, StepKey{c.Task.UUID, a.Step})
	}
	if a.Result != nil {
		w.manual = append(w.manual, manualResult{c.Task.UUID, a.Step, a.Result})
	}
	return nil
}

// manualResult is a result set by an operator.
type manualResult struct {
	TaskUUID uuid.UUID
	StepNo   int `sql:",smallint"`
	Result   json.RawMessage
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

// ReadContexts reads the contexts of the tasks. They change only under the locks of the
// tasks, so the result stays valid.
// Index: the primary key.
func (t *Taken) readContexts(ctx context.Context) error {
	place, ids := t.places()
	if len(ids) == 0 {
		return nil
	}
	return stmt.Each(ctx, t.conn, ReadContexts.With(pg.Args{"tasks": ids}), func(of *TaskContext) {
		t.Tasks[place[of.TaskUUID]].Context = of.Context
	})
}

// ReadContexts reads the contexts of tasks.
var ReadContexts = pg.Compile(`select task_uuid, context from tasker.tasks where task_uuid = any (@tasks)`)

// TaskContext is the context of a task.
type TaskContext struct {
	TaskUUID uuid.UUID
	Context  json.RawMessage
}

// editedTask is a task whose context an operator has changed.
type editedTask struct {
	TaskUUID uuid.UUID
	Context  string
}

// editContexts replaces the contexts of tasks, small ones on the board as well, as a
// creation does. Claimed steps keep the old one. The identity of the task stays that of
// its creation.
// Index: the primary keys.
var editContexts = pg.Compile(`
with n as materialized (
    select task_uuid, context, context::jsonb as document from ` + stmt.List[editedTask]("n") + `
), kept as (
    update tasker.tasks t set context = n.document from n where t.task_uuid = any (array[n.task_uuid])
)
update tasker.board b set context = case when octet_length(n.context) <= ` + inlineContext + ` then n.document end
from n where b.task_uuid = any (array[n.task_uuid]) and b.slot = 0`)

// quarantineTasks removes tasks with contradictory records from the board, and records
// their claims and reports in the ledger.
// Index: the primary key.
var quarantineTasks = pg.Compile(`
with gone as (
    delete from tasker.board s
    using ` + stmt.List[brokenTask]("o") + `
    where s.task_uuid = o.task_uuid
    returning s.task_uuid, s.slot, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, s.result, s.error,
              s.checkpoint, o.reason, o.progress, s.queue, s.task_state, s.plan_id, s.requested_at, clock_timestamp() as at, ` + calledOff + ` as sub_task
), stopped as (
    insert into tasker.task_messages (task_uuid, kind) select sub_task, {stop} from gone where sub_task is not null
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, reason, result, error, checkpoint, task_state, task_reason, task_progress, failed_plan_id)
    select task_uuid, case when token is null then -1 else step_no end, case when token is null then 0 else attempt end, coalesce(token, 0),
           worker, enqueued_at, claimed_at, reported_at, at, {cancelled}, reason, result, error, checkpoint,
           case when slot = 0 then {task_error} end, case when slot = 0 then reason end, case when slot = 0 then progress end, plan_id
    from (select * from gone order by slot = 0) gone -- the end of a task follows its steps
    where (token is not null or slot = 0)
          and ` + recording(`task_uuid, queue, step_no, attempt, case when token is not null then {cancelled} end, task_state, case when slot = 0 then {task_error} end`) + `
)
select task_uuid, coalesce(step_no, -1) as step_no, {cancelled} as outcome, enqueued_at, claimed_at, reported_at, at as applied_at,
       case when slot = 0 then {task_error} end as end_state, case when slot = 0 then requested_at end as requested_at
from gone where claimed_at is not null or slot = 0`)

// brokenTask is a task that goes into quarantine.
type brokenTask struct {
	TaskUUID uuid.UUID
	Reason   string
	Progress []byte
}

func (w *writes) quarantine(c *Change) error {
	t := c.Task
	if c.Action == nil || c.Effects.DeadLetter == nil {
		return errors.New("want an action and a reason for a quarantine")
	}
	progress := t.Progress
	if progress == nil {
		progress = &workflow.Progress{} // the recorded progress cannot be read
	}
	w.broken = append(w.broken, brokenTask{t.UUID, c.Action.Reason, progress.Encode()})
	w.letters.add(c)
	if t.Watched {
		w.watched = append(w.watched, t.UUID.String())
	}
	if t.Awaited {
		w.notifyDependents(t.UUID)
	}
	w.message() // its sub-workflows are called off
	w.finished++
	return w.performed(c)
}

// The columns of the board, except its key and the queue, which both have. A test
// compares them with the catalogue: a new column must be added here.
var (
	// columnsOfSteps belong to a step and move with it.
	columnsOfSteps = []string{"seq", "token", "lease_until", "claimed_at", "reported_at", "worker", "due_at", "enqueued_at", "retry_after_ms",
		"callable", "lane", "step_no", "state", "attempt", "outcome", "retryable", "parents", "inputs", "tags", "result", "error", "batch", "checkpoint",
		"wait", "awaits", "events", "last_attempt", "ahead", "limit_line", "losses", "lost_after_ms"}
	// columnsOfTasks belong to the task and stay in slot 0.
	columnsOfTasks = []string{"requested_at", "state_since", "updated_at", "processor", "correlation_id", "parent_correlation_id", "plan_id",
		"task_state", "priority", "watched", "progress", "context", "deadline", "dead_letter", "awaited", "trace"}
	// columnsWithZero are step columns that are 0 without a step; the others are null.
	columnsWithZero = []string{"seq", "callable", "lane", "state", "attempt"}
)

// spreadTasks gives the step in a task's own row its own row, since an action may add
// others. Its worker finds it there, see ownSlot. A step that is held until other tasks
// have ended stays held.
// Index: the primary key.
var spreadTasks = pg.Compile(`
with held as materialized (
    select * from tasker.board where task_uuid = any ((select @tasks::uuid[])::uuid[]) and slot = 0 and state <> {no_step}
    order by task_uuid for update
), apart as (
    insert into tasker.board (task_uuid, slot, queue, ` + strings.Join(columnsOfSteps, ", ") + `)
    select task_uuid, step_no + 1, queue, ` + strings.Join(columnsOfSteps, ", ") + ` from held
)
update tasker.board t set ` + noStepHere() + `
from held h where t.task_uuid = h.task_uuid and t.slot = 0`)

// noStepHere empties the columns of a step.
func noStepHere() string {
	sets := make([]string, len(columnsOfSteps))
	for i, column := range columnsOfSteps {
		sets[i] = column + " = null"
		for _, counted := range columnsWithZero {
			if column == counted {
				sets[i] = column + " = 0"
			}
		}
	}
	return strings.Join(sets, ", ")
}
