-- Results: the end of a task is a durable domain event, in namespaces that want it.
-- +goose Up
alter table tasker.namespaces add column if not exists results boolean not null default false;

-- Whether a namespace wants results: above 1. Ends of tasks read it, and nothing is cheaper to read.
create sequence if not exists tasker.results cache 1;

-- +goose StatementBegin
-- Publishes the end of a task. It runs at the commit, behind all statements of the transaction: the lock under which
-- positions are drawn is the last thing that the transaction waits for, as where steps publish, and the event comes after
-- theirs. The result has what the steps of the template succeeded with on which no other step depends. It must not fail:
-- the task could not end.
-- Index: the primary keys.
create or replace function tasker.publish_result() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = 0 set enable_seqscan = off as $$
declare
    large    constant int := 262144;                 -- bytes of results that an event may have
    t        record;
    found_in record;
    failure  jsonb;
    document jsonb;
begin
    select k.queue, k.correlation_id, k.idempotency_key, p.name, p.version, p.steps, p.template into t
    from tasker.tasks k
    join tasker.namespaces n on n.namespace_id = k.queue and n.results
    left join tasker.plans p on p.plan_id = k.plan_id
    where k.task_uuid = new.task_uuid;
    if not found then
        return null;
    end if;
    select coalesce(jsonb_object_agg(l.name, coalesce(l.result, 'null')) filter (where l.total <= large), '{}') as results,
           coalesce(bool_or(l.total > large), false) as left_out into found_in
    from (
        select u.name, a.result, coalesce(sum(pg_column_size(a.result)) over (), 0) as total
        from unnest(t.steps) with ordinality u(name, at)
        left join lateral (select x.result from tasker.step_attempts x
                           where x.task_uuid = new.task_uuid and x.step_no = u.at - 1 and x.outcome = 1 order by x.token desc limit 1) a on true
        where case when octet_length(new.task_progress) > 2 + 6 * (u.at - 1) then get_byte(new.task_progress, (2 + 6 * (u.at - 1))::int) = 4 end
              and u.name not in (select parent #>> '{}' from jsonb_path_query(t.template, '$.steps[*].dependencies[*]') parent)
    ) l;
    if new.task_state = 10 then
        select jsonb_build_object('step_name', coalesce(t.steps[x.step_no + 1], d.name), 'error', case when pg_column_size(x.error) <= large then x.error end)
        into failure
        from tasker.step_attempts x
        left join tasker.batches d on d.task_uuid = x.task_uuid and d.step_no = x.step_no
        where x.task_uuid = new.task_uuid and x.outcome = 3 and x.step_no >= 0 order by x.token desc limit 1;
    end if;
    document := jsonb_strip_nulls(jsonb_build_object('state', tasker.task_state_name(new.task_state), 'task_name', t.name, 'task_version', t.version,
            'idempotency_key', t.idempotency_key, 'reason', new.task_reason))
        || case when failure is null then '{}' else jsonb_build_object('failure', failure) end
        || case when found_in.left_out or octet_length(found_in.results::text) > large then '{"results_left_out": true}'
                else jsonb_build_object('results', found_in.results) end;
    perform pg_advisory_xact_lock(1952543595, -3);   -- as where steps publish
    insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome, name, version,
                                      step_name, fired_by, payload)
    values (tasker.uuid_v7(), nextval('tasker.event_position'), new.task_uuid, coalesce(t.correlation_id, new.task_uuid), clock_timestamp(), t.queue,
            -1, 0, case when new.task_state in (9, 12) then 1 else 3 end, 'tasker.task.' || tasker.task_state_name(new.task_state), '1.0',
            '', 'tasker', document);
    return null;
end $$;
-- +goose StatementEnd
revoke all on function tasker.publish_result from public;

-- Every end of a task is a row here, whoever decides it and with programs of any version.
create constraint trigger publish_result after insert on tasker.step_attempts deferrable initially deferred
    for each row when (new.task_state is not null and coalesce(pg_sequence_last_value('tasker.results'::regclass) > 1, false))
    execute function tasker.publish_result();

-- +goose Down
drop trigger publish_result on tasker.step_attempts;
drop function tasker.publish_result;
drop sequence tasker.results;
alter table tasker.namespaces drop column results;
