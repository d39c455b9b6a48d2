-- A day gets its partition although the default one has rows of it.
-- +goose Up

-- +goose StatementBegin
-- Creates the daily partitions from yesterday to days_ahead; returns how many
-- are new. Rows for which no day exists go to the default partition, so a
-- daemon that could not run this loses nothing. What the default partition has
-- of a day (of tasks that a machine has created whose clock is days ahead) moves
-- into the partition of that day, up to 10,000 rows of a table: they are locked
-- meanwhile, together with the default partition. A day with more of them stays
-- there, and the days after it are not held up.
create or replace function tasker.ensure_partitions(days_ahead int) returns int
language plpgsql as $$
declare
    made int := 0;
    most constant int := 10000;
    part text;
    parent text;
    key text;
    day date;
    lo uuid;
    hi uuid;
    strays bigint;
begin
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    for i in -1 .. days_ahead loop
        day := (now() at time zone 'UTC')::date + i;
        lo := tasker.uuid_floor(day::timestamp at time zone 'UTC');
        hi := tasker.uuid_floor((day + 1)::timestamp at time zone 'UTC');
        for parent, key in
            select c.relname, a.attname from pg_class c
            join pg_partitioned_table p on p.partrelid = c.oid
            join pg_attribute a on a.attrelid = c.oid and a.attnum = p.partattrs[0]
            where c.relnamespace = 'tasker'::regnamespace order by c.oid
        loop
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            if to_regclass('tasker.' || part) is not null then
                continue;
            end if;
            begin
                execute format('create table tasker.%I partition of tasker.%I for values from (%L) to (%L)', part, parent, lo, hi);
                made := made + 1;
            exception when check_violation then
                execute format('select count(*) from (select from tasker.%I where %I >= %L and %I < %L limit %s) s',
                    parent || '_default', key, lo, key, hi, most + 1) into strays;
                if strays > most then
                    continue;
                end if;
                begin
                    execute format('lock table tasker.%I in access exclusive mode', parent || '_default');
                    execute format('create table tasker.%I (like tasker.%I including all excluding identity)', part, parent);
                    execute format('with strays as (delete from tasker.%I where %I >= %L and %I < %L returning *) insert into tasker.%I select * from strays',
                        parent || '_default', key, lo, key, hi, part);
                    execute format('alter table tasker.%I attach partition tasker.%I for values from (%L) to (%L)', parent, part, lo, hi);
                    made := made + 1;
                exception when lock_not_available then
                    null; -- the next time
                end;
            end;
        end loop;
    end loop;
    return made;
end $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function tasker.ensure_partitions(days_ahead int) returns int
language plpgsql as $$
declare
    made int := 0;
    part text;
    parent text;
    day date;
begin
    perform pg_advisory_xact_lock(hashtext('tasker.ensure_partitions'));
    for i in -1 .. days_ahead loop
        day := (now() at time zone 'UTC')::date + i;
        for parent in select relname from pg_class where relnamespace = 'tasker'::regnamespace and relkind = 'p' order by oid loop
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            if to_regclass('tasker.' || part) is null then
                begin
                    execute format('create table tasker.%I partition of tasker.%I for values from (%L) to (%L)',
                        part, parent,
                        tasker.uuid_floor(day::timestamp at time zone 'UTC'),
                        tasker.uuid_floor((day + 1)::timestamp at time zone 'UTC'));
                    made := made + 1;
                exception when check_violation then
                    null;
                end;
            end if;
        end loop;
    end loop;
    return made;
end $$;
-- +goose StatementEnd
