-- Domain events and those who read them; see docs/events.md.
-- +goose Up

-- What publishers have made of the events of a report, until it is applied:
-- {"<number of the declaration>": {"payload"?, "metadata"?, "skip"?}}. Null for
-- steps that publish nothing, and for those whose events are plain.
alter table tasker.board add column events jsonb;

-- Drawn under a lock that is held until the commit, so positions rise in the
-- order in which events can be seen.
create sequence tasker.event_position cache 1;

-- outcome: of the attempt, as in step_attempts
create table tasker.domain_events (
    event_uuid     uuid not null,
    position       bigint not null,
    task_uuid      uuid not null,
    correlation_id uuid not null,
    fired_at       timestamptz not null,
    namespace_id   int not null,
    step_no        smallint not null,
    attempt        smallint not null,
    outcome        smallint not null check (outcome between 1 and 3),
    name           text not null,
    version        text not null,
    step_name      text,
    fired_by       text not null,
    payload        jsonb not null,
    metadata       jsonb, -- what a publisher has added
    primary key (event_uuid)
) partition by range (event_uuid);
create index domain_events_by_namespace on tasker.domain_events (namespace_id, position);
create index domain_events_by_task on tasker.domain_events (task_uuid);
create table tasker.domain_events_default partition of tasker.domain_events default;

-- Readers with a place of their own. position: everything up to it is done.
-- While token is set, the events up to handed_last are in the hands of holder;
-- when that is done, so is all up to handed_until, since nothing else matches.
create table tasker.event_consumers (
    consumer_uuid uuid primary key default tasker.uuid_v7(),
    position      bigint not null check (position >= 0),
    token         bigint,
    handed_last   bigint,
    handed_until  bigint,
    lease_until   timestamptz,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(), -- of what it says
    claimed_at    timestamptz,
    acked_at      timestamptz,
    namespace_id  int not null references tasker.namespaces,
    name          text not null unique check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$'),
    holder        text,
    patterns      text[] not null check (cardinality(patterns) <= 100), -- none: every event
    check ((token is null) = (lease_until is null) and (token is null) = (handed_last is null) and (token is null) = (handed_until is null))
) with (fillfactor = 70);

-- +goose StatementBegin
-- Whether the name of an event fits one of the patterns, in which * stands for
-- any characters. No patterns: every name does.
create function tasker.event_matches(name text, patterns text[]) returns boolean
language sql immutable strict parallel safe as $$
    select cardinality(patterns) = 0 or exists (
        select from unnest(patterns) p
        where name like replace(replace(replace(replace(p, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%'))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Hands the next events of a consumer to a worker, in the order of their
-- positions, for the time of the lease. No rows: there are none. Fails with
-- object_in_use while another worker has some, with no_data_found where there is
-- no such consumer. Of events that do not match, up to 100,000 are passed over.
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
-- +goose StatementEnd

-- +goose StatementBegin
-- Says that everything up to a position is done; the lease ends when that was
-- all, or when it is let go. False: the events have been handed to somebody else
-- since, and nothing is changed.
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
-- +goose StatementEnd

-- As in migration 6, for every table of the schema that is partitioned.
-- +goose StatementBegin
create or replace function tasker.ensure_partitions(days_ahead int) returns int
language plpgsql as $$
declare
    made int := 0;
    part text;
    parent text;
    day date;
begin
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    for i in -1 .. days_ahead loop
        day := (now() at time zone 'UTC')::date + i;
        for parent in select relname from pg_class where relnamespace = 'tasker'::regnamespace and relkind = 'p' order by oid loop
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            if to_regclass('tasker.' || part) is null then
                begin
                    execute format('create table tasker.%I partition of tasker.%I for values from (%L) to (%L)',
                        part, parent,
                        tasker.uuid_floor(day::timestamp at time zone 'UTC'),
                        tasker.uuid_floor((day + 1)::timestamp at time zone 'UTC'));
                    made := made + 1;
                exception when check_violation then
                    null;
                end;
            end if;
        end loop;
    end loop;
    return made;
end $$;
-- +goose StatementEnd
select tasker.ensure_partitions(7);

-- For people and tools: events as messages.
create view tasker.v_domain_events as
select e.position, e.event_uuid, n.name as namespace_name, e.name, e.task_uuid, e.fired_at,
       jsonb_build_object('event_id', e.event_uuid, 'event_name', e.name, 'event_version', e.version, 'payload', e.payload,
           'metadata', coalesce(e.metadata, '{}') || jsonb_build_object(
               'task_uuid', e.task_uuid, 'step_uuid', tasker.step_uuid(e.task_uuid, e.step_no), 'step_name', e.step_name,
               'namespace', n.name, 'correlation_id', e.correlation_id, 'fired_at', e.fired_at, 'fired_by', e.fired_by)) as message
from tasker.domain_events e
join tasker.namespaces n using (namespace_id);

-- +goose Down
drop view tasker.v_domain_events;
drop function tasker.claim_events(text, text, int, interval);
drop function tasker.ack_events(text, bigint, bigint, boolean);
drop function tasker.event_matches(text, text[]);
drop table tasker.event_consumers;
drop table tasker.domain_events; -- ensure_partitions goes by the tables that there are
drop sequence tasker.event_position;
alter table tasker.board drop column events;
