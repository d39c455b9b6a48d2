-- Creation of tasks, events and results for programs in any language, by functions of SQL: docs/sql.md.
-- +goose Up
-- How the tasks of a plan begin, as the registration of its template has prepared it: create_task and enqueue copy it and
-- know nothing about workflows.
create table tasker.plan_starts (
    plan_id        int primary key,                  -- no foreign key: plans are never deleted
    window_ms      bigint,                           -- how long the identity of a context counts; null: see calendar
    key_window_ms  bigint,                           -- how long that of an idempotency key counts; null: like that of a context
    callable       int not null default 0,           -- of the step in the task's row
    priority       smallint not null default 0,
    step_no        smallint,                         -- the only first step, in the task's row; null: see steps
    last_attempt   boolean,                          -- of the step in the task's row, as on the board
    by_engine      boolean not null,                 -- the engine runs a first step
    strategy       text not null,                    -- of identities
    calendar       text,
    time_zone      text,
    refuses        text,                             -- why these functions create no tasks of the plan; null: they do
    first          int[] not null,                   -- the callables of the first steps, in order
    step_tags      text[],
    progress       bytea not null,
    progress_later bytea not null,                   -- where the first steps are delayed
    steps          jsonb,                            -- [{"no", "by_engine"?, "callable", "tags"?, "last_attempt"?}]: first steps with rows of their own
    input          jsonb                             -- what the context must be like, see schema_problems; null: any object
);

-- +goose StatementBegin
-- A text of at most so many characters, the last of which shows that there were more.
create function tasker.clip(value text, most int) returns text
language sql immutable parallel safe as $$
    select case when length(value) <= most then value else left(value, most - 1) || '…' end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The order of keys in canonical JSON: that of UTF-16, in which characters beyond U+FFFF come before U+E000.
create function tasker.utf16_order(key text) returns text
language sql immutable parallel safe as $$
    select case when octet_length(key) = length(key) then key else regexp_replace(key, '([\uE000-\uFFFF])', chr(1114111) || '\1', 'g') end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A double exactly.
create function tasker.exact_double(f float8) returns numeric
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    bits     constant bigint := ('x' || encode(float8send(f), 'hex'))::bit(64)::bigint;
    exponent int := (bits >> 52) & 2047;
    mantissa numeric := bits & 4503599627370495;
begin
    if exponent = 0 then
        exponent := 1;
    else
        mantissa := mantissa + 4503599627370496;
    end if;
    exponent := exponent - 1075;
    if bits < 0 then
        mantissa := -mantissa;
    end if;
    if exponent >= 0 then
        return mantissa * power(2::numeric, exponent);
    end if;
    return mantissa * power(5::numeric, -exponent) * ('1e' || exponent)::numeric;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The shortest number that is read as the double.
create function tasker.shortest_double(f float8) returns numeric
language sql immutable strict parallel safe set extra_float_digits = 1 as $$ select f::text::numeric $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A number of jsonb in canonical JSON: digits where it is an integer, as ECMAScript writes a double where that has all its
-- digits, else the digits with an exponent.
create function tasker.canonical_number(number text) returns text
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    n        numeric;
    digits   text;
    x        int;                                    -- the place of the first digit: 0 of ones, -1 of tenths
    f        float8;
    rest     numeric;
    unit     numeric;
    near     numeric;
    plain    boolean := true;                        -- it may be written without an exponent
begin
    if strpos(number, '.') = 0 then
        return number;
    end if;
    n := trim_scale(number::numeric);
    if n = 0 then
        return '0';
    end if;
    for pass in 1 .. 2 loop
        digits := abs(n)::text;
        x := case when abs(n) >= 1 then length(split_part(digits, '.', 1)) - 1
                  else length(ltrim(split_part(digits, '.', 2), '0')) - length(split_part(digits, '.', 2)) - 1 end;
        digits := btrim(replace(digits, '.', ''), '0');
        exit when pass = 2 or length(digits) <= 15 and abs(n) >= 2.2250738585072014e-308;
        plain := false;
        if abs(n) >= 4e-324 then
            -- Rounded to as many digits, half to even, the double is the number: then it has all its digits.
            f := n::float8;
            unit := ('1e' || (x - length(digits) + 1))::numeric;
            rest := abs(tasker.exact_double(f));
            near := div(rest, unit);
            rest := rest - near * unit;
            if 2 * rest > unit or 2 * rest = unit and mod(near, 2) = 1 then
                near := near + 1;
            end if;
            plain := near * unit = abs(n);
        end if;
        exit when not plain;
        n := trim_scale(tasker.shortest_double(f));
    end loop;
    if plain and abs(n) < 1e21 and abs(n) >= 0.000001 then
        return n::text;
    end if;
    return case when n < 0 then '-' else '' end || left(digits, 1) || case when length(digits) > 1 then '.' || substr(digits, 2) else '' end
           || 'e' || case when x >= 0 then '+' else '' end || x;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A document as the identities of tasks contain it, after RFC 8785: the keys in order, no white space.
