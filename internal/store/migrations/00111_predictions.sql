-- How long handlers are expected to take, for the policies that order by it.
-- +goose Up
-- The numbers of the context that times are learned by, and where the class of a task (its tenant) stands in it.
alter table tasker.policies add column features text[], add column class text;
-- What is known of the times of a step; see package predict.
create table tasker.predictions (
    namespace_id int not null references tasker.namespaces,
    template     text not null,
    step         text not null,
    model        jsonb not null,
    changed_at   timestamptz not null,
    primary key (namespace_id, template, step)
);

-- +goose Down
drop table tasker.predictions;
alter table tasker.policies drop column features, drop column class;
