-- +goose Up
comment on column tasker.step_attempts.error is 'the failure; of a success what its handler said beside the result';
create or replace view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no, tasker.batch_run(a.task_uuid, a.step_no, a.token)) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, coalesce(t.correlation_id, t.task_uuid) as correlation_id,
       a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result,
       case when a.outcome <> 1 then a.error end as error, case when a.outcome = 1 then a.error end as metadata
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;


-- One rule for all documents: their bytes and their depth.
-- +goose StatementBegin
-- The first thing that keeps a document from being stored as that of a task or an event; null: nothing. depth counts the
-- arrays and objects around it.
create or replace function tasker.value_problem(field text, value jsonb, depth int default 0) returns text
language plpgsql immutable parallel safe as $$
#variable_conflict use_variable
declare
    kind    constant text := jsonb_typeof(value);
    doc     constant text := value::text;
    part    record;
    problem text;
begin
    -- Too short for a number that is too long, and with too few brackets to be too deep.
    if octet_length(doc) < 300 and length(doc) - length(translate(doc, '{[', '')) < 101 - depth then
        return null;
    elsif depth = 0 and octet_length(doc) > 1048576 then
        return field || ' must have at most 1048576 bytes';
    end if;
    case kind
    when 'number' then
        return case when abs((value #>> '{}')::numeric) >= 1.797693134862315807937e308 then field || ' is out of range: ' || left(value #>> '{}', 40) end;
    when 'object', 'array' then
        if depth >= 100 then
            return ' must not be nested deeper than 100 levels';
        end if;
        for part in select e.key, e.value, 0::bigint as at from jsonb_each(case kind when 'object' then value else '{}' end) e
                    where octet_length(e.value::text) >= 300 or jsonb_typeof(e.value) in ('object', 'array')
                    union all
                    select null, e.value, e.at - 1 from jsonb_array_elements(case kind when 'array' then value else '[]' end) with ordinality e(value, at)
                    where octet_length(e.value::text) >= 300 or jsonb_typeof(e.value) in ('object', 'array')
                    order by at loop
            problem := tasker.value_problem(field || case kind when 'array' then '[' || part.at || ']' else '.'
                || case when octet_length(part.key) > 40 then tasker.first_bytes(part.key, 40) || '…' else part.key end end, part.value, depth + 1);
            if problem is not null then
                return case when depth = 0 and problem like ' %' then field || problem else problem end;
            end if;
        end loop;
        return null;
    else
        return null;
    end case;
end
$$;
-- +goose StatementEnd


-- An identity goes with its task, or ends sooner with an event of it.
-- +goose StatementBegin
-- The state of a task, also of one that has ended, for roles that may not read the ledger; null: there is none. A task with a
-- claimed step is in process, whatever its row says.
-- Index: the primary keys.
create function tasker.task_standing(task uuid) returns smallint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(
        (select case when b.task_state < 4 and (b.attempt > 0 or exists (
                     select from tasker.board s where s.task_uuid = any (array[task]) and s.slot > 0 and s.attempt > 0)) then 4::smallint
                     else b.task_state end
         from tasker.board b where b.task_uuid = any (array[task]) and b.slot = 0),
        (select a.task_state from tasker.step_attempts a
         where a.task_uuid = any (array[task]) and a.task_state is not null order by a.token desc limit 1))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether a task keeps its identity where identities end with an event of it (until): not where the retention has deleted it.
create function tasker.keeps_identity(task uuid, until text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    standing constant smallint := tasker.task_standing(task);
begin
    if task is null or not exists (select from tasker.tasks t where t.task_uuid = any (array[task])) then
        return task is null;
    end if;
    return not coalesce(case until when 'ended' then standing >= 9 when 'succeeded' then standing = 9 when 'claimed' then standing > 1 end, false);
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.keeps_identity from public;

-- +goose StatementBegin
create or replace function tasker.put_task(queue int, plan int, of_namespace text, of_name text, of_version text, field text, context jsonb, key text, conflict_policy text,
    urgency int, tags text[], start_at timestamptz, delay_seconds float8, deadline timestamptz, correlation_id uuid, parent_correlation_id uuid,
    initiator text, source_system text, reason text) returns uuid
language plpgsql as $$
#variable_conflict use_variable
declare
    at       constant timestamptz := statement_timestamp();
    id       constant uuid := tasker.uuid_v7();
    begins   tasker.plan_starts;
    digest   bytea;
    until    timestamptz := 'infinity';
    holder   uuid;
    delayed  constant boolean := coalesce(delay_seconds > 0, false);
    later    constant boolean := delayed or start_at is not null;
    due      timestamptz;
    lane     int;
    state    int;
    problems text[];
begin
    -- What tasks have used stays as it is, see plan_for_use.
    if not exists (select from tasker.plan_uses u where u.plan_id = plan) then
        plan := (select u.plan_id from tasker.plan_for_use(queue, of_name, of_version) u);
        if plan is null then
            raise exception using errcode = 'P0002', message = 'Template not found: ' || concat_ws('/', of_namespace, of_name, of_version);
        end if;
    end if;
    select * into begins from tasker.plan_starts p where p.plan_id = plan;
    if not found or begins.refuses is not null then
        raise exception using errcode = '0A000', message = 'tasks of the template ' || concat_ws('/', of_namespace, of_name, of_version)
            || ' cannot be created by SQL: ' || coalesce(begins.refuses, 'an earlier version of the daemons has registered it; start a worker that brings it');
    end if;
    if key is null and begins.strategy = 'caller_provided' then
        return tasker.reject(array['the template ' || concat_ws('/', of_namespace, of_name, of_version)
            || ' knows its tasks by the keys that their senders give; send idempotency_key'])::text::uuid;
    end if;
    if begins.input is not null then
        problems := array(select field || s.path || ': ' || s.message
                          from (select distinct tasker.clip(p.path, 512) collate "C" as path, p.message collate "C" as message
                                from tasker.schema_problems(begins.input, context, '') p) s
                          order by s.path, s.message limit 20);
        if problems <> '{}' then
            return tasker.reject(problems)::text::uuid;
        end if;
    end if;

    if key is not null then
        digest := tasker.identity_of('key', of_namespace, of_name, key);
    elsif begins.strategy = 'strict' then
        digest := tasker.identity_of('context', of_namespace, of_name, tasker.canonical_json(context));
    end if;
    if digest is not null then
        if key is not null and begins.key_window_ms is not null then
            until := at + begins.key_window_ms * interval '1 ms';
        elsif begins.window_ms is not null then
            until := at + begins.window_ms * interval '1 ms';
        elsif begins.calendar is not null then
            until := (date_trunc(begins.calendar, at at time zone begins.time_zone) + ('1 ' || begins.calendar)::interval) at time zone begins.time_zone;
        end if;
        insert into tasker.task_identities (identity, task_uuid, expires_at) values (digest, id, until) on conflict do nothing;
        if not found then
            holder := (select i.task_uuid from tasker.task_identities i where i.identity = digest and i.expires_at > at);
            if not tasker.keeps_identity(holder, (select p.template -> 'identity' ->> 'until' from tasker.plans p where p.plan_id = plan)) then
                update tasker.task_identities i set expires_at = '-infinity' where i.identity = digest and i.task_uuid = holder;
                holder := null;
            end if;
            if holder is null then -- its time is over
                insert into tasker.task_identities as t (identity, task_uuid, expires_at) values (digest, id, until)
                on conflict (identity) do update set task_uuid = excluded.task_uuid, expires_at = excluded.expires_at where t.expires_at <= at;
                if not found then -- another transaction was first
                    holder := (select i.task_uuid from tasker.task_identities i where i.identity = digest);
                end if;
            end if;
            if holder is not null and conflict_policy = 'use_existing' then
                return holder;
            elsif holder is not null and key is not null then
                raise exception using errcode = '23505', message = 'a task with this idempotency key already exists: ' || holder || ' ('
                    || tasker.task_state_name(tasker.task_standing(holder)) || '); conflict_policy use_existing answers with it, another key creates another task', detail = holder;
            elsif holder is not null then -- a guessed context must not reveal it
                raise exception using errcode = '23505', message = 'a task with this identity already exists: send an idempotency_key to tell submissions apart, '
                    || 'or let identities of the template end (identity.until, window)';
            end if;
        end if;
    end if;

    if delayed then
        due := at + delay_seconds * interval '1 s';
    elsif start_at > at then
        due := start_at;
    end if;
    urgency := coalesce(urgency, begins.priority);
    lane := 201 - 2 * urgency;                       -- see board.Lane
    state := case when due is null then 2 else 1 end;
    insert into tasker.tasks (task_uuid, requested_at, start_at, correlation_id, parent_correlation_id, plan_id, queue, priority,
                              initiator, source_system, reason, tags, idempotency_key, context, deadline)
    values (id, at, due, correlation_id, parent_correlation_id, plan, queue, urgency,
            nullif(initiator, ''), nullif(source_system, ''), nullif(reason, ''), nullif(tags, '{}'), key, context, deadline);
    insert into tasker.board (task_uuid, slot, plan_id, queue, task_state, priority, progress, requested_at, correlation_id, parent_correlation_id, context,
                              step_no, callable, lane, state, seq, due_at, enqueued_at, tags, deadline, last_attempt)
    values (id, 0, plan, queue, 1, urgency, case when later then begins.progress_later else begins.progress end, at, correlation_id, parent_correlation_id,
            case when octet_length(context::text) <= 512 then context end,
            begins.step_no, begins.callable, lane, case when begins.step_no is null then 0 else state end,
            case when begins.step_no is null then 0 else nextval('tasker.step_seq') end,
            case when begins.step_no is not null then due end, case when begins.step_no is not null and due is null then clock_timestamp() end,
            begins.step_tags, deadline, begins.last_attempt);
    if begins.steps is not null then
        insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, due_at, enqueued_at, tags, last_attempt)
        select id, s.no + 1, s.no, case when s.by_engine then 0 else queue end, s.callable, lane, state, nextval('tasker.step_seq'),
               due, case when due is null then clock_timestamp() end, s.tags, s.last_attempt
        from jsonb_to_recordset(begins.steps) s(no int, by_engine boolean, callable int, tags text[], last_attempt boolean);
    end if;

    if coalesce(pg_sequence_last_value('tasker.following'::regclass) > 1, false) then
        perform tasker.record_transition(id, queue, null, null, null, null, 1), tasker.announce('tasker_transitions', '');
    end if;
    if later or begins.by_engine then
        perform tasker.announce('tasker_due', '');
    end if;
    if not delayed and begins.first <> '{}' then
        perform tasker.announce('tasker_worker_' || of_namespace,
            case when cardinality(begins.first) <= 64 then array_to_string(begins.first, '.' || lane || ',') || '.' || lane else '' end);
    end if;
    return id;
end
$$;
-- +goose StatementEnd


-- Roles that create tasks in transactions of their own learn from it whether a task keeps its identity.
revoke execute on function tasker.task_standing from public;
-- +goose StatementBegin
do $$
declare
    guest record;
begin
    for guest in select distinct a.grantee from pg_class c cross join lateral aclexplode(c.relacl) a
                 where c.oid = 'tasker.task_identities'::regclass and a.privilege_type = 'INSERT' and a.grantee <> c.relowner loop
        execute 'grant execute on function tasker.task_standing to ' || case guest.grantee when 0 then 'public' else guest.grantee::regrole::text end;
    end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function tasker.put_task(queue int, plan int, of_namespace text, of_name text, of_version text, field text, context jsonb, key text, conflict_policy text,
    urgency int, tags text[], start_at timestamptz, delay_seconds float8, deadline timestamptz, correlation_id uuid, parent_correlation_id uuid,
    initiator text, source_system text, reason text) returns uuid
language plpgsql as $$
#variable_conflict use_variable
declare
    at       constant timestamptz := statement_timestamp();
    id       constant uuid := tasker.uuid_v7();
    begins   tasker.plan_starts;
    digest   bytea;
    until    timestamptz := 'infinity';
    holder   uuid;
    delayed  constant boolean := coalesce(delay_seconds > 0, false);
    later    constant boolean := delayed or start_at is not null;
    due      timestamptz;
    lane     int;
    state    int;
    problems text[];
begin
    -- What tasks have used stays as it is, see plan_for_use.
    if not exists (select from tasker.plan_uses u where u.plan_id = plan) then
        plan := (select u.plan_id from tasker.plan_for_use(queue, of_name, of_version) u);
        if plan is null then
            raise exception using errcode = 'P0002', message = 'Template not found: ' || concat_ws('/', of_namespace, of_name, of_version);
        end if;
    end if;
    select * into begins from tasker.plan_starts p where p.plan_id = plan;
    if not found or begins.refuses is not null then
        raise exception using errcode = '0A000', message = 'tasks of the template ' || concat_ws('/', of_namespace, of_name, of_version)
            || ' cannot be created by SQL: ' || coalesce(begins.refuses, 'an earlier version of the daemons has registered it; start a worker that brings it');
    end if;
    if key is null and begins.strategy = 'caller_provided' then
        return tasker.reject(array['the template ' || concat_ws('/', of_namespace, of_name, of_version)
            || ' knows its tasks by the keys that their senders give; send idempotency_key'])::text::uuid;
    end if;
    if begins.input is not null then
        problems := array(select field || s.path || ': ' || s.message
                          from (select distinct tasker.clip(p.path, 512) collate "C" as path, p.message collate "C" as message
                                from tasker.schema_problems(begins.input, context, '') p) s
                          order by s.path, s.message limit 20);
        if problems <> '{}' then
            return tasker.reject(problems)::text::uuid;
        end if;
    end if;

    if key is not null then
        digest := tasker.identity_of('key', of_namespace, of_name, key);
    elsif begins.strategy = 'strict' then
        digest := tasker.identity_of('context', of_namespace, of_name, tasker.canonical_json(context));
    end if;
    if digest is not null then
        if key is not null and begins.key_window_ms is not null then
            until := at + begins.key_window_ms * interval '1 ms';
        elsif begins.window_ms is not null then
            until := at + begins.window_ms * interval '1 ms';
        elsif begins.calendar is not null then
            until := (date_trunc(begins.calendar, at at time zone begins.time_zone) + ('1 ' || begins.calendar)::interval) at time zone begins.time_zone;
        end if;
        insert into tasker.task_identities (identity, task_uuid, expires_at) values (digest, id, until) on conflict do nothing;
        if not found then
            holder := (select i.task_uuid from tasker.task_identities i where i.identity = digest and i.expires_at > at);
            if holder is null then -- its time is over
                insert into tasker.task_identities as t (identity, task_uuid, expires_at) values (digest, id, until)
                on conflict (identity) do update set task_uuid = excluded.task_uuid, expires_at = excluded.expires_at where t.expires_at <= at;
                if not found then -- another transaction was first
                    holder := (select i.task_uuid from tasker.task_identities i where i.identity = digest);
                end if;
            end if;
            if holder is not null and conflict_policy = 'use_existing' then
                return holder;
            elsif holder is not null and key is not null then
                raise exception using errcode = '23505', message = 'a task with this idempotency key already exists: ' || holder, detail = holder;
            elsif holder is not null then -- a guessed context must not reveal it
                raise exception using errcode = '23505', message = 'a task with this identity already exists';
            end if;
        end if;
    end if;

    if delayed then
        due := at + delay_seconds * interval '1 s';
    elsif start_at > at then
        due := start_at;
    end if;
    urgency := coalesce(urgency, begins.priority);
    lane := 201 - 2 * urgency;                       -- see board.Lane
    state := case when due is null then 2 else 1 end;
    insert into tasker.tasks (task_uuid, requested_at, start_at, correlation_id, parent_correlation_id, plan_id, queue, priority,
                              initiator, source_system, reason, tags, idempotency_key, context, deadline)
    values (id, at, due, correlation_id, parent_correlation_id, plan, queue, urgency,
            nullif(initiator, ''), nullif(source_system, ''), nullif(reason, ''), nullif(tags, '{}'), key, context, deadline);
    insert into tasker.board (task_uuid, slot, plan_id, queue, task_state, priority, progress, requested_at, correlation_id, parent_correlation_id, context,
                              step_no, callable, lane, state, seq, due_at, enqueued_at, tags, deadline, last_attempt)
    values (id, 0, plan, queue, 1, urgency, case when later then begins.progress_later else begins.progress end, at, correlation_id, parent_correlation_id,
            case when octet_length(context::text) <= 512 then context end,
            begins.step_no, begins.callable, lane, case when begins.step_no is null then 0 else state end,
            case when begins.step_no is null then 0 else nextval('tasker.step_seq') end,
            case when begins.step_no is not null then due end, case when begins.step_no is not null and due is null then clock_timestamp() end,
            begins.step_tags, deadline, begins.last_attempt);
    if begins.steps is not null then
        insert into tasker.board (task_uuid, slot, step_no, queue, callable, lane, state, seq, due_at, enqueued_at, tags, last_attempt)
        select id, s.no + 1, s.no, case when s.by_engine then 0 else queue end, s.callable, lane, state, nextval('tasker.step_seq'),
               due, case when due is null then clock_timestamp() end, s.tags, s.last_attempt
        from jsonb_to_recordset(begins.steps) s(no int, by_engine boolean, callable int, tags text[], last_attempt boolean);
    end if;

    if coalesce(pg_sequence_last_value('tasker.following'::regclass) > 1, false) then
        perform tasker.record_transition(id, queue, null, null, null, null, 1), tasker.announce('tasker_transitions', '');
    end if;
    if later or begins.by_engine then
        perform tasker.announce('tasker_due', '');
    end if;
    if not delayed and begins.first <> '{}' then
        perform tasker.announce('tasker_worker_' || of_namespace,
            case when cardinality(begins.first) <= 64 then array_to_string(begins.first, '.' || lane || ',') || '.' || lane else '' end);
    end if;
    return id;
end
$$;
-- +goose StatementEnd
drop function tasker.keeps_identity, tasker.task_standing;
-- +goose StatementBegin
-- The first thing that keeps a document from being stored as that of a task or an event; null: nothing. depth counts the
-- arrays and objects around it.
create or replace function tasker.value_problem(field text, value jsonb, depth int default 0) returns text
language plpgsql immutable parallel safe as $$
#variable_conflict use_variable
declare
    kind    constant text := jsonb_typeof(value);
    doc     constant text := value::text;
    part    record;
    problem text;
begin
    -- Too short for a text, a number or a list that is too long, and with too few brackets to be too deep.
    if octet_length(doc) < 300 and length(doc) - length(translate(doc, '{[', '')) < 11 - depth then
        return null;
    elsif depth = 0 and octet_length(doc) > 1048576 then
        return field || ' must have at most 1048576 bytes';
    end if;
    case kind
    when 'string' then
        return case when length(value #>> '{}') > 10000 then field || ' must have at most 10000 characters' end;
    when 'number' then
        return case when abs((value #>> '{}')::numeric) >= 1.797693134862315807937e308 then field || ' is out of range: ' || left(value #>> '{}', 40) end;
    when 'object', 'array' then
        if depth >= 10 and value <> '{}' and value <> '[]' then
            return ' must not be nested deeper than 10 levels';
        end if;
        if kind = 'array' and jsonb_array_length(value) > 1000 then
            return field || ' must have at most 1000 elements';
        end if;
        if kind = 'object' and (select count(*) from jsonb_object_keys(value)) > 1000 then
            return field || ' must have at most 1000 keys';
        end if;
        for part in select e.key, e.value, 0::bigint as at from jsonb_each(case kind when 'object' then value else '{}' end) e
                    where length(e.key) > 10000 or octet_length(e.value::text) >= 300 or jsonb_typeof(e.value) in ('object', 'array')
                    union all
                    select null, e.value, e.at - 1 from jsonb_array_elements(case kind when 'array' then value else '[]' end) with ordinality e(value, at)
                    where octet_length(e.value::text) >= 300 or jsonb_typeof(e.value) in ('object', 'array')
                    order by at loop
            if length(part.key) > 10000 then
                return field || ' has a key that cannot be stored';
            end if;
            problem := tasker.value_problem(field || case kind when 'array' then '[' || part.at || ']' else '.'
                || case when octet_length(part.key) > 40 then tasker.first_bytes(part.key, 40) || '…' else part.key end end, part.value, depth + 1);
            if problem is not null then
                return case when depth = 0 and problem like ' %' then field || problem else problem end;
            end if;
        end loop;
        return null;
    else
        return null;
    end case;
end
$$;
-- +goose StatementEnd
drop view tasker.v_step_result_audit;
create view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no, tasker.batch_run(a.task_uuid, a.step_no, a.token)) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, coalesce(t.correlation_id, t.task_uuid) as correlation_id,
       a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;
comment on column tasker.step_attempts.error is null;