create function tasker.canonical_json(value jsonb) returns text
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    case jsonb_typeof(value)
    when 'object' then
        return '{' || coalesce((select string_agg(to_json(e.key)::text || ':'
                   || case jsonb_typeof(e.value) when 'string' then e.value::text else tasker.canonical_json(e.value) end,
                   ',' order by tasker.utf16_order(e.key) collate "C") from jsonb_each(value) e), '') || '}';
    when 'array' then
        return '[' || coalesce((select string_agg(tasker.canonical_json(e.value), ',' order by e.at)
                   from jsonb_array_elements(value) with ordinality e(value, at)), '') || ']';
    when 'number' then
        return tasker.canonical_number(value::text);
    else
        return value::text;
    end case;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What makes two requests the same task: the digest that the column identity has.
create function tasker.identity_of(kind text, namespace text, name text, last text) returns bytea
language sql immutable parallel safe as $$
    select substr(sha256(convert_to(octet_length(kind) || ':' || kind || octet_length(namespace) || ':' || namespace || octet_length(name) || ':' || name
                                    || octet_length(last) || ':' || last, 'UTF8')), 1, 16)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The first thing that keeps a document from being stored as that of a task or an event; null: nothing. depth counts the
-- arrays and objects around it.
create function tasker.value_problem(field text, value jsonb, depth int default 0) returns text
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

-- +goose StatementBegin
-- The characters that are whole within the first bytes of a text.
create function tasker.first_bytes(value text, most int) returns text
language sql immutable parallel safe as $$
    select string_agg(c.part, '' order by c.at)
    from (select u.part, u.at, sum(octet_length(u.part)) over (order by u.at) as until
          from regexp_split_to_table(left(value, most), '') with ordinality u(part, at)) c
    where c.until <= most
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- How a value differs from what a schema wants, which the registration has prepared with the messages: see internal/schema.
create function tasker.schema_problems(wants jsonb, value jsonb, at_path text) returns table (path text, message text)
language plpgsql immutable parallel safe as $$
#variable_conflict use_variable
declare
    kind  constant text := jsonb_typeof(value);
    limits jsonb;
    size  numeric;
    names text[];
