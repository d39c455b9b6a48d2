-- Limits of callables: how many steps run at once, how many begin per second and in which order, by key.
-- +goose Up
-- A limited callable has paused_at without paused_by unless an operator has paused it too: claims leave it out, also
-- those of programs up to version 112, and its steps are claimed by key alone. All changes below happen under the
-- advisory lock of the callable, so keys are counted exactly.
create table tasker.limits (
    callable_id int primary key references tasker.callables,
    changed_at  timestamptz not null default clock_timestamp(),
    changed_by  text not null,
    key_path    text[],                              -- where the key stands in the context; null: not there
    key_tag     text,                                -- the key is what follows this in a tag of the task; null: not there
    max_running int check (max_running >= 0),        -- of a key at once; null: no bound
    per_second  float8 check (per_second > 0),       -- beginnings of a key; null: no bound
    burst       int not null check (burst >= 1),         -- beginnings of a key that may be saved
    ordered     boolean not null,                    -- one of a key at a time, in the order of creation
    overtake    boolean not null,                    -- with ordered: while the first one waits for its retry, others run
    weights     jsonb not null,                      -- of keys; the others have 1
    turn        float8 not null default 0,           -- the greatest turn that a claim has reached
    removing    boolean not null default false,      -- it bounds nothing more, and its steps return to the line of the callable
    check (key_path is null or key_tag is null)
);

-- Keys of limited callables that have had steps. The steps of a key wait in the line -line of the board.
create table tasker.limit_keys (
    line        int generated always as identity primary key,
    callable_id int not null references tasker.callables,
    key         text collate "C" not null check (length(key) <= 512),
    turn        float8 not null,                     -- the next step's place among those of all keys, smallest first
    weight      float8 not null check (weight > 0),
    tokens      float8 not null,                     -- beginnings that were left at tokens_at
    tokens_at   timestamptz not null,
    head_task   uuid,                                -- with ordered: the step that holds the key
    head_step   smallint,
    waiting     boolean not null,                    -- there may be steps in the line
    unique (callable_id, key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
-- Claims take keys by their turns.
create index limit_keys_waiting on tasker.limit_keys (callable_id, turn, line) where waiting;

-- The line of the key under which the step was claimed; null: under none.
alter table tasker.board add column limit_line int;

-- Claims count the steps of a key that run.
-- +online index board_limited
tasker.board (limit_line) where state = 3 and limit_line is not null

-- +goose Down
update tasker.callables set paused_at = null where callable_id in (select callable_id from tasker.limits) and paused_by is null;
update tasker.board s set callable = k.callable_id from tasker.limit_keys k where s.callable = -k.line;
drop index tasker.board_limited;
alter table tasker.board drop column limit_line;
drop table tasker.limit_keys;
drop table tasker.limits;
