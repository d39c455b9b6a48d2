-- What happens to steps of limited callables that find no room, and which templates declare limits.
-- +goose Up
-- wait, cancel_newest, cancel_running or drop: see package limitrule; one that a program does not know is wait.
alter table tasker.limits add column beyond text not null default 'wait';
-- The template (namespace/name) or task type whose declaration the limit is, with its version; null: an operator has set it.
alter table tasker.limits add column declared_by text;
alter table tasker.limits add column declared_version text;

-- 5: cancel the task, a step of it is beyond a limit. The table is empty most of the time.
alter table tasker.task_messages drop constraint task_messages_kind_check;
alter table tasker.task_messages add constraint task_messages_kind_check check (kind between 1 and 5);

-- +goose Down
delete from tasker.task_messages where kind > 4;
alter table tasker.task_messages drop constraint task_messages_kind_check;
alter table tasker.task_messages add constraint task_messages_kind_check check (kind between 1 and 4);
alter table tasker.limits drop column declared_version;
alter table tasker.limits drop column declared_by;
alter table tasker.limits drop column beyond;
