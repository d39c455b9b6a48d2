-- Where the API of a daemon listens, for operators; '' where there is none, or the
-- daemon is of a version that does not tell.
-- +goose Up
alter table tasker.workers add column address text not null default '';
alter table tasker.processors add column address text not null default '';

-- +goose Down
alter table tasker.processors drop column address;
alter table tasker.workers drop column address;
