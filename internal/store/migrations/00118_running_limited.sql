-- Claims count what runs of a key without reading over the row versions of what has ended.
-- +goose Up
-- The oldest token that ran of the key when it was last looked at; tokens rise from claim to claim.
alter table tasker.limit_keys add column running_from bigint not null default 0;

-- It takes the place of board_limited, which claims of the version before read and a later contract drops.
-- +online index board_running
tasker.board (limit_line, token) where state = 3 and limit_line is not null

-- +goose Down
drop index tasker.board_running;
alter table tasker.limit_keys drop column running_from;
