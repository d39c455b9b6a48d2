-- +goose Up
-- The failed tasks of plans are counted by state without a look at their rows. It takes the place of step_attempts_failed_by_plan,
-- which the next migration drops.
-- +online index step_attempts_failed_by_plan_state
tasker.step_attempts (failed_plan_id, task_uuid) include (task_state) where failed_plan_id is not null

-- +goose Down
drop index tasker.step_attempts_failed_by_plan_state;
