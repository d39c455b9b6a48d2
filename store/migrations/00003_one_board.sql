-- One row for a task with one step in hand; see docs/decisions/0010-one-row-while-one-step.md.
-- +goose Up
drop view tasker.v_step_result_audit, tasker.v_step_transitions, tasker.v_task_transitions, tasker.v_workflow_steps, tasker.v_tasks;
drop function tasker.take_reported(bigint, int);

-- slot 0 is the row of the task: whoever holds its lock may decide about the
-- task. While just one step is alive it carries that step too, so that a
-- workflow of steps in a row lives in one row. The steps of a task that works
-- on several at once have rows of their own in slot step_no + 1, and then
-- slot 0 has none.
--
-- state: 0 no step here, 1 scheduled (due_at), 2 claimable, 3 in progress
-- (token, lease), 4 reported.
--
-- There is no foreign key to plans: they are never deleted, and the check
-- would lock the same row of plans for each new task.
create table tasker.board (
    task_uuid      uuid not null,
    seq            bigint not null default 0,
    -- of the step
    token          bigint,
    lease_until    timestamptz,
    claimed_at     timestamptz,
    reported_at    timestamptz,
    worker         uuid,
    due_at         timestamptz,
    enqueued_at    timestamptz,
    -- of the task; null elsewhere than in slot 0
    requested_at   timestamptz,
    state_since    timestamptz,       -- null: since it was requested
    updated_at     timestamptz,       -- null: never
    processor      uuid,
    correlation_id uuid,              -- null: the task's own id
    parent_correlation_id uuid,
    plan_id        int,
    queue          int not null,
    retry_after_ms bigint,            -- what the handler asked for; null: nothing
    slot           smallint not null,
    lane           smallint not null, -- claim order inside a queue, smallest first
    task_state     smallint,
    priority       smallint,
    step_no        smallint,
    state          smallint not null,
    attempt        smallint not null default 0,
    outcome        smallint,
    retryable      boolean,
    watched        boolean,           -- somebody waits for the end
    progress       bytea,             -- workflow.Progress, fixed width
    parents        smallint[],        -- whose results the handler gets with the claim, from the ledger
    inputs         jsonb,             -- those results, where they are small and at hand
    tags           text[],            -- a worker must carry all of them
    context        jsonb,             -- null: too large to be carried along, see tasks
    result         jsonb,
    error          jsonb,
    primary key (task_uuid, slot),
    check ((slot = 0) = (task_state is not null and progress is not null and plan_id is not null
                         and priority is not null and requested_at is not null)),
    check (case state when 0 then slot = 0 and step_no is null
                      when 1 then due_at is not null
                      when 2 then due_at is null and lease_until is null
                      when 3 then token is not null and lease_until is not null
                      when 4 then token is not null and lease_until is null and outcome is not null
                      else false end)
    -- A new version of a row finds room in its block while a claim, a report
    -- and an apply pass over it.
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_insert_scale_factor = 0.2);

-- How a task ended stands with its last attempt, or, where no attempt was the
-- last (cancelled in line, several steps at the end), in a row of its own with
-- step_no -1. So the row of a task is never written again.
alter table tasker.step_attempts
    add column task_state smallint check (task_state between 9 and 12),
    add column task_reason text,
    add column task_progress bytea;
insert into tasker.step_attempts (task_uuid, token, applied_at, step_no, attempt, outcome, task_state, task_reason, task_progress)
select task_uuid, 0, completed_at, -1, 0, 5, final_state, final_reason, final_progress
from tasker.tasks where final_state is not null;

alter table tasker.tasks
    drop column completed_at, drop column final_state, drop column final_reason, drop column final_progress,
    alter column correlation_id drop not null; -- null: the task's own id
drop index tasker.tasks_by_correlation;
create index tasks_by_correlation on tasker.tasks (correlation_id) where correlation_id is not null;

insert into tasker.board (task_uuid, slot, state, lane, queue, plan_id, task_state, priority, watched, progress,
                          requested_at, state_since, updated_at, processor, correlation_id, parent_correlation_id)
