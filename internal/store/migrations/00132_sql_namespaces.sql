-- Which namespaces the roles of programs use that create tasks by SQL, see docs/use/clients.md.
-- +goose Up
-- The namespaces of a role; * is all, and an empty name is none. What tasker_client has counts for roles without rows.
create table tasker.sql_namespaces (
    role_name text not null,
    namespace text not null,
    primary key (role_name, namespace)
);

-- +goose StatementBegin
-- Whether the role that has logged in may use a namespace. Without rows for it, or for tasker_client, it may use all.
-- Index: the primary key.
create function tasker.role_uses(of_namespace text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
select not exists (select from tasker.sql_namespaces)
    or exists (select from tasker.sql_namespaces s
               where s.role_name = case when exists (select from tasker.sql_namespaces o where o.role_name = session_user) then session_user else 'tasker_client' end
                 and s.namespace in (of_namespace, '*'))
    or not exists (select from tasker.sql_namespaces s where s.role_name in (session_user, 'tasker_client'))
$$;
-- +goose StatementEnd
revoke execute on function tasker.role_uses from public;

-- +goose StatementBegin
-- Creates a task of a template within the transaction of the caller: it exists when that commits. docs/use/clients.md.
-- Index: the unique name of namespaces, plans_current, plans_highest.
create or replace function tasker.create_task(namespace text, name text, context jsonb, version text default null, idempotency_key text default null,
    conflict_policy text default null, priority int default null, tags text[] default null, start_at timestamptz default null, delay_seconds float8 default null,
    deadline timestamptz default null, correlation_id uuid default null, parent_correlation_id uuid default null,
    initiator text default null, source_system text default null, reason text default null) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_variable
declare
    checked constant boolean := tasker.check_task(name, namespace, version, initiator, source_system, reason, idempotency_key, tags,
                                                  priority, start_at, delay_seconds, deadline, conflict_policy, 'context', context);
    queue   int;
    plan    int;
    chosen  text;
begin
    if version <> '' then
        select n.namespace_id, p.plan_id, p.version into queue, plan, chosen
        from tasker.namespaces n join tasker.plans p on p.namespace_id = n.namespace_id
        where n.name = namespace and p.name = name and p.version = version and p.current;
    else
        select n.namespace_id, p.plan_id, p.version into queue, plan, chosen
        from tasker.namespaces n join tasker.plans p on p.namespace_id = n.namespace_id
        where n.name = namespace and p.name = name and p.current and p.deprecated_at is null
        order by p.version_key desc, p.version collate "C" desc limit 1;
    end if;
    if not found or not tasker.role_uses(namespace) then
        raise exception using errcode = 'P0002', message = 'Template not found: ' || namespace || '/' || name
            || case when version <> '' then '/' || version else ' (no version of it that is not deprecated)' end;
    end if;
    return tasker.put_task(queue, plan, namespace, name, chosen, 'context', context, nullif(idempotency_key, ''), conflict_policy,
                           priority, tags, start_at, delay_seconds, deadline, correlation_id, parent_correlation_id, initiator, source_system, reason);
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Creates a task of a task type, as POST /v1/enqueue does: with an idempotency key that a task has, that task is the answer.
-- Index: the primary key of task_types, the unique name of namespaces, plans_highest.
create or replace function tasker.enqueue(type text, payload jsonb, queue text default null, idempotency_key text default null,
    conflict_policy text default null, priority int default null, tags text[] default null, start_at timestamptz default null, delay_seconds float8 default null,
    deadline timestamptz default null, correlation_id uuid default null, parent_correlation_id uuid default null,
    initiator text default null, source_system text default null, reason text default null) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_variable
declare
    found_in constant text := nullif(queue, '');
    types    int := 0;
    t        record;
    chosen   record;
begin
    if coalesce(type, '') = '' or greatest(length(type), length(queue)) > 64 or strpos(concat(type, queue), E'\x1f') > 0
       or coalesce(jsonb_typeof(payload), 'null') = 'null' then
        perform tasker.reject(array_remove(array[
            case when coalesce(type, '') = '' then 'type must not be empty' when length(type) > 64 then 'type must have at most 64 characters'
                 when strpos(type, E'\x1f') > 0 then 'type must be text without control character NUL' end,
            case when length(queue) > 64 then 'queue must have at most 64 characters' when strpos(queue, E'\x1f') > 0 then 'queue must be text without control character NUL' end,
            case when coalesce(jsonb_typeof(payload), 'null') = 'null' then 'missing field: payload' end], null));
    end if;
    for t in select n.namespace_id, n.name as namespace, p.plan_id, p.version
             from tasker.task_types y join tasker.namespaces n on n.namespace_id = y.namespace_id
             cross join lateral (
                 select p.plan_id, p.version from tasker.plans p
                 where p.namespace_id = y.namespace_id and p.name = y.name and p.current and p.deprecated_at is null
                 order by p.version_key desc, p.version collate "C" desc limit 1) p
             where y.name = type and (found_in is null or n.name = found_in) and tasker.role_uses(n.name) limit 2 loop
        types := types + 1;
        chosen := t;
    end loop;
    if types = 0 then
        perform tasker.reject(array['Unknown task type: ' || type || coalesce(' in the queue ' || found_in, '')]);
    elsif types > 1 then
        perform tasker.reject(array['several queues have the task type ' || type || '; send queue']);
    end if;
    perform tasker.check_task(type, chosen.namespace, chosen.version, initiator, source_system, reason, idempotency_key, tags,
                              priority, start_at, delay_seconds, deadline, conflict_policy, 'payload', payload);
    return tasker.put_task(chosen.namespace_id, chosen.plan_id, chosen.namespace, type, chosen.version, 'payload', payload, nullif(idempotency_key, ''),
                           coalesce(nullif(conflict_policy, ''), case when idempotency_key <> '' then 'use_existing' end),
                           priority, tags, start_at, delay_seconds, deadline, correlation_id, parent_correlation_id, initiator, source_system, reason);
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Delivers an event to the steps that wait for it when the transaction of the caller commits, or keeps it for the first
-- that will, as POST /v1/external-events does. Until then the steps that begin to wait for it are held up.
-- Index: received_events_id, board_awaits, the primary keys.
create or replace function tasker.send_event(namespace text default null, name text default null, key text default null, payload jsonb default null,
    task_uuid uuid default null, id text default null, keep interval default '1 day')
returns table (event_uuid uuid, delivered int, duplicate boolean, expires_at timestamptz)
language plpgsql security definer rows 1 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    to_namespace constant text := nullif(send_event.namespace, '');
    to_key       constant text := nullif(send_event.key, '');
    to_task      constant uuid := send_event.task_uuid;
    its_name     constant text := send_event.name;
    its_id       constant text := nullif(send_event.id, '');
    its_payload  constant jsonb := send_event.payload;
    spaces       constant text := E'\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';
    controls     constant text := '[\u0001-\u001f\u007f-\u009f]';
    problems     text[];
    address      record;
    text_of      text;
    e            tasker.received_events;
    reached      uuid[];
begin
    problems := array_remove(array[
        case when length(its_id) > 255 then 'id must have at most 255 characters' when strpos(its_id, E'\x1f') > 0 then 'id must be text without control character NUL' end,
        'name: ' || case when btrim(coalesce(its_name, ''), spaces) = '' then 'it is empty' when octet_length(its_name) > 255 then 'it has ' || octet_length(its_name) || ' bytes; up to 255 are allowed'
             when its_name ~ controls then 'it may not contain line breaks or control characters' end,
        'key: ' || case when octet_length(to_key) > 512 then 'it has ' || octet_length(to_key) || ' bytes; up to 512 are allowed'
             when to_key ~ controls then 'it may not contain line breaks or control characters' end,
        case when to_key is null and to_task is null then 'invalid event: want key or task_uuid'
             when to_key is not null and to_task is not null then 'invalid event: want key or task_uuid, not both'
             when to_task is null and to_namespace is null then 'namespace must not be empty'
             when to_task is null and length(to_namespace) > 64 then 'namespace must have at most 64 characters'
             when to_task is null and strpos(to_namespace, E'\x1f') > 0 then 'namespace must be text without control character NUL'
             when to_task is not null and to_namespace is not null then 'invalid event: want no namespace with task_uuid' end,
        tasker.value_problem('payload', its_payload),
        case when keep is null or keep not between '1 minute' and '365 days' then 'keep must be between 1 minute and 365 days' end], null);
    perform tasker.reject(problems);
    if to_task is null then
        select n.namespace_id, n.name, true as alive into address from tasker.namespaces n where n.name = to_namespace;
        if not found or not tasker.role_uses(to_namespace) then
            raise exception using errcode = 'P0002', message = 'Namespace not found: ' || to_namespace;
        end if;
        text_of := 'e' || address.name || E'\x1f' || its_name || E'\x1f=' || to_key;
    else
        select n.namespace_id, n.name, exists (select from tasker.board b where b.task_uuid = to_task and b.slot = 0) as alive into address
        from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue where t.task_uuid = to_task;
        if not found or not tasker.role_uses(address.name) then
            raise exception using errcode = 'P0002', message = 'Task not found: ' || to_task;
        elsif not address.alive then
            raise exception using errcode = '55000', message = 'The task has ended', detail = to_task;
        end if;
        text_of := 'e' || address.name || E'\x1f' || its_name || E'\x1f@' || to_task;
    end if;
    -- Like the steps that begin to wait, see internal/store/internal/waits.
    perform pg_advisory_xact_lock(hashtextextended(text_of, 1952543595));
    insert into tasker.received_events (namespace_id, name, key, task_uuid, awaits, sender_id, payload, expires_at)
    values (address.namespace_id, its_name, to_key, to_task, text_of, its_id, its_payload, clock_timestamp() + keep)
    on conflict (namespace_id, sender_id) where sender_id is not null do nothing
    returning * into e;
    if not found then
        return query select r.event_uuid, r.delivered, true, r.expires_at from tasker.received_events r where r.namespace_id = address.namespace_id and r.sender_id = its_id;
        return;
    end if;
    with ended as (
        update tasker.board s
        set state = 4, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null, outcome = 1,
            result = jsonb_build_object('event', e.name, 'key', e.key, 'event_uuid', e.event_uuid,
                'received_at', to_char(e.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'payload', e.payload)
        where s.awaits = any (array[text_of collate "C"])
        returning s.task_uuid
    )
    select array_agg(d.task_uuid) into reached from ended d;
    if reached is not null then
        update tasker.received_events r set delivered = cardinality(reached), taken_by = reached[1] where r.event_uuid = e.event_uuid;
        perform tasker.announce('tasker_orchestration', '');
    end if;
    return query select e.event_uuid, coalesce(cardinality(reached), 0), false, e.expires_at;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The state of a task, the results of its completed steps by their names, and why it ended; as the API shows them.
-- Index: the primary keys.
create or replace function tasker.task_result(task uuid) returns table (state text, results jsonb, reason text)
language plpgsql stable security definer rows 1 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    its_plan int;
    living   record;
    ended    record;
    progress bytea;
    shown    int;
begin
    select t.plan_id into its_plan from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue
    where t.task_uuid = task and tasker.role_uses(n.name);
    if not found then
        raise exception using errcode = 'P0002', message = 'Task not found: ' || coalesce(task::text, 'null');
    end if;
    select b.task_state, b.progress into living from tasker.board b where b.task_uuid = task and b.slot = 0;
    select a.task_state, a.task_progress, a.task_reason into ended from tasker.step_attempts a where a.task_uuid = task and a.task_state is not null;
    progress := coalesce(ended.task_progress, living.progress);
    shown := coalesce(ended.task_state, living.task_state);
    -- A claim or a due retry shows only on the board, see workflow.VisibleTaskState.
    if shown in (1, 7) and exists (select from tasker.board b where b.task_uuid = task
            and (b.state in (3, 4) or b.state = 1 and b.wait is not null and b.token is not null or b.state = 2 and shown = 7)) then
        shown := 4;
    end if;
    return query
    select tasker.task_state_name(shown), coalesce(jsonb_object_agg(s.name, coalesce(a.result, 'null')), '{}'), ended.task_reason
    from (select (u.at - 1)::int as no, u.name, 0::bigint as since from tasker.plans p, unnest(p.steps) with ordinality u(name, at) where p.plan_id = its_plan
          union all select d.step_no, d.name, d.since from tasker.batches d where d.task_uuid = task) s
    left join lateral (select x.result from tasker.step_attempts x
                       where x.task_uuid = task and x.step_no = s.no and x.token > s.since and x.outcome = 1 order by x.token desc limit 1) a on true
    where get_byte(progress, 2 + 6 * s.no) = 4;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- Creates a task of a template within the transaction of the caller: it exists when that commits. docs/sql.md.
-- Index: the unique name of namespaces, plans_current, plans_highest.
create or replace function tasker.create_task(namespace text, name text, context jsonb, version text default null, idempotency_key text default null,
    conflict_policy text default null, priority int default null, tags text[] default null, start_at timestamptz default null, delay_seconds float8 default null,
    deadline timestamptz default null, correlation_id uuid default null, parent_correlation_id uuid default null,
    initiator text default null, source_system text default null, reason text default null) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_variable
declare
    checked constant boolean := tasker.check_task(name, namespace, version, initiator, source_system, reason, idempotency_key, tags,
                                                  priority, start_at, delay_seconds, deadline, conflict_policy, 'context', context);
    queue   int;
    plan    int;
    chosen  text;
begin
    if version <> '' then
        select n.namespace_id, p.plan_id, p.version into queue, plan, chosen
        from tasker.namespaces n join tasker.plans p on p.namespace_id = n.namespace_id
        where n.name = namespace and p.name = name and p.version = version and p.current;
    else
        select n.namespace_id, p.plan_id, p.version into queue, plan, chosen
        from tasker.namespaces n join tasker.plans p on p.namespace_id = n.namespace_id
        where n.name = namespace and p.name = name and p.current and p.deprecated_at is null
        order by p.version_key desc, p.version collate "C" desc limit 1;
    end if;
    if not found then
        raise exception using errcode = 'P0002', message = 'Template not found: ' || namespace || '/' || name
            || case when version <> '' then '/' || version else ' (no version of it that is not deprecated)' end;
    end if;
    return tasker.put_task(queue, plan, namespace, name, chosen, 'context', context, nullif(idempotency_key, ''), conflict_policy,
                           priority, tags, start_at, delay_seconds, deadline, correlation_id, parent_correlation_id, initiator, source_system, reason);
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Creates a task of a task type, as POST /v1/enqueue does: with an idempotency key that a task has, that task is the answer.
-- Index: the primary key of task_types, the unique name of namespaces, plans_highest.
create or replace function tasker.enqueue(type text, payload jsonb, queue text default null, idempotency_key text default null,
    conflict_policy text default null, priority int default null, tags text[] default null, start_at timestamptz default null, delay_seconds float8 default null,
    deadline timestamptz default null, correlation_id uuid default null, parent_correlation_id uuid default null,
    initiator text default null, source_system text default null, reason text default null) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_variable
declare
    found_in constant text := nullif(queue, '');
    types    int := 0;
    t        record;
    chosen   record;
begin
    if coalesce(type, '') = '' or greatest(length(type), length(queue)) > 64 or strpos(concat(type, queue), E'\x1f') > 0
       or coalesce(jsonb_typeof(payload), 'null') = 'null' then
        perform tasker.reject(array_remove(array[
            case when coalesce(type, '') = '' then 'type must not be empty' when length(type) > 64 then 'type must have at most 64 characters'
                 when strpos(type, E'\x1f') > 0 then 'type must be text without control character NUL' end,
            case when length(queue) > 64 then 'queue must have at most 64 characters' when strpos(queue, E'\x1f') > 0 then 'queue must be text without control character NUL' end,
            case when coalesce(jsonb_typeof(payload), 'null') = 'null' then 'missing field: payload' end], null));
    end if;
    for t in select n.namespace_id, n.name as namespace, p.plan_id, p.version
             from tasker.task_types y join tasker.namespaces n on n.namespace_id = y.namespace_id
             cross join lateral (
                 select p.plan_id, p.version from tasker.plans p
                 where p.namespace_id = y.namespace_id and p.name = y.name and p.current and p.deprecated_at is null
                 order by p.version_key desc, p.version collate "C" desc limit 1) p
             where y.name = type and (found_in is null or n.name = found_in) limit 2 loop
        types := types + 1;
        chosen := t;
    end loop;
    if types = 0 then
        perform tasker.reject(array['Unknown task type: ' || type || coalesce(' in the queue ' || found_in, '')]);
    elsif types > 1 then
        perform tasker.reject(array['several queues have the task type ' || type || '; send queue']);
    end if;
    perform tasker.check_task(type, chosen.namespace, chosen.version, initiator, source_system, reason, idempotency_key, tags,
                              priority, start_at, delay_seconds, deadline, conflict_policy, 'payload', payload);
    return tasker.put_task(chosen.namespace_id, chosen.plan_id, chosen.namespace, type, chosen.version, 'payload', payload, nullif(idempotency_key, ''),
                           coalesce(nullif(conflict_policy, ''), case when idempotency_key <> '' then 'use_existing' end),
                           priority, tags, start_at, delay_seconds, deadline, correlation_id, parent_correlation_id, initiator, source_system, reason);
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Delivers an event to the steps that wait for it when the transaction of the caller commits, or keeps it for the first
-- that will, as POST /v1/external-events does. Until then the steps that begin to wait for it are held up.
-- Index: received_events_id, board_awaits, the primary keys.
create or replace function tasker.send_event(namespace text default null, name text default null, key text default null, payload jsonb default null,
    task_uuid uuid default null, id text default null, keep interval default '1 day')
returns table (event_uuid uuid, delivered int, duplicate boolean, expires_at timestamptz)
language plpgsql security definer rows 1 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    to_namespace constant text := nullif(send_event.namespace, '');
    to_key       constant text := nullif(send_event.key, '');
    to_task      constant uuid := send_event.task_uuid;
    its_name     constant text := send_event.name;
    its_id       constant text := nullif(send_event.id, '');
    its_payload  constant jsonb := send_event.payload;
    spaces       constant text := E'\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';
    controls     constant text := '[\u0001-\u001f\u007f-\u009f]';
    problems     text[];
    address      record;
    text_of      text;
    e            tasker.received_events;
    reached      uuid[];
begin
    problems := array_remove(array[
        case when length(its_id) > 255 then 'id must have at most 255 characters' when strpos(its_id, E'\x1f') > 0 then 'id must be text without control character NUL' end,
        'name: ' || case when btrim(coalesce(its_name, ''), spaces) = '' then 'it is empty' when octet_length(its_name) > 255 then 'it has ' || octet_length(its_name) || ' bytes; up to 255 are allowed'
             when its_name ~ controls then 'it may not contain line breaks or control characters' end,
        'key: ' || case when octet_length(to_key) > 512 then 'it has ' || octet_length(to_key) || ' bytes; up to 512 are allowed'
             when to_key ~ controls then 'it may not contain line breaks or control characters' end,
        case when to_key is null and to_task is null then 'invalid event: want key or task_uuid'
             when to_key is not null and to_task is not null then 'invalid event: want key or task_uuid, not both'
             when to_task is null and to_namespace is null then 'namespace must not be empty'
             when to_task is null and length(to_namespace) > 64 then 'namespace must have at most 64 characters'
             when to_task is null and strpos(to_namespace, E'\x1f') > 0 then 'namespace must be text without control character NUL'
             when to_task is not null and to_namespace is not null then 'invalid event: want no namespace with task_uuid' end,
        tasker.value_problem('payload', its_payload),
        case when keep is null or keep not between '1 minute' and '365 days' then 'keep must be between 1 minute and 365 days' end], null);
    perform tasker.reject(problems);
    if to_task is null then
        select n.namespace_id, n.name, true as alive into address from tasker.namespaces n where n.name = to_namespace;
        if not found then
            raise exception using errcode = 'P0002', message = 'Namespace not found: ' || to_namespace;
        end if;
        text_of := 'e' || address.name || E'\x1f' || its_name || E'\x1f=' || to_key;
    else
        select n.namespace_id, n.name, exists (select from tasker.board b where b.task_uuid = to_task and b.slot = 0) as alive into address
        from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue where t.task_uuid = to_task;
        if not found then
            raise exception using errcode = 'P0002', message = 'Task not found: ' || to_task;
        elsif not address.alive then
            raise exception using errcode = '55000', message = 'The task has ended', detail = to_task;
        end if;
        text_of := 'e' || address.name || E'\x1f' || its_name || E'\x1f@' || to_task;
    end if;
    -- Like the steps that begin to wait, see internal/store/internal/waits.
    perform pg_advisory_xact_lock(hashtextextended(text_of, 1952543595));
    insert into tasker.received_events (namespace_id, name, key, task_uuid, awaits, sender_id, payload, expires_at)
    values (address.namespace_id, its_name, to_key, to_task, text_of, its_id, its_payload, clock_timestamp() + keep)
    on conflict (namespace_id, sender_id) where sender_id is not null do nothing
    returning * into e;
    if not found then
        return query select r.event_uuid, r.delivered, true, r.expires_at from tasker.received_events r where r.namespace_id = address.namespace_id and r.sender_id = its_id;
        return;
    end if;
    with ended as (
        update tasker.board s
        set state = 4, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null, outcome = 1,
            result = jsonb_build_object('event', e.name, 'key', e.key, 'event_uuid', e.event_uuid,
                'received_at', to_char(e.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'payload', e.payload)
        where s.awaits = any (array[text_of collate "C"])
        returning s.task_uuid
    )
    select array_agg(d.task_uuid) into reached from ended d;
    if reached is not null then
        update tasker.received_events r set delivered = cardinality(reached), taken_by = reached[1] where r.event_uuid = e.event_uuid;
        perform tasker.announce('tasker_orchestration', '');
    end if;
    return query select e.event_uuid, coalesce(cardinality(reached), 0), false, e.expires_at;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The state of a task, the results of its completed steps by their names, and why it ended; as the API shows them.
-- Index: the primary keys.
create or replace function tasker.task_result(task uuid) returns table (state text, results jsonb, reason text)
language plpgsql stable security definer rows 1 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
    its_plan int;
    living   record;
    ended    record;
    progress bytea;
    shown    int;
begin
    select t.plan_id into its_plan from tasker.tasks t where t.task_uuid = task;
    if not found then
        raise exception using errcode = 'P0002', message = 'Task not found: ' || coalesce(task::text, 'null');
    end if;
    select b.task_state, b.progress into living from tasker.board b where b.task_uuid = task and b.slot = 0;
    select a.task_state, a.task_progress, a.task_reason into ended from tasker.step_attempts a where a.task_uuid = task and a.task_state is not null;
    progress := coalesce(ended.task_progress, living.progress);
    shown := coalesce(ended.task_state, living.task_state);
    -- A claim or a due retry shows only on the board, see workflow.VisibleTaskState.
    if shown in (1, 7) and exists (select from tasker.board b where b.task_uuid = task
            and (b.state in (3, 4) or b.state = 1 and b.wait is not null and b.token is not null or b.state = 2 and shown = 7)) then
        shown := 4;
    end if;
    return query
    select tasker.task_state_name(shown), coalesce(jsonb_object_agg(s.name, coalesce(a.result, 'null')), '{}'), ended.task_reason
    from (select (u.at - 1)::int as no, u.name, 0::bigint as since from tasker.plans p, unnest(p.steps) with ordinality u(name, at) where p.plan_id = its_plan
          union all select d.step_no, d.name, d.since from tasker.batches d where d.task_uuid = task) s
    left join lateral (select x.result from tasker.step_attempts x
                       where x.task_uuid = task and x.step_no = s.no and x.token > s.since and x.outcome = 1 order by x.token desc limit 1) a on true
    where get_byte(progress, 2 + 6 * s.no) = 4;
end
$$;
-- +goose StatementEnd

drop function tasker.role_uses;
drop table tasker.sql_namespaces;
