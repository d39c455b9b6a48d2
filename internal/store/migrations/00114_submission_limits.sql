-- Throttles and debounces: how often tasks of a template are submitted, see docs/submission-limits.md.
-- +goose Up
create table tasker.submission_limits (
    namespace_id int not null references tasker.namespaces (namespace_id),
    template     text not null check (length(template) between 1 and 64),
    rules        jsonb not null,                     -- see package admission
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text not null,
    primary key (namespace_id, template)
);

-- What is known of a key of a limit: when its places are free again, or which task waits for more submissions. Without the row
-- the key is as new.
create table tasker.submission_keys (
    namespace_id int not null,
    template     text not null,
    key          bytea not null,                     -- of the kind of the rule and the value
    free_at      timestamptz,                        -- throttle: all places of the burst are free
    task_uuid    uuid,                               -- debounce: the task that waits
    first_at     timestamptz,
    starts_at    timestamptz,
    opened_by    xid8,                               -- the transaction that creates it
    expires_at   timestamptz not null,
    primary key (namespace_id, template, key),
    foreign key (namespace_id, template) references tasker.submission_limits on delete cascade
);
-- Retention deletes the rows of idle keys.
create index submission_keys_expiry on tasker.submission_keys (expires_at);

-- +goose StatementBegin
-- Judges a submission, and returns null where it becomes a task as it is, else some of:
--   refused_ms  it is refused, and may succeed after so long; throttled: not for the quota
--   start_at    its task starts then; opened: and waits for more submissions
--   instead     the task that it has become a part of; fresh: which the same statement creates, true: with the context of this one
-- The locks are held until the commit, so submissions to a template with limits follow one another: first the quota's, then
-- that of the limit. What is read after a lock is what all before it have committed.
-- Index: the primary keys.
create function tasker.admit(of_namespace int, of_plan int, of_task uuid, of_identity bytea, keyed boolean, waits boolean,
                             of_context text, not_before timestamptz) returns jsonb
language plpgsql as $$
declare
    l        tasker.submission_limits;
    k        tasker.submission_keys;
    throttle jsonb;
    debounce jsonb;
    document jsonb;
    holder   uuid;
    instant  timestamptz;
    debounced bytea; -- keys
    throttled bytea;
    quiet    timestamptz;
    starts   timestamptz;
    turn     timestamptz;
    free     timestamptz;
    spacing  interval;
    waiting  boolean;
    refused  bigint;
begin
    perform from tasker.quotas where namespace_id = of_namespace for update;
    select s.* into l from tasker.submission_limits s
    where s.namespace_id = of_namespace and s.template = (select name from tasker.plans where plan_id = of_plan) for update;
    if found then
        instant := clock_timestamp();
        throttle := l.rules -> 'throttle';
        debounce := case when waits then l.rules -> 'debounce' end;
        document := of_context::jsonb;
        select task_uuid into holder from tasker.task_identities where identity = of_identity and expires_at > statement_timestamp();
    end if;

    if debounce is not null then
        quiet := instant + (debounce ->> 'quiet_ms')::bigint * interval '1 ms';
        debounced := sha256(convert_to('debounce ' || coalesce(document #>> string_to_array(debounce ->> 'key', '.'), ''), 'UTF8'));
        select * into k from tasker.submission_keys where namespace_id = of_namespace and template = l.template and key = debounced;
        if found and (holder is null or holder = k.task_uuid and not keyed) then
            perform from tasker.board where task_uuid = k.task_uuid order by slot for update;
            select bool_and((slot > 0 or plan_id = of_plan) and (step_no is null or state = 1 and due_at = k.starts_at and wait is null))
            into waiting from tasker.board where task_uuid = k.task_uuid;
            if waiting then
                starts := greatest(k.starts_at, least(quiet, k.first_at + (debounce ->> 'max_wait_ms')::bigint * interval '1 ms'));
                update tasker.board set due_at = starts where task_uuid = k.task_uuid and step_no is not null;
                update tasker.tasks set start_at = starts where task_uuid = k.task_uuid;
                update tasker.submission_keys set starts_at = starts, expires_at = starts + interval '1 hour'
                where namespace_id = of_namespace and template = l.template and key = debounced;
                if debounce ->> 'keep' is distinct from 'first' then
                    update tasker.board set context = case when octet_length(of_context) <= 512 then document end
                    where task_uuid = k.task_uuid and slot = 0;
                    update tasker.tasks set context = document where task_uuid = k.task_uuid;
                end if;
                return jsonb_build_object('instead', k.task_uuid);
            elsif waiting is null and k.opened_by = pg_current_xact_id() then
                return jsonb_build_object('instead', k.task_uuid, 'fresh', debounce ->> 'keep' is distinct from 'first');
            end if;
        end if;
        starts := least(quiet, instant + (debounce ->> 'max_wait_ms')::bigint * interval '1 ms');
    end if;
    if holder is not null then
        return null; -- it is answered as a duplicate, and takes no place
    end if;

    if throttle is not null then
        spacing := (throttle ->> 'period_ms')::bigint * interval '1 ms' / (throttle ->> 'max')::int;
        throttled := sha256(convert_to('throttle ' || coalesce(document #>> string_to_array(throttle ->> 'key', '.'), ''), 'UTF8'));
        select free_at into free from tasker.submission_keys where namespace_id = of_namespace and template = l.template and key = throttled;
        free := greatest(free, instant);
        turn := free - spacing * (coalesce((throttle ->> 'burst')::int, (throttle ->> 'max')::int) - 1);
        if turn > instant then
            if throttle ->> 'beyond' is distinct from 'delay' or turn > instant + interval '366 days' then
                return jsonb_build_object('refused_ms', ceil(1000 * extract(epoch from turn - instant)), 'throttled', true);
            end if;
            starts := greatest(starts, turn);
        end if;
        free := free + spacing;
    end if;
    refused := tasker.take_place(of_namespace, of_identity);
    if refused is not null then
        return jsonb_build_object('refused_ms', refused);
    end if;
    if throttle is not null then
        insert into tasker.submission_keys (namespace_id, template, key, free_at, expires_at)
        values (of_namespace, l.template, throttled, free, free)
        on conflict (namespace_id, template, key) do update set free_at = excluded.free_at, expires_at = excluded.expires_at;
    end if;
    if starts is null then
        return null;
    end if;
    starts := greatest(starts, not_before);
    if debounce is not null then
        insert into tasker.submission_keys (namespace_id, template, key, task_uuid, first_at, starts_at, opened_by, expires_at)
        values (of_namespace, l.template, debounced, of_task, instant, starts, pg_current_xact_id(), starts + interval '1 hour')
        on conflict (namespace_id, template, key) do update
        set task_uuid = excluded.task_uuid, first_at = excluded.first_at, starts_at = excluded.starts_at, opened_by = excluded.opened_by, expires_at = excluded.expires_at;
        return jsonb_build_object('start_at', starts, 'opened', true);
    end if;
    return jsonb_build_object('start_at', starts);
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.admit from public;

-- +goose Down
drop function tasker.admit;
drop table tasker.submission_keys;
drop table tasker.submission_limits;
