package board

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// writes collects the effects of many tasks, statement by statement.
type writes struct {
	gone        []goneRow
	moved       []movedTask
	put         []newStep
	batches     []newBatch
	cleared     []group // the groups of these batches
	former      []group // groups that were forgotten
	retried     []retriedStep
	events      []taskEvent
	manual      []manualResult
	resumed     []StepKey
	retagged    pg.UUIDs // tasks of queues whose step is put on the board again
	edited      []editedTask
	broken      []brokenTask
	calledOff   pg.UUIDs // tasks whose steps leave the board without a report, maybe while they run
	letters     letters
	publish     publishing
	claims      putClaims
	topics      SignalSet
	watched     []string
	awaitedEnds pg.UUIDs // ended tasks with dependents
	dues        []int64
	finished    int
	changes     map[uuid.UUID]*Change
	counted     counted
}

// goneRow is a row that leaves the board: of an ended step, or of a finished task with its
// end.
type goneRow struct {
	TaskUUID    uuid.UUID
	Slot        int `sql:",smallint"`
	Outcome     workflow.AttemptOutcome
	Reason      string             `sql:",omitzero"`
	EndState    workflow.TaskState `sql:",omitzero"`
	EndReason   string             `sql:",omitzero"`
	EndProgress []byte
}

// movedTask is the row of a task that continues. The outcome is that of the step that it
// carried, and StepNo the next one; null: there was, or is, none.
type movedTask struct {
	TaskUUID    uuid.UUID
	Outcome     workflow.AttemptOutcome `sql:",omitzero"`
	Reason      string                  `sql:",omitzero"`
	State       workflow.TaskState
	Progress    []byte
	StepNo      *int `sql:",smallint"`
	Again       bool // it is the same step once more
	Deadline    bool // the task keeps its deadline: it is one of a queue, and waits again
	Heir        bool // its only parent is the step that it follows in the row
	Lane        int16
	DueIn       time.Duration `sql:"due_ms"`
	Parents     []int         `sql:",omitzero"`
	Tags        []string      `sql:",omitzero"`
	LastAttempt bool
	Callable    int32
}

// retriedStep is a step with a row of its own that runs again.
type retriedStep struct {
	TaskUUID    uuid.UUID
	Slot        int `sql:",smallint"`
	Outcome     workflow.AttemptOutcome
	DueIn       time.Duration `sql:"due_ms"`
	Lane        int16
	LastAttempt bool
}

// taskEvent is a change of a task to record.
type taskEvent struct {
	TaskUUID           uuid.UUID
	FromState, ToState workflow.TaskState
	Actor              string
	Reason             string          `sql:",omitzero"`
	Metadata           json.RawMessage // nil: not an action
}

func (w *writes) add(c *Change) error {
	t, e := c.Task, c.Effects
	if w.changes == nil {
		w.changes = map[uuid.UUID]*Change{}
	}
	w.changes[t.UUID] = c
	if c.Quarantine || len(e.Remove) > 0 {
		w.calledOff = append(w.calledOff, t.UUID)
	}
	if c.Quarantine {
		return w.quarantine(c)
	}
	if t.Plan == nil {
		return fmt.Errorf("task %s has no plan", t.UUID)
	}
	for _, p := range e.Put {
		if step := t.Plan.Step(c.Progress, p.Step); !w.claims.wants(c, p, step) {
			w.due(p.DueIn, t, step)
		}
	}
	for _, r := range e.Retry {
		w.due(r.DueIn, t, t.Plan.Step(c.Progress, r.Step))
	}
	changes := e.Changes
	if c.Action != nil {
		if err := w.performed(c); err != nil {
			return err
		}
		changes = changes[min(1, len(changes)):] // the action is the first of them
	}
	for _, change := range changes {
		if recorded(change) {
			w.events = append(w.events, taskEvent{t.UUID, change.From, change.To, c.Actor, change.Reason, nil})
		}
	}
	w.letters.add(c)
	if w.publish.add(c); w.publish.keyed {
		w.message()
	}
	w.publish.signal(w.topics)
	w.regroup(c)
	for i := range e.Batches {
		b := &e.Batches[i]
		cursor, err := json.Marshal(b.Cursor)
		if err != nil {
			return fmt.Errorf("encode the cursor of %s: %w", b.Name, err)
		}
		w.batches = append(w.batches, newBatch{t.UUID, b.Step, b.Template, b.First, b.Name, cursor, b.NoOp})
	}
	switch {
	case e.Finished:
		w.finish(c)
	case t.Inline:
		return w.moveInline(c)
	default:
		w.moveSpread(c)
	}
	return nil
}

