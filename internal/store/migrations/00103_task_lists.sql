-- Indexes for lists of tasks. Each is built while writers wait: about a second per million tasks.
-- contract: tasks_by_plan takes the place of tasks_by_queue, whose only readers are lists; those of the version before become slower.
-- +goose Up
drop index tasker.tasks_by_queue;
-- Lists of the tasks of templates, and of namespaces by their templates, newest first. The condition holds for all tasks: it
-- keeps the index from statements that do not say it, for in a partition that is still empty, as each is at midnight, a
-- search for a task by its key would look as cheap in it.
create index tasks_by_plan on tasker.tasks (plan_id, task_uuid) where plan_id > 0;
-- The tasks of a correlation id, newest first.
drop index tasker.tasks_by_correlation;
create index tasks_by_correlation on tasker.tasks (correlation_id, task_uuid) where correlation_id is not null;
-- The tasks that have tags.
create index tasks_by_tags on tasker.tasks using gin (tags) where tags is not null;
-- The tasks that failed, were cancelled or resolved by hand.
create index step_attempts_failed on tasker.step_attempts (task_uuid) where task_state > 9;

-- +goose Down
drop index tasker.step_attempts_failed;
drop index tasker.tasks_by_tags;
drop index tasker.tasks_by_correlation;
create index tasks_by_correlation on tasker.tasks (correlation_id) where correlation_id is not null;
alter table tasker.tasks drop constraint tasks_pkey;
drop index tasker.tasks_by_plan;
create index tasks_by_queue on tasker.tasks (queue, task_uuid);
alter table tasker.tasks add primary key (task_uuid);
