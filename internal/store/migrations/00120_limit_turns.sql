-- Claims of limited steps change no index of their keys most of the time, and count what runs by one index alone.
-- +goose Up
-- Not above turn, and left behind it: claims find keys by it. A key that a program of version 119 or before has added,
-- or has marked as waiting again, is found by claims that read all keys.
alter table tasker.limit_keys add column from_turn float8 not null default '-infinity';
-- No key with waiting steps has a smaller from_turn, but one of those.
alter table tasker.limits add column turns_from float8 not null default '-infinity';
-- A page has room for the next versions of its keys, also while a snapshot keeps all of them.
alter table tasker.limit_keys set (fillfactor = 20);

-- needless index limit_keys_waiting: programs up to version 119 find keys by the unique index, and sort them
drop index tasker.limit_keys_waiting;

-- +online index limit_keys_turns
tasker.limit_keys (callable_id, from_turn, line) where waiting

-- It takes the place of board_lease, whose predicate is true of all that runs: after an analysis at a time when nothing did,
-- the planner counted what runs of a key by it, over the row versions of all that had ended.
-- +online index board_leases
tasker.board (lease_until) where state = 3 and lease_until is not null

-- +goose Down
drop index tasker.board_leases;
create index limit_keys_waiting on tasker.limit_keys (callable_id, turn, line) where waiting;
drop index tasker.limit_keys_turns;
alter table tasker.limit_keys set (fillfactor = 70);
alter table tasker.limits drop column turns_from;
alter table tasker.limit_keys drop column from_turn;
