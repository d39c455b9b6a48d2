package board

// Every statement of the benchmark on Tasker's tables is in this file.

// liveTasks counts the tasks that have not ended; liveTask returns whether one is among
// them, anyLive whether there are any.
const (
	anyLive   = `select exists (select from tasker.board where slot = 0)`
	liveTasks = `select count(*) from tasker.board where slot = 0`
	liveTask  = `select exists (select from tasker.board where task_uuid = $1 and slot = 0)`
)

// taskTimes returns for each task of $1 the time from its request to the first claim, and
// to its end. The last attempt is applied in the transaction that ends the task.
const taskTimes = `
select extract(epoch from min(a.claimed_at) - t.requested_at)::float8, extract(epoch from max(a.applied_at) - t.requested_at)::float8
from tasker.tasks t join tasker.step_attempts a using (task_uuid)
where t.task_uuid = any ($1::uuid[])
group by t.task_uuid, t.requested_at`

// liveOf counts the tasks of the priority $1 that have not ended.
const liveOf = `select count(*) from tasker.board where slot = 0 and priority = $1`

// timesFor returns the time from its request to its end for each task with the reason $1.
const timesFor = `
select extract(epoch from max(a.applied_at) - t.requested_at)::float8
from tasker.tasks t join tasker.step_attempts a using (task_uuid) where t.reason = $1 group by t.task_uuid, t.requested_at`

// claimsOf counts the claims between $2 and $3 by the field $1 of the context.
const claimsOf = `
select t.context ->> $1, count(*)::int from tasker.tasks t join tasker.step_attempts a using (task_uuid)
where a.claimed_at >= $2 and a.claimed_at < $3 group by 1`

const clock = `select clock_timestamp()`

// mostClaims counts the claims of the busiest time of the length $1.
const mostClaims = `
select coalesce(max(n), 0)::int from (
    select count(*) over (order by claimed_at range between $1::interval preceding and current row) as n from tasker.step_attempts) w`

// disorder counts tasks, and those claimed before the one before them was reported.
const disorder = `
select count(*)::int, (count(*) filter (where claimed_at < before))::int from (
    select a.claimed_at, lag(a.reported_at) over (partition by t.context ->> $1 order by (t.context ->> 'n')::bigint) as before
    from tasker.tasks t join tasker.step_attempts a using (task_uuid)) o`

// stampTimes returns for each task of $1 the time from its request to the beginning of
// its handler, which the handler returned (microseconds since 1970).
const stampTimes = `
select (a.result #>> '{}')::float8 / 1e6 - extract(epoch from t.requested_at)::float8
from tasker.tasks t join tasker.step_attempts a using (task_uuid)
where t.task_uuid = any ($1::uuid[]) and a.step_no = 0`

// workSpan is the time from the first claim to the last end in the database.
const workSpan = `select extract(epoch from max(applied_at) - min(claimed_at))::float8 from tasker.step_attempts`

// wholeSpan is the time from the first request to the last end.
const wholeSpan = `
select extract(epoch from max(a.applied_at) - (select min(requested_at) from tasker.tasks))::float8
from tasker.step_attempts a`

// newTasks generates ids for $1 tasks, 20 per millisecond, the last one now and random
// within the millisecond, as in version 7, and records the tasks. $2 is unique for each
// call, $3 and $4 are plans and their queues, assigned in turn. The statements that
// follow may use ids, plan, and $5, the progress of the tasks.
const newTasks = `
with ids as materialized (
    select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint - ($1::bigint - i) / 20), 12, '0')
            || '7' || substr(h, 1, 3) || 'a' || substr(h, 4, 15))::uuid as task_uuid, i
    from generate_series(1, $1::bigint) i cross join lateral md5($2::text || i) h
), plan as (
    select p.plan_id, queue, callables[1] as callable, no - 1 as no, cardinality($3::int[]) as plans
    from unnest($3::int[], $4::int[]) with ordinality p(plan_id, queue, no) join tasker.plans t on t.plan_id = p.plan_id
), recorded as (
    insert into tasker.tasks (task_uuid, plan_id, queue, priority, initiator, source_system, reason, context)
    select task_uuid, plan_id, queue, 0, 'bench', 'bench', 'bench', '{"even_number": 2}'
    from ids join plan on no = i % plans
)`

// generateWaiting makes $1 one-step tasks that wait for a worker in lane $6.
const generateWaiting = newTasks + `
insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, enqueued_at,
                          requested_at, plan_id, task_state, priority, progress, context)
select task_uuid, 0, 0, queue, callable, $6::smallint, 2, nextval('tasker.step_seq'), now(),
       now(), plan_id, 1, 0, $5::bytea, '{"even_number": 2}'
from ids join plan on no = i % plans order by i`

// generateFinished makes $1 one-step tasks that have ended well.
const generateFinished = newTasks + `
insert into tasker.step_attempts (task_uuid, token, enqueued_at, claimed_at, reported_at, worker, step_no, attempt, outcome, result,
                                  task_state, task_progress)
select task_uuid, nextval('tasker.claim_token'), now(), now(), now(), task_uuid, 0, 1, 1, '4', 9, $5::bytea
from ids`

// freshen makes the statistics that gradual inserts would have.
const freshen = `vacuum (analyze) tasker.board, tasker.tasks, tasker.step_attempts`

// readSomething is the query of a reader before it idles in its transaction.
const readSomething = `select count(*) from (select from tasker.board limit 100) x`
