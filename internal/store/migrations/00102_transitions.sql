-- +goose Up
-- What clients follow now: '' everything, 'n:' and the id of a namespace, 't:' and the UUID of a task. An era ends when
-- transitions may have been missed. This table and the next are a live view, so they are unlogged: a crash empties them.
create unlogged table tasker.followed (
    scope text collate "C" primary key,
    era   uuid not null default gen_random_uuid(),
    until timestamptz not null                       -- orchestrators move it on while they have clients
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 50);

-- Transitions of what is followed, for some minutes: ends of attempts (step_no, attempt, outcome), and changes of tasks
-- (from_state, to_state; a created task has no from_state). Positions rise in the order of decisions about a task.
create unlogged table tasker.transitions (
    position   bigint generated always as identity,
    xid        xid8 not null default pg_current_xact_id(),
    at         timestamptz not null default clock_timestamp(),
    task_uuid  uuid not null,
    queue      int not null,                         -- the namespace
    step_no    smallint,
    attempt    smallint,
    outcome    smallint,
    from_state smallint,
    to_state   smallint
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
-- Orchestrators read what the transactions since their last read have written.
create index transitions_xid on tasker.transitions (xid);

-- Whether something is followed: above 1. Statements that write the ledger read it, and nothing is cheaper to read. It
-- is set after the commit of what is followed. Its readers lock it until the end of their transactions, which shows who
-- may have read it before.
create sequence tasker.following cache 1;

-- +goose StatementBegin
-- Records a transition for clients that follow it: the end of an attempt, the change of a task, or both. A namespace of 0
-- is that of the task. Then a change is of a living task; of one that has ended since, its end is enough.
create function tasker.record_transition(task uuid, namespace int, step int, attempt int, outcome int, from_state int, to_state int) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
    if outcome is null and to_state is null then
        return true;
    end if;
    if namespace = 0 then
        if outcome is null and not exists (select from tasker.board b where b.task_uuid = task and b.slot = 0) then
            return true;
        end if;
        select t.queue into namespace from tasker.tasks t where t.task_uuid = task;
    end if;
    if exists (select from tasker.followed f
               where f.scope = any (array['', 'n:' || namespace, 't:' || task]) and f.until > clock_timestamp()) then
        if outcome is not null then
            insert into tasker.transitions (task_uuid, queue, step_no, attempt, outcome) values (task, namespace, step, attempt, outcome);
        end if;
        if to_state is not null then
            insert into tasker.transitions (task_uuid, queue, from_state, to_state) values (task, namespace, from_state, to_state);
        end if;
    end if;
    return true;
end $$;
-- +goose StatementEnd

-- Whether something is followed, for programs that have no rights on the sequence.
create function tasker.is_followed() returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as
'select coalesce(pg_sequence_last_value(''tasker.following''::regclass) > 1, false)';

-- +goose Down
drop function tasker.is_followed;
drop function tasker.record_transition;
drop sequence tasker.following;
drop table tasker.transitions, tasker.followed;
