-- The board holds what is alive, the ledger what happened; see docs/data-model.md.
-- +goose Up
create schema if not exists tasker;

-- Registry -------------------------------------------------------------------

-- A namespace is a queue: its id is what the board's rows carry.
create table tasker.namespaces (
    namespace_id int generated always as identity primary key,
    name         text not null unique check (length(name) between 1 and 64),
    created_at   timestamptz not null default now()
);

-- A plan is one resolved template. Rows never change but for `current`: the
-- same version with other content is a new plan, and running tasks keep theirs.
create table tasker.plans (
    plan_id      int generated always as identity primary key,
    namespace_id int not null references tasker.namespaces,
    name         text not null check (length(name) between 1 and 64),
    version      text not null check (length(version) between 1 and 50),
    environment  text not null,
    content_hash bytea not null check (length(content_hash) = 32),
    steps        text[] not null, -- names in the order of the step numbers
    template     jsonb not null,
    current      boolean not null,
    created_at   timestamptz not null default now(),
    unique (namespace_id, name, version, environment, content_hash)
);
create unique index plans_current on tasker.plans (namespace_id, name, version) where current;

-- Deduplication outlives the task (retention) or ends before it (window).
create table tasker.task_identities (
    identity   bytea primary key check (length(identity) = 32),
    task_uuid  uuid not null,
    expires_at timestamptz not null default 'infinity'
);

-- Daemons that are or were alive; liveness is the age of heartbeat_at.
create table tasker.workers (
    worker_uuid  uuid primary key,
    worker_id    text not null,
    hostname     text not null,
    version      text not null,
    mode         text not null,
    namespaces   text[] not null,
    started_at   timestamptz not null default now(),
    heartbeat_at timestamptz not null default now(),
    stopped_at   timestamptz
) with (fillfactor = 70);
create table tasker.processors (
    processor_uuid uuid primary key,
    processor_id   text not null,
    hostname       text not null,
    version        text not null,
    mode           text not null,
    started_at     timestamptz not null default now(),
    heartbeat_at   timestamptz not null default now(),
    stopped_at     timestamptz
) with (fillfactor = 70);

-- Board ----------------------------------------------------------------------

-- Handed out when a step becomes claimable and again when it is reported, so
-- that both lists only grow at their end and a reader can start at a mark.
create sequence tasker.step_seq cache 1;
-- One value per claim: the fence.
create sequence tasker.claim_token cache 1;

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

-- Ledger: insert-only, partitioned by task (version 7: by time) ---------------

create table tasker.tasks (
    task_uuid             uuid not null,
    requested_at          timestamptz not null default now(),
    start_at              timestamptz,
    completed_at          timestamptz,
    correlation_id        uuid not null,
    parent_correlation_id uuid,
    plan_id               int not null,
    queue                 int not null,
    priority              smallint not null,
    final_state           smallint check (final_state between 9 and 12),
    initiator             text,
    source_system         text,
    reason                text,
    final_reason          text,
    tags                  text[],
    idempotency_key       text,
    context               jsonb not null,
    final_progress        bytea,
    primary key (task_uuid)
) partition by range (task_uuid);
create index tasks_by_queue on tasker.tasks (queue, task_uuid);
create index tasks_by_correlation on tasker.tasks (correlation_id);

create table tasker.step_attempts (
    task_uuid   uuid not null,
    token       bigint not null,
    enqueued_at timestamptz,
    claimed_at  timestamptz,
    reported_at timestamptz,
    applied_at  timestamptz not null default now(),
    worker      uuid,
    step_no     smallint not null,
    attempt     smallint not null,
    outcome     smallint not null check (outcome between 1 and 5),
    reason      text,
    result      jsonb,
    error       jsonb,
    primary key (task_uuid, step_no, token)
) partition by range (task_uuid);

create table tasker.task_events (
    task_uuid  uuid not null,
    seq        bigint generated always as identity,
    at         timestamptz not null default now(),
    from_state smallint not null,
    to_state   smallint not null,
    actor      text not null,
    reason     text,
    metadata   jsonb,
    primary key (task_uuid, seq)
) partition by range (task_uuid);

create table tasker.tasks_default         partition of tasker.tasks default;
create table tasker.step_attempts_default partition of tasker.step_attempts default;
create table tasker.task_events_default   partition of tasker.task_events default;

-- +goose StatementBegin
-- The smallest version 7 UUID of a moment.
create function tasker.uuid_floor(at timestamptz) returns uuid
language sql immutable strict parallel safe as $$
    select (substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-0000-0000-000000000000')::uuid
    from lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') h
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Creates the daily partitions from yesterday to days_ahead; returns how many
-- are new. Rows for which no day exists go to the default partition, so a
-- daemon that could not run this loses nothing; a day of which the default
-- partition has rows stays there, and the days after it are not held up.
create function tasker.ensure_partitions(days_ahead int) returns int
language plpgsql as $$
declare
    made int := 0;
    part text;
    parent text;
    day date;
begin
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    for i in -1 .. days_ahead loop
        day := (now() at time zone 'UTC')::date + i;
        foreach parent in array array['tasks', 'step_attempts', 'task_events'] loop
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            if to_regclass('tasker.' || part) is null then
                begin
                    execute format('create table tasker.%I partition of tasker.%I for values from (%L) to (%L)',
                        part, parent,
                        tasker.uuid_floor(day::timestamp at time zone 'UTC'),
                        tasker.uuid_floor((day + 1)::timestamp at time zone 'UTC'));
                    made := made + 1;
                exception when check_violation then
                    null;
                end;
            end if;
        end loop;
    end loop;
    return made;
end $$;
-- +goose StatementEnd
select tasker.ensure_partitions(7);

-- +goose StatementBegin
-- Step UUIDs are derived: the last two bytes of the task's, xor (step_no + 1).
create function tasker.step_uuid(task uuid, step_no int) returns uuid
language sql immutable strict parallel safe as $$
    select encode(set_byte(set_byte(b, 14, get_byte(b, 14) # (((step_no + 1) >> 8) & 255)),
                           15, get_byte(b, 15) # ((step_no + 1) & 255)), 'hex')::uuid
    from (select uuid_send(task) b) t
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Locks up to max_steps worth of tasks with reported steps and returns what was
-- reported for them. Two statements on purpose: the second one's snapshot is
-- younger than the locks, so it cannot see a step that another orchestrator
-- has applied in between. A row without task_uuid carries the number of tasks
-- that somebody else holds right now.
-- Index: live_steps_reported, then the primary keys.
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

-- +goose Down
drop schema tasker cascade;
