package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Lists of keys on the board are looked up as any (array[key]). With a plain = the
// planner sees a second plan, which reads the whole index in order and looks each entry
// up in the list; it seems cheaper while the table seems empty, as it does to an ANALYZE
// that finds only dead rows. A slot that is always 0 is passed as a list for the same
// reason. See docs/decisions/0012.

// leaveBoard deletes rows from the board and records their attempts in the ledger. The
// end of a task goes with its own row: into the attempt of the step that it carried, or
// into a row of its own. A step called off while waiting has no attempt to record, but a
// checkpoint if it was handed back with one: a reset must find it, so it gets a token.
// Index: the primary key.
const leaveBoard = `
with gone as (
    delete from tasker.board s
    using unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::text[], $5::smallint[], $6::text[], $7::bytea[])
          o(task_uuid, slot, outcome, reason, end_state, end_reason, end_progress)
    where s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
    returning s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, s.result, s.error,
              s.checkpoint, o.outcome as final, o.reason, o.end_state, o.end_reason, o.end_progress, s.token is null and s.checkpoint is null as bare,
              ` + calledOff + ` as sub_task
), stopped as (
    insert into tasker.task_messages (task_uuid, kind) select sub_task, 2 from gone where sub_task is not null
)
insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                  outcome, reason, result, error, checkpoint, task_state, task_reason, task_progress)
select task_uuid, case when bare then -1 else step_no end, case when bare then 0 else attempt end,
       case when bare then 0 when token is null then nextval('tasker.claim_token') else token end,
       worker, case when token is not null then enqueued_at end, claimed_at, reported_at, clock_timestamp(),
       final, reason, result, error, checkpoint, end_state, end_reason, end_progress
from gone where not bare or end_state is not null`

// moveTasks stores the progress of tasks that continue. If a task's row carried a step,
// its attempt is recorded and the next step, if it is the only one, takes its place; the
// same step keeps its attempt count and checkpoint.
// Index: the primary key.
const moveTasks = `
with o as materialized (
    select *, 0::smallint as slot from unnest($1::uuid[], $2::smallint[], $3::text[], $4::smallint[], $5::bytea[], $6::smallint[], $7::boolean[],
                         $8::boolean[], $9::smallint[], $10::bigint[], $11::text[], $12::text[], $14::boolean[], $15::int[])
         o(task_uuid, outcome, reason, state, progress, step_no, again, heir, lane, due_ms, parents, tags, last_attempt, callable)
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, reason, result, error, checkpoint)
    select s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, clock_timestamp(),
           o.outcome, o.reason, s.result, s.error, s.checkpoint
    from o join tasker.board s on s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
    where o.outcome is not null and s.token is not null
)
update tasker.board t
set progress = o.progress, processor = $13::uuid, deadline = null, updated_at = clock_timestamp(),
    state_since = case when t.task_state = o.state then t.state_since else clock_timestamp() end, task_state = o.state,
    parents = case when o.again then t.parents when o.heir and pg_column_size(t.result) <= ` + maxInlineResult + ` then null
                   else o.parents::smallint[] end,
    inputs = case when o.again then t.inputs when o.heir and pg_column_size(t.result) <= ` + maxInlineResult + `
                  then jsonb_build_object(t.step_no::text, t.result) end,
    step_no = o.step_no, callable = o.callable, lane = o.lane, tags = string_to_array(o.tags, E'\x1f'),
    state = case when o.step_no is null then 0 when o.due_ms > 0 then 1 else 2 end,
    seq = case when o.step_no is null then 0 else nextval('tasker.step_seq') end,
    due_at = case when o.due_ms > 0 then clock_timestamp() + o.due_ms * interval '1 ms' end,
    enqueued_at = case when o.step_no is null or o.due_ms > 0 then null else clock_timestamp() end,
    attempt = case when o.again then t.attempt else 0 end, checkpoint = case when o.again then t.checkpoint end,
    last_attempt = nullif(o.last_attempt, false), ahead = null,
    token = null, worker = null, lease_until = null, claimed_at = null, reported_at = null,
    outcome = null, retryable = null, retry_after_ms = null, result = null, error = null, events = null, batch = null, wait = null, awaits = null
from o where t.task_uuid = any (array[o.task_uuid]) and t.slot = o.slot`

// retrySteps records the ended attempt and enqueues the step again, for steps with rows
// of their own.
// Index: the primary key.
const retrySteps = `
with o as materialized (
    select * from unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::bigint[], $5::smallint[], $6::boolean[])
         o(task_uuid, slot, outcome, due_ms, lane, last_attempt)
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result, error, checkpoint)
    select s.task_uuid, s.step_no, s.attempt, s.token, s.worker, s.enqueued_at, s.claimed_at, s.reported_at, clock_timestamp(),
           o.outcome, s.result, s.error, s.checkpoint
    from o join tasker.board s on s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot
)
update tasker.board s
set state = case when o.due_ms > 0 then 1 else 2 end, seq = nextval('tasker.step_seq'), lane = o.lane,
    last_attempt = nullif(o.last_attempt, false), ahead = null,
    due_at = case when o.due_ms > 0 then clock_timestamp() + o.due_ms * interval '1 ms' end,
    enqueued_at = case when o.due_ms > 0 then null else clock_timestamp() end,
    token = null, worker = null, lease_until = null, claimed_at = null, reported_at = null,
    outcome = null, retryable = null, retry_after_ms = null, result = null, error = null, events = null, wait = null, awaits = null
from o where s.task_uuid = any (array[o.task_uuid]) and s.slot = o.slot`

