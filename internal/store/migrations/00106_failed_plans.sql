-- The plan of tasks that failed stands beside their end, so that lists of the failed tasks of a template or namespace
-- need not look at those of all.
-- +goose Up
-- What was applied after migration 105, and the oldest program that each change leaves at work: programs up to version
-- 105 know tasker_schema_version alone, where only changes that they cannot stand are recorded from now on.
create table if not exists tasker.schema_changes (
    version    bigint primary key,
    name       text not null,
    oldest     bigint not null,                      -- the oldest version of the schema whose programs go on working
    applied_at timestamptz not null default now()
);
-- The newest version of the schema that a daemon knows; null: 105.
alter table tasker.workers add column if not exists schema_version int;
alter table tasker.processors add column if not exists schema_version int;

-- The plan of the task that this execution ended with another state than complete; null elsewhere.
alter table tasker.step_attempts add column if not exists failed_plan_id int;

-- +goose StatementBegin
-- Fills failed_plan_id for programs that do not know it.
create or replace function tasker.fill_failed_plan() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    select t.plan_id into new.failed_plan_id from tasker.tasks t where t.task_uuid = new.task_uuid;
    return new;
end $$;
-- +goose StatementEnd
revoke all on function tasker.fill_failed_plan from public;
create or replace trigger fill_failed_plan before insert on tasker.step_attempts
    for each row when (new.task_state > 9 and new.failed_plan_id is null) execute function tasker.fill_failed_plan();

-- +online backfill
with ended as materialized (
    select task_uuid, step_no, token from tasker.step_attempts
    where task_state > 9 and task_uuid > $1
    order by task_uuid fetch first 2000 rows with ties
), filled as (
    update tasker.step_attempts a set failed_plan_id = t.plan_id
    from ended e join tasker.tasks t using (task_uuid)
    where a.task_uuid = e.task_uuid and a.step_no = e.step_no and a.token = e.token and a.failed_plan_id is null
)
select task_uuid from ended order by task_uuid desc limit 1

-- Lists of the failed tasks of templates and namespaces, newest first.
-- +online index step_attempts_failed_by_plan
tasker.step_attempts (failed_plan_id, task_uuid) where failed_plan_id is not null

-- +goose Down
drop index tasker.step_attempts_failed_by_plan;
drop trigger fill_failed_plan on tasker.step_attempts;
drop function tasker.fill_failed_plan;
alter table tasker.step_attempts drop column failed_plan_id;
alter table tasker.processors drop column schema_version;
alter table tasker.workers drop column schema_version;
drop table tasker.schema_changes;