select l.task_uuid, 0, 0, 0, l.queue, l.plan_id, l.state, l.priority, nullif(l.watched, false), l.progress,
       t.requested_at, l.state_since, l.updated_at, l.processor, t.correlation_id, t.parent_correlation_id
from tasker.live_tasks l join tasker.tasks t using (task_uuid);
insert into tasker.board (task_uuid, slot, state, lane, queue, step_no, seq, token, due_at, lease_until, enqueued_at, claimed_at,
                          reported_at, worker, retry_after_ms, attempt, outcome, retryable, parents, tags, result, error)
select task_uuid, step_no + 1, state, lane, queue, step_no, seq, token, due_at, lease_until, enqueued_at, claimed_at,
       reported_at, worker, retry_after_ms, attempt, outcome, retryable, parents, tags, result, error
from tasker.live_steps;
drop table tasker.live_steps, tasker.live_tasks;

create index board_claimable on tasker.board (queue, lane, seq) where state = 2;
create index board_reported  on tasker.board (seq) where state = 4 and slot = 0;
create index board_reported_apart on tasker.board (seq) where state = 4 and slot > 0;
create index board_due       on tasker.board (due_at) where state = 1;
create index board_lease     on tasker.board (lease_until) where state = 3;

-- +goose StatementBegin
-- Locks tasks with reported steps and returns what was reported for them, oldest
-- first: up to max_steps of those whose only step stands in their own row, and
-- up to max_steps worth of those whose steps stand apart. A row of the first
-- kind is locked and returned in one statement, and one that somebody else
-- holds is that one's to finish. For the second kind the tasks are locked first
-- and read then, in two statements on purpose: the second one's snapshot is
-- younger than the locks, so it cannot see a step that another orchestrator has
-- applied in between. A row without task_uuid carries the number of such tasks
-- that somebody else holds right now.
-- Two may apply at once. A third would walk over every row that these have
-- locked, for a smaller share of the same list; it is told that there is
-- something to come back for.
-- Index: board_reported, board_reported_apart, then the primary key.
create function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, progress bytea,
               inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
               retry_after_ms bigint, skipped int)
language plpgsql as $$
#variable_conflict use_column
declare
    seen uuid[];
    held uuid[];
begin
    if not (pg_try_advisory_xact_lock(1952543595, -1) or pg_try_advisory_xact_lock(1952543595, -2)) then
        skipped := 1;
        return next;
        return;
    end if;

    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), t.progress,
           true, t.step_no, t.seq, t.attempt, t.outcome, t.retryable, t.retry_after_ms, 0
    from tasker.board t where t.state = 4 and t.slot = 0 and t.seq >= mark
    order by t.seq limit max_steps for update skip locked;

    select array_agg(distinct r.task_uuid) into seen
    from (select s.task_uuid from tasker.board s
          where s.state = 4 and s.slot > 0 and s.seq >= mark_apart order by s.seq limit max_steps) r;
    if seen is null then
        return;
    end if;
    select array_agg(l.task_uuid) into held
    from (select t.task_uuid from tasker.board t
          where t.task_uuid = any (seen) and t.slot = 0 order by t.task_uuid for update skip locked) l;
    -- A state would lead the planner to a partial index, all of it.
    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), t.progress,
           t.state <> 0, s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
    from unnest((select held)) h(task_uuid)
    join tasker.board t on t.task_uuid = h.task_uuid and t.slot = 0
    join tasker.board s on s.task_uuid = h.task_uuid and s.outcome is not null
    order by t.task_uuid, s.step_no;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
end $$;
-- +goose StatementEnd

-- Views for people and for tools; the daemons do not use them.
create view tasker.v_tasks as
select t.task_uuid, n.name as namespace, p.name, p.version,
       tasker.task_state_name(coalesce(e.task_state, b.task_state)) as state,
       t.priority, t.requested_at, t.start_at, e.applied_at as completed_at, b.updated_at,
       case when b.task_uuid is not null then coalesce(b.state_since, t.requested_at) end as state_since,
       coalesce(t.correlation_id, t.task_uuid) as correlation_id, t.parent_correlation_id, t.initiator, t.source_system, t.reason,
       e.task_reason as final_reason, t.tags, t.context
