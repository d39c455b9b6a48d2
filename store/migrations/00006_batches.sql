-- Steps that are created at run time; see docs/data-model.md.
-- +goose Up

-- What each batch works on: a ledger table, partitioned by task like the others.
-- Step numbers follow those of the plan, so a row is found by the board's number.
create table tasker.batches (
    task_uuid   uuid not null,
    step_no     smallint not null,
    template_no smallint not null, -- the step of the plan that it is an instance of
    first_no    smallint not null, -- the first step of its group
    no_op       boolean not null,  -- a placeholder: there is nothing to do
    name        text not null,
    cursor      jsonb not null,
    created_at  timestamptz not null default now(),
    primary key (task_uuid, step_no)
) partition by range (task_uuid);
create table tasker.batches_default partition of tasker.batches default;

-- Of two ways to a row that look equally cheap the planner takes the younger
-- index. In a partition that is empty yet, as each is at midnight, the one by
-- queue looked as cheap as the key: the key shall be the younger one.
alter table tasker.tasks drop constraint tasks_pkey;
alter table tasker.tasks add primary key (task_uuid);

-- The same, carried along by a claim; null for steps of the plan.
alter table tasker.board add column batch jsonb;

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
        foreach parent in array array['tasks', 'step_attempts', 'task_events', 'batches'] loop
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

-- +goose StatementBegin
-- The eighth status: failed for good, in a group of batches that went on without it.
create or replace function tasker.step_state_name(status int, board_state int, attempt int, outcome int) returns text
language sql immutable parallel safe as $$
    select case
        when board_state = 1 then case when attempt > 0 then 'waiting_for_retry' else 'pending' end
        when board_state = 2 then 'enqueued'
        when board_state = 3 then 'in_progress'
        when board_state = 4 then case when outcome = 1 then 'enqueued_for_orchestration'
                                       else 'enqueued_as_error_for_orchestration' end
        else (array['pending','pending','pending','complete','resolved_manually','error','cancelled','error'])[status]
    end
$$;
-- +goose StatementEnd

create or replace view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)
                    union all
                    select step_no, name from tasker.batches where task_uuid = t.task_uuid) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

-- +goose Down
create or replace view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;
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
        foreach parent in array array['tasks', 'step_attempts', 'task_events'] loop
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
alter table tasker.board drop column batch;
drop table tasker.batches;
