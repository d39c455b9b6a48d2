-- Days are dropped in one statement each. What a drop locks stops everybody; it
-- must not be held while the server waits for the next word of a client.
-- +goose Up

-- +goose StatementBegin
-- Drops the partitions of a day of the ledger (YYYYMMDD, tasks from lo up to hi)
-- and answers whether it did. With the ledger locked it asks again what keeps a
-- day: living tasks, open dead letters, rows in the default partitions, and an
-- action of an operator since the day was read, who may have set a task going
-- that has ended anew. It waits no longer than patience for each lock
-- (lock_not_available), since everybody else waits behind it. The parents alone
-- are locked first: a partition is locked when it is dropped.
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

-- +goose StatementBegin
-- Drops a day of domain events, as above.
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
-- +goose StatementEnd

-- +goose Down
drop function tasker.drop_event_day(text, text);
drop function tasker.drop_ledger_day(text, uuid, uuid, timestamptz, text);
