-- Steps that the engine runs itself, sub-workflows and dependencies between
-- tasks; see docs/engine.md and docs/decisions/0017-waiting.md.
-- +goose Up

-- Such a step stands in a row of its own with queue 0, which no worker claims.
-- While it waits its state is 1 like that of a retry, but it has a token, for its
-- attempt has begun. It may wait for ever: then there is no due_at.
alter table tasker.board
    -- {"kind", "event"?, "key"?, "prompt"?, "task_uuid"?}, and what it ends with
    -- when it is due: "outcome", "retryable", "result"?, "error"?
    add column wait jsonb,
    add column awaits text collate "C",   -- what is delivered to it: an event, a decision or the end of a task
    add column awaited boolean,           -- in slot 0: another task waits for the end
    drop constraint board_check1,
    add constraint board_state check (case state
                      when 0 then slot = 0 and step_no is null
                      when 1 then due_at is not null or wait is not null
                      when 2 then due_at is null and lease_until is null
                      when 3 then token is not null and lease_until is not null
                      when 4 then token is not null and lease_until is null and outcome is not null
                      else false end);
create index board_awaits on tasker.board (awaits) where awaits is not null;

-- parent: the task and step that this task is, depth how many there are above.
-- depends_on are tasks that had to end first.
alter table tasker.tasks
    add column parent_task_uuid uuid,
    add column parent_step_no smallint,
    add column depth smallint,
    add column depends_on uuid[];
create index tasks_by_parent on tasker.tasks (parent_task_uuid) where parent_task_uuid is not null;

-- Events from outside. One that nobody waits for is kept for the first who will.
create table tasker.received_events (
    event_uuid   uuid primary key default tasker.uuid_v7(),
    received_at  timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    taken_by     uuid,                    -- the first task that got it
    namespace_id int not null,
    delivered    int not null default 0,  -- to how many steps
    awaits       text collate "C" not null, -- as in the board
    name         text not null,
    key          text,                    -- null: it was sent to task_uuid
    task_uuid    uuid,
    sender_id    text,                    -- the sender's own id: the second event with it is none
    payload      jsonb
) with (fillfactor = 90);
create unique index received_events_id on tasker.received_events (namespace_id, sender_id) where sender_id is not null;
create index received_events_kept on tasker.received_events (awaits, event_uuid) where delivered = 0;
create index received_events_expiry on tasker.received_events (expires_at);

-- What is to be done soon about a task that others have to do with.
-- kind: 1 it has ended and somebody waits for that, 2 it is to be cancelled with
-- the step that it is, 3 it waits for others, 4 it is to be cancelled because what
-- it depends on has failed
create table tasker.task_messages (
    task_uuid uuid not null,
    kind      smallint not null check (kind between 1 and 4),
    sent_at   timestamptz not null default clock_timestamp(),
    primary key (task_uuid, kind)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Dependencies that have not been met yet.
create table tasker.task_dependencies (
    task_uuid  uuid not null,
    depends_on uuid not null,
    lenient    boolean not null,   -- its failure does not matter
    primary key (task_uuid, depends_on)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index task_dependencies_of on tasker.task_dependencies (depends_on);

drop function tasker.take_reported(bigint, bigint, int);
-- +goose StatementBegin
-- As in migration 5, and whether another task waits for the end.
create function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, dead_letter boolean,
               awaited boolean, progress bytea, inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
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
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false), t.progress,
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
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false), t.progress,
           t.state <> 0, s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
    from unnest((select held)) h(task_uuid)
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and slot = 0 limit 1) t
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
    order by t.task_uuid, s.step_no;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
end $$;
-- +goose StatementEnd

-- As in migration 7; a step that waits is in progress.
create or replace view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), case when l.wait is not null and l.token is not null and l.state = 1 then 3 else l.state end, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker,
       case when l.task_uuid is not null then l.checkpoint
            when get_byte(g.progress, 2 + 6 * s.step_no) > 3 then (
                select a.checkpoint from tasker.step_attempts a
                where a.task_uuid = t.task_uuid and a.step_no = s.step_no order by a.token desc limit 1) end as checkpoint
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)
                    union all
                    select step_no, name from tasker.batches where task_uuid = t.task_uuid) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

-- As in migration 7, without tasks of which a step waits: that is no standstill.
create or replace view tasker.v_task_staleness_monitoring as
select b.task_uuid, n.name as namespace_name, p.name as task_name, tasker.task_state_name(m.shown) as current_state,
       (m.in_state / 60)::int as time_in_state_minutes, (extract(epoch from now() - b.requested_at) / 60)::int as task_age_minutes,
       m.threshold as staleness_threshold_minutes,
       case when m.in_state >= 60 * m.threshold or c.age >= 900 then 'stale'
            when m.in_state >= 48 * m.threshold or c.age >= 720 then 'warning' else 'healthy' end as health_status,
       b.priority, (c.age / 60)::int as checkpoint_age_minutes
