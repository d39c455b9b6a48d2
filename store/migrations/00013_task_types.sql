-- Task types: templates of one step that are registered over the API; see
-- docs/task-types.md.
-- +goose Up

-- Which templates are task types, and which of their versions is enqueued. What a
-- type says stands in its plan, like that of every template.
create table tasker.task_types (
    namespace_id int not null references tasker.namespaces,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    name         text not null check (length(name) between 1 and 64),
    version      text not null,
    created_by   text not null,
    updated_by   text not null,
    primary key (name, namespace_id)
);

-- +goose Down
drop table tasker.task_types;
