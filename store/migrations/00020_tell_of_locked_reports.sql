-- A look at what was reported tells of every row that it passed over.
-- +goose Up
-- +goose StatementBegin
-- As in migration 9; and the steps in their tasks' own rows that another
-- transaction holds right now are counted too. Whatever it is for (a client that
-- waits for the task, an operator's action, another orchestrator that may die over
-- it), the signal that told of the report is used up by this look, so the caller
-- has to look again. They are counted where the list was not cut off by its limit:
-- otherwise the caller comes back anyway.
-- Index: board_reported, board_reported_apart, then the primary key.
create or replace function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, dead_letter boolean,
               awaited boolean, progress bytea, inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
               retry_after_ms bigint, skipped int)
language plpgsql as $$
#variable_conflict use_column
declare
    seen uuid[];
    held uuid[];
    lone int;
    passed int := 0;
begin
    if not (pg_try_advisory_xact_lock(1952543595, -1) or pg_try_advisory_xact_lock(1952543595, -2)) then
        skipped := 1;
        return next;
        return;
    end if;

    return query
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false), t.progress,
           true, t.step_no, t.seq, t.attempt, t.outcome, t.retryable, t.retry_after_ms, 0
    from tasker.board t where t.state = 4 and t.slot = 0 and t.seq >= mark
    order by t.seq limit max_steps for update skip locked;
    get diagnostics lone = row_count;
    if lone < max_steps then
        select greatest(count(*) - lone, 0) into passed
        from (select from tasker.board t where t.state = 4 and t.slot = 0 and t.seq >= mark order by t.seq limit max_steps) r;
    end if;

    select array_agg(distinct r.task_uuid) into seen
    from (select s.task_uuid from tasker.board s
          where s.state = 4 and s.slot > 0 and s.seq >= mark_apart order by s.seq limit max_steps) r;
    if seen is not null then
        select array_agg(l.task_uuid) into held
        from (select t.task_uuid from tasker.board t
              where t.task_uuid = any (seen) and t.slot = 0 order by t.task_uuid for update skip locked) l;
        -- A state would lead the planner to a partial index, all of it.
        return query
        select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false), t.progress,
               t.state <> 0, s.step_no, s.seq, s.attempt, s.outcome, s.retryable, s.retry_after_ms, 0
        from unnest((select held)) h(task_uuid)
        cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and slot = 0 limit 1) t
        cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and outcome is not null offset 0) s
        order by t.task_uuid, s.step_no;
        passed := passed + cardinality(seen) - coalesce(cardinality(held), 0);
    end if;
    if passed > 0 then
        skipped := passed;
        return next;
    end if;
end $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function tasker.take_reported(mark bigint, mark_apart bigint, max_steps int)
returns table (task_uuid uuid, plan_id int, queue int, task_state smallint, priority smallint, watched boolean, dead_letter boolean,
               awaited boolean, progress bytea, inline boolean, step_no smallint, seq bigint, attempt smallint, outcome smallint, retryable boolean,
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
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false), t.progress,
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
    select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, coalesce(t.watched, false), coalesce(t.dead_letter, false), coalesce(t.awaited, false), t.progress,
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