// putSteps puts new steps on the board, each in its own row.
const putSteps = `
insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, due_at, enqueued_at, parents, tags, last_attempt, batch)
select s.task_uuid, s.step_no + 1, s.step_no, s.queue, s.callable, s.lane, case when s.due_ms > 0 then 1 else 2 end, nextval('tasker.step_seq'),
       case when s.due_ms > 0 then clock_timestamp() + s.due_ms * interval '1 ms' end,
       case when s.due_ms > 0 then null else clock_timestamp() end, s.parents::smallint[], string_to_array(s.tags, E'\x1f'),
       nullif(s.last_attempt, false),
       case when s.batch then (
           select jsonb_build_object('template', d.template_no, 'name', d.name, 'cursor', d.cursor, 'no_op', d.no_op, 'first', d.first_no,
                                     'run', d.run, 'since', d.since)
           from tasker.batches d where d.task_uuid = any (array[s.task_uuid]) and d.step_no = s.step_no) end
from unnest($1::uuid[], $2::int[], $3::smallint[], $4::smallint[], $5::bigint[], $6::text[], $7::text[], $8::boolean[],
            $9::boolean[], $10::int[])
     s(task_uuid, queue, step_no, lane, due_ms, parents, tags, batch, last_attempt, callable)`

// recordEvents records task events. An operator's action is ordered among the attempts,
// which use the same clock.
const recordEvents = `
insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
select e.task_uuid, case when e.metadata is null then now() else clock_timestamp() end, e.from_state, e.to_state, e.actor, e.reason, e.metadata::jsonb
from unnest($1::uuid[], $2::smallint[], $3::smallint[], $4::text[], $5::text[], $6::text[]) e(task_uuid, from_state, to_state, actor, reason, metadata)`

// queue adds a statement for each kind of write present.
func (w *writes) queue(b *pgx.Batch, processor uuid.UUID) {
	if l := &w.letters; len(l.tasks) > 0 { // first: it reads rows that leave the board
		b.Queue(recordDeadLetters, l.tasks, l.states, l.reasons, l.details, l.steps)
	}
	if m := &w.manual; len(m.tasks) > 0 {
		b.Queue(recordManual, m.tasks, m.steps, m.results)
	}
	if g := &w.gone; len(g.tasks) > 0 {
		b.Queue(leaveBoard, g.tasks, g.slots, g.outcomes, g.reasons, g.states, g.endReasons, g.progresses)
	}
	if len(w.awaitedEnds) > 0 {
		b.Queue(sendMessages, w.awaitedEnds, messageEnded)
	}
	if q := &w.broken; len(q.tasks) > 0 {
		b.Queue(quarantineTasks, q.tasks, q.reasons, q.progresses)
	}
	if r := &w.retried; len(r.tasks) > 0 {
		b.Queue(retrySteps, r.tasks, r.slots, r.outcomes, r.dues, r.lanes, r.lasts)
	}
	if n := &w.batches; len(n.tasks) > 0 { // before the steps, which read their batches
		b.Queue(clearNumbers, w.cleared.arguments()...)
		b.Queue(recordBatches, n.arguments()...)
	}
	if p := &w.put; len(p.tasks) > 0 {
		b.Queue(putSteps, p.tasks, p.queues, p.steps, p.lanes, p.dues, p.parents, p.tags, p.batches, p.lasts, p.callables)
	}
	if m := &w.moved; len(m.tasks) > 0 {
		b.Queue(moveTasks, m.tasks, m.outcomes, m.reasons, m.states, m.progresses, m.steps, m.again, m.heirs, m.lanes, m.dues, m.parents, m.tags, processor, m.lasts, m.callables)
	}
	if r := &w.resumed; len(r.tasks) > 0 { // after all statements that put steps on the board
		b.Queue(resumeSteps, r.tasks, r.steps)
	}
	if e := &w.edited; len(e.tasks) > 0 { // after all statements that change the tasks' rows
		b.Queue(editContexts, e.tasks, e.contexts)
	}
	if e := &w.events; len(e.tasks) > 0 {
		b.Queue(recordEvents, e.tasks, e.from, e.to, e.actors, e.reasons, e.documents)
	}
	if c := &w.letters.closed; len(c.tasks) > 0 {
		b.Queue(closeDeadLetters, c.tasks, c.resolutions, c.notes)
	}
}
