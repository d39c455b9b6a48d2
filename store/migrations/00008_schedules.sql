-- Schedules; see docs/schedules.md.
-- +goose Up

-- What is created again and again, and when next. A run is one transaction: it
-- takes the row, creates the tasks and moves next_run_at on.
-- catch_up: 1 skip, 2 one, 3 all; overlap: 1 allow, 2 skip
create table tasker.schedules (
    schedule_uuid  uuid primary key default tasker.uuid_v7(),
    next_run_at    timestamptz not null check (isfinite(next_run_at)),
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(), -- of what it says, not of its runs
    last_run_at    timestamptz,                        -- the time that the last run was for
    paused_at      timestamptz,
    last_task_uuid uuid,
    namespace_id   int not null references tasker.namespaces,
    revision       int not null default 1,
    max_catch_up   int not null check (max_catch_up between 1 and 1000),
    jitter_seconds int not null check (jitter_seconds between 0 and 3600),
    priority       smallint not null,
    catch_up       smallint not null check (catch_up between 1 and 3),
    overlap        smallint not null check (overlap between 1 and 2),
    name           text not null check (length(name) between 1 and 64),
    template       text not null,
    version        text not null,
    cron           text not null,
    time_zone      text not null,
    paused_by      text,
    pause_reason   text,
    last_error     text, -- why the last run that was due created no task
    tags           text[] not null,
    context        jsonb not null check (jsonb_typeof(context) = 'object'),
    unique (namespace_id, name),
    check ((paused_at is null) = (paused_by is null))
) with (fillfactor = 70);
create index schedules_due on tasker.schedules (next_run_at) where paused_at is null;

-- +goose Down
drop table tasker.schedules;
