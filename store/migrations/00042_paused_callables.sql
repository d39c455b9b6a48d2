-- What claims are stopped of may be a callable; see docs/decisions/0023-callables.md.
-- +goose Up
alter table tasker.callables add column paused_at timestamptz, add column paused_by text, add column pause_reason text;
create index callables_paused on tasker.callables (callable_id) where paused_at is not null;

-- +goose Down
drop index tasker.callables_paused;
alter table tasker.callables drop column paused_at, drop column paused_by, drop column pause_reason;
