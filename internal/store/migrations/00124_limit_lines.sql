-- +goose Up
-- +goose StatementBegin
-- Creations place steps in the lines of keys. Programs of the version before remove a key without waiting
-- for those that are under way, so a trigger does: 1952543597 is the class of their locks. A removal that
-- it rejects is repeated by a sweep.
create function tasker.guard_limit_line() returns trigger
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1952543597, old.callable_id);
    if exists (select from tasker.board where state = 2 and callable = -old.line) then
        raise exception 'remove the key %: steps wait in its line', old.line;
    end if;
    return old;
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.guard_limit_line from public;
create trigger guard before delete on tasker.limit_keys for each row execute function tasker.guard_limit_line();

-- +goose Down
drop trigger guard on tasker.limit_keys;
drop function tasker.guard_limit_line;
