-- Liveness, dead letters, operators and retention; see docs/data-model.md.
-- +goose Up

-- 1 active, 2 stale, 3 dead. A dead worker stays dead: it comes back under
-- another UUID.
alter table tasker.workers
    add column status smallint not null default 1 check (status between 1 and 3),
    add column status_since timestamptz not null default now(),
    add column tags text[] not null default '{}';
-- The age of a heartbeat is in neither, so a heartbeat moves no entry.
create index workers_alive on tasker.workers (worker_uuid) where status < 3 and stopped_at is null;
create index workers_dead on tasker.workers (status_since) where status = 3;

-- Nothing of a paused namespace is claimed.
alter table tasker.namespaces add column paused_at timestamptz, add column paused_by text, add column pause_reason text;
create index namespaces_paused on tasker.namespaces (namespace_id) where paused_at is not null;

-- What sweeps need of a template, without reading the document.
alter table tasker.plans add column lifecycle jsonb generated always as (template -> 'lifecycle') stored;
create index plans_lifecycle on tasker.plans (plan_id) where lifecycle is not null;

alter table tasker.board
    add column deadline timestamptz,    -- of the task, in slot 0
    add column dead_letter boolean;     -- in slot 0: it has an open entry in dlq_entries
create index board_deadline on tasker.board (deadline) where deadline is not null;
alter table tasker.tasks add column deadline timestamptz;

create index task_identities_expiry on tasker.task_identities (expires_at) where expires_at < 'infinity';

