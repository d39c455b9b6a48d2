-- The loss of a process blames no step that ran in it, until one has been lost more than once.
-- +goose Up
alter table tasker.board add column losses smallint;       -- how often the step was lost with its process without being blamed
alter table tasker.board add column lost_after_ms bigint;  -- the longest time from a claim of it to such a loss

-- The steps that are suspected of ending their processes.
-- +online index board_suspects
tasker.board (state) where losses > 1

-- +goose Down
drop index tasker.board_suspects;
alter table tasker.board drop column lost_after_ms;
alter table tasker.board drop column losses;
