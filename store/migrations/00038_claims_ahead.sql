-- +goose Up

-- last_attempt: the next execution of the step is the last that it may have, so it is
-- never claimed ahead of a free permit. ahead: the claim was made ahead; its worker
-- announces in begun_claims, before a handler begins, up to which token it begins
-- such claims. The loss of one beyond that uses up no attempt.
alter table tasker.board add column last_attempt boolean, add column ahead boolean;

create table tasker.begun_claims (
    worker uuid not null,
    token  bigint not null,
    primary key (worker, token)
);

-- +goose Down
drop table tasker.begun_claims;
alter table tasker.board drop column last_attempt, drop column ahead;