from tasker.board b
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = b.queue
cross join lateral (
    select max(extract(epoch from now() - (s.checkpoint ->> 'timestamp')::timestamptz)) as age
    from tasker.board s where s.task_uuid = b.task_uuid and s.lease_until is not null and s.checkpoint is not null) c
cross join lateral (
    select case when b.task_state in (4, 6, 7) then b.task_state else 4 end as shown,
           floor(extract(epoch from now() - case
               when b.task_state = 4 then greatest(b.state_since, b.updated_at, b.requested_at)
               when b.task_state in (6, 7) then coalesce(b.state_since, b.requested_at)
               else coalesce(b.claimed_at, b.requested_at) end)) as in_state,
           case b.task_state
               when 6 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_dependencies_minutes')::int, 0), 60)
               when 7 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_retry_minutes')::int, 0), 30)
               else coalesce(nullif((p.lifecycle ->> 'max_steps_in_process_minutes')::int, 0), case when c.age is null then 30 end) end as threshold) m
where b.slot = 0 and (b.task_state in (4, 6, 7) or c.age is not null)
      and not exists (select from tasker.board w where w.task_uuid = b.task_uuid and w.wait is not null and w.state = 1);

-- +goose Down
create or replace view tasker.v_task_staleness_monitoring as
select b.task_uuid, n.name as namespace_name, p.name as task_name, tasker.task_state_name(m.shown) as current_state,
       (m.in_state / 60)::int as time_in_state_minutes, (extract(epoch from now() - b.requested_at) / 60)::int as task_age_minutes,
       m.threshold as staleness_threshold_minutes,
       case when m.in_state >= 60 * m.threshold or c.age >= 900 then 'stale'
            when m.in_state >= 48 * m.threshold or c.age >= 720 then 'warning' else 'healthy' end as health_status,
       b.priority, (c.age / 60)::int as checkpoint_age_minutes
from tasker.board b
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = b.queue
cross join lateral (
    select max(extract(epoch from now() - (s.checkpoint ->> 'timestamp')::timestamptz)) as age
    from tasker.board s where s.task_uuid = b.task_uuid and s.lease_until is not null and s.checkpoint is not null) c
cross join lateral (
    select case when b.task_state in (4, 6, 7) then b.task_state else 4 end as shown,
           floor(extract(epoch from now() - case
               when b.task_state = 4 then greatest(b.state_since, b.updated_at, b.requested_at)
               when b.task_state in (6, 7) then coalesce(b.state_since, b.requested_at)
               else coalesce(b.claimed_at, b.requested_at) end)) as in_state,
           case b.task_state
               when 6 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_dependencies_minutes')::int, 0), 60)
               when 7 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_retry_minutes')::int, 0), 30)
               else coalesce(nullif((p.lifecycle ->> 'max_steps_in_process_minutes')::int, 0), case when c.age is null then 30 end) end as threshold) m
where b.slot = 0 and (b.task_state in (4, 6, 7) or c.age is not null);
create or replace view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker,
       case when l.task_uuid is not null then l.checkpoint
            when get_byte(g.progress, 2 + 6 * s.step_no) > 3 then (
                select a.checkpoint from tasker.step_attempts a
                where a.task_uuid = t.task_uuid and a.step_no = s.step_no order by a.token desc limit 1) end as checkpoint
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)
                    union all
                    select step_no, name from tasker.batches where task_uuid = t.task_uuid) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;
drop function tasker.take_reported(bigint, bigint, int);
-- +goose StatementBegin
create function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, dead_letter boolean,
               progress bytea, inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
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
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), t.progress,
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
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), t.progress,
           t.state <> 0, s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
    from unnest((select held)) h(task_uuid)
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and slot = 0 limit 1) t
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
    order by t.task_uuid, s.step_no;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
end $$;
-- +goose StatementEnd
drop table tasker.task_dependencies, tasker.task_messages, tasker.received_events;
drop index tasker.tasks_by_parent;
alter table tasker.tasks drop column parent_task_uuid, drop column parent_step_no, drop column depth, drop column depends_on;
delete from tasker.board where wait is not null and due_at is null and state = 1;
alter table tasker.board drop constraint board_state, add constraint board_check1
    check (case state when 0 then slot = 0 and step_no is null
                      when 1 then due_at is not null
                      when 2 then due_at is null and lease_until is null
                      when 3 then token is not null and lease_until is not null
                      when 4 then token is not null and lease_until is null and outcome is not null
                      else false end);
alter table tasker.board drop column wait, drop column awaits, drop column awaited;
