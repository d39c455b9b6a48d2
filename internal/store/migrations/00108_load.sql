-- +goose Up
-- What a worker can do at once and how fast: {"permits": 32, "service_ms": {"<callable_id>": 4.5}}. Null: a program up to
-- version 107.
alter table tasker.workers add column load jsonb;

-- +goose Down
alter table tasker.workers drop column load;
