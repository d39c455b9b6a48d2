-- Throttles and debounces: how often tasks of a template are submitted, see docs/submission-limits.md.
-- +goose Up
create table tasker.submission_limits (
    namespace_id int not null references tasker.namespaces (namespace_id),
    template     text not null check (length(template) between 1 and 64),
    rules        jsonb,                              -- of operators, see package admission; null: those that each version declares
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text not null,
    primary key (namespace_id, template)
);

-- What is known of a key of a limit: when its places are free again, or which task waits for more submissions. Without the row
-- the key is as new.
create table tasker.submission_keys (
    namespace_id int not null,
    template     text not null,
    key          bytea not null,                     -- see submission_key
    free_at      timestamptz,                        -- throttle: all places of the burst are free
    task_uuid    uuid,                               -- debounce: the task that waits
    first_at     timestamptz,
    starts_at    timestamptz,
    last_uuid    uuid,                               -- the submission that came last
    opened_by    xid8,                               -- the transaction that creates it
    expires_at   timestamptz not null,
    primary key (namespace_id, template, key),
    foreign key (namespace_id, template) references tasker.submission_limits on delete cascade
);
-- Retention deletes the rows of idle keys.
create index submission_keys_expiry on tasker.submission_keys (expires_at);

-- The namespaces with a quota or limits: what each creation looks at, and nothing else where there are none.
create table tasker.governed (
    namespace_id int primary key,
    rules        int not null                        -- rows of quotas and submission_limits
);

-- +goose StatementBegin
-- Programs of the version before set quotas, too, so a trigger counts them.
create function tasker.govern() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into tasker.governed as g (namespace_id, rules) values (new.namespace_id, 1) on conflict (namespace_id) do update set rules = g.rules + 1;
    else
        update tasker.governed set rules = rules - 1 where namespace_id = old.namespace_id;
        delete from tasker.governed where namespace_id = old.namespace_id and rules <= 0;
    end if;
    return null;
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.govern from public;
create trigger govern after insert or delete on tasker.quotas for each row execute function tasker.govern();
create trigger govern after insert or delete on tasker.submission_limits for each row execute function tasker.govern();
insert into tasker.governed select namespace_id, 1 from tasker.quotas;

-- +goose StatementBegin
-- The key of a submission under a rule of a kind, as limits of callables find that of a step.
create function tasker.submission_key(kind text, rule jsonb, document jsonb, tags text[]) returns bytea
language sql immutable as $$
select sha256(convert_to(kind || ' ' || left(coalesce(case
    when rule ? 'key_path' then document #>> array(select jsonb_array_elements_text(rule -> 'key_path'))
    when rule ? 'key_tag' then (
        select substr(tag, length(rule ->> 'key_tag') + 1) from unnest(tags) tag where starts_with(tag, rule ->> 'key_tag') limit 1)
    end, ''), 512), 'UTF8'))
$$;
-- +goose StatementEnd
revoke execute on function tasker.submission_key from public;

-- +goose StatementBegin
-- take_place for tasks of templates without limits; -1 where there are some, by which admit judges.
-- Index: the primary keys.
create function tasker.refuse(of_namespace int, of_plan int, of_identity bytea) returns bigint
language plpgsql as $$
begin
    if exists (select from tasker.plans p join tasker.submission_limits l on l.namespace_id = p.namespace_id and l.template = p.name where p.plan_id = of_plan) then
        return -1;
    end if;
    return tasker.take_place(of_namespace, of_identity);
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.refuse from public;

-- +goose StatementBegin
-- Judges a submission: null where its template has no limits and it becomes a task, else some of:
--   refused_ms  it is refused, and may succeed after so long; throttled: not for the quota
--   start_at    its task starts then; opened: and waits for more submissions
--   instead     the task that it has become a part of; fresh: which the same statement creates, true: with the context of this one
-- With again it is the second one of an identity in the statement, and becomes no task by itself.
-- The locks are held until the commit, so submissions to a template with limits follow one another: first the quota's, then
-- that of the limit. What is read after a lock is what all before it have committed.
-- Index: the primary keys.
create function tasker.admit(of_namespace int, of_plan int, of_task uuid, of_identity bytea, keyed boolean, again boolean, waits boolean,
                             of_context text, of_tags text[], not_before timestamptz) returns jsonb
language plpgsql as $$
declare
    p        record;
    l        tasker.submission_limits;
    k        tasker.submission_keys;
    answer   jsonb;
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
    burst    int;
    waiting  boolean;
    refused  bigint;
