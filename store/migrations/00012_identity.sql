-- Schedules whose tasks have retries of their own, as single requests may have;
-- see docs/templates.md.
-- +goose Up
alter table tasker.schedules
    add column max_attempts    smallint check (max_attempts >= 1),
    add column retry_delays_ms bigint[] check (cardinality(retry_delays_ms) <= 32);

-- +goose Down
alter table tasker.schedules drop column max_attempts, drop column retry_delays_ms;
