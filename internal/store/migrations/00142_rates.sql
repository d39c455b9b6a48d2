-- How much was done, and how long it took, by minutes, ten minutes, hours and days; see docs/inside/decisions/0035.
-- +goose Up
-- What is not added up yet. A daemon writes what it has counted with its heartbeats, a creation of tasks what it creates.
-- Nothing looks for a row of them, so they have no index. waiting and running count by the buckets of package rates, from
-- the first on.
create table tasker.call_counts (
    callable   int not null,
    plan_id    int not null,
    step_no    smallint not null,
    outcome    smallint not null,
    at         timestamptz not null,
    count      bigint not null,
    waiting_ms bigint not null,
    running_ms bigint not null,
    longest_ms bigint not null, -- that one ran
    waiting    bigint[] not null,
    running    bigint[] not null
);
create table tasker.task_counts (
    plan_id int not null,
    state   smallint not null, -- 1: created, otherwise the state in which they ended
    at      timestamptz not null,
    count   bigint not null,
    ms      bigint not null default 0, -- from the requests to the ends, in all
    longest_ms bigint not null default 0
);

-- The same added up, from at on for so many seconds as grain says. waiting_i is how many waited for at most 2^i ms, and
-- longer than those before; the last has all longer ones too. null: none.
create table tasker.call_rates (
    callable   int not null,
    grain      int not null check (grain in (60, 600, 3600, 86400)),
    at         timestamptz not null,
    plan_id    int not null,
    step_no    smallint not null,
    outcome    smallint not null,
    count      bigint not null,
    waiting_ms bigint not null,
    running_ms bigint not null,
    longest_ms bigint not null,
    waiting_0 bigint, waiting_1 bigint, waiting_2 bigint, waiting_3 bigint, waiting_4 bigint, waiting_5 bigint, waiting_6 bigint, waiting_7 bigint, waiting_8 bigint,
    waiting_9 bigint, waiting_10 bigint, waiting_11 bigint, waiting_12 bigint, waiting_13 bigint, waiting_14 bigint, waiting_15 bigint, waiting_16 bigint, waiting_17 bigint,
    waiting_18 bigint, waiting_19 bigint, waiting_20 bigint, waiting_21 bigint, waiting_22 bigint, waiting_23 bigint, waiting_24 bigint, waiting_25 bigint,
    running_0 bigint, running_1 bigint, running_2 bigint, running_3 bigint, running_4 bigint, running_5 bigint, running_6 bigint, running_7 bigint, running_8 bigint,
    running_9 bigint, running_10 bigint, running_11 bigint, running_12 bigint, running_13 bigint, running_14 bigint, running_15 bigint, running_16 bigint, running_17 bigint,
    running_18 bigint, running_19 bigint, running_20 bigint, running_21 bigint, running_22 bigint, running_23 bigint, running_24 bigint, running_25 bigint,
    primary key (callable, grain, at, plan_id, step_no, outcome)
) with (fillfactor = 80);
create index call_rates_at on tasker.call_rates (grain, at);
create table tasker.task_rates (
    plan_id int not null,
    grain   int not null check (grain in (60, 600, 3600, 86400)),
    at      timestamptz not null,
    state   smallint not null,
    count   bigint not null,
    ms      bigint not null,
    longest_ms bigint not null,
    primary key (plan_id, grain, at, state)
) with (fillfactor = 80);
create index task_rates_at on tasker.task_rates (grain, at);

-- How many steps waited, and for how long the first of them, when the fleet last looked in that time; in longer ones the
-- most that it saw. Callables without waiting and running steps have no row.
create table tasker.call_depths (
    callable  int not null,
    grain     int not null check (grain in (60, 600, 3600, 86400)),
    at        timestamptz not null,
    waiting   int not null,
    running   int not null,
    oldest_ms bigint not null,
    primary key (callable, grain, at)
) with (fillfactor = 80);
create index call_depths_at on tasker.call_depths (grain, at);
-- When it last looked.
create table tasker.depths_seen (
    one boolean primary key default true check (one),
    at  timestamptz not null
);

-- +goose StatementBegin
-- Roles that create tasks count them. Their functions get the line that does.
do $$
declare
    guest record;
    makes constant text := pg_get_functiondef((select oid from pg_proc where proname = 'put_task' and pronamespace = 'tasker'::regnamespace));
    marks constant text := E'\n    if coalesce(pg_sequence_last_value(''tasker.following''::regclass) > 1, false) then\n';
    count constant text := E'    insert into tasker.task_counts (plan_id, state, at, count) values (plan, 1, date_trunc(''minute'', at), 1);\n';
begin
    for guest in select distinct a.grantee from pg_class c cross join lateral aclexplode(c.relacl) a
                 where c.oid = 'tasker.task_identities'::regclass and a.privilege_type = 'INSERT' and a.grantee <> c.relowner loop
        execute 'grant insert on tasker.task_counts to ' || case guest.grantee when 0 then 'public' else guest.grantee::regrole::text end;
    end loop;
    if length(makes) - length(replace(makes, marks, '')) <> length(marks) then
        raise exception 'tasker.put_task has not the lines that it was made with';
    end if;
    execute replace(makes, marks, count || marks);
end $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
do $$
declare
    makes constant text := pg_get_functiondef((select oid from pg_proc where proname = 'put_task' and pronamespace = 'tasker'::regnamespace));
    count constant text := E'    insert into tasker.task_counts (plan_id, state, at, count) values (plan, 1, date_trunc(''minute'', at), 1);\n';
begin
    execute replace(makes, count, '');
end $$;
-- +goose StatementEnd
drop table tasker.depths_seen, tasker.call_depths, tasker.task_rates, tasker.call_rates, tasker.task_counts, tasker.call_counts;
