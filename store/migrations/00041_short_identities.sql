-- Identities are half as long; see docs/decisions/0025-creation-by-copy.md. Programs
-- of the version before, which would not find these, cannot create tasks any more.
-- +goose Up
alter table tasker.task_identities drop constraint task_identities_identity_check;
update tasker.task_identities set identity = substring(identity for 16);
alter table tasker.task_identities add constraint task_identities_identity_check check (octet_length(identity) = 16);

-- +goose Down
-- The other halves are gone: programs of the version before do not find the tasks that exist.
alter table tasker.task_identities drop constraint task_identities_identity_check;
update tasker.task_identities set identity = identity || '\x00000000000000000000000000000000';
alter table tasker.task_identities add constraint task_identities_identity_check check (octet_length(identity) = 32);