begin
    if wants ? 'never' then
        return query select at_path, wants ->> 'never';
        return;
    end if;
    if wants ? 'types' and not wants -> 'types' ? kind
       and not (kind = 'number' and wants -> 'types' ? 'integer' and trunc((value #>> '{}')::numeric) = (value #>> '{}')::numeric) then
        return query select at_path, 'must be ' || (wants ->> 'want') || ', not '
            || case kind when 'null' then 'null' when 'array' then 'a list' when 'object' then 'an object' else 'a ' || kind end;
        return;
    end if;
    if wants ? 'enum' and not exists (select from jsonb_array_elements(wants -> 'enum') e where e = value) then
        return query select at_path, wants ->> 'enum_message';
        return;
    end if;
    size := case kind when 'string' then length(value #>> '{}') when 'number' then (value #>> '{}')::numeric when 'array' then jsonb_array_length(value)
                      when 'object' then (select count(*) from jsonb_object_keys(value)) end;
    limits := wants -> 'limits' -> kind;
    if limits is not null then
        return query select at_path, l ->> 'message' from jsonb_array_elements(limits) l
        where case l ->> 'op' when '>=' then size < (l ->> 'bound')::numeric when '<=' then size > (l ->> 'bound')::numeric
                              when '>' then size <= (l ->> 'bound')::numeric else size >= (l ->> 'bound')::numeric end;
    end if;
    if kind = 'object' then
        names := array(select r from jsonb_array_elements_text(wants -> 'required') with ordinality u(r, no) where not value ? r order by no);
        if names <> '{}' then
            return query select at_path, 'lacks the required ' || case cardinality(names) when 1 then 'property ' else 'properties ' end || tasker.name_list(names);
        end if;
        names := array(select k from jsonb_object_keys(value) k where wants ? 'closed' and not coalesce(wants -> 'properties' ? k, false) order by k collate "C");
        if names <> '{}' then
            return query select at_path, 'has ' || case cardinality(names) when 1 then 'an unknown property' else 'unknown properties' end || ': ' || tasker.name_list(names);
        end if;
        return query select s.path, s.message from jsonb_each(value) e
            cross join lateral tasker.schema_problems(coalesce(wants -> 'properties' -> e.key, wants -> 'others'), e.value,
                at_path || '/' || replace(replace(e.key, '~', '~0'), '/', '~1')) s
            where coalesce(wants -> 'properties' -> e.key, wants -> 'others') is not null;
    elsif kind = 'array' and wants ? 'items' then
        return query select s.path, s.message from jsonb_array_elements(value) with ordinality e(value, no)
            cross join lateral tasker.schema_problems(wants -> 'items', e.value, at_path || '/' || (e.no - 1)) s;
    end if;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Up to ten names in a message.
create function tasker.name_list(names text[]) returns text
language sql immutable parallel safe as $$
    select string_agg(tasker.clip(n, 64), ', ' order by at) || case when cardinality(names) > 10 then ', and ' || cardinality(names) - 10 || ' more' else '' end
    from unnest(names[1:10]) with ordinality u(n, at)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Fails with the problems of a request, in the words of the API; else returns true.
create function tasker.reject(problems text[]) returns boolean
language plpgsql as $$
begin
    if cardinality(problems) = 0 then
        return true;
    end if;
    raise exception using errcode = '22023', message = array_to_string(problems[1:20], '; ');
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Fails unless a request is within the bounds of package submission; else returns true. field is what the sender calls the
-- context.
create function tasker.check_task(name text, namespace text, version text, initiator text, source_system text, reason text, idempotency_key text, tags text[],
    priority int, start_at timestamptz, delay_seconds float8, deadline timestamptz, conflict_policy text, field text, context jsonb) returns boolean
language plpgsql as $$
declare
    at       constant timestamptz := clock_timestamp();
    longest  constant interval := '8784 hours';
    starts   interval := '0';
    problems text[] := '{}';
    problem  text;
begin
    if start_at is not null and delay_seconds is not null then
        return tasker.reject(array['give start_at or delay_seconds, not both']);
    elsif delay_seconds < 0 then
        return tasker.reject(array['delay_seconds must not be negative']);
    elsif deadline <= at then
        return tasker.reject(array['the deadline has passed']);
    end if;
    -- Most requests have only short texts, which need no look at each.
    if greatest(length(name), length(namespace), length(version), length(initiator), length(source_system), length(reason), length(idempotency_key)) > 50
       or coalesce(name, '') = '' or coalesce(namespace, '') = ''
       or strpos(concat(name, namespace, version, initiator, source_system, reason, idempotency_key), E'\x1f') > 0 then
        problems := array(
            select x.problem from (values (1, 'name', name, 64, true), (2, 'namespace', namespace, 64, true), (3, 'version', version, 50, false),
                (4, 'initiator', initiator, 255, false), (5, 'source_system', source_system, 255, false), (6, 'reason', reason, 500, false),
                (7, 'idempotency_key', idempotency_key, 255, false)) f(no, field, value, most, required)
            cross join lateral (select case when coalesce(f.value, '') = '' and f.required then f.field || ' must not be empty'
                when length(f.value) > f.most then f.field || ' must have at most ' || f.most || ' characters'
                when strpos(f.value, E'\x1f') > 0 then f.field || ' must be text without control character NUL' end) x(problem)
            where x.problem is not null order by f.no);
    end if;
    if tags <> '{}' then
        if cardinality(tags) > 64 then
            problems := problems || 'tags must have at most 64 entries'::text;
        end if;
        problems := problems || array(
            select x.problem from unnest(tags) with ordinality u(tag, no)
            cross join lateral (select 'tags[' || u.no - 1 || ']' || case when coalesce(u.tag, '') = '' then ' must not be empty'
                when length(u.tag) > 128 then ' must have at most 128 characters'
                when strpos(u.tag, E'\x1f') > 0 then ' must be text without control character NUL' end) x(problem)
            where x.problem is not null order by u.no);
    end if;
    if priority not between -100 and 100 then
        problems := problems || 'priority must be between -100 and 100'::text;
    end if;
    if delay_seconds is not null then
        starts := least(delay_seconds, 1e9) * interval '1 s';
    elsif start_at is not null then
        starts := case when isfinite(start_at) then start_at - at when start_at > at then longest + longest else '0' end;
    end if;
    if starts > longest then
        problems := problems || 'the start must be within the next 366 days'::text;
    end if;
    if deadline is not null and (not isfinite(deadline) or deadline - at > longest or deadline - at <= starts) then
        problems := problems || 'the deadline must be after the start and within the next 366 days'::text;
    end if;
    if conflict_policy not in ('', 'fail', 'use_existing') then
        problems := problems || 'conflict_policy must be fail or use_existing'::text;
    elsif conflict_policy = 'use_existing' and coalesce(idempotency_key, '') = '' then
        problems := problems || 'conflict_policy use_existing needs an idempotency_key'::text;
    end if;
    problem := case when jsonb_typeof(context) = 'object' then tasker.value_problem(field, context) else field || ' must be a JSON object' end;
    if problem is not null then
        problems := problems || problem;
    end if;
    return problems = '{}' or tasker.reject(problems);
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Announces work to the fleet when the transaction commits, as the setting tasker.announce says: by notify, which is the
-- default, by wal, or not at all (nothing).
create function tasker.announce(topic text, payload text) returns boolean
language plpgsql as $$
declare
    how constant text := coalesce(nullif(current_setting('tasker.announce', true), ''), 'notify');
begin
    if octet_length(topic) > 63 or how = 'nothing' then
        return false;
    elsif how = 'notify' then
        perform pg_notify(topic, payload);
    elsif how = 'wal' then
        perform pg_logical_emit_message(true, 'tasker', convert_to(topic, 'UTF8') || '\x00'::bytea || convert_to(payload, 'UTF8'));
    else
        return tasker.reject(array['invalid tasker.announce "' || how || '": want notify, wal or nothing']);
    end if;
    return true;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Creates a task of a plan for a checked request, or returns the existing one.
create function tasker.put_task(queue int, plan int, of_namespace text, of_name text, of_version text, field text, context jsonb, key text, conflict_policy text,
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

-- +goose StatementBegin
-- Creates a task of a template within the transaction of the caller: it exists when that commits. docs/sql.md.
-- Index: the unique name of namespaces, plans_current, plans_highest.
create function tasker.create_task(namespace text, name text, context jsonb, version text default null, idempotency_key text default null,
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
create function tasker.enqueue(type text, payload jsonb, queue text default null, idempotency_key text default null,
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
create function tasker.send_event(namespace text default null, name text default null, key text default null, payload jsonb default null,
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
create function tasker.task_result(task uuid) returns table (state text, results jsonb, reason text)
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

-- +goose StatementBegin
-- The role that may call these functions and nothing else. Roles belong to the server, so it may exist already, and who
-- migrates may not be allowed to create it. Functions may be called by everyone with usage of the schema unless that is
-- revoked; roles that have it keep what they could do.
do $$
declare
    guest record;
begin
    if to_regrole('tasker_client') is null then
        begin
            create role tasker_client nologin;
        exception
            when insufficient_privilege then
                raise notice 'the role tasker_client is missing: create it and grant it what docs/sql.md names';
            when duplicate_object or unique_violation then
                null;
        end;
    end if;
    for guest in select a.grantee from pg_namespace n cross join lateral aclexplode(n.nspacl) a
                 where n.nspname = 'tasker' and a.privilege_type = 'USAGE' and a.grantee <> n.nspowner loop
        execute 'grant execute on all functions in schema tasker to ' || case guest.grantee when 0 then 'public' else guest.grantee::regrole::text end;
    end loop;
    revoke execute on all functions in schema tasker from public;
    if to_regrole('tasker_client') is not null then
        grant usage on schema tasker to tasker_client;
        grant execute on function tasker.create_task, tasker.enqueue, tasker.send_event, tasker.task_result to tasker_client;
    end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function tasker.task_result, tasker.send_event, tasker.enqueue, tasker.create_task, tasker.put_task, tasker.announce, tasker.check_task, tasker.reject,
    tasker.schema_problems, tasker.name_list, tasker.value_problem, tasker.first_bytes, tasker.identity_of, tasker.canonical_json, tasker.canonical_number,
    tasker.shortest_double, tasker.exact_double, tasker.utf16_order, tasker.clip;
drop table tasker.plan_starts;
grant execute on all functions in schema tasker to public;
-- +goose StatementBegin
do $$
begin
    if to_regrole('tasker_client') is not null then
        revoke usage on schema tasker from tasker_client;
    end if;
end
$$;
-- +goose StatementEnd