// finish removes everything of a task from the board.
func (w *writes) finish(c *Change) {
	t, e := c.Task, c.Effects
	outcome, reason := workflow.OutcomeCancelled, "" // of the task's own row; not recorded without an attempt
	if !t.Inline {
		w.endSpread(t, e)
	} else if len(e.End) > 0 {
		outcome, reason = e.End[0].Outcome, e.End[0].Reason
	}
	why := ""
	if n := len(e.Changes); n > 0 {
		why = e.Changes[n-1].Reason
	}
	w.gone = append(w.gone, goneRow{t.UUID, 0, outcome, reason, e.State, why, c.Progress.Encode()})
	w.finished++
	if t.Watched {
		w.watched = append(w.watched, t.UUID.String())
	}
	if t.Awaited {
		w.notifyDependents(t.UUID)
	}
}

// notifyDependents records that a task with dependents ended.
func (w *writes) notifyDependents(task uuid.UUID) {
	w.awaitedEnds = append(w.awaitedEnds, task)
	w.message()
}

// message requests a look at messages.
func (w *writes) message() {
	w.topics.Add(signal.TopicDue)
	w.dues = append(w.dues, 1)
}

// moveInline continues a task whose only step has ended or runs again.
func (w *writes) moveInline(c *Change) error {
	t, e := c.Task, c.Effects
	m := movedTask{TaskUUID: t.UUID, State: e.State, Progress: c.Progress.Encode()}
	if len(e.Put) > 0 && plainqueue.Has(t.Plan.Template) {
		w.retagged = append(w.retagged, t.UUID)
	}
	switch {
	case len(e.Retry) == 1 && len(e.Put)+len(e.End)+len(e.Remove) == 0:
		r := e.Retry[0]
		m.Outcome, m.Again, m.Deadline = r.Outcome, true, plainqueue.Has(t.Plan.Template)
		m.step(c, workflow.PutStep{Step: r.Step, DueIn: r.DueIn})
	case len(e.End) == 1 && len(e.Retry)+len(e.Remove) == 0:
		m.Outcome, m.Reason = e.End[0].Outcome, e.End[0].Reason
		if len(e.Put) == 1 && registry.Inlines(t.Plan.Plan, c.Progress, e.Put[0].Step) {
			m.step(c, e.Put[0])
			m.Heir = follows(m.Parents, e.End[0])
			break
		}
		w.putRows(c)
	case len(e.Remove) == 1 && len(e.Put) == 1 && len(e.End)+len(e.Retry) == 0: // called off, to be undone
		m.Outcome = workflow.OutcomeCancelled
		m.step(c, e.Put[0])
	case len(e.Put) == 1 && len(e.Remove)+len(e.End)+len(e.Retry) == 0 && registry.Inlines(t.Plan.Plan, c.Progress, e.Put[0].Step): // it had no step
		m.step(c, e.Put[0])
	default:
		return fmt.Errorf("task %s has one step in hand; %d cannot end, %d be removed and %d be tried again at once",
			t.UUID, len(e.End), len(e.Remove), len(e.Retry))
	}
	w.moved = append(w.moved, m)
	return nil
}

// moveSpread continues a task whose steps have their own rows. If one new step remains,
// it moves into the task's row.
func (w *writes) moveSpread(c *Change) {
	t, e := c.Task, c.Effects
	w.endSpread(t, e)
	for _, r := range e.Retry {
		w.retried = append(w.retried, retriedStep{t.UUID, r.Step + 1, r.Outcome, r.DueIn, t.lane(t.Plan.Step(c.Progress, r.Step)), t.Plan.LastAttempt(c.Progress, r.Step)})
	}
	if len(e.Put) > 0 && plainqueue.Has(t.Plan.Template) {
		w.retagged = append(w.retagged, t.UUID)
	}
	m := movedTask{TaskUUID: t.UUID, State: e.State, Progress: c.Progress.Encode()}
	if c.inOwnRow() {
		m.step(c, e.Put[0])
	} else {
		w.putRows(c)
	}
	w.moved = append(w.moved, m)
}

