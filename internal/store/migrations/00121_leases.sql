-- No index of what runs is left that does not say which part of it.
-- +goose Up
-- needless index board_lease: statements that end leases compare lease_until, so that board_leases serves them, also of former programs
drop index tasker.board_lease;

-- +goose Down
create index board_lease on tasker.board (lease_until) where state = 3;
