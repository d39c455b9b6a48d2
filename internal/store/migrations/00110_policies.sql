-- The order in which the steps of a callable are claimed, where it is not by priority.
-- +goose Up
-- Programs that create steps read it: those up to version 109 go on to order by priority.
create table tasker.policies (
    callable_id int primary key references tasker.callables,
    policy      text not null,                       -- see package order; one that a program does not know is fifo
    changed_at  timestamptz not null default clock_timestamp(),
    changed_by  text not null
);

-- +goose Down
drop table tasker.policies;