func (w *writes) endSpread(t *TakenTask, e *workflow.Effects) {
	for _, x := range e.End {
		w.gone = append(w.gone, goneRow{TaskUUID: t.UUID, Slot: x.Step + 1, Outcome: x.Outcome, Reason: x.Reason})
	}
	for _, no := range e.Remove {
		w.gone = append(w.gone, goneRow{TaskUUID: t.UUID, Slot: no + 1, Outcome: workflow.OutcomeCancelled})
		if step := t.Plan.Step(t.Progress, no); step != nil && step.Kind == workflow.KindTask {
			w.message() // to that task
		}
	}
}

// inHand returns the number of steps on the board.
func inHand(p *workflow.Progress) (steps int) {
	for i := range p.Steps {
		if s := p.Steps[i].Status; s == workflow.StatusOnBoard || s == workflow.StatusScheduled {
			steps++
		}
	}
	return steps
}

func (w *writes) putRows(c *Change) {
	t := c.Task
	for _, p := range c.Effects.Put {
		w.put = append(w.put, newStepOf(t.UUID, t.Plan, c.Progress, p, t.lane(t.Plan.Step(c.Progress, p.Step))))
	}
}

// lane is that of a step of a task that has begun.
func (t *TakenTask) lane(step *workflow.PlanStep) int16 {
	return t.lanes.of(t.Plan, step, begun(t.Priority), t.Context)
}

func (w *writes) due(in time.Duration, t *TakenTask, step *workflow.PlanStep) {
	if in <= 0 && (step == nil || !step.Kind.ByEngine()) {
		w.topics.addLane(t.Plan.Template.Namespace, laneKey{t.Plan.CallableOf(step), t.lane(step)})
		return
	}
	w.dues = append(w.dues, max(int64(in), 1)) // the engine begins its own steps at once
	w.topics.Add(signal.TopicDue)              // a new due time, for every timer
}

func (w *writes) nextDue() time.Duration {
	if len(w.dues) == 0 {
		return -1
	}
	return time.Duration(slices.Min(w.dues))
}

func (w *writes) signals() []signal.Signal {
	list := w.topics.Signals()
	for _, id := range w.watched {
		list = append(list, signal.Signal{Topic: signal.TopicTasks, Payload: id})
	}
	return list
}

// follows reports whether all inputs of a step come from another one's result.
func follows(parents []int, ended workflow.EndStep) bool {
	return ended.Outcome == workflow.OutcomeSuccess && len(parents) == 1 && parents[0] == ended.Step
}

// parents are the steps whose results a step receives.
func (c *Change) parents(no int) []int { return c.Task.Plan.ParentsOf(c.Progress, no) }

// step moves a step into the row.
func (m *movedTask) step(c *Change, put workflow.PutStep) {
	step := &c.Task.Plan.Steps[put.Step]
	m.StepNo, m.Lane, m.DueIn = &put.Step, c.Task.lane(step), put.DueIn
	m.Parents, m.Tags = c.parents(put.Step), step.Tags
	m.LastAttempt, m.Callable = c.Task.Plan.LastAttempt(c.Progress, put.Step), c.Task.Plan.CallableOf(step)
}

// recorded reports whether a change is recorded: not the ordinary path of a task from
// start to end, which the attempts show.
func recorded(change workflow.TaskChange) bool {
	return change.To != workflow.TaskComplete && (change.From != workflow.TaskPending || change.To != workflow.TaskStepsInProcess)
}

// letters are the tasks that get a dead-letter entry, and those whose entry is closed
// automatically.
type letters struct {
	opened []OpenedLetter
	closed []closedLetter
}

// OpenedLetter is a dead letter to open.
type OpenedLetter struct {
	TaskUUID      uuid.UUID
	OriginalState workflow.TaskState
	Reason        workflow.DeadLetterReason
	Detail        string
	No            *int `sql:",smallint"` // the failed step; nil: none
}

type closedLetter struct {
	TaskUUID   uuid.UUID
	Resolution pg.Resolution
	Notes      string
}

