-- The planner shall see one way to the rows of a list of tasks; see docs/decisions/0012-plans-before-the-data.md.
-- +goose Up
-- +goose StatementBegin
-- Locks tasks with reported steps and returns what was reported for them, oldest
-- first: up to max_steps of those whose only step stands in their own row, and
-- up to max_steps worth of those whose steps stand apart. A row of the first
-- kind is locked and returned in one statement, and one that somebody else
-- holds is that one's to finish. For the second kind the tasks are locked first
-- and read then, in two statements on purpose: the second one's snapshot is
-- younger than the locks, so it cannot see a step that another orchestrator has
-- applied in between. A row without task_uuid carries the number of such tasks
-- that somebody else holds right now.
-- Two may apply at once. A third would walk over every row that these have
-- locked, for a smaller share of the same list; it is told that there is
-- something to come back for.
-- Index: board_reported, board_reported_apart, then the primary key.
create or replace function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, progress bytea,
               inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
               retry_after_ms bigint, skipped int)
language plpgsql as $$
#variable_conflict use_column
declare
    seen uuid[];
    held uuid[];
begin
    if not (pg_try_advisory_xact_lock(1952543595, -1) or pg_try_advisory_xact_lock(1952543595, -2)) then
        skipped := 1;
        return next;
        return;
    end if;

    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), t.progress,
           true, t.step_no, t.seq, t.attempt, t.outcome, t.retryable, t.retry_after_ms, 0
    from tasker.board t where t.state = 4 and t.slot = 0 and t.seq >= mark
    order by t.seq limit max_steps for update skip locked;

    select array_agg(distinct r.task_uuid) into seen
    from (select s.task_uuid from tasker.board s
          where s.state = 4 and s.slot > 0 and s.seq >= mark_apart order by s.seq limit max_steps) r;
    if seen is null then
        return;
    end if;
    select array_agg(l.task_uuid) into held
    from (select t.task_uuid from tasker.board t
          where t.task_uuid = any (seen) and t.slot = 0 order by t.task_uuid for update skip locked) l;
    -- A state would lead the planner to a partial index, all of it.
    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), t.progress,
           t.state <> 0, s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
    from unnest((select held)) h(task_uuid)
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and slot = 0 limit 1) t
    cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
    order by t.task_uuid, s.step_no;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
end $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, progress bytea,
               inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
               retry_after_ms bigint, skipped int)
language plpgsql as $$
#variable_conflict use_column
declare
    seen uuid[];
    held uuid[];
begin
    if not (pg_try_advisory_xact_lock(1952543595, -1) or pg_try_advisory_xact_lock(1952543595, -2)) then
        skipped := 1;
        return next;
        return;
    end if;

    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), t.progress,
           true, t.step_no, t.seq, t.attempt, t.outcome, t.retryable, t.retry_after_ms, 0
    from tasker.board t where t.state = 4 and t.slot = 0 and t.seq >= mark
    order by t.seq limit max_steps for update skip locked;

    select array_agg(distinct r.task_uuid) into seen
    from (select s.task_uuid from tasker.board s
          where s.state = 4 and s.slot > 0 and s.seq >= mark_apart order by s.seq limit max_steps) r;
    if seen is null then
        return;
    end if;
    select array_agg(l.task_uuid) into held
    from (select t.task_uuid from tasker.board t
          where t.task_uuid = any (seen) and t.slot = 0 order by t.task_uuid for update skip locked) l;
    -- A state would lead the planner to a partial index, all of it.
    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), t.progress,
           t.state <> 0, s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
    from unnest((select held)) h(task_uuid)
    join tasker.board t on t.task_uuid = h.task_uuid and t.slot = 0
    join tasker.board s on s.task_uuid = h.task_uuid and s.outcome is not null
    order by t.task_uuid, s.step_no;
    if cardinality(seen) > coalesce(cardinality(held), 0) then
        skipped := cardinality(seen) - coalesce(cardinality(held), 0);
        return next;
    end if;
end $$;
-- +goose StatementEnd
