-- The schema of Tasker, version 100.
--
-- This file makes all that a new database has in the schema `tasker`: the migrator applies it in one transaction, as
-- the migration whose number the first line names. Before that it has made the schema itself and the table
-- tasker_schema_version, which records the migrations of the database.
--
-- Databases that have applied this file never see a change of it, so every change is a migration of its own,
-- migrations/00101_words.sql and up. Daemons of the version before run on while it is applied and until they are
-- replaced. Therefore a change is made in two steps:
--   1. Expand: a migration adds a table, a column with a default, an index; the new version of the daemons uses it
--      and still leaves behind what the old one needs.
--   2. Contract: when no daemon of the old version runs any more, a later migration removes what is left over. It
--      says so in a line `-- contract: <reason>`.
--
-- Tables with many rows have their columns by width, wide ones first and texts last, so that rows have no gaps. Of two
-- indexes that look equally cheap the planner takes the one that was made last, so the order of a table's indexes counts.
-- docs/data-model.md says why the schema looks like this, docs/development.md how a migration is added.


-- Board ----------------------------------------------------------------------------------------------------------------
-- What is alive: narrow rows that change in place and are deleted when the work is done.

-- The order of steps. A step draws a number when it becomes claimable and another when it is reported, so both lists
-- only grow at their ends, and a reader can start at a mark instead of the beginning.
create sequence tasker.step_seq cache 1;

-- The fence of claims: each claim draws a value, and a report with another one is refused.
create sequence tasker.claim_token cache 1;

-- Slot 0 is the row of the task. The lock on it is the right to decide about the task. While just one step is alive,
-- slot 0 carries that step too, so a workflow of steps in a row lives in one row. The steps of a task that works on
-- several at once have rows of their own in slot step_no + 1, and slot 0 has none then.
--
-- state: 0 no step in this row, 1 scheduled or waiting, 2 claimable, 3 in progress, 4 reported
--
-- There is no foreign key to plans: plans are never deleted, and the check would lock one row of plans for every new
-- task.
create table tasker.board (
    task_uuid             uuid not null,
    -- Of the step:
    seq                   bigint not null default 0, -- from step_seq
    token                 bigint,                    -- from claim_token, by the last claim
    lease_until           timestamptz,
    claimed_at            timestamptz,
    reported_at           timestamptz,
    worker                uuid,                      -- workers.worker_uuid
    due_at                timestamptz,               -- when a scheduled step becomes claimable, or a wait ends by itself
    enqueued_at           timestamptz,
    retry_after_ms        bigint,                    -- what the handler asked for; null: nothing
    -- Of the task, null elsewhere than in slot 0:
    requested_at          timestamptz,
    state_since           timestamptz,               -- null: since it was requested
    updated_at            timestamptz,               -- null: never
    deadline              timestamptz,               -- by when the task should have begun
    processor             uuid,                      -- the orchestrator that changed it last; for operators
    correlation_id        uuid,                      -- null: the task's own id
    parent_correlation_id uuid,
    plan_id               int,
    task_state            smallint,                  -- see task_state_name
    priority              smallint,
    -- Of both:
    queue                 int not null,              -- the namespace; 0: the engine runs the step
    -- Of the step:
    callable              int not null default 0,    -- the line that the step waits in; 0: none, or the engine runs it
    slot                  smallint not null,
    lane                  smallint not null,         -- the order of claims inside a line, smallest first
    step_no               smallint,
    state                 smallint not null,
    attempt               smallint not null default 0,
    outcome               smallint,                  -- as in step_attempts
    retryable             boolean,
    last_attempt          boolean,                   -- the next execution is the last that the step may have; it is not claimed ahead
    ahead                 boolean,                   -- the claim was made ahead of a free permit, see begun_claims
    -- Of the task, null elsewhere than in slot 0:
    watched               boolean,                   -- a client waits for the end
    awaited               boolean,                   -- another task waits for the end
    dead_letter           boolean,                   -- there is an open entry in dlq_entries
    progress              bytea,                     -- workflow.Progress, of fixed width
    context               jsonb,                     -- null: too large to be carried along, see tasks
    -- Of the step:
    parents               smallint[],                -- steps whose results the handler gets with the claim, from the ledger
    inputs                jsonb,                     -- those results, where they are small and at hand
    tags                  text[],                    -- a worker must carry all of them
    result                jsonb,
    error                 jsonb,
    batch                 jsonb,                     -- what a batch works on, see batches; null for steps of the plan
    -- {"cursor", "items_processed", "timestamp", "accumulated_results"?, "history": [{"cursor", "timestamp"}]}, the
    -- history oldest first and bounded. It stays with the step until that has ended.
    checkpoint            jsonb,
    -- {"kind", "event"?, "key"?, "prompt"?, "task_uuid"?}, and what the wait ends with when it is due: "outcome",
    -- "retryable", "result"?, "error"?
    wait                  jsonb,
    awaits                text collate "C",          -- what is delivered to the step: an event, a decision, the end of a task
    -- {"<number of the declaration>": {"payload"?, "metadata"?, "skip"?}}: what publishers have made of the domain
    -- events of a report, until it is applied. Null for steps whose events are plain.
    events                jsonb,
    primary key (task_uuid, slot),
    check ((slot = 0) = (task_state is not null and progress is not null and plan_id is not null
                         and priority is not null and requested_at is not null)),
    -- A step that waits is scheduled, without due_at where it waits for ever, and with a token once its attempt has begun.
    constraint board_state check (case state
                      when 0 then slot = 0 and step_no is null
                      when 1 then due_at is not null or wait is not null
                      when 2 then due_at is null and lease_until is null
                      when 3 then token is not null and lease_until is not null
                      when 4 then token is not null and lease_until is null and outcome is not null
                      else false end)
    -- A claim, a report and an apply each leave a version of the row, and these find room on its page. Autovacuum comes
    -- early, because the table is small and churns.
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_insert_scale_factor = 0.2);