// add records what a change means for the dead letter of its task.
func (l *letters) add(c *Change) {
	t, e := c.Task, c.Effects
	if d := e.DeadLetter; d != nil {
		state := execution.VisibleState(t.State, execution.Counts{InProgress: len(t.Reported)})
		letter := OpenedLetter{TaskUUID: t.UUID, OriginalState: state, Reason: d.Reason, Detail: d.Detail}
		if d.Step >= 0 {
			letter.No = &d.Step
		}
		l.opened = append(l.opened, letter)
		return
	}
	if !t.DeadLetter || !e.Finished || e.State == workflow.TaskError {
		return
	}
	resolution := pg.ResolutionManuallyResolved
	if e.State == workflow.TaskCancelled {
		resolution = pg.ResolutionCancelled
	}
	l.closed = append(l.closed, closedLetter{t.UUID, resolution, "closed by itself: the task ended as " + e.State.String()})
}

// Lists of keys on the board are looked up as any (array[key]). With a plain = the
// planner sees a second plan, which reads the whole index in order and looks each entry
// up in the list; it seems cheaper while the table seems empty, as it does to an ANALYZE
// that finds only dead rows. A slot that is always 0 is passed as a list for the same
// reason. See docs/inside/decisions/0012.

// leaveBoard deletes rows from the board and records their attempts in the ledger. The
// end of a task goes with its own row: into the attempt of the step that it carried, or
// into a row of its own. A step called off while waiting has no attempt to record, but a
// checkpoint if it was handed back with one: a reset must find it, so it gets a token.
// Index: the primary key.
var leaveBoard = pg.Compile(`
with gone as (
    delete from tasker.board s
    using ` + stmt.List[goneRow]("o") + `
    where s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
    returning s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, s.result, s.error, s.requested_at,
              s.checkpoint, o.outcome as final, o.reason, o.end_state, o.end_reason, o.end_progress, s.token is null and s.checkpoint is null as bare,
              clock_timestamp() as at, s.queue, case when s.token is null then s.task_state else greatest(s.task_state, {task_in_process}) end as from_state,
              case when o.end_state > {task_complete} then s.plan_id end as failed_plan_id, ` + calledOff + ` as sub_task
), stopped as (
    insert into tasker.task_messages (task_uuid, kind) select sub_task, {stop} from gone where sub_task is not null
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, reason, result, error, checkpoint, task_state, task_reason, task_progress, failed_plan_id)
    select task_uuid, case when bare then -1 else step_no end, case when bare then 0 else attempt end,
           case when bare then 0 when token is null then nextval('tasker.claim_token') else token end,
           worker, case when token is not null then enqueued_at end, claimed_at, reported_at, at,
           final, reason, result, error, checkpoint, end_state, end_reason, end_progress, failed_plan_id
    from gone where (not bare or end_state is not null)
          and ` + recording(`task_uuid, queue, step_no, attempt, case when not bare then final end, from_state, end_state`) + `
)
select task_uuid, coalesce(step_no, -1) as step_no, final as outcome, case when token is not null then enqueued_at end as enqueued_at,
       claimed_at, reported_at, at as applied_at, end_state, requested_at
from gone where claimed_at is not null or end_state is not null`)

// cancelledAttempts counts the attempts that this transaction has recorded as cancelled:
// whether a step that is called off was claimed is known to its row alone. The workers are
// those that held them; those of queues, which no signal reaches, are left out.
// Index: the primary keys.
var cancelledAttempts = pg.Compile(`
select task_uuid, count(*)::int as steps,
       coalesce(array_agg(distinct worker) filter (where exists (select from tasker.workers w where w.worker_uuid = a.worker)), '{}') as workers
from tasker.step_attempts a
where task_uuid = any (@tasks) and outcome = {cancelled} and step_no >= 0 and decision = pg_current_xact_id() group by task_uuid`)

// cancelledSteps is a row of cancelledAttempts.
type cancelledSteps struct {
	TaskUUID uuid.UUID
	Steps    int
	Workers  []uuid.UUID
}