from tasker.tasks t
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = t.queue
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_state, applied_at, task_reason from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true;

create view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

-- The recorded changes, with the beginning and the plain end that need no row.
create view tasker.v_task_transitions as
select task_uuid, requested_at as at, null::text as from_state, 'pending' as to_state, initiator as actor, reason
from tasker.tasks
union all
select task_uuid, min(claimed_at), 'pending', 'steps_in_process', null, null
from tasker.step_attempts where claimed_at is not null group by task_uuid
union all
select task_uuid, at, tasker.task_state_name(from_state), tasker.task_state_name(to_state), actor, reason
from tasker.task_events
union all
select task_uuid, applied_at, 'evaluating_results', 'complete', null, null
from tasker.step_attempts where task_state = 9;

-- Every step transition, unfolded from one row per attempt.
create view tasker.v_step_transitions as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.attempt, e.at, e.to_state, a.worker
from tasker.step_attempts a
cross join lateral (values
    (a.enqueued_at, 'enqueued'),
    (a.claimed_at, 'in_progress'),
    (a.reported_at, case when a.outcome = 1 then 'enqueued_for_orchestration' else 'enqueued_as_error_for_orchestration' end),
    (a.applied_at, (array['complete','waiting_for_retry','error','enqueued','cancelled'])[a.outcome])
) e(at, to_state)
where e.at is not null and a.step_no >= 0;

create view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, coalesce(t.correlation_id, t.task_uuid) as correlation_id,
       a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;

-- +goose Down
drop view tasker.v_step_result_audit, tasker.v_step_transitions, tasker.v_task_transitions, tasker.v_workflow_steps, tasker.v_tasks;
drop function tasker.take_reported(bigint, bigint, int);
create table tasker.live_tasks (
    task_uuid   uuid primary key,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    state_since timestamptz not null default now(),
    processor   uuid,
    plan_id     int not null references tasker.plans,
    queue       int not null,
    state       smallint not null check (state between 1 and 8),
    priority    smallint not null,
    watched     boolean not null default false, -- somebody waits for the end
    progress    bytea not null                  -- workflow.Progress, fixed width
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2);