-- Orchestrators take what was reported, from their mark on (take_reported): steps in slot 0, and steps apart.
create index board_reported on tasker.board (seq) where state = 4 and slot = 0;
create index board_reported_apart on tasker.board (seq) where state = 4 and slot > 0;
-- Orchestrators promote due steps and look when the next one is due.
create index board_due on tasker.board (due_at) where state = 1;
-- Orchestrators expire leases and look when the next one ends.
create index board_lease on tasker.board (lease_until) where state = 3;
-- The sweep for stale tasks finds those that have not begun in time.
create index board_deadline on tasker.board (deadline) where deadline is not null;
-- Events, decisions and ends of tasks find the steps that wait for them.
create index board_awaits on tasker.board (awaits) where awaits is not null;
-- Workers claim: one lane of a line from its mark on, or from one lane in which something waits to the next.
create index board_claimable on tasker.board (callable, lane, seq) where state = 2;

-- Up to which token a worker begins what it has claimed ahead. The worker writes it before a handler begins; the loss
-- of a claim beyond it uses up no attempt.
create table tasker.begun_claims (
    worker uuid not null,
    token  bigint not null,
    primary key (worker, token)
);


-- Ledger ---------------------------------------------------------------------------------------------------------------
-- What happened: rows that are inserted once. The tables are partitioned by task, and task UUIDs are of version 7, so a
-- partition is a day. ensure_partitions makes the days; a row for which there is none goes to the default partition.
-- Where several of these tables are locked, they are locked in the order in which they stand here.

-- The request of each task.
create table tasker.tasks (
    task_uuid             uuid not null,
    requested_at          timestamptz not null default now(),
    start_at              timestamptz,               -- the task does not begin before it
    deadline              timestamptz,               -- by when the task should have begun
    correlation_id        uuid,                      -- null: the task's own id
    parent_correlation_id uuid,
    parent_task_uuid      uuid,                      -- the task of the step that this task is
    -- The task whose handler named this one as what comes next. The other direction is in the events of that task, so
    -- it needs no index.
    continues_task_uuid   uuid,
    plan_id               int not null,
    queue                 int not null,              -- the namespace
    priority              smallint not null,
    parent_step_no        smallint,
    depth                 smallint,                  -- how many tasks there are above
    initiator             text,
    source_system         text,
    reason                text,
    tags                  text[],
    idempotency_key       text,
    context               jsonb not null,
    depends_on            uuid[]                     -- tasks that had to end first
) partition by range (task_uuid);
-- Lists of the tasks of a namespace, newest first.
create index tasks_by_queue on tasker.tasks (queue, task_uuid);
-- For people: the tasks of a correlation id.
create index tasks_by_correlation on tasker.tasks (correlation_id) where correlation_id is not null;
-- Made after the index by queue, which looks as cheap in a partition that is still empty, as each is at midnight.
alter table tasker.tasks add primary key (task_uuid);
-- For people: the tasks that the steps of a task are.
create index tasks_by_parent on tasker.tasks (parent_task_uuid) where parent_task_uuid is not null;
create table tasker.tasks_default partition of tasker.tasks default;

-- Every execution of a step, inserted when what it reported is applied. The last one of a task tells how the task
-- ended; where no execution was the last (cancelled in line, several steps at the end) that has a row of its own with
-- step_no -1.
--
-- outcome: 1 success, 2 failed and runs again, 3 failed for good, 4 lease lost and runs again, 5 cancelled
create table tasker.step_attempts (
    task_uuid     uuid not null,
    token         bigint not null,                   -- of the claim
    enqueued_at   timestamptz,
    claimed_at    timestamptz,
    reported_at   timestamptz,
    applied_at    timestamptz not null default now(),
    -- The transaction that applied it. What is applied together was decided about together, and the integrity check
    -- replays it together.
    decision      xid8 default pg_current_xact_id(),
    worker        uuid,
    step_no       smallint not null,
    attempt       smallint not null,
    outcome       smallint not null check (outcome between 1 and 5),
    task_state    smallint check (task_state between 9 and 12), -- how the task ended; null: it went on
    reason        text,
    result        jsonb,
    error         jsonb,
    checkpoint    jsonb,                             -- by then, as on the board
    task_reason   text,
    task_progress bytea,                             -- workflow.Progress at the end
    primary key (task_uuid, step_no, token)
) partition by range (task_uuid);
create table tasker.step_attempts_default partition of tasker.step_attempts default;

-- Changes of tasks that a client or operator could have seen and that no execution tells of.
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
create table tasker.task_events_default partition of tasker.task_events default;

-- The steps that tasks have now and that were created at run time. Their numbers follow those of the plan.
create table tasker.batches (
    task_uuid   uuid not null,
    -- A token drawn when the batch was made: the attempts of a number belong to the batch with the greatest since below
    -- their tokens.
    since       bigint not null default nextval('tasker.claim_token'),
    created_at  timestamptz not null default now(),
    run         int not null default 0,              -- how many batches of the task had the number before
    step_no     smallint not null,
    template_no smallint not null,                   -- the step of the plan that it is an instance of
    first_no    smallint not null,                   -- the first step of its group
    no_op       boolean not null,                    -- a placeholder: there is nothing to do
    name        text not null,
    cursor      jsonb not null,
    -- {"token", "items": [{"item", "error", "replayed_as"?}]}: items that the execution with this token could not
    -- process. It is written with the report of its success, and holds while that is the newest attempt of the batch.
    isolated    jsonb,
    primary key (task_uuid, step_no)
) partition by range (task_uuid);
create table tasker.batches_default partition of tasker.batches default;

-- The batches that tasks had before a step that makes them ran again, with the columns of batches. They stand apart
-- because a number names one batch there.
create table tasker.former_batches (
    task_uuid    uuid not null,
    since        bigint not null,
    created_at   timestamptz not null,
    forgotten_at timestamptz not null default clock_timestamp(),
    run          int not null,
    step_no      smallint not null,
    template_no  smallint not null,
    first_no     smallint not null,
    no_op        boolean not null,
    name         text not null,
    cursor       jsonb not null,
    isolated     jsonb,
    primary key (task_uuid, step_no, run)
) partition by range (task_uuid);
create table tasker.former_batches_default partition of tasker.former_batches default;

-- Which task an identity stands for, and until when, so that a repeated request creates no second task. An identity
-- outlives its task, or ends before it, so this table is not partitioned. A creation takes over a row whose time is
-- over.
create table tasker.task_identities (
    identity   bytea primary key check (octet_length(identity) = 16),
    task_uuid  uuid not null,
    expires_at timestamptz not null default 'infinity'
);
-- Retention deletes identities whose time is over.
create index task_identities_expiry on tasker.task_identities (expires_at) where expires_at < 'infinity';