// moveTasks stores the progress of tasks that continue. If a task's row carried a step,
// its attempt is recorded and the next step, if it is the only one, takes its place; the
// same step keeps its attempt count and checkpoint.
// Index: the primary key.
var moveTasks = pg.Compile(`
with o as materialized (
    select *, 0::smallint as slot from ` + stmt.List[movedTask]("o") + `
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, reason, result, error, checkpoint)
    select s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, clock_timestamp(),
           o.outcome, o.reason, s.result, s.error, s.checkpoint
    from o join tasker.board s on s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
    where o.outcome is not null and s.token is not null
          and ` + recording(`s.task_uuid, s.queue, s.step_no, s.attempt, o.outcome, null, null`) + `
    returning ` + recordedColumns + `
), moved as (
    update tasker.board t
    set progress = o.progress, processor = @processor::uuid, deadline = case when o.deadline then t.deadline end, updated_at = clock_timestamp(),
        state_since = case when t.task_state = o.state then t.state_since else clock_timestamp() end, task_state = o.state,
        parents = case when o.again then t.parents when o.heir and pg_column_size(t.result) <= ` + maxInlineResult + ` then null
                       else o.parents::smallint[] end,
        inputs = case when o.again then t.inputs when o.heir and pg_column_size(t.result) <= ` + maxInlineResult + `
                      then jsonb_build_object(t.step_no::text, t.result) end,
        step_no = o.step_no, callable = o.callable, lane = o.lane,
        tags = case when o.again then t.tags else string_to_array(o.tags, {separator}) end,
        state = case when o.step_no is null then {no_step} when o.due_ms > 0 then {scheduled} else {claimable} end,
        seq = case when o.step_no is null then 0 else nextval('tasker.step_seq') end,
        due_at = case when o.due_ms > 0 then clock_timestamp() + o.due_ms * interval '1 ms' end,
        enqueued_at = case when o.step_no is null or o.due_ms > 0 then null else clock_timestamp() end,
        attempt = case when o.again then t.attempt else 0 end, checkpoint = case when o.again then t.checkpoint end,
        losses = case when o.again and o.outcome = {lease_lost} then t.losses end, lost_after_ms = case when o.again and o.outcome = {lease_lost} then t.lost_after_ms end,
        last_attempt = nullif(o.last_attempt, false), ahead = null, limit_line = case when o.again then t.limit_line end,
        token = null, worker = null, lease_until = null, claimed_at = null, reported_at = null,
        outcome = null, retryable = null, retry_after_ms = null, result = null, error = null, events = null, batch = null, wait = null, awaits = null
    from o where t.task_uuid = any (array[o.task_uuid]) and t.slot = o.slot
)` + returnRecorded)

// retrySteps records the ended attempt and enqueues the step again, for steps with rows
// of their own.
// Index: the primary key.
var retrySteps = pg.Compile(`
with o as materialized (
    select * from ` + stmt.List[retriedStep]("o") + `
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result, error, checkpoint)
    select s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, clock_timestamp(),
           o.outcome, s.result, s.error, s.checkpoint
    from o join tasker.board s on s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
    where ` + recording(`s.task_uuid, s.queue, s.step_no, s.attempt, o.outcome, null, null`) + `
    returning ` + recordedColumns + `
), retried as (
    update tasker.board s
    set state = case when o.due_ms > 0 then {scheduled} else {claimable} end, seq = nextval('tasker.step_seq'), lane = o.lane,
        last_attempt = nullif(o.last_attempt, false), ahead = null,
        losses = case when o.outcome = {lease_lost} then s.losses end, lost_after_ms = case when o.outcome = {lease_lost} then s.lost_after_ms end,
        due_at = case when o.due_ms > 0 then clock_timestamp() + o.due_ms * interval '1 ms' end,
        enqueued_at = case when o.due_ms > 0 then null else clock_timestamp() end,
        token = null, worker = null, lease_until = null, claimed_at = null, reported_at = null,
        outcome = null, retryable = null, retry_after_ms = null, result = null, error = null, events = null, wait = null, awaits = null
    from o where s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
)` + returnRecorded)

