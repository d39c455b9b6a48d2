-- Approvals are listed in the order in which they began to wait, page by page, without reading all of them. Rows
-- that wait for no decision are not in the index.
-- +goose Up
-- +online index board_approvals
tasker.board (claimed_at, task_uuid, slot) where awaits >= 'a' and awaits < 'b'

-- +goose Down
drop index tasker.board_approvals;