-- Namespaces and callables ---------------------------------------------------------------------------------------------

-- A namespace is a queue: its number is what rows of the board carry. Of one with paused_at nothing is claimed.
create table tasker.namespaces (
    namespace_id int generated always as identity primary key,
    name         text not null unique check (length(name) between 1 and 64),
    created_at   timestamptz not null default now(),
    paused_at    timestamptz,
    paused_by    text,
    pause_reason text
);
-- Claims leave out what is paused, which is little.
create index namespaces_paused on tasker.namespaces (namespace_id) where paused_at is not null;

-- What the steps of a namespace call, each a line on the board. A worker claims the steps of the callables that it has
-- handlers for. Of one with paused_at nothing is claimed.
create table tasker.callables (
    callable_id  int generated always as identity primary key,
    namespace_id int not null references tasker.namespaces,
    callable     text not null,
    method       text not null,
    resolver     text not null,
    created_at   timestamptz not null default now(),
    paused_at    timestamptz,
    paused_by    text,
    pause_reason text
);
-- Registrations and workers find a callable by its texts. By a digest of them, because together they may be longer than
-- an entry of an index.
create unique index callables_named on tasker.callables (namespace_id, md5(callable || E'\x1f' || method || E'\x1f' || resolver));
-- Claims leave out what is paused.
create index callables_paused on tasker.callables (callable_id) where paused_at is not null;


-- Templates and plans --------------------------------------------------------------------------------------------------

-- The place of a version among those of its template: numbers count as numbers, 1.0 is 1.0.0, 1.0-rc.1 comes before
-- 1.0, and what follows a + says nothing.
create function tasker.version_key(version text) returns text
language sql immutable strict parallel safe as $$
    select coalesce(string_agg(case when part ~ '^[0-9]+$' then lpad(ltrim(part, '0'), 50, '0') else part end, '' order by no), '')
    from (
        select regexp_replace(regexp_replace(core[1], '^[vV](?=[0-9])', ''), '(\.0+)+$', '')
               || case when core[2] = '' then '#' else '!' || substr(core[2], 2) end as text
        from regexp_matches(split_part(version, '+', 1), '^([^-]*)(.*)$') core
    ) v
    cross join lateral regexp_matches(v.text, '[0-9]+|[^0-9]+', 'g') with ordinality m(found, no)
    cross join lateral (select m.found[1] as part) p
$$;

-- A plan is one resolved template. Rows change in `current` and `deprecated_at` only: other content of a version is
-- another plan, and tasks keep the one that they began with. deprecated_at is the same in all plans of a version.
create table tasker.plans (
    plan_id       int generated always as identity primary key,
    namespace_id  int not null references tasker.namespaces,
    name          text not null check (length(name) between 1 and 64),
    version       text not null check (length(version) between 1 and 50),
    version_key   text collate "C" generated always as (tasker.version_key(version)) stored,
    environment   text not null,
    content_hash  bytea not null check (length(content_hash) = 32),
    steps         text[] not null,                   -- their names, in the order of their numbers
    callables     int[] not null default '{}',       -- what each step calls, in the same order; 0: the engine runs it
    template      jsonb not null,
    lifecycle     jsonb generated always as (template -> 'lifecycle') stored, -- what sweeps need, without reading the template
    current       boolean not null,
    created_at    timestamptz not null default now(),
    registered_by text not null default '',          -- a daemon or an operator, for people
    deprecated_at timestamptz,                       -- not chosen any more where a request names no version
    unique (namespace_id, name, version, environment, content_hash)
);
-- One plan at most is current for a version; creations look it up by name.
create unique index plans_current on tasker.plans (namespace_id, name, version) where current;
-- The sweep for stale tasks finds the least threshold of all templates.
create index plans_lifecycle on tasker.plans (plan_id) where lifecycle is not null;
-- A creation without a version takes the highest one.
create index plans_highest on tasker.plans (namespace_id, name, version_key, version collate "C") where current and deprecated_at is null;

-- Which plans tasks have used: at least one row for each. Transactions that create the first tasks of a plan at the
-- same time write one each, so that none waits for another. See plan_for_use.
create table tasker.plan_uses (
    plan_id int not null,                            -- no foreign key: plans are never deleted
    used_in xid8 not null default pg_current_xact_id()
);
-- Creations and registrations ask whether a plan has been used.
create index plan_uses_plan on tasker.plan_uses (plan_id);

-- Which templates are task types, and which of their versions is enqueued. What a type says stands in its plan, like
-- that of every template.
create table tasker.task_types (
    namespace_id int not null references tasker.namespaces,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    name         text not null check (length(name) between 1 and 64),
    version      text not null,
    created_by   text not null,
    updated_by   text not null,
    primary key (name, namespace_id)
);


-- Fleet ----------------------------------------------------------------------------------------------------------------
-- Daemons that are or were alive, one row per start of a process. Liveness is the age of heartbeat_at.

-- status: 1 active, 2 stale, 3 dead. A heartbeat makes a stale worker active; a dead one stays dead and comes back
-- under another UUID.
create table tasker.workers (
    worker_uuid       uuid primary key,
    worker_id         text not null,
    hostname          text not null,
    address           text not null default '',      -- host:port of its API; '': it has none
    version           text not null,
    mode              text not null,
    namespaces        text[] not null,
    tags              text[] not null default '{}',
    callables         int[] not null default '{}',   -- what it claims, by number
    handlers          text[] not null default '{}',  -- the names that it has handlers by, of which templates may name others
    refused_templates jsonb not null default '[]',   -- of its templates, those whose versions have other content
    status            smallint not null default 1 check (status between 1 and 3),
    status_since      timestamptz not null default now(),
    started_at        timestamptz not null default now(),
    heartbeat_at      timestamptz not null default now(),
    stopped_at        timestamptz
) with (fillfactor = 70);
-- Orchestrators judge the workers that have not ended. The age of a heartbeat is in neither index, so a heartbeat moves
-- no entry.
create index workers_alive on tasker.workers (worker_uuid) where status < 3 and stopped_at is null;
-- Orchestrators end the leases of workers that died not long ago.
create index workers_dead on tasker.workers (status_since) where status = 3;

