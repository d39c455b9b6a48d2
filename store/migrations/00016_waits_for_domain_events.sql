-- Domain events that steps wait for; see docs/events.md.
-- +goose Up

-- What tells events of one name apart, where the publication says which part of
-- the payload that is.
alter table tasker.domain_events add column key text collate "C";

-- Events with a key that have not been brought to the steps that wait for them.
-- Empty most of the time.
create table tasker.event_deliveries (
    event_uuid uuid primary key
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- +goose Down
drop table tasker.event_deliveries;
alter table tasker.domain_events drop column key;
