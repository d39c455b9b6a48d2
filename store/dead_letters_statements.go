package store

import (
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// recordDeadLetters opens an entry for each task, with its current state. It must precede
// the statements that delete rows from the board, in their transaction, with each task
// once. A task with an open entry keeps it, with its reason and its snapshot; the new
// event is added. The rows of living tasks are marked, so that an apply knows without a
// query which of them have an entry to close.
//
// It returns the entry of each task, and whether it is new.
// Index: the primary keys, dlq_entries_pending; a hidden list as in reportSteps.
var recordDeadLetters = compile(`
with o as materialized (
    select * from ` + stmt.HiddenList[openedLetter]("o") + `
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
    left join lateral (select error, attempt from tasker.board
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

// openEntry locks the open entry of a task o. The limit, and a condition that no index
// has, keep a plan made while there were few entries at one lookup per task.
const openEntry = `(select ctid as at from tasker.dlq_entries where task_uuid = o.task_uuid and resolution_timestamp is null limit 1 for update)`

// describeStale adds to the open entries of stale tasks the reason.
// Index: dlq_entries_by_task; a hidden list as in reportSteps.
var describeStale = compile(`
update tasker.dlq_entries d
set task_snapshot = d.task_snapshot || jsonb_build_object('time_in_state_minutes', o.minutes, 'threshold_minutes', o.threshold),
    metadata = coalesce(d.metadata, '{}') || jsonb_build_object('detection_method', 'automatic_staleness',
        'time_in_state_minutes', o.minutes, 'threshold_minutes', o.threshold)
from ` + stmt.HiddenList[staleness]("o") + `
cross join lateral ` + openEntry + ` e
where d.ctid = e.at and d.reason = {stale}`)

// staleness is for how long a task has been in its state, in minutes, and the exceeded
// threshold.
type staleness struct {
	TaskUUID           uuid.UUID
	Minutes, Threshold int
}

// closeDeadLetters closes the open entries of tasks that no longer need an investigation,
// and removes the marks from the board.
// Index: dlq_entries_by_task, the primary key; a hidden list as in reportSteps.
var closeDeadLetters = compile(`
with o as materialized (
    select * from ` + stmt.HiddenList[closedLetter]("o") + `
), entries as materialized (
    select o.*, e.at from o cross join lateral ` + openEntry + ` e
), closed as (
    update tasker.dlq_entries d
    set resolution = o.resolution, resolution_timestamp = clock_timestamp(), updated_at = clock_timestamp(), resolved_by = 'tasker',
        resolution_notes = concat_ws(E'\n', d.resolution_notes, o.notes)
    from entries o where d.ctid = o.at
)
update tasker.board b set dead_letter = null from o
where b.task_uuid = any (array[o.task_uuid]) and b.slot = any (array[0]::smallint[]) and b.dead_letter is not null`)

// Statements of one entry. The task's row is locked first, as every flow does
// that decides about a task.
// Index: the primary keys, dlq_entries_by_task.
var (
	lockDeadLetterTask = compile(`
select from tasker.board where slot = 0 and task_uuid = (select task_uuid from tasker.dlq_entries where dlq_entry_uuid = @entry) for update`)

	// updateDeadLetter changes the given fields; metadata are merged key by key.
	updateDeadLetter = compile(`
update tasker.dlq_entries
set resolution = coalesce(@resolution::smallint, resolution),
    resolution_timestamp = case when coalesce(@resolution::smallint, resolution) = {pending} then null
                                when resolution = {pending} then clock_timestamp() else resolution_timestamp end,
    resolution_notes = coalesce(@notes::text, resolution_notes), resolved_by = coalesce(@resolved_by::text, resolved_by),
    metadata = case when @metadata::jsonb is null then metadata
                    when jsonb_typeof(metadata) = 'object' and jsonb_typeof(@metadata::jsonb) = 'object' then metadata || @metadata::jsonb
                    else @metadata::jsonb end,
    replayed_as = coalesce(@replayed_as::uuid, replayed_as), updated_at = clock_timestamp()
where dlq_entry_uuid = @entry`)

	markDeadLetterTask = compile(`
update tasker.board b set dead_letter = case when m.open then true end
from (select d.task_uuid, (select true from tasker.dlq_entries where task_uuid = d.task_uuid and resolution_timestamp is null limit 1) is not null as open
      from tasker.dlq_entries d where d.dlq_entry_uuid = @entry) m
where b.task_uuid = m.task_uuid and b.slot = 0 and coalesce(b.dead_letter, false) <> m.open`)
)

// readDeadLetters reads entries with the current state of their tasks. It follows a table
// expression "page" with their keys.
// Index: the primary keys.
const readDeadLetters = `
select d.dlq_entry_uuid, d.task_uuid, n.name as namespace, p.name as task_name, p.version, d.original_state,
       coalesce(b.task_state, e.task_state, 0) as current_state,
       d.reason, d.detail, d.dlq_timestamp, d.resolution, d.resolution_timestamp, d.resolution_notes, d.resolved_by,
       d.task_snapshot, d.metadata, d.replayed_as, d.created_at, d.updated_at
from page
join tasker.dlq_entries d on d.dlq_entry_uuid = page.dlq_entry_uuid
cross join lateral (select name, version from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[d.queue]) limit 1) n
left join tasker.board b on b.task_uuid = d.task_uuid and b.slot = 0
left join lateral (select task_state from tasker.step_attempts
                   where task_uuid = d.task_uuid and task_state is not null limit 1) e on b.task_uuid is null
`

// newestDeadLetters reads each kind of entry from its newest and merges them, so that one
// plan serves every filter: it reads no more rows of a kind than a page ends with, except
// those of other namespaces and names.
// Index: dlq_entries_by_resolution.
const newestDeadLetters = `
with page as materialized (
    select e.dlq_entry_uuid
    from unnest(@resolutions::smallint[]) r(resolution) cross join unnest(@reasons::smallint[]) x(reason) cross join lateral (
        select d.dlq_entry_uuid, d.dlq_timestamp from tasker.dlq_entries d
        where d.resolution = r.resolution and d.reason = x.reason
          and d.dlq_timestamp >= coalesce(@since::timestamptz, '-infinity') and d.dlq_timestamp < coalesce(@until::timestamptz, 'infinity')
          and (@namespace = '' or d.queue = (select namespace_id from tasker.namespaces where name = @namespace))
          and (@name = '' or (select name from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) = @name)
        order by d.dlq_timestamp desc, d.dlq_entry_uuid desc limit @limit::int + @offset::int) e
    order by e.dlq_timestamp desc, e.dlq_entry_uuid desc limit @limit::int offset @offset::int
)` + readDeadLetters + `order by d.dlq_timestamp desc, d.dlq_entry_uuid desc`

var (
	listDeadLetters   = compile(newestDeadLetters)
	oldestDeadLetters = compile(strings.ReplaceAll(newestDeadLetters, " desc", "")) // in reverse order
)

var (
	// Index: the primary key.
	oneDeadLetter = compile(`
with page as materialized (select @entry::uuid as dlq_entry_uuid)` + readDeadLetters)
	// Index: dlq_entries_by_task.
	latestDeadLetter = compile(`
with page as materialized (
    select dlq_entry_uuid from tasker.dlq_entries where task_uuid = @task order by dlq_timestamp desc limit 1)` + readDeadLetters)
)

// investigationQueue takes the oldest open entries of each reason: within a
// reason older is more urgent.
// Index: dlq_entries_by_resolution, then the primary keys.
var investigationQueue = compile(`
with urgent as materialized (
    select e.dlq_entry_uuid, m.minutes, tasker.dlq_priority(x.reason, m.minutes) as score
    from unnest(@reasons::smallint[]) x(reason) cross join lateral (
        select d.dlq_entry_uuid, d.dlq_timestamp from tasker.dlq_entries d
        where d.resolution = (select @resolution::smallint) and d.reason = x.reason
        order by d.dlq_timestamp, d.dlq_entry_uuid limit @limit) e
    cross join lateral (select extract(epoch from clock_timestamp() - e.dlq_timestamp)::float8 / 60 as minutes offset 0) m
    order by score desc, e.dlq_entry_uuid limit @limit
)
select d.dlq_entry_uuid, d.task_uuid, n.name as namespace, p.name as task_name, d.original_state,
       coalesce(b.task_state, l.task_state, 0) as current_state, d.reason, d.detail, d.dlq_timestamp, u.minutes,
       floor(extract(epoch from clock_timestamp() - coalesce(b.state_since, b.requested_at)) / 60)::int as minutes_in_state, u.score
from urgent u
join tasker.dlq_entries d on d.dlq_entry_uuid = u.dlq_entry_uuid
cross join lateral (select name, version from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[d.queue]) limit 1) n
left join tasker.board b on b.task_uuid = d.task_uuid and b.slot = 0
left join lateral (select task_state from tasker.step_attempts
                   where task_uuid = d.task_uuid and task_state is not null limit 1) l on b.task_uuid is null