-- Orchestrators.
create table tasker.processors (
    processor_uuid uuid primary key,
    processor_id   text not null,
    hostname       text not null,
    address        text not null default '',         -- as in workers
    version        text not null,
    mode           text not null,
    rules          jsonb,                            -- its limits, by which workers decide where steps create others
    rules_until    timestamptz,                      -- how long workers may decide by them
    started_at     timestamptz not null default now(),
    heartbeat_at   timestamptz not null default now(),
    stopped_at     timestamptz
) with (fillfactor = 70);

-- Which orchestrator sweeps, when next, and what the last run of each sweep brought. A sweep is taken by a lease in its
-- row, which also works through a pooler in transaction mode.
create table tasker.sweeps (
    name        text primary key,
    next_at     timestamptz not null,
    lease_until timestamptz,                         -- null: no run is in progress
    holder      uuid not null,                       -- the orchestrator of the run in progress, or of the last one
    started_at  timestamptz not null,
    finished_at timestamptz,
    runs        bigint not null,
    result      jsonb                                -- of the last run that ended
) with (fillfactor = 70);


-- Operations and dead letters ------------------------------------------------------------------------------------------

-- A version 7 UUID of this moment.
create function tasker.uuid_v7() returns uuid
language sql volatile parallel safe as $$
    select (lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
            || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid
$$;

-- Tasks that operators should look at, with a snapshot and what they found. Entries outlive their tasks.
--
-- reason: 1 stale, 2 failed for good, 3 dependency cycle, 4 no worker, 5 by hand
-- resolution: 1 pending, 2 manually resolved, 3 permanently failed, 4 cancelled
create table tasker.dlq_entries (
    dlq_entry_uuid       uuid primary key default tasker.uuid_v7(),
    task_uuid            uuid not null,
    dlq_timestamp        timestamptz not null default clock_timestamp(),
    created_at           timestamptz not null default clock_timestamp(),
    updated_at           timestamptz not null default clock_timestamp(),
    resolution_timestamp timestamptz,
    replayed_as          uuid,                       -- the task that was created from the snapshot
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
-- One open entry for each task. It keeps the task from retention.
create unique index dlq_entries_pending on tasker.dlq_entries (task_uuid) where resolution = 1;
-- The entries of a task, newest first.
create index dlq_entries_by_task on tasker.dlq_entries (task_uuid, dlq_timestamp);
-- Lists, counts and the queue of investigations, kind by kind.
create index dlq_entries_by_resolution on tasker.dlq_entries (resolution, reason, dlq_timestamp, dlq_entry_uuid) include (resolution_timestamp);
-- Retention purges closed entries.
create index dlq_entries_closed on tasker.dlq_entries (resolution_timestamp) where resolution > 1;

-- What operators did, why, and to how many tasks.
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
-- Retention deletes old ones, and drop_ledger_day looks for new ones.
create index operator_actions_at on tasker.operator_actions (at);


-- Events and messages --------------------------------------------------------------------------------------------------

-- Positions of domain events. They are drawn under a lock that is held until the commit, so they rise in the order in
-- which events become visible.
create sequence tasker.event_position cache 1;

-- Domain events, partitioned by event_uuid and so by the day of publishing. They outlive the ledger.
create table tasker.domain_events (
    event_uuid     uuid not null,
    position       bigint not null,
    task_uuid      uuid not null,
    correlation_id uuid not null,
    fired_at       timestamptz not null,
    namespace_id   int not null,
    run            int not null default 0,           -- of the batch, as in batches
    step_no        smallint not null,
    attempt        smallint not null,
    outcome        smallint not null check (outcome between 1 and 3), -- of the attempt, as in step_attempts
    name           text not null,
    key            text collate "C",                 -- tells events of one name apart; null: nothing does
    version        text not null,
    step_name      text,
    fired_by       text not null,
    payload        jsonb not null,
    metadata       jsonb,                            -- what a publisher has added
    primary key (event_uuid)
) partition by range (event_uuid);
-- Consumers and lists read the events of a namespace in their order.
create index domain_events_by_namespace on tasker.domain_events (namespace_id, position);
-- The events of a task.
create index domain_events_by_task on tasker.domain_events (task_uuid);
create table tasker.domain_events_default partition of tasker.domain_events default;

-- Consumers of domain events. All up to position is done. While token is set, holder has the events up to handed_last
-- in hand; once these are done, so is all up to handed_until, since nothing else matches.
create table tasker.event_consumers (
    consumer_uuid uuid primary key default tasker.uuid_v7(),
    position      bigint not null check (position >= 0),
    token         bigint,                            -- the fence of the claim, from claim_token
    handed_last   bigint,
    handed_until  bigint,
    lease_until   timestamptz,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(), -- of what an operator has set, not of claims
    claimed_at    timestamptz,
    acked_at      timestamptz,
    namespace_id  int not null references tasker.namespaces,
    name          text not null unique check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    holder        text,
    patterns      text[] not null check (cardinality(patterns) <= 100), -- none: every event
    check ((token is null) = (lease_until is null) and (token is null) = (handed_last is null) and (token is null) = (handed_until is null))
) with (fillfactor = 70);

-- Domain events with a key that have not been brought to the steps that wait for them. The transaction that publishes
-- them fills it; it is empty most of the time.
create table tasker.event_deliveries (
    event_uuid uuid primary key
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Events from outside. One that no step waits for is kept for the first that will.
create table tasker.received_events (
    event_uuid   uuid primary key default tasker.uuid_v7(),
    received_at  timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    taken_by     uuid,                               -- the first task that got it
    namespace_id int not null,
    delivered    int not null default 0,             -- to how many steps
    awaits       text collate "C" not null,          -- as on the board
    name         text not null,
    key          text,                               -- null: it was sent to task_uuid
    task_uuid    uuid,
    sender_id    text,                               -- the sender's own id; a second event with it is refused
    payload      jsonb
) with (fillfactor = 90);
-- Refuses repetitions.
create unique index received_events_id on tasker.received_events (namespace_id, sender_id) where sender_id is not null;
-- A step that begins to wait takes the oldest event that is kept for it.
create index received_events_kept on tasker.received_events (awaits, event_uuid) where delivered = 0;
-- Retention.
create index received_events_expiry on tasker.received_events (expires_at);

-- What orchestrators have to do soon about tasks that others have to do with, in the order of the key. A message that
-- is sent while an earlier one about the same task is answered is a row of its own, so senders wait for no
-- orchestrator. The table is empty most of the time.
--
-- kind: 1 the task has ended and others wait for that, 2 it is to be cancelled with the step that it is, 3 its
-- dependencies are to be looked at, 4 it is to be cancelled because one of those has failed
create table tasker.task_messages (
    task_uuid  uuid not null,
    message_id bigint generated always as identity,
    sent_at    timestamptz not null default clock_timestamp(),
    kind       smallint not null check (kind between 1 and 4),
    primary key (kind, task_uuid, message_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);


-- Schedules ------------------------------------------------------------------------------------------------------------

-- What is created again and again, and when next. A run is one transaction: it takes the row, creates the tasks and
-- moves next_run_at on.
--
-- catch_up: 1 skip, 2 one, 3 all; overlap: 1 allow, 2 skip
create table tasker.schedules (
    schedule_uuid   uuid primary key default tasker.uuid_v7(),
    next_run_at     timestamptz not null check (isfinite(next_run_at)),
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(), -- of what it says, not of its runs
    last_run_at     timestamptz,                        -- the time that the last run was for
    paused_at       timestamptz,
    last_task_uuid  uuid,
    namespace_id    int not null references tasker.namespaces,
    revision        int not null default 1,
    max_catch_up    int not null check (max_catch_up between 1 and 1000),
    jitter_seconds  int not null check (jitter_seconds between 0 and 3600),
    priority        smallint not null,
    catch_up        smallint not null check (catch_up between 1 and 3),
    overlap         smallint not null check (overlap between 1 and 2),
    max_attempts    smallint check (max_attempts >= 1), -- null: as the template says
    name            text not null check (length(name) between 1 and 64),
    template        text not null,
    version         text not null,
    cron            text not null,
    time_zone       text not null,
    paused_by       text,
    pause_reason    text,
    last_error      text,                               -- why the last run that was due created no task
    tags            text[] not null,
    retry_delays_ms bigint[] check (cardinality(retry_delays_ms) <= 32),
    context         jsonb not null check (jsonb_typeof(context) = 'object'),
    unique (namespace_id, name),
    check ((paused_at is null) = (paused_by is null))
) with (fillfactor = 70);
-- Orchestrators run what is due and look when the next one is.
create index schedules_due on tasker.schedules (next_run_at) where paused_at is null;


-- Dependencies ---------------------------------------------------------------------------------------------------------
-- Steps that wait stand on the board (wait, awaits). All that a task depended on is in tasks.depends_on.

-- Dependencies between tasks that are not met yet.
create table tasker.task_dependencies (
    task_uuid  uuid not null,
    depends_on uuid not null,
    lenient    boolean not null,                     -- a failure of depends_on counts as met
    primary key (task_uuid, depends_on)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
-- The end of a task finds the tasks that depend on it.
create index task_dependencies_of on tasker.task_dependencies (depends_on);


-- Functions ------------------------------------------------------------------------------------------------------------

-- The smallest version 7 UUID of a moment: the border of a partition.
create function tasker.uuid_floor(at timestamptz) returns uuid
language sql immutable strict parallel safe as $$
    select (substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-0000-0000-000000000000')::uuid
    from lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') h
$$;

-- Makes the daily partitions of every partitioned table from yesterday to days_ahead, and returns how many are new.
-- What the default partition has of a day (tasks of a machine whose clock is days ahead) moves into the partition of
-- that day, up to 10,000 rows of a table: they are locked meanwhile, together with the default partition. A day with
-- more of them stays in the default partition, and the days after it are made all the same.
create function tasker.ensure_partitions(days_ahead int) returns int
language plpgsql as $$
declare
    made int := 0;
    most constant int := 10000;
    part text;
    parent text;
    key text;
    day date;
    lo uuid;
    hi uuid;
    strays bigint;
begin
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    for i in -1 .. days_ahead loop
        day := (now() at time zone 'UTC')::date + i;
        lo := tasker.uuid_floor(day::timestamp at time zone 'UTC');
        hi := tasker.uuid_floor((day + 1)::timestamp at time zone 'UTC');
        for parent, key in
            select c.relname, a.attname from pg_class c
            join pg_partitioned_table p on p.partrelid = c.oid
            join pg_attribute a on a.attrelid = c.oid and a.attnum = p.partattrs[0]
            where c.relnamespace = 'tasker'::regnamespace order by c.oid
        loop
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            if to_regclass('tasker.' || part) is not null then
                continue;
            end if;
            begin
                execute format('create table tasker.%I partition of tasker.%I for values from (%L) to (%L)', part, parent, lo, hi);
                made := made + 1;
            exception when check_violation then
                execute format('select count(*) from (select from tasker.%I where %I >= %L and %I < %L limit %s) s',
                    parent || '_default', key, lo, key, hi, most + 1) into strays;
                if strays > most then
                    continue;
                end if;
                begin
                    execute format('lock table tasker.%I in access exclusive mode', parent || '_default');
                    execute format('create table tasker.%I (like tasker.%I including all excluding identity)', part, parent);
                    execute format('with strays as (delete from tasker.%I where %I >= %L and %I < %L returning *) insert into tasker.%I select * from strays',
                        parent || '_default', key, lo, key, hi, part);
                    execute format('alter table tasker.%I attach partition tasker.%I for values from (%L) to (%L)', parent, part, lo, hi);
                    made := made + 1;
                exception when lock_not_available then
                    null; -- the next time
                end;
            end;
        end loop;
    end loop;
    return made;
end $$;

-- Drops the partitions of a day of the ledger (YYYYMMDD, tasks from lo up to hi), and answers whether it did. With the
-- ledger locked it asks again what keeps a day: living tasks, open dead letters, rows in the default partitions, and an
-- action of an operator since the day was read, who may have set a task going that has ended anew. It waits for each
-- lock for patience at most (lock_not_available), since all others wait behind it. The parents alone are locked first:
-- a partition is locked when it is dropped. It is one statement of the client, so that no lock waits for a round trip.
-- Index: the primary keys, dlq_entries_pending, operator_actions_at.
create function tasker.drop_ledger_day(day text, lo uuid, hi uuid, since timestamptz, patience text) returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    if day !~ '^[0-9]{8}$' then
        raise exception 'invalid day of the ledger %: want YYYYMMDD', day;
    end if;
    perform set_config('lock_timeout', patience, true);
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    lock table only tasker.tasks, only tasker.step_attempts, only tasker.task_events, only tasker.batches, only tasker.former_batches in access exclusive mode;
    if exists (select from tasker.board where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.dlq_entries where resolution = 1 and task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.tasks_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.step_attempts_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.task_events_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.batches_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.former_batches_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.operator_actions where at >= since and not dry_run) then
        return false;
    end if;
    execute format('drop table if exists tasker.%I, tasker.%I, tasker.%I, tasker.%I, tasker.%I',
        'tasks_' || day, 'step_attempts_' || day, 'task_events_' || day, 'batches_' || day, 'former_batches_' || day);
    return true;
end $$;

-- Drops a day of domain events, in the same way.
create function tasker.drop_event_day(day text, patience text) returns void
language plpgsql as $$
begin
    if day !~ '^[0-9]{8}$' then
        raise exception 'invalid day of domain events %: want YYYYMMDD', day;
    end if;
    perform set_config('lock_timeout', patience, true);
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    lock table only tasker.domain_events in access exclusive mode;
    execute format('drop table if exists tasker.%I', 'domain_events_' || day);
end $$;

-- The UUID of a step, which no table has: the last two bytes of that of the task, xor (step_no + 1).
create function tasker.step_uuid(task uuid, step_no int) returns uuid
language sql immutable strict parallel safe as $$
    select encode(set_byte(set_byte(b, 14, get_byte(b, 14) # (((step_no + 1) >> 8) & 255)),
                           15, get_byte(b, 15) # ((step_no + 1) & 255)), 'hex')::uuid
    from (select uuid_send(task) b) t
$$;

-- The same for batches whose numbers others had before them: bytes 10 to 13 are xor run as well.
create function tasker.step_uuid(task uuid, step_no int, run int) returns uuid
language sql immutable strict parallel safe as $$
    select case when run = 0 then u else
        encode(set_byte(set_byte(set_byte(set_byte(b, 10, get_byte(b, 10) # ((run >> 24) & 255)), 11, get_byte(b, 11) # ((run >> 16) & 255)),
                                 12, get_byte(b, 12) # ((run >> 8) & 255)), 13, get_byte(b, 13) # (run & 255)), 'hex')::uuid end
    from (select u, uuid_send(u) b from (select tasker.step_uuid(task, step_no) u) s) t
$$;

-- Which of the batches that had a number an attempt is of, by its token.
-- Index: the primary keys.
create function tasker.batch_run(task uuid, no int, token bigint) returns int
language sql stable strict parallel safe as $$
    select coalesce((select run from (
        select since, run from tasker.batches where task_uuid = task and step_no = no and since < token
        union all
        select since, run from tasker.former_batches where task_uuid = task and step_no = no and since < token) d
        order by since desc limit 1), 0)
$$;

-- Locks tasks with reported steps and returns what was reported for them, oldest first: up to max_steps of those whose
-- only step is in slot 0, and up to max_steps of the steps that stand apart. A row of the first kind is locked and
-- returned in one statement. For the second kind the tasks are locked first and their steps read then, in two
-- statements: the snapshot of the second is younger than the locks, so it cannot see a step that another orchestrator
-- has applied in between.
--
-- A row without task_uuid carries in skipped how many rows another transaction holds. The signal that told of the
-- reports is used up by this look, so the caller has to look again. They are counted where the limit did not cut the
-- list off: otherwise the caller looks again anyway.
--
-- Two orchestrators may apply at once. A third would walk over all rows that these have locked, for a smaller share of
-- the same list; it gets skipped = 1.
-- Index: board_reported, board_reported_apart, then the primary key.
create function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, dead_letter boolean,
               awaited boolean, progress bytea, inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
               retry_after_ms bigint, skipped int)
language plpgsql as $$
#variable_conflict use_column
declare
    seen uuid[];
    held uuid[];
    lone int;
    passed int := 0;
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
    get diagnostics lone = row_count;
    if lone < max_steps then
        select greatest(count(*) - lone, 0) into passed
        from (select from tasker.board t where t.state = 4 and t.slot = 0 and t.seq >= mark order by t.seq limit max_steps) r;
    end if;

    select array_agg(distinct r.task_uuid) into seen
    from (select s.task_uuid from tasker.board s
          where s.state = 4 and s.slot > 0 and s.seq >= mark_apart order by s.seq limit max_steps) r;
    if seen is not null then
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
        passed := passed + cardinality(seen) - coalesce(cardinality(held), 0);
    end if;
    if passed > 0 then
        skipped := passed;
        return next;
    end if;
end $$;

-- The current plan of a version, to create tasks of it in this transaction: until its end no registration takes the
-- place of the plan, and after its commit none does. settled says that this is so whatever becomes of the transaction.
-- There is no row where there is no such plan. Programs that create tasks need no right to write plan_uses.
-- Index: plans_current, plan_uses_plan.
create function tasker.plan_for_use(in_namespace int, of_template text, of_version text)
returns table (plan_id int, settled boolean)
language plpgsql security definer rows 1 set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    chosen int;
    still  boolean;
begin
    loop
        select p.plan_id into chosen from tasker.plans p
        where p.namespace_id = in_namespace and p.name = of_template and p.version = of_version and p.current;
        if not found then
            return;
        end if;
        if exists (select from tasker.plan_uses u where u.plan_id = chosen and u.used_in <> pg_current_xact_id()) then
            return query select chosen, true;
            return;
        end if;
        select p.current into still from tasker.plans p where p.plan_id = chosen for share;
        if still then
            insert into tasker.plan_uses (plan_id) select chosen
            where not exists (select from tasker.plan_uses u where u.plan_id = chosen);
            return query select chosen, false;
            return;
        end if; -- a registration came first
    end loop;
end
$$;

-- Whether the name of an event fits one of the patterns, in which * stands for any characters. No patterns: every name
-- does.
create function tasker.event_matches(name text, patterns text[]) returns boolean
language sql immutable strict parallel safe as $$
    select cardinality(patterns) = 0 or exists (
        select from unnest(patterns) p
        where name like replace(replace(replace(replace(p, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%'))
$$;

-- Hands the next events of a consumer to a worker, in the order of their positions, for the time of the lease. No rows:
-- there are none. Fails with object_in_use while another worker has some in hand, with no_data_found where there is no
-- such consumer. Of events that do not match, up to 100,000 are passed over.
-- Index: domain_events_by_namespace.
create function tasker.claim_events(consumer_name text, worker_name text, max_events int default 100, lease interval default '30 seconds')
returns table (token bigint, "position" bigint, event_uuid uuid, namespace_name text, name text, version text, payload jsonb,
               task_uuid uuid, step_no smallint, step_name text, attempt smallint, outcome smallint, correlation_id uuid,
               fired_at timestamptz, fired_by text, metadata jsonb)
language plpgsql as $$
#variable_conflict use_column
declare
    c     tasker.event_consumers;
    upto  bigint;
    picks bigint[];
    fence bigint;
begin
    if max_events not between 1 and 1000 or lease <= interval '0' or lease > interval '1 day' then
        raise exception 'at most 1,000 events can be claimed at once, for a day at most' using errcode = 'invalid_parameter_value';
    end if;
    select * into c from tasker.event_consumers e where e.name = consumer_name for update;
    if not found then
        raise exception 'there is no event consumer %', consumer_name using errcode = 'no_data_found';
    end if;
    if c.lease_until > clock_timestamp() then
        raise exception 'the events of consumer % are in the hands of % until %', c.name, c.holder, c.lease_until using errcode = 'object_in_use';
    end if;
    for i in 1 .. 10 loop
        -- In one statement: what both see is the same.
        select max(w.position), (array_agg(w.position order by w.position) filter (where w.fits))[:max_events]
        into upto, picks
        from (select e.position, tasker.event_matches(e.name, c.patterns) as fits
              from tasker.domain_events e where e.namespace_id = c.namespace_id and e.position > c.position
              order by e.position limit case when cardinality(c.patterns) = 0 then max_events else 10000 end) w;
        exit when upto is null or picks is not null;
        c.position := upto;
    end loop;
    if picks is null then
        update tasker.event_consumers e
        set position = c.position, token = null, lease_until = null, handed_last = null, handed_until = null, holder = null
        where e.consumer_uuid = c.consumer_uuid and (e.position <> c.position or e.token is not null);
        return;
    end if;
    if cardinality(picks) = max_events then
        upto := picks[max_events];
    end if;
    fence := nextval('tasker.claim_token');
    update tasker.event_consumers e
    set position = c.position, token = fence, holder = worker_name, handed_last = picks[cardinality(picks)], handed_until = upto,
        lease_until = clock_timestamp() + lease, claimed_at = clock_timestamp()
    where e.consumer_uuid = c.consumer_uuid;
    return query
    select fence, e.position, e.event_uuid, n.name, e.name, e.version, e.payload, e.task_uuid, e.step_no, e.step_name, e.attempt, e.outcome,
           e.correlation_id, e.fired_at, e.fired_by, e.metadata
    from unnest(picks) p(at)
    join tasker.domain_events e on e.namespace_id = c.namespace_id and e.position = p.at
    join tasker.namespaces n on n.namespace_id = e.namespace_id
    order by e.position;
end $$;

-- Says that all events up to a position are done. The lease ends when these were all, or with let_go. False: the events
-- have been handed to another worker since, and nothing is changed.
-- Index: the unique name.
create function tasker.ack_events(consumer_name text, fence bigint, done bigint, let_go boolean default false) returns boolean
language plpgsql as $$
begin
    update tasker.event_consumers e
    set position = greatest(e.position, case when done >= e.handed_last then e.handed_until else done end),
        acked_at = clock_timestamp(),
        token = case when done < e.handed_last and not let_go then e.token end,
        handed_last = case when done < e.handed_last and not let_go then e.handed_last end,
        handed_until = case when done < e.handed_last and not let_go then e.handed_until end,
        lease_until = case when done < e.handed_last and not let_go then e.lease_until end,
        holder = case when done < e.handed_last and not let_go then e.holder end
    where e.name = consumer_name and e.token = fence;
    return found;
end $$;

-- How urgent an open dead letter is: what its reason is worth, and a point for each minute that it waits.
create function tasker.dlq_priority(reason int, minutes float8) returns float8
language sql immutable strict parallel safe as $$
    select (array[100, 500, 1000, 50, 10])[reason] + minutes
$$;

-- Numbers to names, for the views.
create function tasker.task_state_name(state int) returns text
language sql immutable strict parallel safe as $$
    select (array['pending','initializing','enqueuing_steps','steps_in_process','evaluating_results',
        'waiting_for_dependencies','waiting_for_retry','blocked_by_failures','complete','error',
        'cancelled','resolved_manually'])[state]
$$;

-- The visible state of a step: by the state of its row on the board, and without one by its status in the progress.
create function tasker.step_state_name(status int, board_state int, attempt int, outcome int) returns text
language sql immutable parallel safe as $$
    select case
        when board_state = 1 then case when attempt > 0 then 'waiting_for_retry' else 'pending' end
        when board_state = 2 then 'enqueued'
        when board_state = 3 then 'in_progress'
        when board_state = 4 then case when outcome = 1 then 'enqueued_for_orchestration'
                                       else 'enqueued_as_error_for_orchestration' end
        else (array['pending','pending','pending','complete','resolved_manually','error','cancelled','error'])[status]
    end
$$;

create function tasker.dlq_reason_name(reason int) returns text
language sql immutable strict parallel safe as $$
    select (array['staleness_timeout','max_retries_exceeded','dependency_cycle_detected','worker_unavailable','manual_dlq'])[reason]
$$;


-- Views ----------------------------------------------------------------------------------------------------------------
-- For people and tools; no daemon reads them.

-- Every task, alive or ended, with the name of its state.
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

-- Every step of every task, also those that have no row yet: plan × progress × board. A step that waits is in progress.
-- The checkpoint is that of the row on the board, and of a step that has ended that of its newest attempt.
create view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no, s.run) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), case when l.wait is not null and l.token is not null and l.state = 1 then 3 else l.state end, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker,
       case when l.task_uuid is not null then l.checkpoint
            when get_byte(g.progress, 2 + 6 * s.step_no) > 3 then (
                select a.checkpoint from tasker.step_attempts a
                where a.task_uuid = t.task_uuid and a.step_no = s.step_no and a.token > s.since order by a.token desc limit 1) end as checkpoint
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name, 0 as run, 0::bigint as since
                    from unnest(p.steps) with ordinality x(name, ord)
                    union all
                    select step_no, name, run, since from tasker.batches where task_uuid = t.task_uuid) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

-- The recorded changes of tasks, with the beginning and the plain end, which have no row.
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

-- Every transition of every applied attempt, unfolded from one row per attempt.
create view tasker.v_step_transitions as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no, tasker.batch_run(a.task_uuid, a.step_no, a.token)) as step_uuid, a.step_no, a.attempt, e.at, e.to_state, a.worker
from tasker.step_attempts a
cross join lateral (values
    (a.enqueued_at, 'enqueued'),
    (a.claimed_at, 'in_progress'),
    (a.reported_at, case when a.outcome = 1 then 'enqueued_for_orchestration' else 'enqueued_as_error_for_orchestration' end),
    (a.applied_at, (array['complete','waiting_for_retry','error','enqueued','cancelled'])[a.outcome])
) e(at, to_state)
where e.at is not null and a.step_no >= 0;

-- Every reported execution with its result, worker and duration.
create view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no, tasker.batch_run(a.task_uuid, a.step_no, a.token)) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, coalesce(t.correlation_id, t.task_uuid) as correlation_id,
       a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;

-- What batches could not process, item by item.
create view tasker.v_isolated_items as
select d.task_uuid, tasker.step_uuid(d.task_uuid, d.step_no, d.run) as step_uuid, d.name as batch, x.no::int as item_no, x.item -> 'item' as item,
       x.item -> 'error' ->> 'message' as error, (x.item -> 'error' ->> 'retryable')::boolean as retryable,
       (x.item ->> 'replayed_as')::uuid as replayed_as, a.reported_at as isolated_at
from tasker.batches d
cross join lateral (select token, outcome, reported_at from tasker.step_attempts
                    where task_uuid = d.task_uuid and step_no = d.step_no order by token desc limit 1) a
cross join lateral jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)
where a.outcome = 1 and a.token = (d.isolated ->> 'token')::bigint;

-- The steps on the board that have saved checkpoints.
create view tasker.v_checkpoints as
select b.task_uuid, tasker.step_uuid(b.task_uuid, b.step_no, coalesce((b.batch ->> 'run')::int, 0)) as step_uuid, n.name as namespace_name, p.name as task_name,
       coalesce(b.batch ->> 'name', p.steps[b.step_no + 1]) as step_name, tasker.step_state_name(2, b.state, b.attempt, b.outcome) as state, b.attempt as attempts, b.worker,
       b.checkpoint -> 'cursor' as cursor, (b.checkpoint ->> 'items_processed')::bigint as items_processed,
       (b.checkpoint ->> 'timestamp')::timestamptz as saved_at, extract(epoch from now() - (b.checkpoint ->> 'timestamp')::timestamptz)::float8 as age_seconds,
       jsonb_array_length(b.checkpoint -> 'history') as history_size, pg_column_size(b.checkpoint) as bytes
from tasker.board b
join tasker.board t on t.task_uuid = b.task_uuid and t.slot = 0
join tasker.plans p on p.plan_id = t.plan_id
join tasker.namespaces n on n.namespace_id = b.queue
where b.checkpoint is not null;

-- Which task continues which, and the execution whose handler has said so.
create view tasker.v_task_continuations as
select e.task_uuid, (e.metadata->>'continued_by')::uuid as continued_by, e.at, tasker.step_uuid(e.task_uuid, (e.metadata->>'step')::int,
           tasker.batch_run(e.task_uuid, (e.metadata->>'step')::int, (e.metadata->>'token')::bigint)) as step_uuid,
       e.metadata->>'step_name' as step_name, (e.metadata->>'token')::bigint as token
from tasker.task_events e where e.metadata ? 'continued_by';

-- Domain events as messages.
create view tasker.v_domain_events as
select e.position, e.event_uuid, n.name as namespace_name, e.name, e.task_uuid, e.fired_at,
       jsonb_build_object('event_id', e.event_uuid, 'event_name', e.name, 'event_version', e.version, 'payload', e.payload,
           'metadata', coalesce(e.metadata, '{}') || jsonb_build_object(
               'task_uuid', e.task_uuid, 'step_uuid', tasker.step_uuid(e.task_uuid, e.step_no, e.run), 'step_name', e.step_name,
               'namespace', n.name, 'correlation_id', e.correlation_id, 'fired_at', e.fired_at, 'fired_by', e.fired_by)) as message
from tasker.domain_events e
join tasker.namespaces n using (namespace_id);

-- The dead letters by reason.
create view tasker.v_dlq_dashboard as
select tasker.dlq_reason_name(reason) as dlq_reason, count(*) as total_entries,
       count(*) filter (where resolution = 1) as pending,
       count(*) filter (where resolution = 2) as manually_resolved,
       count(*) filter (where resolution = 3) as permanent_failures,
       count(*) filter (where resolution = 4) as cancelled,
       min(dlq_timestamp) as oldest_entry, max(dlq_timestamp) as newest_entry,
       avg(extract(epoch from resolution_timestamp - dlq_timestamp) / 60) as avg_resolution_time_minutes
from tasker.dlq_entries group by reason;

-- The open dead letters, the most urgent first.
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

-- How near living tasks are to the threshold of their state; a task of which a step waits is near to none. A threshold
-- that a template does not set is the default of the configuration, whatever is configured: the database does not know
-- that. A task whose step saves checkpoints is held to those, stale from 15 minutes on, and to what its template says.
create view tasker.v_task_staleness_monitoring as
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


-- Partitions -----------------------------------------------------------------------------------------------------------
-- From yesterday to a week ahead. Orchestrators make the days after these, every hour.
select tasker.ensure_partitions(7);
