-- By what workers decide where steps create others; see docs/decisions/0024-workers-settle.md.
-- +goose Up
alter table tasker.processors add column rules jsonb, add column rules_until timestamptz;

-- +goose Down
alter table tasker.processors drop column rules, drop column rules_until;