-- +goose StatementBegin
-- A version 7 UUID of this moment.
create function tasker.uuid_v7() returns uuid
language sql volatile parallel safe as $$
    select (lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
            || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function tasker.dlq_reason_name(reason int) returns text
language sql immutable strict parallel safe as $$
    select (array['staleness_timeout','max_retries_exceeded','dependency_cycle_detected','worker_unavailable','manual_dlq'])[reason]
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- How urgent an open entry is: what its reason is worth, and a point for each
-- minute that it waits.
create function tasker.dlq_priority(reason int, minutes float8) returns float8
language sql immutable strict parallel safe as $$
    select (array[100, 500, 1000, 50, 10])[reason] + minutes
$$;
-- +goose StatementEnd

-- Tasks that people should look at. Entries outlive their tasks.
-- resolution: 1 pending, 2 manually resolved, 3 permanently failed, 4 cancelled
create table tasker.dlq_entries (
    dlq_entry_uuid       uuid primary key default tasker.uuid_v7(),
    task_uuid            uuid not null,
    dlq_timestamp        timestamptz not null default clock_timestamp(),
    created_at           timestamptz not null default clock_timestamp(),
    updated_at           timestamptz not null default clock_timestamp(),
    resolution_timestamp timestamptz,
    replayed_as          uuid,
    queue                int not null,
    plan_id              int not null,
    original_state       smallint not null check (original_state between 1 and 12),
    reason               smallint not null check (reason between 1 and 5),
    resolution           smallint not null default 1 check (resolution between 1 and 4),
    detail               text not null,
    resolution_notes     text,
    resolved_by          text,
    task_snapshot        jsonb not null,
    metadata             jsonb,
    check ((resolution = 1) = (resolution_timestamp is null))
);
-- One open entry for each task.
create unique index dlq_entries_pending on tasker.dlq_entries (task_uuid) where resolution = 1;
create index dlq_entries_by_task on tasker.dlq_entries (task_uuid, dlq_timestamp);
create index dlq_entries_by_resolution on tasker.dlq_entries (resolution, reason, dlq_timestamp, dlq_entry_uuid) include (resolution_timestamp);
create index dlq_entries_closed on tasker.dlq_entries (resolution_timestamp) where resolution > 1;

-- What operators did, with whom and why.
create table tasker.operator_actions (
    action_id bigint generated always as identity primary key,
    at        timestamptz not null default clock_timestamp(),
    matched   int not null,
    changed   int not null,
    dry_run   boolean not null,
    actor     text not null,
    action    text not null,
    reason    text not null,
    target    jsonb not null
);
create index operator_actions_at on tasker.operator_actions (at);

-- Who sweeps, and what the last sweep of each kind brought. A sweep is taken by
-- a lease in its row, which also works through a pooler in transaction mode.
create table tasker.sweeps (
    name        text primary key,
    next_at     timestamptz not null,
    lease_until timestamptz,      -- null: nobody is at it
    holder      uuid not null,    -- who is at it, or was
    started_at  timestamptz not null,
    finished_at timestamptz,
    runs        bigint not null,
    result      jsonb             -- of the last run that ended
) with (fillfactor = 70);

drop function tasker.take_reported(bigint, bigint, int);
-- +goose StatementBegin
-- As in migration 3, and whether an open dead letter exists for the task.
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

-- Views for people and for tools; the daemons do not use them.
create view tasker.v_dlq_dashboard as
select tasker.dlq_reason_name(reason) as dlq_reason, count(*) as total_entries,
       count(*) filter (where resolution = 1) as pending,
       count(*) filter (where resolution = 2) as manually_resolved,
       count(*) filter (where resolution = 3) as permanent_failures,
       count(*) filter (where resolution = 4) as cancelled,
       min(dlq_timestamp) as oldest_entry, max(dlq_timestamp) as newest_entry,
       avg(extract(epoch from resolution_timestamp - dlq_timestamp) / 60) as avg_resolution_time_minutes
from tasker.dlq_entries group by reason;

create view tasker.v_dlq_investigation_queue as
select d.dlq_entry_uuid, d.task_uuid, tasker.dlq_priority(d.reason, m.minutes) as priority_score, m.minutes as minutes_in_dlq,
       tasker.dlq_reason_name(d.reason) as dlq_reason, d.detail, d.dlq_timestamp,
       tasker.task_state_name(d.original_state) as original_state, tasker.task_state_name(b.task_state) as current_state,
       n.name as namespace_name, p.name as task_name, p.version as task_version
from tasker.dlq_entries d
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = d.queue
left join tasker.board b on b.task_uuid = d.task_uuid and b.slot = 0
cross join lateral (select extract(epoch from now() - d.dlq_timestamp)::float8 / 60 as minutes) m
where d.resolution = 1
order by priority_score desc;

-- How near living tasks are to the threshold of their state. A threshold that a
-- template does not set is the default of the configuration here, whatever is
-- configured: the database does not know that.
create view tasker.v_task_staleness_monitoring as
select b.task_uuid, n.name as namespace_name, p.name as task_name, tasker.task_state_name(b.task_state) as current_state,
       (m.in_state / 60)::int as time_in_state_minutes, (extract(epoch from now() - b.requested_at) / 60)::int as task_age_minutes,
       m.threshold as staleness_threshold_minutes,
       case when m.in_state >= 60 * m.threshold then 'stale' when m.in_state >= 48 * m.threshold then 'warning' else 'healthy' end as health_status,
       b.priority
from tasker.board b
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = b.queue
cross join lateral (
    select floor(extract(epoch from now() - case b.task_state
               when 4 then greatest(b.state_since, b.updated_at, b.requested_at) else coalesce(b.state_since, b.requested_at) end)) as in_state,
           case b.task_state
               when 6 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_dependencies_minutes')::int, 0), 60)
               when 7 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_retry_minutes')::int, 0), 30)
               else coalesce(nullif((p.lifecycle ->> 'max_steps_in_process_minutes')::int, 0), 30) end as threshold) m
where b.slot = 0 and b.task_state in (4, 6, 7);

-- +goose Down
drop view tasker.v_task_staleness_monitoring, tasker.v_dlq_investigation_queue, tasker.v_dlq_dashboard;
drop function tasker.take_reported(bigint, bigint, int);
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
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and slot = 0 limit 1) t
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
    order by t.task_uuid, s.step_no;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
end $$;
-- +goose StatementEnd

drop table tasker.sweeps, tasker.operator_actions, tasker.dlq_entries;
drop function tasker.dlq_priority(int, float8);
drop function tasker.dlq_reason_name(int);
drop function tasker.uuid_v7();
drop index tasker.task_identities_expiry;
alter table tasker.tasks drop column deadline;
alter table tasker.board drop column deadline, drop column dead_letter; -- and with the first board_deadline
alter table tasker.plans drop column lifecycle;
alter table tasker.namespaces drop column paused_at, drop column paused_by, drop column pause_reason;
alter table tasker.workers drop column status, drop column status_since, drop column tags;
