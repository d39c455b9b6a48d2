-- Attempts tell which decision they belong to.
-- +goose Up
-- What was reported of a task and applied in one transaction was decided about
-- together, and the integrity check replays it together. xmin told which
-- transaction that was until the row was written anew: by an action that brings
-- the task back, by a restored dump, by logical replication. Rows from before
-- have none, and there xmin goes on telling. The default is set apart from the
-- column, or else all of them would get that of this migration.
alter table tasker.step_attempts add column decision xid8;
alter table tasker.step_attempts alter column decision set default pg_current_xact_id();

-- +goose Down
alter table tasker.step_attempts drop column decision;