// putSteps puts new steps on the board, each in its own row.
var putSteps = pg.Compile(`
insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, due_at, enqueued_at, parents, tags, last_attempt, batch)
select s.task_uuid, s.step_no + 1, s.step_no, s.queue, s.callable, s.lane, case when s.due_ms > 0 then {scheduled} else {claimable} end, nextval('tasker.step_seq'),
       case when s.due_ms > 0 then clock_timestamp() + s.due_ms * interval '1 ms' end,
       case when s.due_ms > 0 then null else clock_timestamp() end, s.parents::smallint[], string_to_array(s.tags, {separator}),
       nullif(s.last_attempt, false),
       case when s.batch then (
           select jsonb_build_object('template', d.template_no, 'name', d.name, 'cursor', d.cursor, 'no_op', d.no_op, 'first', d.first_no,
                                     'run', d.run, 'since', d.since)
           from tasker.batches d where d.task_uuid = any (array[s.task_uuid]) and d.step_no = s.step_no) end
from ` + stmt.List[newStep]("s"))

// recordEvents records task events. An operator's action is ordered among the attempts,
// which use the same clock. The end of a task is no transition here: its row on the board
// leaves with one.
var recordEvents = pg.Compile(`
insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
select e.task_uuid, case when e.metadata is null then now() else clock_timestamp() end, e.from_state, e.to_state, e.actor, e.reason, e.metadata::jsonb
from ` + stmt.List[taskEvent]("e") + `
where ` + recording(`e.task_uuid, 0, null, null, null, e.from_state, case when e.from_state <> e.to_state and e.to_state < {task_complete} then e.to_state end`))

// retagTasks gives the step of a task of a queue the tags of the task, which its context keeps.
// Index: the primary keys.
var retagTasks = pg.Compile(`
update tasker.board b set tags = (
    select array(select jsonb_array_elements_text(t.context -> 'tags')) from tasker.tasks t where t.task_uuid = b.task_uuid and jsonb_typeof(t.context -> 'tags') = 'array')
where b.task_uuid = any ((select @tasks::uuid[])::uuid[]) and b.slot in (0, 1) and b.step_no = 0 and b.token is null`)

// queue adds a statement for each kind of write present. Dead letters come first: they read
// rows that leave the board. Batches precede the steps that read them; checkpoints follow
// all statements that put steps on the board, and contexts those that change the tasks'
// rows.
func (w *writes) queue(b *pgx.Batch, processor uuid.UUID) {
	queueList(b, RecordDeadLetters, "o", w.letters.opened)
	queueList(b, recordManual, "m", w.manual)
	w.record(b, leaveBoard, pg.Args{"o": w.gone}, len(w.gone))
	if len(w.awaitedEnds) > 0 {
		SendMessages.With(pg.Args{"tasks": w.awaitedEnds, "kind": pg.MessageEnded}).Queue(b)
	}
	w.record(b, quarantineTasks, pg.Args{"o": w.broken}, len(w.broken))
	w.record(b, retrySteps, pg.Args{"o": w.retried}, len(w.retried))
	if len(w.batches) > 0 {
		queueList(b, clearNumbers, "g", w.cleared)
		queueList(b, recordBatches, "d", w.batches)
	}
	queueList(b, putSteps, "s", w.put)
	w.record(b, moveTasks, pg.Args{"o": w.moved, "processor": processor}, len(w.moved))
	if len(w.retagged) > 0 {
		retagTasks.With(pg.Args{"tasks": w.retagged}).Queue(b)
	}
	queueList(b, resumeSteps, "r", w.resumed)
	queueList(b, editContexts, "n", w.edited)
	queueList(b, recordEvents, "e", w.events)
	queueList(b, closeDeadLetters, "o", w.letters.closed)
}

// record adds a statement that writes the ledger and returns what it has recorded, unless it has no rows.
func (w *writes) record(b *pgx.Batch, statement *stmt.Statement, args pg.Args, rows int) {
	if rows == 0 {
		return
	}
	statement.With(args).Queue(b).Query(stmt.Rows(func(r *recordedRow) {
		if c := w.changes[r.TaskUUID]; c != nil {
			w.counted.add(r, c.Task, c.Progress)
		}
	}))
}

// queueList adds a statement whose only argument is a list, unless that is empty.
func queueList[T any](b *pgx.Batch, statement *stmt.Statement, name string, list []T) {
	if len(list) > 0 {
		statement.With(pg.Args{name: list}).Queue(b)
	}
}
