-- No index of the failed tasks of plans is left that does not say their state.
-- +goose Up
-- needless index step_attempts_failed_by_plan: step_attempts_failed_by_plan_state has its columns in the same order, and serves statements of former programs
drop index tasker.step_attempts_failed_by_plan;

-- +goose Down
create index step_attempts_failed_by_plan on tasker.step_attempts (failed_plan_id, task_uuid) where failed_plan_id is not null;
