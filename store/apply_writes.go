package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// writes gathers the effects of many tasks, statement by statement.
type writes struct {
	put      stepColumns
	ended    endColumns
	retried  retryColumns
	updated  taskColumns
	finished taskColumns
	events   eventColumns
	topics   topicSet
	watched  []string
	dues     []int64
}

type endColumns struct {
	tasks    []uuid.UUID
	steps    []int16
	outcomes []int16
	reasons  []*string
}

type retryColumns struct {
	endColumns
	dues  []int64
	lanes []int16
}

type taskColumns struct {
	tasks      []uuid.UUID
	states     []int16
	progresses [][]byte
	reasons    []*string
}

type eventColumns struct {
	tasks   []uuid.UUID
	from    []int16
	to      []int16
	actors  []string
	reasons []*string
}

func (w *writes) add(c *Change) error {
	t, e := c.Task, c.Effects
	if t.Plan == nil {
		return fmt.Errorf("task %s has no plan", t.UUID)
	}
	if w.topics == nil {
		w.topics = topicSet{}
	}
	queue := signal.WorkerTopic(t.Plan.Template.Namespace)
	lane := Lane(t.Priority, true)
	for _, p := range e.Put {
		w.put.add(t.UUID, t.Plan, p, lane)
		w.due(p.DueIn, queue)
	}
	for _, r := range e.Retry {
		w.retried.add(t.UUID, r.Step, r.Outcome, "")
		w.retried.dues, w.retried.lanes = append(w.retried.dues, millis(r.DueIn)), append(w.retried.lanes, lane)
		w.due(r.DueIn, queue)
	}
	for _, x := range e.End {
		w.ended.add(t.UUID, x.Step, x.Outcome, x.Reason)
	}
	for _, no := range e.Remove {
		w.ended.add(t.UUID, no, workflow.OutcomeCancelled, "")
	}
	reason := ""
	for _, change := range e.Changes {
		w.events.add(t.UUID, change, c.Actor)
		reason = change.Reason
	}
	if !e.Finished {
		w.updated.add(t.UUID, e.State, c.Progress, "")
		return nil
	}
	w.finished.add(t.UUID, e.State, c.Progress, reason)
	if t.Watched {
		w.watched = append(w.watched, t.UUID.String())
	}
	return nil
}

func (w *writes) due(in time.Duration, queue signal.Topic) {
	if in <= 0 {
		w.topics.add(queue)
		return
	}
	w.dues = append(w.dues, int64(in))
	w.topics.add(signal.TopicDue) // a due time is new: every timer must know
}

func (w *writes) nextDue() time.Duration {
	if len(w.dues) == 0 {
		return -1
	}
	return time.Duration(slices.Min(w.dues))
}

func (w *writes) signals() []signal.Signal {
	list := w.topics.signals()
	for _, id := range w.watched {
		list = append(list, signal.Signal{Topic: signal.TopicTasks, Payload: id})
	}
	return list
}

func (c *endColumns) add(task uuid.UUID, step int, outcome workflow.AttemptOutcome, reason string) {
	c.tasks, c.steps = append(c.tasks, task), append(c.steps, int16(step)) // #nosec G115 -- at most MaxSteps
	c.outcomes, c.reasons = append(c.outcomes, int16(outcome)), append(c.reasons, text(reason))
}

func (c *taskColumns) add(task uuid.UUID, state workflow.TaskState, progress *workflow.Progress, reason string) {
	c.tasks, c.states = append(c.tasks, task), append(c.states, int16(state))
	c.progresses, c.reasons = append(c.progresses, progress.Encode()), append(c.reasons, text(reason))
}

// add records a change, unless it is the plain way of a task from its
// beginning to its end, which the tasks row tells by itself.
func (c *eventColumns) add(task uuid.UUID, change workflow.TaskChange, actor string) {
	if change.To == workflow.TaskComplete || change.From == workflow.TaskPending && change.To == workflow.TaskStepsInProcess {
		return
	}
	c.tasks, c.from, c.to = append(c.tasks, task), append(c.from, int16(change.From)), append(c.to, int16(change.To))
	c.actors, c.reasons = append(c.actors, actor), append(c.reasons, text(change.Reason))
}

