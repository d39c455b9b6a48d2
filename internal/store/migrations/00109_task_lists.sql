-- Lists of tasks by their states count those that fit by indexes alone.
-- +goose Up
-- The tasks that failed, were cancelled or resolved by hand, by state. It takes the place of step_attempts_failed, which the
-- lists of version 108 read and a later contract drops.
-- +online index step_attempts_failed_by_state
tasker.step_attempts (task_state, task_uuid) where task_state > 9

-- The tasks that wait for dependencies or retries, or are blocked: few of those alive.
-- +online index board_held
tasker.board (task_state, task_uuid) where slot = 0 and task_state > 4 and task_state < 9

-- +goose Down
drop index tasker.board_held;
drop index tasker.step_attempts_failed_by_state;
