-- Where the steps of a limit that run make room for younger ones (cancel_running), those that have run and wait to run
-- again are superseded, too: they keep the line of their key, and its negative once they are superseded.
-- +goose Up
-- +online index board_superseded
tasker.board (limit_line) where state in (1, 2) and limit_line is not null

-- +goose Down
drop index tasker.board_superseded;