// endSteps takes steps off the board into the ledger.
// Index: the primary key.
const endSteps = `
with gone as (
    delete from tasker.live_steps s
    using unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::text[]) o(task_uuid, step_no, outcome, reason)
    where s.task_uuid = o.task_uuid and s.step_no = o.step_no
    returning s.*, o.outcome as final, o.reason
)
insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                  outcome, reason, result, error)
select task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, clock_timestamp(),
       final, reason, result, error
from gone where token is not null`

// retrySteps records the attempt that ended and puts the step back in line.
// Index: the primary key.
const retrySteps = `
with o as materialized (
    select * from unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::bigint[], $5::smallint[]) o(task_uuid, step_no, outcome, due_ms, lane)
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result, error)
    select s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, clock_timestamp(),
           o.outcome, s.result, s.error
    from o join tasker.live_steps s on s.task_uuid = o.task_uuid and s.step_no = o.step_no
)
update tasker.live_steps s
set state = case when o.due_ms > 0 then 1 else 2 end, seq = nextval('tasker.step_seq'), lane = o.lane,
    due_at = case when o.due_ms > 0 then clock_timestamp() + o.due_ms * interval '1 ms' end,
    enqueued_at = case when o.due_ms > 0 then null else clock_timestamp() end,
    token = null, worker = null, lease_until = null, claimed_at = null, reported_at = null,
    outcome = null, retryable = null, retry_after_ms = null, result = null, error = null
from o where s.task_uuid = o.task_uuid and s.step_no = o.step_no`

// putSteps puts new steps on the board.
const putSteps = `
insert into tasker.live_steps (task_uuid, step_no, queue, lane, state, seq, due_at, enqueued_at, parents, tags)
select s.task_uuid, s.step_no, s.queue, s.lane, case when s.due_ms > 0 then 1 else 2 end, nextval('tasker.step_seq'),
       case when s.due_ms > 0 then clock_timestamp() + s.due_ms * interval '1 ms' end,
       case when s.due_ms > 0 then null else clock_timestamp() end, s.parents::smallint[], string_to_array(s.tags, E'\x1f')
from unnest($1::uuid[], $2::int[], $3::smallint[], $4::smallint[], $5::bigint[], $6::text[], $7::text[])
     s(task_uuid, queue, step_no, lane, due_ms, parents, tags)`

// updateTasks stores what is remembered of tasks that go on.
// Index: the primary key.
const updateTasks = `
update tasker.live_tasks t
set progress = c.progress, processor = $4::uuid, updated_at = clock_timestamp(),
    state_since = case when t.state = c.state then t.state_since else clock_timestamp() end, state = c.state
from unnest($1::uuid[], $2::smallint[], $3::bytea[]) c(task_uuid, state, progress)
where t.task_uuid = c.task_uuid`

// finishTasks takes tasks off the board and writes their end, once.
// Index: the primary keys.
const finishTasks = `
with gone as (
    delete from tasker.live_tasks t using unnest($1::uuid[]) f(task_uuid) where t.task_uuid = f.task_uuid
)
update tasker.tasks t
set final_state = f.state, final_progress = f.progress, final_reason = f.reason, completed_at = clock_timestamp()
from unnest($1::uuid[], $2::smallint[], $3::bytea[], $4::text[]) f(task_uuid, state, progress, reason)
where t.task_uuid = f.task_uuid`

const recordEvents = `
insert into tasker.task_events (task_uuid, from_state, to_state, actor, reason)
select * from unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::text[], $5::text[])`

// queue adds a statement for each kind of write that there is.
func (w *writes) queue(b *pgx.Batch, processor uuid.UUID) {
	if e := &w.ended; len(e.tasks) > 0 {
		b.Queue(endSteps, e.tasks, e.steps, e.outcomes, e.reasons)
	}
	if r := &w.retried; len(r.tasks) > 0 {
		b.Queue(retrySteps, r.tasks, r.steps, r.outcomes, r.dues, r.lanes)
	}
	if p := &w.put; len(p.tasks) > 0 {
		b.Queue(putSteps, p.tasks, p.queues, p.steps, p.lanes, p.dues, p.parents, p.tags)
	}
	if u := &w.updated; len(u.tasks) > 0 {
		b.Queue(updateTasks, u.tasks, u.states, u.progresses, processor)
	}
	if f := &w.finished; len(f.tasks) > 0 {
		b.Queue(finishTasks, f.tasks, f.states, f.progresses, f.reasons)
	}
	if e := &w.events; len(e.tasks) > 0 {
		b.Queue(recordEvents, e.tasks, e.from, e.to, e.actors, e.reasons)
	}
}
