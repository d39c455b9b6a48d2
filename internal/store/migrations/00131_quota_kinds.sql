-- Quotas that also bound what the engine creates, see docs/use/limits.md.
-- +goose Up
-- applies_to: what the quota rejects beside submissions: sub_tasks, next_tasks, schedules.
alter table tasker.quotas add column applies_to text[] not null default '{}';

-- Places that were taken while another transaction had the quota. The next one that has it adds them to admitted.
-- Without a foreign key: that would wait for the quota.
create table tasker.quota_additions (
    namespace_id int  not null,
    added_by     xid8 not null default pg_current_xact_id()
);
create index quota_additions_namespace on tasker.quota_additions (namespace_id);

-- +goose StatementBegin
-- Takes the place of a new task, or returns in how many milliseconds places may be free. Creations of a namespace with a
-- quota follow one another: the lock is held until the commit. What the board has is counted when all places are taken,
-- once a second at most. A task whose identity is taken needs no place: it will not be created.
-- Index: the primary keys, quota_additions_namespace; a count reads the board.
create or replace function tasker.take_place(of_namespace int, of_identity bytea) returns bigint
language plpgsql as $$
declare
    q tasker.quotas;
    a record;
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
    -- Before the count: what it sees, it counts.
    with added as (
        delete from tasker.quota_additions where namespace_id = of_namespace returning added_by
    )
    select count(*) as n, count(*) filter (where added_by = pg_current_xact_id()) as own into a from added;
    q.admitted := q.admitted + a.n;
    q.given := q.given + a.own;
    if q.counted + q.admitted >= q.max_tasks and q.counted_at <= clock_timestamp() - interval '1 second' then
        q.counted := (select count(*) from tasker.board where queue = of_namespace and slot = 0);
        q.counted_at := clock_timestamp();
        q.admitted := q.given;
        a.n := 1;
    end if;
    if q.counted + q.admitted >= q.max_tasks then
        if a.n > 0 then
            update tasker.quotas set counted = q.counted, counted_at = q.counted_at, admitted = q.admitted where namespace_id = of_namespace;
        end if;
        return greatest(1000 - floor(1000 * extract(epoch from clock_timestamp() - q.counted_at)), 1);
    end if;
    update tasker.quotas set counted = q.counted, counted_at = q.counted_at, admitted = q.admitted + 1,
        admitted_by = pg_current_xact_id(), given = q.given + 1 where namespace_id = of_namespace;
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- take_place for a task that the engine creates, of one of the kinds of applies_to. It never waits: its transaction may have
-- rows that a creation with the quota waits for. So tasks that are created at the same moment may be beyond the quota by
-- their number. A snapshot of a whole transaction cannot see a count, and is never rejected.
-- Callers may have no right to see quotas.
-- Index: the primary keys.
create function tasker.take_place_as(of_kind text, of_namespace int, of_identity bytea) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    q      tasker.quotas;
    recent constant boolean := current_setting('transaction_isolation') = 'read committed';
begin
    if not exists (select from tasker.governed where namespace_id = of_namespace) then
        return null;
    end if;
    select * into q from tasker.quotas where namespace_id = of_namespace and of_kind = any (applies_to);
    if not found then
        return null;
    end if;
    if recent then
        perform from tasker.quotas where namespace_id = of_namespace for update skip locked;
        if found then
            return tasker.take_place(of_namespace, of_identity);
        end if;
        if q.counted + q.admitted >= q.max_tasks
           and not exists (select from tasker.task_identities i where i.identity = of_identity and i.expires_at > statement_timestamp()) then
            return 1000;
        end if;
    end if;
    insert into tasker.quota_additions (namespace_id) values (of_namespace);
    return null;
end
$$;
-- +goose StatementEnd
revoke execute on function tasker.take_place_as from public;
-- +goose StatementBegin
do $$
declare
    guest record;
begin
    for guest in select distinct a.grantee from pg_class c cross join lateral aclexplode(c.relacl) a
                 where c.oid = 'tasker.task_identities'::regclass and a.privilege_type = 'INSERT' and a.grantee <> c.relowner loop
        execute 'grant execute on function tasker.take_place_as to ' || case guest.grantee when 0 then 'public' else guest.grantee::regrole::text end;
    end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function tasker.take_place_as;
-- +goose StatementBegin
create or replace function tasker.take_place(of_namespace int, of_identity bytea) returns bigint
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
drop table tasker.quota_additions;
alter table tasker.quotas drop column applies_to;
