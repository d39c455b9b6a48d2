-- Progress that running steps save; see docs/workers.md.
-- +goose Up

-- {"cursor", "items_processed", "timestamp", "accumulated_results"?, "history": [{"cursor", "timestamp"}]},
-- the history oldest first and bounded. It stays with the step until the step
-- has ended, and is recorded with every attempt.
alter table tasker.board add column checkpoint jsonb;
alter table tasker.step_attempts add column checkpoint jsonb;

-- As in migration 6, and the checkpoint: of a step on the board its own, of one
-- that has ended that of its newest attempt.
create or replace view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker,
       case when l.task_uuid is not null then l.checkpoint
            when get_byte(g.progress, 2 + 6 * s.step_no) > 3 then (
                select a.checkpoint from tasker.step_attempts a
                where a.task_uuid = t.task_uuid and a.step_no = s.step_no order by a.token desc limit 1) end as checkpoint
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)
                    union all
                    select step_no, name from tasker.batches where task_uuid = t.task_uuid) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

-- Steps on the board that have saved checkpoints.
create view tasker.v_checkpoints as
select b.task_uuid, tasker.step_uuid(b.task_uuid, b.step_no) as step_uuid, n.name as namespace_name, p.name as task_name,
       coalesce(b.batch ->> 'name', p.steps[b.step_no + 1]) as step_name, tasker.step_state_name(2, b.state, b.attempt, b.outcome) as state, b.attempt as attempts, b.worker,
       b.checkpoint -> 'cursor' as cursor, (b.checkpoint ->> 'items_processed')::bigint as items_processed,
       (b.checkpoint ->> 'timestamp')::timestamptz as saved_at, extract(epoch from now() - (b.checkpoint ->> 'timestamp')::timestamptz)::float8 as age_seconds,
       jsonb_array_length(b.checkpoint -> 'history') as history_size, pg_column_size(b.checkpoint) as bytes
from tasker.board b
join tasker.board t on t.task_uuid = b.task_uuid and t.slot = 0
join tasker.plans p on p.plan_id = t.plan_id
join tasker.namespaces n on n.namespace_id = b.queue
where b.checkpoint is not null;

-- As in migration 5, and how old the last checkpoint of a running step is: from
-- 15 minutes on it is stale, whatever is configured. A task whose step saves
-- checkpoints is held to those, and to what its template says.
create or replace view tasker.v_task_staleness_monitoring as
select b.task_uuid, n.name as namespace_name, p.name as task_name, tasker.task_state_name(m.shown) as current_state,
       (m.in_state / 60)::int as time_in_state_minutes, (extract(epoch from now() - b.requested_at) / 60)::int as task_age_minutes,
       m.threshold as staleness_threshold_minutes,
       case when m.in_state >= 60 * m.threshold or c.age >= 900 then 'stale'
            when m.in_state >= 48 * m.threshold or c.age >= 720 then 'warning' else 'healthy' end as health_status,
       b.priority, (c.age / 60)::int as checkpoint_age_minutes
from tasker.board b
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = b.queue
cross join lateral (
    select max(extract(epoch from now() - (s.checkpoint ->> 'timestamp')::timestamptz)) as age
    from tasker.board s where s.task_uuid = b.task_uuid and s.lease_until is not null and s.checkpoint is not null) c
cross join lateral (
    select case when b.task_state in (4, 6, 7) then b.task_state else 4 end as shown,
           floor(extract(epoch from now() - case
               when b.task_state = 4 then greatest(b.state_since, b.updated_at, b.requested_at)
               when b.task_state in (6, 7) then coalesce(b.state_since, b.requested_at)
               else coalesce(b.claimed_at, b.requested_at) end)) as in_state,
           case b.task_state
               when 6 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_dependencies_minutes')::int, 0), 60)
               when 7 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_retry_minutes')::int, 0), 30)
               else coalesce(nullif((p.lifecycle ->> 'max_steps_in_process_minutes')::int, 0), case when c.age is null then 30 end) end as threshold) m
where b.slot = 0 and (b.task_state in (4, 6, 7) or c.age is not null);

-- +goose Down
drop view tasker.v_task_staleness_monitoring, tasker.v_checkpoints, tasker.v_workflow_steps;
create view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.board b on b.task_uuid = t.task_uuid and b.slot = 0
left join lateral (select task_progress from tasker.step_attempts
                   where task_uuid = t.task_uuid and task_state is not null limit 1) e on true
cross join lateral (select coalesce(e.task_progress, b.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality x(name, ord)
                    union all
                    select step_no, name from tasker.batches where task_uuid = t.task_uuid) s
left join tasker.board l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

create view tasker.v_task_staleness_monitoring as
select b.task_uuid, n.name as namespace_name, p.name as task_name, tasker.task_state_name(b.task_state) as current_state,
       (m.in_state / 60)::int as time_in_state_minutes, (extract(epoch from now() - b.requested_at) / 60)::int as task_age_minutes,
       m.threshold as staleness_threshold_minutes,
       case when m.in_state >= 60 * m.threshold then 'stale' when m.in_state >= 48 * m.threshold then 'warning' else 'healthy' end as health_status,
       b.priority
from tasker.board b
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = b.queue
cross join lateral (
    select floor(extract(epoch from now() - case b.task_state
               when 4 then greatest(b.state_since, b.updated_at, b.requested_at) else coalesce(b.state_since, b.requested_at) end)) as in_state,
           case b.task_state
               when 6 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_dependencies_minutes')::int, 0), 60)
               when 7 then coalesce(nullif((p.lifecycle ->> 'max_waiting_for_retry_minutes')::int, 0), 30)
               else coalesce(nullif((p.lifecycle ->> 'max_steps_in_process_minutes')::int, 0), 30) end as threshold) m
where b.slot = 0 and b.task_state in (4, 6, 7);

alter table tasker.step_attempts drop column checkpoint;
alter table tasker.board drop column checkpoint;