-- state: 1 scheduled (due_at), 2 claimable, 3 in progress (token, lease), 4 reported
create table tasker.live_steps (
    task_uuid      uuid not null,
    seq            bigint not null,
    token          bigint,
    due_at         timestamptz,
    lease_until    timestamptz,
    enqueued_at    timestamptz,
    claimed_at     timestamptz,
    reported_at    timestamptz,
    worker         uuid,
    queue          int not null,
    retry_after_ms bigint,            -- what the handler asked for; null: nothing
    step_no        smallint not null,
    lane           smallint not null, -- claim order inside a queue, smallest first
    state          smallint not null check (state between 1 and 4),
    attempt        smallint not null default 0,
    outcome        smallint check (outcome between 1 and 5),
    retryable      boolean,
    parents        smallint[],        -- whose results the handler gets with the claim
    tags           text[],            -- a worker must carry all of them
    result         jsonb,
    error          jsonb,
    primary key (task_uuid, step_no),
    check ((state = 1) = (due_at is not null)),
    check ((state = 3) = (lease_until is not null)),
    check (state <> 3 or token is not null),
    check ((state = 4) = (outcome is not null))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index live_steps_claimable on tasker.live_steps (queue, lane, seq) where state = 2;
create index live_steps_reported  on tasker.live_steps (seq) where state = 4;
create index live_steps_due       on tasker.live_steps (due_at) where state = 1;
create index live_steps_lease     on tasker.live_steps (lease_until) where state = 3;
insert into tasker.live_tasks (task_uuid, created_at, updated_at, state_since, processor, plan_id, queue, state, priority, watched, progress)
select task_uuid, requested_at, coalesce(updated_at, requested_at), coalesce(state_since, requested_at), processor, plan_id, queue,
       task_state, priority, coalesce(watched, false), progress
from tasker.board where slot = 0;
insert into tasker.live_steps (task_uuid, step_no, queue, lane, state, seq, token, due_at, lease_until, enqueued_at, claimed_at,
                               reported_at, worker, retry_after_ms, attempt, outcome, retryable, parents, tags, result, error)
select task_uuid, step_no, queue, lane, state, seq, token, due_at, lease_until, enqueued_at, claimed_at,
       reported_at, worker, retry_after_ms, attempt, outcome, retryable, parents, tags, result, error
from tasker.board where state > 0;
drop table tasker.board;

alter table tasker.tasks
    add column completed_at timestamptz, add column final_reason text, add column final_progress bytea,
    add column final_state smallint check (final_state between 9 and 12);
update tasker.tasks t
set completed_at = e.applied_at, final_state = e.task_state, final_reason = e.task_reason, final_progress = e.task_progress
from tasker.step_attempts e where e.task_uuid = t.task_uuid and e.task_state is not null;
update tasker.tasks set correlation_id = task_uuid where correlation_id is null;
alter table tasker.tasks alter column correlation_id set not null;
drop index tasker.tasks_by_correlation;
create index tasks_by_correlation on tasker.tasks (correlation_id);
delete from tasker.step_attempts where step_no < 0;
alter table tasker.step_attempts drop column task_state, drop column task_reason, drop column task_progress;

-- +goose StatementBegin
create function tasker.take_reported(mark bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, state smallint, priority smallint, watched boolean, progress bytea,
               step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean, retry_after_ms bigint,
               skipped int)
language plpgsql as $$
#variable_conflict use_column
declare
    seen uuid[];
    held uuid[];
begin
    select array_agg(distinct r.task_uuid) into seen
    from (select s.task_uuid from tasker.live_steps s
          where s.state = 4 and s.seq >= mark order by s.seq limit max_steps) r;
    if seen is null then
        return;
    end if;
    select array_agg(l.task_uuid) into held
    from (select t.task_uuid from tasker.live_tasks t
          where t.task_uuid = any (seen) order by t.task_uuid for update skip locked) l;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
    return query
    select t.task_uuid, t.plan_id, t.queue, t.state, t.priority, t.watched, t.progress,
           s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
    from unnest((select held)) h(task_uuid) -- the planner shall expect few and stay at the keys
    join tasker.live_tasks t on t.task_uuid = h.task_uuid
    join tasker.live_steps s on s.task_uuid = h.task_uuid and s.state = 4
    order by t.task_uuid, s.step_no;
end $$;
-- +goose StatementEnd

create view tasker.v_tasks as
select t.task_uuid, n.name as namespace, p.name, p.version,
       tasker.task_state_name(coalesce(t.final_state, l.state)) as state,
       t.priority, t.requested_at, t.start_at, t.completed_at, l.updated_at, l.state_since,
       t.correlation_id, t.parent_correlation_id, t.initiator, t.source_system, t.reason,
       t.final_reason, t.tags, t.context
from tasker.tasks t
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = t.queue
left join tasker.live_tasks l using (task_uuid);

create view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.live_tasks lt using (task_uuid)
cross join lateral (select coalesce(t.final_progress, lt.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality e(name, ord)) s
left join tasker.live_steps l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

create view tasker.v_task_transitions as
select task_uuid, requested_at as at, null::text as from_state, 'pending' as to_state, initiator as actor, reason
from tasker.tasks
union all
select task_uuid, min(claimed_at), 'pending', 'steps_in_process', null, null
from tasker.step_attempts group by task_uuid
union all
select task_uuid, at, tasker.task_state_name(from_state), tasker.task_state_name(to_state), actor, reason
from tasker.task_events
union all
select task_uuid, completed_at, 'evaluating_results', 'complete', null, null
from tasker.tasks where final_state = 9;

create view tasker.v_step_transitions as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.attempt, e.at, e.to_state, a.worker
from tasker.step_attempts a
cross join lateral (values
    (a.enqueued_at, 'enqueued'),
    (a.claimed_at, 'in_progress'),
    (a.reported_at, case when a.outcome = 1 then 'enqueued_for_orchestration' else 'enqueued_as_error_for_orchestration' end),
    (a.applied_at, (array['complete','waiting_for_retry','error','enqueued','cancelled'])[a.outcome])
) e(at, to_state)
where e.at is not null;

create view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, t.correlation_id, a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;
