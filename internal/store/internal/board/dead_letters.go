package board

import (
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// RecordDeadLetters opens an entry for each task, with its current state. It must precede
// the statements that delete rows from the board, in their transaction, with each task
// once. A task with an open entry keeps it, with its reason and its snapshot; the new
// event is added. The rows of living tasks are marked, so that an apply knows without a
// query which of them have an entry to close.
//
// It returns the entry of each task, and whether it is new.
// Index: the primary keys, dlq_entries_pending; a hidden list as in reportSteps.
var RecordDeadLetters = pg.Compile(`
with o as materialized (
    select * from ` + stmt.HiddenList[OpenedLetter]("o") + `
), marked as (
    update tasker.board b set dead_letter = true from o
    where b.task_uuid = any (array[o.task_uuid]) and b.slot = any (array[0]::smallint[]) and b.dead_letter is not true
), known as materialized (
    select o.*, t.queue, t.plan_id, n.name as namespace, p.name, p.version, coalesce(b.priority, t.priority) as priority,
           t.requested_at, coalesce(t.correlation_id, t.task_uuid) as correlation_id, clock_timestamp() as at,
           coalesce(p.steps[o.no + 1], d.name) as step, coalesce(d.since, 0) as made, b.progress,
           coalesce(b.state_since, e.applied_at, t.requested_at) as since
    from o
    join tasker.tasks t on t.task_uuid = o.task_uuid
    cross join lateral (select name, version, steps from tasker.plans where plan_id = any (array[t.plan_id]) limit 1) p
    cross join lateral (select name from tasker.namespaces where namespace_id = any (array[t.queue]) limit 1) n
    left join lateral (select name, since from tasker.batches
                       where task_uuid = any (array[o.task_uuid]) and step_no = o.no and o.no >= cardinality(p.steps)) d on true
    left join tasker.board b on b.task_uuid = o.task_uuid and b.slot = 0
    left join lateral (select applied_at from tasker.step_attempts
                       where task_uuid = o.task_uuid and task_state is not null limit 1) e on b.task_uuid is null
), detailed as materialized (
    select k.*, coalesce(s.error, a.error) as error, coalesce(s.attempt, a.attempt) as attempts,
           coalesce(case when k.detail = '` + workflow.DetailFailed + `' then a.reason end, k.detail) as why,
           case when k.detail = '` + workflow.DetailFailed + `' and a.reason in ('` + workflow.ReasonWorkerLost + `', '` + workflow.ReasonPoison + `')
                then 4 else k.reason end as kind, -- worker_unavailable
           floor(extract(epoch from k.at - k.since) / 60)::int as minutes
    from known k
    left join lateral (select case when outcome is distinct from {success} then error end as error, attempt from tasker.board
                       where task_uuid = k.task_uuid and slot in (0, k.no + 1) and step_no = k.no limit 1) s on true
    left join lateral (select error, attempt, reason from tasker.step_attempts
                       where task_uuid = k.task_uuid and step_no = k.no and outcome <> {success} and token > k.made order by token desc limit 1) a on s.error is null
)
insert into tasker.dlq_entries as d (task_uuid, dlq_timestamp, created_at, updated_at, queue, plan_id, original_state, reason, detail,
                                     task_snapshot)
select task_uuid, at, at, at, queue, plan_id, original_state, kind, why,
       jsonb_build_object('task_uuid', task_uuid, 'namespace', namespace, 'task_name', name, 'version', version,
           'current_state', tasker.task_state_name(original_state), 'time_in_state_minutes', minutes, 'threshold_minutes', null,
           'age_minutes', floor(extract(epoch from at - requested_at) / 60)::int, 'priority', priority,
           'step', step, 'error', error, 'attempts', attempts, 'detected_at', at, 'snapshot_timestamp', at,
           'task_details', jsonb_build_object('correlation_id', correlation_id, 'priority', priority,
               'requested_at', requested_at, 'created_at', requested_at))
from detailed order by task_uuid
on conflict (task_uuid) where resolution = {pending} do update
set detail = excluded.detail, updated_at = excluded.updated_at,
    metadata = coalesce(d.metadata, '{}') || jsonb_build_object('latest', jsonb_build_object(
        'reason', tasker.dlq_reason_name(excluded.reason), 'detail', excluded.detail,
        'step', excluded.task_snapshot -> 'step', 'detected_at', excluded.dlq_timestamp))
returning d.dlq_entry_uuid, d.task_uuid, d.created_at = d.updated_at as created`)

// OpenEntry locks the open entry of a task o. The limit, and a condition that no index
// has, keep a plan made while there were few entries at one lookup per task.
const OpenEntry = `(select ctid as at from tasker.dlq_entries where task_uuid = o.task_uuid and resolution_timestamp is null limit 1 for update)`

// closeDeadLetters closes the open entries of tasks that no longer need an investigation,
// and removes the marks from the board.
// Index: dlq_entries_by_task, the primary key; a hidden list as in reportSteps.
var closeDeadLetters = pg.Compile(`
with o as materialized (
    select * from ` + stmt.HiddenList[closedLetter]("o") + `
), entries as materialized (
    select o.*, e.at from o cross join lateral ` + OpenEntry + ` e
), closed as (
    update tasker.dlq_entries d
    set resolution = o.resolution, resolution_timestamp = clock_timestamp(), updated_at = clock_timestamp(), resolved_by = 'tasker',
        resolution_notes = concat_ws(E'\n', d.resolution_notes, o.notes)
    from entries o where d.ctid = o.at
)
update tasker.board b set dead_letter = null from o
where b.task_uuid = any (array[o.task_uuid]) and b.slot = any (array[0]::smallint[]) and b.dead_letter is not null`)
