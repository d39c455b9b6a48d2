-- What handlers have logged, and how far their steps are, see docs/use/handlers.md.
-- +goose Up
-- Lines of an attempt in a row, compressed; package attemptlog has their form. An attempt keeps its first and its last
-- lines: a number that no row has was dropped. at and last_at are of the clock of the worker. xid is for those who follow.
create table tasker.attempt_logs (
    task_uuid  uuid not null,
    at         timestamptz not null,
    token      bigint not null,
    first_line bigint not null,
    last_at    timestamptz not null,
    xid        xid8 not null default pg_current_xact_id(),
    lines      int not null check (lines > 0),
    step_no    smallint not null,
    attempt    smallint not null,
    levels     smallint not null,
    content    bytea not null,
    primary key (task_uuid, at, token, first_line)
) partition by range (task_uuid);
alter table tasker.attempt_logs alter column content set storage external;
create table tasker.attempt_logs_default partition of tasker.attempt_logs default;

-- How far the latest execution of a step is that has said so.
create table tasker.attempt_progress (
    task_uuid uuid not null,
    step_no   smallint not null,
    token     bigint not null,
    fraction  real not null check (fraction between 0 and 1),
    message   text not null,
    at        timestamptz not null default clock_timestamp(),
    primary key (task_uuid, step_no)
) partition by range (task_uuid);
create table tasker.attempt_progress_default partition of tasker.attempt_progress default;

select tasker.ensure_partitions(7);

-- A role that is not the owner drops days with his rights, which a replacement of the function would take away.
select set_config('tasker.drops_as_owner', (select prosecdef::text from pg_proc where oid = 'tasker.drop_ledger_day(text, uuid, uuid, timestamptz, text)'::regprocedure), true);
-- +goose StatementBegin
-- Drops the partitions of a day of the ledger, with those of logs and progress, as before. What the default partitions
-- have of those two keeps no day: retention deletes it.
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
    lock table only tasker.tasks, only tasker.step_attempts, only tasker.task_events, only tasker.batches, only tasker.former_batches,
        only tasker.attempt_logs, only tasker.attempt_progress in access exclusive mode;
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
    execute format('drop table if exists tasker.%I, tasker.%I, tasker.%I, tasker.%I, tasker.%I, tasker.%I, tasker.%I',
        'tasks_' || day, 'step_attempts_' || day, 'task_events_' || day, 'batches_' || day, 'former_batches_' || day, 'attempt_logs_' || day,
        'attempt_progress_' || day);
    return true;
end $$;
-- +goose StatementEnd
-- +goose StatementBegin
do $$
begin
    if current_setting('tasker.drops_as_owner')::boolean then
        alter function tasker.drop_ledger_day(text, uuid, uuid, timestamptz, text) security definer set search_path = pg_catalog, pg_temp;
    end if;
end $$;
-- +goose StatementEnd

-- +goose Down
-- A role that is not the owner drops days with his rights, which a replacement of the function would take away.
select set_config('tasker.drops_as_owner', (select prosecdef::text from pg_proc where oid = 'tasker.drop_ledger_day(text, uuid, uuid, timestamptz, text)'::regprocedure), true);
-- +goose StatementBegin
-- Drops the partitions of a day of the ledger (YYYYMMDD, tasks from lo up to hi), and answers whether it did.
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
-- +goose StatementBegin
do $$
begin
    if current_setting('tasker.drops_as_owner')::boolean then
        alter function tasker.drop_ledger_day(text, uuid, uuid, timestamptz, text) security definer set search_path = pg_catalog, pg_temp;
    end if;
end $$;
-- +goose StatementEnd

drop table tasker.attempt_progress;
drop table tasker.attempt_logs;