order by u.score desc, u.dlq_entry_uuid`)

// deadLetterStats counts the newest entries of each kind up to a limit, from the index
// only.
// Index: dlq_entries_by_resolution.
var deadLetterStats = compile(`
select x.reason, r.resolution, e.entries, e.newest, f.oldest, e.seconds
from unnest(@reasons::smallint[]) x(reason) cross join unnest(@resolutions::smallint[]) r(resolution)
cross join lateral (
    select count(*)::int as entries, max(n.dlq_timestamp) as newest,
           sum(extract(epoch from n.resolution_timestamp - n.dlq_timestamp))::float8 as seconds
    from (select dlq_timestamp, resolution_timestamp from tasker.dlq_entries
          where resolution = r.resolution and reason = x.reason
          order by dlq_timestamp desc, dlq_entry_uuid desc limit @limit) n) e
left join lateral (
    select dlq_timestamp as oldest from tasker.dlq_entries
    where resolution = r.resolution and reason = x.reason order by dlq_timestamp, dlq_entry_uuid limit 1) f on true
where e.entries > 0
order by x.reason, r.resolution`)

// closedDeadLetters are closed entries, the longest closed first.
// Index: dlq_entries_closed.
const closedDeadLetters = `
select ctid as at from tasker.dlq_entries
where resolution > {pending} and resolution_timestamp < (select clock_timestamp() - @older_ms::bigint * interval '1 ms')
order by resolution_timestamp limit @limit`

var (
	purgeDeadLetters = compile(`
with old as materialized (` + closedDeadLetters + ` for update skip locked)
delete from tasker.dlq_entries where ctid = any (array(select at from old))`)
	countClosedDeadLetters = compile(`select count(*) from (` + closedDeadLetters + `) old`)
)
