-- Lines of keys have 32 bits, and each return of a key takes another one. Behind the last number they begin anew with
-- those that are free: of a key that was deleted, and named by no step of the board any more.
-- +goose Up
alter sequence tasker.limit_keys_line_seq cycle;
-- +goose StatementBegin
create function tasker.draw_limit_line() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Before the numbers begin anew, the number is greater than all others.
    if new.line > coalesce((select max(line) from tasker.limit_keys), 0) then
        return new;
    end if;
    for tried in 1..10000000 loop
        if not exists (select from tasker.limit_keys where line = new.line)
            and not exists (select from tasker.board where state = 2 and callable = -new.line)
            and not exists (select from tasker.board where state = 3 and limit_line is not null and limit_line = new.line)
            and not exists (select from tasker.board where state in (1, 2) and limit_line is not null and limit_line in (new.line, -new.line)) then
            return new;
        end if;
        new.line := nextval('tasker.limit_keys_line_seq');
    end loop;
    raise exception 'find a free line for the key %: ten million numbers in a row are taken', new.key;
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.draw_limit_line from public;
create trigger draw before insert on tasker.limit_keys for each row execute function tasker.draw_limit_line();

-- +goose Down
drop trigger draw on tasker.limit_keys;
drop function tasker.draw_limit_line;
alter sequence tasker.limit_keys_line_seq no cycle;
