-- Quotas: how many live tasks a namespace may have before the API refuses new ones, see docs/submission-limits.md.
-- +goose Up
-- counted was read from the board at counted_at, admitted is what the API has created since. Of these tasks no more than the
-- sum of both are alive, so most creations need no count, and the limit holds.
create table tasker.quotas (
    namespace_id int primary key references tasker.namespaces (namespace_id),
    max_tasks    int not null check (max_tasks between 0 and 1000000000),
    counted      bigint not null default 0,
    counted_at   timestamptz not null default '-infinity',
    admitted     bigint not null default 0,
    admitted_by  xid8 not null default '0',          -- the last transaction that was given places, and how many:
    given        bigint not null default 0,          -- its tasks are not yet on the board when it counts
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text not null
);

-- +goose StatementBegin
-- Takes the place of a new task, or returns in how many milliseconds places may be free. Creations of a namespace with a
-- quota follow one another: the lock is held until the commit. What the board has is counted when all places are taken,
-- once a second at most. A task whose identity is taken needs no place: it will not be created.
-- Index: the primary keys; a count reads the board.
create function tasker.take_place(of_namespace int, of_identity bytea) returns bigint
language plpgsql as $$
declare
    q tasker.quotas;
begin
    if exists (select from tasker.task_identities i where i.identity = of_identity and i.expires_at > statement_timestamp()) then
        return null;
    end if;
    select * into q from tasker.quotas where namespace_id = of_namespace for update;
    if not found then
        return null;
    end if;
    if q.admitted_by <> pg_current_xact_id() then
        q.given := 0;
    end if;
    if q.counted + q.admitted >= q.max_tasks and q.counted_at <= clock_timestamp() - interval '1 second' then
        q.counted := (select count(*) from tasker.board where queue = of_namespace and slot = 0);
        q.counted_at := clock_timestamp();
        q.admitted := q.given;
        update tasker.quotas set counted = q.counted, counted_at = q.counted_at, admitted = q.admitted where namespace_id = of_namespace;
    end if;
    if q.counted + q.admitted >= q.max_tasks then
        return greatest(1000 - floor(1000 * extract(epoch from clock_timestamp() - q.counted_at)), 1);
    end if;
    update tasker.quotas set admitted = q.admitted + 1, admitted_by = pg_current_xact_id(), given = q.given + 1 where namespace_id = of_namespace;
    return null;
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.take_place from public;

-- +goose Down
drop function tasker.take_place;
drop table tasker.quotas;
