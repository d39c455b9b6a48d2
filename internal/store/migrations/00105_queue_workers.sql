-- +goose Up
-- Workers that claim tasks of queues over /tasks/v1. Unlike those in tasker.workers they have no daemon, and may come back
-- after they were dead: then with other claims, so that the fences of the former ones stay dead. What a worker is follows
-- from its times, so that no sweep has to write it. The leases of its claims follow lives_until when they end.
create table tasker.queue_workers (
    worker_id     text primary key check (length(worker_id) between 1 and 128),
    queue         text not null,
    tags          text[] not null default '{}' check (cardinality(tags) <= 16),
    claims        uuid not null default gen_random_uuid(),  -- the worker of its claims on the board
    instance      text not null default '' check (length(instance) <= 128), -- of the process; another one has other claims
    registered_at timestamptz not null default now(),
    heartbeat_at  timestamptz not null default now(),
    lives_until   timestamptz not null,                     -- without another heartbeat
    death_noted   boolean not null default false
);
create unique index queue_workers_claims on tasker.queue_workers (claims);
create index queue_workers_lives on tasker.queue_workers (lives_until);

-- +goose Down
drop table tasker.queue_workers;
