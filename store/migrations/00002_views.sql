-- Views for people and for tools; the daemons do not use them.
-- +goose Up

-- +goose StatementBegin
create function tasker.task_state_name(state int) returns text
language sql immutable strict parallel safe as $$
    select (array['pending','initializing','enqueuing_steps','steps_in_process','evaluating_results',
        'waiting_for_dependencies','waiting_for_retry','blocked_by_failures','complete','error',
        'cancelled','resolved_manually'])[state]
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The visible state of a step: its status in the progress, and for a step on
-- the board the state of the row.
create function tasker.step_state_name(status int, board_state int, attempt int, outcome int) returns text
language sql immutable parallel safe as $$
    select case
        when board_state = 1 then case when attempt > 0 then 'waiting_for_retry' else 'pending' end
        when board_state = 2 then 'enqueued'
        when board_state = 3 then 'in_progress'
        when board_state = 4 then case when outcome = 1 then 'enqueued_for_orchestration'
                                       else 'enqueued_as_error_for_orchestration' end
        else (array['pending','pending','pending','complete','resolved_manually','error','cancelled'])[status]
    end
$$;
-- +goose StatementEnd

create view tasker.v_tasks as
select t.task_uuid, n.name as namespace, p.name, p.version,
       tasker.task_state_name(coalesce(t.final_state, l.state)) as state,
       t.priority, t.requested_at, t.start_at, t.completed_at, l.updated_at, l.state_since,
       t.correlation_id, t.parent_correlation_id, t.initiator, t.source_system, t.reason,
       t.final_reason, t.tags, t.context
from tasker.tasks t
join tasker.plans p using (plan_id)
join tasker.namespaces n on n.namespace_id = t.queue
left join tasker.live_tasks l using (task_uuid);

create view tasker.v_workflow_steps as
select t.task_uuid, tasker.step_uuid(t.task_uuid, s.step_no) as step_uuid, s.step_no, s.name,
       tasker.step_state_name(get_byte(g.progress, 2 + 6 * s.step_no), l.state, l.attempt, l.outcome) as state,
       coalesce(l.attempt, get_byte(g.progress, 4 + 6 * s.step_no) * 256 + get_byte(g.progress, 5 + 6 * s.step_no)) as attempts,
       l.due_at, l.lease_until, l.worker
from tasker.tasks t
join tasker.plans p using (plan_id)
left join tasker.live_tasks lt using (task_uuid)
cross join lateral (select coalesce(t.final_progress, lt.progress) as progress) g
cross join lateral (select (ord - 1)::int as step_no, name
                    from unnest(p.steps) with ordinality e(name, ord)) s
left join tasker.live_steps l on l.task_uuid = t.task_uuid and l.step_no = s.step_no
where get_byte(g.progress, 2 + 6 * s.step_no) <> 0;

-- The recorded changes, with the beginning and the plain end that need no row.
create view tasker.v_task_transitions as
select task_uuid, requested_at as at, null::text as from_state, 'pending' as to_state, initiator as actor, reason
from tasker.tasks
union all
select task_uuid, min(claimed_at), 'pending', 'steps_in_process', null, null
from tasker.step_attempts group by task_uuid
union all
select task_uuid, at, tasker.task_state_name(from_state), tasker.task_state_name(to_state), actor, reason
from tasker.task_events
union all
select task_uuid, completed_at, 'evaluating_results', 'complete', null, null
from tasker.tasks where final_state = 9;

-- Every step transition, unfolded from one row per attempt.
create view tasker.v_step_transitions as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.attempt, e.at, e.to_state, a.worker
from tasker.step_attempts a
cross join lateral (values
    (a.enqueued_at, 'enqueued'),
    (a.claimed_at, 'in_progress'),
    (a.reported_at, case when a.outcome = 1 then 'enqueued_for_orchestration' else 'enqueued_as_error_for_orchestration' end),
    (a.applied_at, (array['complete','waiting_for_retry','error','enqueued','cancelled'])[a.outcome])
) e(at, to_state)
where e.at is not null;

create view tasker.v_step_result_audit as
select a.task_uuid, tasker.step_uuid(a.task_uuid, a.step_no) as step_uuid, a.step_no, a.token, a.attempt,
       a.reported_at as recorded_at, a.worker as worker_uuid, t.correlation_id, a.outcome = 1 as success,
       (extract(epoch from a.reported_at - a.claimed_at) * 1000)::bigint as execution_time_ms, a.result, a.error
from tasker.step_attempts a
join tasker.tasks t using (task_uuid)
where a.reported_at is not null;

-- +goose Down
drop view tasker.v_step_result_audit, tasker.v_step_transitions, tasker.v_task_transitions, tasker.v_workflow_steps, tasker.v_tasks;
drop function tasker.step_state_name(int, int, int, int);
drop function tasker.task_state_name(int);
