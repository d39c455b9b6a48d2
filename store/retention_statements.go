package store

// ledgerDays are the days with ledger partitions whose tasks may have ended before the
// cutoff ($1 ms ago), oldest first, with what prevents dropping a day whole: living
// tasks, open dead letters, and rows in the default partitions, where a day could not be
// created.
// Index: the primary keys, dlq_entries_pending.
const ledgerDays = `
select to_char(d.day, 'YYYYMMDD'), b.lo, b.hi, least(b.hi, c.upto), c.now, extract(epoch from c.now - d.ends)::float8,
       exists (select from tasker.board where task_uuid >= b.lo and task_uuid < b.hi),
       ` + openOfDay + `,
       ` + strayRows + `
from (select distinct to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent in ('tasker.tasks'::regclass, 'tasker.step_attempts'::regclass, 'tasker.task_events'::regclass, 'tasker.batches'::regclass,
                            'tasker.former_batches'::regclass)
        and c.relname ~ '_[0-9]{8}$') p
cross join lateral (select p.day, (p.day + 1)::timestamp at time zone 'UTC' as ends) d
cross join lateral (select tasker.uuid_floor(p.day::timestamp at time zone 'UTC') as lo, tasker.uuid_floor(d.ends) as hi) b
cross join (select now() as now, tasker.uuid_floor(now() - $1::bigint * interval '1 ms') as upto) c
where p.day::timestamp at time zone 'UTC' < now() - $1::bigint * interval '1 ms'
order by d.day`

// defaultDays are the default partitions, read as one day without end.
const defaultDays = `select now(), tasker.uuid_floor(now() - $1::bigint * interval '1 ms')`

// openOfDay is whether the day b has open dead letters. The order holds the
// planner at the index by tasks.
const openOfDay = `coalesce((select true from tasker.dlq_entries
           where resolution = 1 and task_uuid >= b.lo and task_uuid < b.hi order by task_uuid limit 1), false)`

// strayRows is whether a default partition has rows of the day b.
const strayRows = `exists (select from tasker.tasks_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.step_attempts_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.task_events_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.batches_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.former_batches_default where task_uuid >= b.lo and task_uuid < b.hi)`

// readEnds reads attempts in the order of the primary key, from a key on, and returns
// their number, the last key, the latest time, and the tasks that ended before the
// cutoff. Parameters: task, step and token to continue after, the end, the limit, and the
// cutoff as ms from now.
// Index: the primary key.
const (
	readEndsHead = `
with walked as materialized (
    select task_uuid, step_no, token, applied_at, task_state from `
	readEndsTail = `
    where task_uuid >= $1::uuid and task_uuid < $4::uuid and (task_uuid, step_no, token) > ($1::uuid, $2::smallint, $3::bigint)
    order by task_uuid, step_no, token limit $5
)
select (select count(*) from walked)::int, (select max(applied_at) from walked),
       array(select task_uuid from walked where task_state is not null and applied_at <= now() - $6::bigint * interval '1 ms'),
       l.task_uuid, l.step_no, l.token
from (select task_uuid, step_no, token from walked order by task_uuid desc, step_no desc, token desc limit 1) l`
	readDayEnds     = readEndsHead + `tasker.step_attempts` + readEndsTail
	readDefaultEnds = readEndsHead + `tasker.step_attempts_default` + readEndsTail
)

// lockEnds locks the ends of tasks against reopening, and returns those still ended. A
// task being reopened is skipped.
// Index: the primary key.
const lockEnds = `
select task_uuid from tasker.step_attempts
where task_uuid = any ($1::uuid[]) and task_state is not null order by task_uuid for update skip locked`

// deleteTasks deletes tasks whose ends are locked from the ledger, except those with open
// investigations.
// Index: the primary keys, dlq_entries_by_task.
const deleteTasks = `
with gone as materialized (
    select o.task_uuid from unnest((select $1::uuid[])) o(task_uuid)
    where ` + deletable + `
), attempts as (
    delete from tasker.step_attempts a using gone where a.task_uuid = gone.task_uuid
), events as (
    delete from tasker.task_events e using gone where e.task_uuid = gone.task_uuid
), batches as (
    delete from tasker.batches d using gone where d.task_uuid = gone.task_uuid
), former as (
    delete from tasker.former_batches f using gone where f.task_uuid = gone.task_uuid
), tasks as (
    delete from tasker.tasks t using gone where t.task_uuid = gone.task_uuid
)
select count(*)::int from gone`

const countDeletable = `
select count(*)::int from unnest((select $1::uuid[])) o(task_uuid)
where ` + deletable

// deletable is whether the task o is neither on the board nor in an open dead
// letter. The limit as in openEntry.
const deletable = `(select true from tasker.board b where b.task_uuid = o.task_uuid limit 1) is null
      and (select true from tasker.dlq_entries d where d.task_uuid = o.task_uuid and d.resolution_timestamp is null limit 1) is null`

// dropDay drops a day of the ledger unless something prevents it.
const dropDay = `select tasker.drop_ledger_day($1, $2, $3, $4, $5)`

// Registry and operators' records that have had their time, $1 ms.
// Index: task_identities_expiry, received_events_expiry, operator_actions_at. Daemons are few.
const (
	expiredIdentities = `
select ctid as at from tasker.task_identities
where expires_at < 'infinity' and expires_at <= (select clock_timestamp()) order by expires_at limit $1`
	deleteIdentities = `
with old as materialized (` + expiredIdentities + ` for update skip locked)
delete from tasker.task_identities where ctid = any (array(select at from old))`
	countIdentities = `select count(*)::int from (` + expiredIdentities + `) old`

	expiredReceived = `
select ctid as at from tasker.received_events where expires_at <= (select clock_timestamp()) order by expires_at limit $1`
	deleteReceived = `
with old as materialized (` + expiredReceived + ` for update skip locked)
delete from tasker.received_events where ctid = any (array(select at from old))`
	countReceived = `select count(*)::int from (` + expiredReceived + `) old`

	goneDaemon = ` where heartbeat_at < clock_timestamp() - $1::bigint * interval '1 ms' limit $2`
	deleteGone = `
with old as materialized (select ctid as at from tasker.workers` + goneDaemon + ` for update skip locked),
     idle as materialized (select ctid as at from tasker.processors` + goneDaemon + ` for update skip locked),
     workers as (delete from tasker.workers where ctid = any (array(select at from old)) returning worker_uuid),
     begun as (delete from tasker.begun_claims where worker in (select worker_uuid from workers)),
     processors as (delete from tasker.processors where ctid = any (array(select at from idle)) returning 1)
select (select count(*) from workers)::int + (select count(*) from processors)::int`
	countGone = `select (select count(*) from (select from tasker.workers` + goneDaemon + `) w)::int
      + (select count(*) from (select from tasker.processors` + goneDaemon + `) p)::int`

	oldActions    = `select ctid as at from tasker.operator_actions where at < (select clock_timestamp() - $1::bigint * interval '1 ms') order by at limit $2`
	deleteActions = `
with old as materialized (` + oldActions + ` for update skip locked)
delete from tasker.operator_actions where ctid = any (array(select at from old))`
	countActions = `select count(*)::int from (` + oldActions + `) old`
)
