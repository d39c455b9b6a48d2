-- Tasks that continue others; see docs/data-model.md.
-- +goose Up

-- The task whose handler has named this one as what comes next; null for all
-- others. Which tasks continue one is told by its events: they stand in the
-- partition of the task that is asked about, so no index is needed for it.
alter table tasker.tasks add column continues_task_uuid uuid;

create view tasker.v_task_continuations as
select e.task_uuid, (e.metadata->>'continued_by')::uuid as continued_by, e.at, tasker.step_uuid(e.task_uuid, (e.metadata->>'step')::int) as step_uuid,
       e.metadata->>'step_name' as step_name, (e.metadata->>'token')::bigint as token
from tasker.task_events e where e.metadata ? 'continued_by';

-- +goose Down
drop view tasker.v_task_continuations;
alter table tasker.tasks drop column continues_task_uuid;
