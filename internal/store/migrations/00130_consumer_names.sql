-- Names of event consumers are per namespace: one that another namespace has already is kept as namespace/name, so that
-- neither learns of the other's.
-- contract 101: the wider check admits every name that the one before did.
-- +goose Up
alter table tasker.event_consumers drop constraint event_consumers_name_check;
alter table tasker.event_consumers add constraint event_consumers_name_check check (name ~ '^(.{1,64}/)?[a-z0-9][a-z0-9_.-]{0,63}$');

-- +goose Down
delete from tasker.event_consumers where position('/' in name) > 0;
alter table tasker.event_consumers drop constraint event_consumers_name_check;
alter table tasker.event_consumers add constraint event_consumers_name_check check (name ~ '^[a-z0-9][a-z0-9_.-]{0,63}$');
