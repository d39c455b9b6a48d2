-- Claims of limited steps read neither keys nor lines over the row versions of what has been claimed.
-- +goose Up
-- No key with waiting steps has a smaller turn, but one that a program of version 118 or before has added.
alter table tasker.limits add column waiting_from float8 not null default '-infinity';
-- No step waits before it in the line of the key, but one that such a program has sorted, or whose priority has changed.
alter table tasker.limit_keys add column from_lane smallint not null default -32768, add column from_seq bigint not null default 0;

-- needless index board_limited: programs of versions 113 to 117 count by board_running, which begins with its column
drop index tasker.board_limited;

-- +goose Down
create index board_limited on tasker.board (limit_line) where state = 3 and limit_line is not null;
alter table tasker.limit_keys drop column from_lane, drop column from_seq;
alter table tasker.limits drop column waiting_from;
