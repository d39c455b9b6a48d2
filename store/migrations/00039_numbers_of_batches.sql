-- Batches that a task does not have any more give their numbers back; see docs/data-model.md.
-- +goose Up

-- run: how many batches of the task had the number before; the UUID of a step
-- tells them apart. since: a token drawn when the batch was made, so that the
-- attempts of a number belong to the batch with the greatest since below their
-- tokens. Rows from before, whose numbers nobody had before them, have none. The
-- default is for programs of the version before, and set apart from the column,
-- or else all of those would get one.
alter table tasker.batches add column run int not null default 0, add column since bigint not null default 0;
alter table tasker.batches alter column since set default nextval('tasker.claim_token');

-- The batches that tasks had before a step that makes them ran again. They have
-- left tasker.batches, where a number names one batch: what looks it up there
-- finds the present one, also a program of the version before.
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
select tasker.ensure_partitions(7);

-- Events outlive the ledger, so they keep which batch of the number it was.
alter table tasker.domain_events add column run int not null default 0;

-- +goose StatementBegin
-- As step_uuid(task, step_no), and of batches whose numbers others had before
-- them: bytes 10 to 13 of the task's UUID, xor run.
create function tasker.step_uuid(task uuid, step_no int, run int) returns uuid
language sql immutable strict parallel safe as $$
    select case when run = 0 then u else
        encode(set_byte(set_byte(set_byte(set_byte(b, 10, get_byte(b, 10) # ((run >> 24) & 255)), 11, get_byte(b, 11) # ((run >> 16) & 255)),
                                 12, get_byte(b, 12) # ((run >> 8) & 255)), 13, get_byte(b, 13) # (run & 255)), 'hex')::uuid end
    from (select u, uuid_send(u) b from (select tasker.step_uuid(task, step_no) u) s) t
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Which of the batches that had a number an attempt is of, by its token.
create function tasker.batch_run(task uuid, no int, token bigint) returns int
language sql stable strict parallel safe as $$
    select coalesce((select run from (
        select since, run from tasker.batches where task_uuid = task and step_no = no and since < token
        union all
        select since, run from tasker.former_batches where task_uuid = task and step_no = no and since < token) d
        order by since desc limit 1), 0)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- As in migration 29, and the former batches.
-- Index: the primary keys, dlq_entries_pending, operator_actions_at.
create or replace function tasker.drop_ledger_day(day text, lo uuid, hi uuid, since timestamptz, patience text) returns boolean
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
-- +goose StatementEnd

-- As before, with the UUIDs of batches that have the numbers of others, and of
-- each number the checkpoint of the batch that has it now.
create or replace view tasker.v_workflow_steps as
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

create or replace view tasker.v_step_transitions as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no, tasker.batch_run(a.task_uuid, a.step_no, a.token)) as step_uuid, a.step_no, a.attempt, e.at, e.to_state, a.worker
from tasker.step_attempts a
cross join lateral (values
    (a.enqueued_at, 'enqueued'),
    (a.claimed_at, 'in_progress'),
    (a.reported_at, case when a.outcome = 1 then 'enqueued_for_orchestration' else 'enqueued_as_error_for_orchestration' end),
    (a.applied_at, (array['complete','waiting_for_retry','error','enqueued','cancelled'])[a.outcome])
) e(at, to_state)
where e.at is not null and a.step_no >= 0;

create or replace view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no, tasker.batch_run(a.task_uuid, a.step_no, a.token)) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, coalesce(t.correlation_id, t.task_uuid) as correlation_id,
       a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;

create or replace view tasker.v_isolated_items as
select d.task_uuid, tasker.step_uuid(d.task_uuid, d.step_no, d.run) as step_uuid, d.name as batch, x.no::int as item_no, x.item -> 'item' as item,
       x.item -> 'error' ->> 'message' as error, (x.item -> 'error' ->> 'retryable')::boolean as retryable,
       (x.item ->> 'replayed_as')::uuid as replayed_as, a.reported_at as isolated_at
from tasker.batches d
cross join lateral (select token, outcome, reported_at from tasker.step_attempts
                    where task_uuid = d.task_uuid and step_no = d.step_no order by token desc limit 1) a
cross join lateral jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)
where a.outcome = 1 and a.token = (d.isolated ->> 'token')::bigint;

create or replace view tasker.v_checkpoints as
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

create or replace view tasker.v_task_continuations as
select e.task_uuid, (e.metadata->>'continued_by')::uuid as continued_by, e.at, tasker.step_uuid(e.task_uuid, (e.metadata->>'step')::int,
           tasker.batch_run(e.task_uuid, (e.metadata->>'step')::int, (e.metadata->>'token')::bigint)) as step_uuid,
       e.metadata->>'step_name' as step_name, (e.metadata->>'token')::bigint as token
from tasker.task_events e where e.metadata ? 'continued_by';

create or replace view tasker.v_domain_events as
select e.position, e.event_uuid, n.name as namespace_name, e.name, e.task_uuid, e.fired_at,
       jsonb_build_object('event_id', e.event_uuid, 'event_name', e.name, 'event_version', e.version, 'payload', e.payload,
           'metadata', coalesce(e.metadata, '{}') || jsonb_build_object(
               'task_uuid', e.task_uuid, 'step_uuid', tasker.step_uuid(e.task_uuid, e.step_no, e.run), 'step_name', e.step_name,
               'namespace', n.name, 'correlation_id', e.correlation_id, 'fired_at', e.fired_at, 'fired_by', e.fired_by)) as message
from tasker.domain_events e
join tasker.namespaces n using (namespace_id);

-- +goose Down
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

create or replace view tasker.v_step_transitions as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.attempt, e.at, e.to_state, a.worker
from tasker.step_attempts a
cross join lateral (values
    (a.enqueued_at, 'enqueued'),
    (a.claimed_at, 'in_progress'),
    (a.reported_at, case when a.outcome = 1 then 'enqueued_for_orchestration' else 'enqueued_as_error_for_orchestration' end),
    (a.applied_at, (array['complete','waiting_for_retry','error','enqueued','cancelled'])[a.outcome])
) e(at, to_state)
where e.at is not null and a.step_no >= 0;

create or replace view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, coalesce(t.correlation_id, t.task_uuid) as correlation_id,
       a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;

create or replace view tasker.v_isolated_items as
select d.task_uuid, tasker.step_uuid(d.task_uuid, d.step_no) as step_uuid, d.name as batch, x.no::int as item_no, x.item -> 'item' as item,
       x.item -> 'error' ->> 'message' as error, (x.item -> 'error' ->> 'retryable')::boolean as retryable,
       (x.item ->> 'replayed_as')::uuid as replayed_as, a.reported_at as isolated_at
from tasker.batches d
cross join lateral (select token, outcome, reported_at from tasker.step_attempts
                    where task_uuid = d.task_uuid and step_no = d.step_no order by token desc limit 1) a
cross join lateral jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)
where a.outcome = 1 and a.token = (d.isolated ->> 'token')::bigint;

create or replace view tasker.v_checkpoints as
select b.task_uuid, tasker.step_uuid(b.task_uuid, b.step_no) as step_uuid, n.name as namespace_name, p.name as task_name,
       coalesce(b.batch ->> 'name', p.steps[b.step_no + 1]) as step_name, tasker.step_state_name(2, b.state, b.attempt, b.outcome) as state, b.attempt as attempts, b.worker,
       b.checkpoint -> 'cursor' as cursor, (b.checkpoint ->> 'items_processed')::bigint as items_processed,
       (b.checkpoint ->> 'timestamp')::timestamptz as saved_at, extract(epoch from now() - (b.checkpoint ->> 'timestamp')::timestamptz)::float8 as age_seconds,
       jsonb_array_length(b.checkpoint -> 'history') as history_size, pg_column_size(b.checkpoint) as bytes
from tasker.board b
join tasker.board t on t.task_uuid = b.task_uuid and t.slot = 0
join tasker.plans p on p.plan_id = t.plan_id
join tasker.namespaces n on n.namespace_id = b.queue
where b.checkpoint is not null;

create or replace view tasker.v_task_continuations as
select e.task_uuid, (e.metadata->>'continued_by')::uuid as continued_by, e.at, tasker.step_uuid(e.task_uuid, (e.metadata->>'step')::int) as step_uuid,
       e.metadata->>'step_name' as step_name, (e.metadata->>'token')::bigint as token
from tasker.task_events e where e.metadata ? 'continued_by';

create or replace view tasker.v_domain_events as
select e.position, e.event_uuid, n.name as namespace_name, e.name, e.task_uuid, e.fired_at,
       jsonb_build_object('event_id', e.event_uuid, 'event_name', e.name, 'event_version', e.version, 'payload', e.payload,
           'metadata', coalesce(e.metadata, '{}') || jsonb_build_object(
               'task_uuid', e.task_uuid, 'step_uuid', tasker.step_uuid(e.task_uuid, e.step_no), 'step_name', e.step_name,
               'namespace', n.name, 'correlation_id', e.correlation_id, 'fired_at', e.fired_at, 'fired_by', e.fired_by)) as message
from tasker.domain_events e
join tasker.namespaces n using (namespace_id);

-- +goose StatementBegin
create or replace function tasker.drop_ledger_day(day text, lo uuid, hi uuid, since timestamptz, patience text) returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    if day !~ '^[0-9]{8}$' then
        raise exception 'invalid day of the ledger %: want YYYYMMDD', day;
    end if;
    perform set_config('lock_timeout', patience, true);
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    lock table only tasker.tasks, only tasker.step_attempts, only tasker.task_events, only tasker.batches in access exclusive mode;
    if exists (select from tasker.board where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.dlq_entries where resolution = 1 and task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.tasks_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.step_attempts_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.task_events_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.batches_default where task_uuid >= lo and task_uuid < hi)
       or exists (select from tasker.operator_actions where at >= since and not dry_run) then
        return false;
    end if;
    execute format('drop table if exists tasker.%I, tasker.%I, tasker.%I, tasker.%I',
        'tasks_' || day, 'step_attempts_' || day, 'task_events_' || day, 'batches_' || day);
    return true;
end $$;
-- +goose StatementEnd
drop function tasker.batch_run(uuid, int, bigint);
drop function tasker.step_uuid(uuid, int, int);
alter table tasker.domain_events drop column run;
drop table tasker.former_batches;
alter table tasker.batches drop column since, drop column run;
