-- +goose Up
-- The place of a task in a trace, in slot 0 (internal/tracing): the id of the trace (16 bytes), the span that requested the
-- task (8), and the flags of W3C trace context (1). Null: the task is in no trace, or in one that is not sampled.
alter table tasker.board add column trace bytea;

-- +goose Down
alter table tasker.board drop column trace;