begin
    perform from tasker.quotas where namespace_id = of_namespace for update;
    select name, template -> 'submission' as rules into p from tasker.plans where plan_id = of_plan;
    select s.* into l from tasker.submission_limits s where s.namespace_id = of_namespace and s.template = p.name for update;
    if found then
        answer := '{}';
        instant := clock_timestamp();
        throttle := coalesce(l.rules, p.rules) -> 'throttle';
        debounce := case when waits then coalesce(l.rules, p.rules) -> 'debounce' end;
        document := of_context::jsonb;
        select task_uuid into holder from tasker.task_identities where identity = of_identity and expires_at > statement_timestamp();
        if holder = of_task then
            return answer; -- by a first try whose answer was lost
        end if;
    end if;

    if debounce is not null then
        quiet := instant + (debounce ->> 'quiet_ms')::bigint * interval '1 ms';
        debounced := tasker.submission_key('debounce', debounce, document, of_tags);
        select * into k from tasker.submission_keys where namespace_id = of_namespace and template = l.template and key = debounced;
        if found and (holder is null or holder = k.task_uuid and not keyed) then
            perform from tasker.board where task_uuid = k.task_uuid order by slot for update;
            select bool_and((slot > 0 or plan_id = of_plan) and (step_no is null or state = 1 and due_at = k.starts_at and wait is null))
            into waiting from tasker.board where task_uuid = k.task_uuid;
            if waiting then
                starts := greatest(k.starts_at, least(quiet, k.first_at + (debounce ->> 'max_wait_ms')::bigint * interval '1 ms'));
                update tasker.board set due_at = starts where task_uuid = k.task_uuid and step_no is not null;
                update tasker.tasks set start_at = starts where task_uuid = k.task_uuid;
                update tasker.submission_keys set starts_at = starts, last_uuid = of_task, expires_at = starts + interval '1 hour'
                where namespace_id = of_namespace and template = l.template and key = debounced;
                if debounce ->> 'keep' is distinct from 'first' then
                    update tasker.board set context = case when octet_length(of_context) <= 512 then document end
                    where task_uuid = k.task_uuid and slot = 0;
                    update tasker.tasks set context = document where task_uuid = k.task_uuid;
                end if;
                return jsonb_build_object('instead', k.task_uuid);
            elsif waiting is null and k.opened_by = pg_current_xact_id() then
                update tasker.submission_keys set last_uuid = of_task where namespace_id = of_namespace and template = l.template and key = debounced;
                return jsonb_build_object('instead', k.task_uuid, 'fresh', debounce ->> 'keep' is distinct from 'first');
            end if;
        end if;
        starts := least(quiet, instant + (debounce ->> 'max_wait_ms')::bigint * interval '1 ms');
    end if;
    if again or holder is not null then
        return answer; -- it is answered as a duplicate, and takes no place
    end if;

    if throttle is not null then
        spacing := (throttle ->> 'period_ms')::bigint * interval '1 ms' / (throttle ->> 'max')::int;
        throttled := tasker.submission_key('throttle', throttle, document, of_tags);
        select free_at into free from tasker.submission_keys where namespace_id = of_namespace and template = l.template and key = throttled;
        burst := coalesce((throttle ->> 'burst')::int, (throttle ->> 'max')::int);
        free := greatest(free, instant);
        if throttle ->> 'beyond' is distinct from 'delay' and free > instant + spacing * burst then -- left of other rules
            free := instant + spacing * burst;
            update tasker.submission_keys set free_at = free, expires_at = free where namespace_id = of_namespace and template = l.template and key = throttled;
        end if;
        turn := free - spacing * (burst - 1);
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
        return answer;
    end if;
    starts := greatest(starts, not_before);
    if debounce is not null then
        insert into tasker.submission_keys (namespace_id, template, key, task_uuid, first_at, starts_at, last_uuid, opened_by, expires_at)
        values (of_namespace, l.template, debounced, of_task, instant, starts, of_task, pg_current_xact_id(), starts + interval '1 hour')
        on conflict (namespace_id, template, key) do update
        set task_uuid = excluded.task_uuid, first_at = excluded.first_at, starts_at = excluded.starts_at, last_uuid = excluded.last_uuid,
            opened_by = excluded.opened_by, expires_at = excluded.expires_at;
        return jsonb_build_object('start_at', starts, 'opened', true);
    end if;
    return jsonb_build_object('start_at', starts);
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.admit from public;

-- +goose Down
drop function tasker.admit;
drop function tasker.refuse;
drop function tasker.submission_key;
drop table tasker.submission_keys;
drop table tasker.submission_limits;
drop trigger govern on tasker.quotas;
drop function tasker.govern;
drop table tasker.governed;
