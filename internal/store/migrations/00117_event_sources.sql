-- +goose Up
-- What carries the signals of a daemon, what its fleet moves away from, and over which of them it knows of none that
-- arrive: {"source": "amqp", "moving_from": "notify", "unheard": ["amqp"]}. Null: a program up to version 115.
alter table tasker.workers add column signals jsonb;
alter table tasker.processors add column signals jsonb;

-- +goose Down
alter table tasker.workers drop column signals;
alter table tasker.processors drop column signals;
