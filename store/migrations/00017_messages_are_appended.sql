-- Each message about a task is a row of its own; see
-- docs/decisions/0018-messages-are-appended.md.
-- +goose Up

-- A message that is sent while an orchestrator answers an earlier one about the
-- same task neither waits for that orchestrator nor counts as sent already.
alter table tasker.task_messages
    drop constraint task_messages_pkey,
    add column message_id bigint generated always as identity,
    add primary key (kind, task_uuid, message_id);

-- +goose Down
delete from tasker.task_messages m
where exists (select from tasker.task_messages o where o.kind = m.kind and o.task_uuid = m.task_uuid and o.message_id < m.message_id);
alter table tasker.task_messages
    drop constraint task_messages_pkey,
    drop column message_id,
    add primary key (task_uuid, kind);
