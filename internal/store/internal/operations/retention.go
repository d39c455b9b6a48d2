package operations

import (
	"context"
	"errors"
	"time"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

const (
	// surveyRows is how many attempts one statement reads of a day that may be
	// dropped whole.
	surveyRows = 20_000
	// retainSteps is how many statements of that kind, batches of deletions or
	// dropped days one call of Retain makes at most; retainPreview how many a dry
	// run makes.
	retainSteps   = 10
	retainPreview = 50
	// keepDaemons is the least time for which an ended daemon is kept: a dead worker that
	// resumes must find itself dead.
	keepDaemons = time.Hour
)

// RetentionLimits are the times to keep data, by the database's clock.
type RetentionLimits struct {
	// TTL counts from the end of a task; 0 keeps tasks and daemons for ever. A task may
	// stay up to a day longer, because a day is dropped as a whole.
	TTL           time.Duration
	DeadLetterTTL time.Duration // from the closing of an entry; 0: for ever
	EventTTL      time.Duration // from the publishing of a domain event; 0: for ever
	MinutesTTL    time.Duration // of rates, of minutes and of ten minutes; 0: for ever
	HoursTTL      time.Duration // of rates, of hours and days; 0: for ever
	Batch         int           // tasks, and other rows, deleted at once; at least 1
}

// actionsTTL is the time to keep operators' actions: as long as their possible targets.
func (l RetentionLimits) actionsTTL() time.Duration {
	if l.TTL <= 0 || l.DeadLetterTTL <= 0 {
		return 0
	}
	return max(l.TTL, l.DeadLetterTTL)
}

// Retained counts what was deleted.
type Retained struct {
	Days           []string // dropped whole, as YYYYMMDD
	EventDays      []string // of domain events, dropped whole
	Tasks          int      // deleted one by one
	Events         int      // domain events that had no day, deleted one by one
	Workers        int      // daemons, orchestrators too
	Identities     int
	SubmissionKeys int // of throttles and debounces, idle
	Received       int // events from outside, expired or delivered
	Logs           int // logs and progress without a task, whose day had been dropped
	DeadLetters    int
	Actions        int
	Sessions       int  // of browsers, ended for a day
	Rates          int  // rows of rates and depths
	Busy           int  // days in use; they are tried again
	More           bool // more to do at once
}

// Retain deletes expired data, a bounded amount per call. Whole days of the ledger are
// dropped if no task is alive, no dead letter is open and no task ended within the TTL;
// otherwise ended tasks are deleted in batches, never one that is on the board or has an
// open dead letter. A dry run counts, and covers only a part if More is true.
func (s *Operations) Retain(ctx context.Context, l RetentionLimits, dry bool) (Retained, error) {
	r := retaining{store: s, limits: l, dry: dry, memory: &s.aging, steps: retainSteps}
	if dry {
		r.memory, r.steps = &aging{}, retainPreview
	}
	parts := []func(context.Context) error{r.identities, r.submissionKeys, r.received, r.browserSessions, r.daemons, r.deadLetters, r.actions, r.events, r.ledger, r.logs, r.rates}
	err := each(ctx, parts, func(part func(context.Context) error) error { return part(ctx) })
	return r.done, err
}

// each goes through all of a list: what the database rejects of one holds up no others.
func each[T any](ctx context.Context, list []T, do func(T) error) (err error) {
	for _, one := range list {
		err = errors.Join(err, do(one))
		if errors.Is(err, pg.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// retaining is one call of Retain.
type retaining struct {
	store  *Operations
	limits RetentionLimits
	dry    bool
	memory *aging
	steps  int // left
	done   Retained
}

// rows deletes, or counts, one batch of simple rows.
func (r *retaining) rows(ctx context.Context, what string, old expired, limits pg.Args) (n int, err error) {
	n, err = r.store.purge(ctx, what, old, limits, r.limits.Batch, r.dry)
	r.done.More = r.done.More || n >= r.limits.Batch
	return n, err
}

// purge deletes, or counts, up to limit expired rows, but those that the database rejects.
func (s *Operations) purge(ctx context.Context, what string, old expired, args pg.Args, limit int, dry bool) (int, error) {
	return s.db.ByPosition("retain_"+what, what+", expired row %d", limit, func(limit, skip int) (n int, err error) {
		err = s.db.Call(ctx, "retain_"+what, "remove old "+what, func(ctx context.Context, db *pg.Conn) error {
			n, err = old.purge(ctx, db, args.And(pg.Args{"limit": limit, "skip": skip}), dry)
			return err
		})
		return n, err
	})
}

func (r *retaining) identities(ctx context.Context) (err error) {
	r.done.Identities, err = r.rows(ctx, "identities", expiredIdentities, pg.Args{})
	return err
}

func (r *retaining) received(ctx context.Context) (err error) {
	r.done.Received, err = r.rows(ctx, "received_events", expiredReceived, pg.Args{})
	return err
}

// logs deletes what workers wrote about tasks that retention had deleted: it is in the default
// partitions, for there is no day any more.
func (r *retaining) logs(ctx context.Context) error {
	if r.limits.TTL <= 0 {
		return nil
	}
	ttl := pg.Args{"ttl_ms": max(r.limits.TTL, day).Milliseconds()}
	lines, err := r.rows(ctx, "logs", strayLogs, ttl)
	if r.done.Logs = lines; err != nil {
		return err
	}
	said, err := r.rows(ctx, "progress", strayProgress, ttl)
	r.done.Logs += said
	return err
}

// rates deletes old rows of rates, those of minutes before those of hours.
func (r *retaining) rates(ctx context.Context) error {
	type oldGrains struct {
		ttl    time.Duration
		grains []int32
	}
	return each(ctx, []oldGrains{{r.limits.MinutesTTL, []int32{60, 600}}, {r.limits.HoursTTL, []int32{3600, 86400}}}, func(old oldGrains) error {
		if old.ttl <= 0 {
			return nil
		}
		return each(ctx, []string{"call_rates", "task_rates", "call_depths"}, func(table string) error {
			n, err := r.rows(ctx, table, oldRates[table], pg.Args{"ttl_ms": old.ttl.Milliseconds(), "grains": old.grains})
			r.done.Rates += n
			return err
		})
	})
}

func (r *retaining) browserSessions(ctx context.Context) (err error) {
	r.done.Sessions, err = r.rows(ctx, "browser_sessions", endedSessions, pg.Args{})
	return err
}

func (r *retaining) submissionKeys(ctx context.Context) (err error) {
	r.done.SubmissionKeys, err = r.rows(ctx, "submission_keys", expiredKeys, pg.Args{})
	return err
}

func (r *retaining) daemons(ctx context.Context) error {
	if r.limits.TTL <= 0 {
		return nil
	}
	ttl := pg.Args{"ttl_ms": max(r.limits.TTL, keepDaemons).Milliseconds()}
	workers, err := r.rows(ctx, "workers", goneWorkers, ttl)
	if r.done.Workers = workers; err != nil {
		return err
	}
	processors, err := r.rows(ctx, "processors", goneProcessors, ttl)
	r.done.Workers += processors
	return err
}

func (r *retaining) deadLetters(ctx context.Context) (err error) {
	if r.limits.DeadLetterTTL <= 0 {
		return nil
	}
	r.done.DeadLetters, err = r.rows(ctx, "dead_letters", closedDeadLetters, pg.Args{"older_ms": r.limits.DeadLetterTTL.Milliseconds()})
	return err
}

func (r *retaining) actions(ctx context.Context) (err error) {
	if ttl := r.limits.actionsTTL(); ttl > 0 {
		r.done.Actions, err = r.rows(ctx, "actions", oldActions, pg.Args{"ttl_ms": ttl.Milliseconds()})
	}
	return err
}

// eventDays are the expired days of domain events, the oldest first.
var eventDays = pg.Compile(`
select right(c.relname, 8) from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'tasker.domain_events'::regclass and c.relname ~ '_[0-9]{8}$'
  and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' < now() - @ttl_ms::bigint * interval '1 ms'
order by 1 limit @limit`)

// oldEvents are events for whose day there was no partition.
// Index: the primary key.
const oldEvents = `
select event_uuid from tasker.domain_events_default
where event_uuid < tasker.uuid_floor(now() - @ttl_ms::bigint * interval '1 ms') order by event_uuid limit @limit offset @skip`

var (
	expiredEvents = expired{pg.Compile(`
with old as materialized (` + oldEvents + ` for update skip locked)
delete from tasker.domain_events_default where event_uuid = any (array(select event_uuid from old))`),
		pg.Compile(`select count(*)::int from (` + oldEvents + `) old`)}
	dropEventDay = pg.Compile(`select tasker.drop_event_day(@day, @patience)`)
)

// events drops expired days of domain events, even unread ones: an abandoned consumer
// would keep them for ever.
func (r *retaining) events(ctx context.Context) (err error) {
	if r.limits.EventTTL <= 0 {
		return nil
	}
	ttl := max(r.limits.EventTTL, day) // an older day is not created again
	days, err := pg.ReadAll[string](ctx, r.store.db, "retain_event_days", "list the days of domain events",
		eventDays.With(pg.Args{"ttl_ms": ttl.Milliseconds(), "limit": retainSteps + 1}))
	if err != nil {
		return err
	}
	if len(days) > retainSteps {
		days, r.done.More = days[:retainSteps], true
	}
	failure := each(ctx, days, func(name string) error {
		_, err := r.drop(ctx, "domain events", name, &r.done.EventDays, func(ctx context.Context, db *pg.Conn) (bool, error) {
			_, err := pg.Run(ctx, db, dropEventDay.With(pg.Args{"day": name, "patience": dropLockTimeout}))
			return err == nil, err
		})
		return err
	})
	r.done.Events, err = r.rows(ctx, "events", expiredEvents, pg.Args{"ttl_ms": r.limits.EventTTL.Milliseconds()})
	return errors.Join(failure, err)
}

// drop drops a day's partitions by one statement and adds the day to a list: its locks stop
// all others, so it must not wait for this process. If the day stays in use, it is left for
// later; held says that something has prevented it.
func (r *retaining) drop(ctx context.Context, of, day string, list *[]string, drop func(ctx context.Context, db *pg.Conn) (bool, error)) (held bool, err error) {
	if r.dry {
		*list = append(*list, day)
		return false, nil
	}
	dropped := false
	err = r.store.db.Call(ctx, "retain_drop", "drop a day of "+of, func(ctx context.Context, db *pg.Conn) (err error) {
		dropped, err = drop(ctx, db)
		return err
	})
	switch {
	case pg.LockTimeout(err):
		r.done.Busy++ // the next call tries again
		return false, nil
	case dropped:
		*list = append(*list, day)
	}
	return err == nil && !dropped, err
}

// ledgerDays are the days with ledger partitions whose tasks may have ended before the
// cutoff, oldest first, with what prevents dropping a day whole: living
// tasks, open dead letters, and rows in the default partitions, where a day could not be
// created.
// Index: the primary keys, dlq_entries_pending.
var ledgerDays = pg.Compile(`
select to_char(d.day, 'YYYYMMDD') as name, b.lo, b.hi, least(b.hi, c.upto) as upto, c.now, extract(epoch from c.now - d.ends)::float8 as since,
       exists (select from tasker.board where task_uuid >= b.lo and task_uuid < b.hi) as alive,
       ` + openOfDay + ` as pending,
       ` + strayRows + ` as stray
from (select distinct to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent in ('tasker.tasks'::regclass, 'tasker.step_attempts'::regclass, 'tasker.task_events'::regclass, 'tasker.batches'::regclass,
                            'tasker.former_batches'::regclass)
        and c.relname ~ '_[0-9]{8}$') p
cross join lateral (select p.day, (p.day + 1)::timestamp at time zone 'UTC' as ends) d
cross join lateral (select tasker.uuid_floor(p.day::timestamp at time zone 'UTC') as lo, tasker.uuid_floor(d.ends) as hi) b
cross join (select now() as now, tasker.uuid_floor(now() - @ttl_ms::bigint * interval '1 ms') as upto) c
where p.day::timestamp at time zone 'UTC' < now() - @ttl_ms::bigint * interval '1 ms'
order by d.day`)

// defaultDays are the default partitions, read as one day without end.
var defaultDays = pg.Compile(`select now() as now, tasker.uuid_floor(now() - @ttl_ms::bigint * interval '1 ms') as upto`)

// openOfDay is whether the day b has open dead letters. The order holds the
// planner at the index by tasks.
const openOfDay = `coalesce((select true from tasker.dlq_entries
           where resolution = {pending} and task_uuid >= b.lo and task_uuid < b.hi order by task_uuid limit 1), false)`

// strayRows is whether a default partition has rows of the day b.
const strayRows = `exists (select from tasker.tasks_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.step_attempts_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.task_events_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.batches_default where task_uuid >= b.lo and task_uuid < b.hi)
       or exists (select from tasker.former_batches_default where task_uuid >= b.lo and task_uuid < b.hi)`

// Index: the primary key.
var (
	readDayEnds     = readEnds(`tasker.step_attempts`)
	readDefaultEnds = readEnds(`tasker.step_attempts_default`)
)

// readEnds reads attempts of a table in the order of the primary key, from a key on up to
// a task, and returns their number, the last key, the latest time, and the tasks that
// ended before the cutoff.
func readEnds(table string) *stmt.Statement {
	return pg.Compile(`
with walked as materialized (
    select task_uuid, step_no, token, applied_at, task_state from ` + table + `
    where task_uuid >= @task::uuid and task_uuid < @upto::uuid and (task_uuid, step_no, token) > (@task::uuid, @step::smallint, @token::bigint)
    order by task_uuid, step_no, token limit @limit
)
select (select count(*) from walked)::int as read, (select max(applied_at) from walked) as latest,
       array(select task_uuid from walked where task_state is not null and applied_at <= now() - @ttl_ms::bigint * interval '1 ms') as old,
       l.task_uuid as task, l.step_no as step, l.token
from (select task_uuid, step_no, token from walked order by task_uuid desc, step_no desc, token desc limit 1) l`)
}

// lockEnds locks the ends of tasks against reopening, and returns those still ended. A
// task being reopened is skipped.
// Index: the primary key.
var lockEnds = pg.Compile(`
select task_uuid from tasker.step_attempts
where task_uuid = any (@tasks::uuid[]) and task_state is not null order by task_uuid for update skip locked`)

// deleteTasks deletes tasks whose ends are locked from the ledger, except those with open
// investigations.
// Index: the primary keys, dlq_entries_by_task.
var deleteTasks = pg.Compile(`
with gone as materialized (
    select o.task_uuid from unnest((select @tasks::uuid[])) o(task_uuid)
    where ` + deletable + `
), attempts as (
    delete from tasker.step_attempts a using gone where a.task_uuid = gone.task_uuid
), events as (
    delete from tasker.task_events e using gone where e.task_uuid = gone.task_uuid
), batches as (
    delete from tasker.batches d using gone where d.task_uuid = gone.task_uuid
), former as (
    delete from tasker.former_batches f using gone where f.task_uuid = gone.task_uuid
), logs as (
    delete from tasker.attempt_logs l using gone where l.task_uuid = gone.task_uuid
), said as (
    delete from tasker.attempt_progress p using gone where p.task_uuid = gone.task_uuid
), tasks as (
    delete from tasker.tasks t using gone where t.task_uuid = gone.task_uuid
)
select count(*)::int from gone`)

var countDeletable = pg.Compile(`
select count(*)::int from unnest((select @tasks::uuid[])) o(task_uuid)
where ` + deletable)

// deletable is whether the task o is neither on the board nor in an open dead
// letter. The limit as in OpenEntry.
const deletable = `(select true from tasker.board b where b.task_uuid = o.task_uuid limit 1) is null
      and (select true from tasker.dlq_entries d where d.task_uuid = o.task_uuid and d.resolution_timestamp is null limit 1) is null`

// dropDay drops a day of the ledger unless something prevents it.
var dropDay = pg.Compile(`select tasker.drop_ledger_day(@day, @lo, @hi, @began, @patience)`)

// Registry and operators' records that have had their time.
// Index: task_identities_expiry, received_events_expiry, submission_keys_expiry, browser_sessions_expiry,
// operator_actions_at (a plain at would order by the result column). Daemons are few.
var (
	expiredIdentities = expiredRows("task_identities", `
select ctid as at from tasker.task_identities
where expires_at < 'infinity' and expires_at <= (select clock_timestamp()) order by expires_at limit @limit offset @skip`)
	expiredReceived = expiredRows("received_events", `
select ctid as at from tasker.received_events where expires_at <= (select clock_timestamp()) order by expires_at limit @limit offset @skip`)
	expiredKeys = expiredRows("submission_keys", `
select ctid as at from tasker.submission_keys where expires_at <= (select clock_timestamp()) order by expires_at limit @limit offset @skip`)
	endedSessions = expiredRows("browser_sessions", `
select ctid as at from tasker.browser_sessions
where expires_at < (select clock_timestamp() - interval '1 day') order by expires_at limit @limit offset @skip`)
	oldActions = expiredRows("operator_actions", `
select ctid as at from tasker.operator_actions where at < (select clock_timestamp() - @ttl_ms::bigint * interval '1 ms')
order by operator_actions.at limit @limit offset @skip`)
)

// oldRates are the rows of rates that have had their time.
// Index: call_rates_at, task_rates_at, call_depths_at.
var oldRates = map[string]expired{"call_rates": oldRatesOf("call_rates"), "task_rates": oldRatesOf("task_rates"), "call_depths": oldRatesOf("call_depths")}

func oldRatesOf(table string) expired {
	return expiredRows(table, `
select r.ctid as at from unnest((select @grains::int[])) g(grain) cross join lateral (
    select ctid from tasker.`+table+` where grain = g.grain and at < (select clock_timestamp() - @ttl_ms::bigint * interval '1 ms') order by at limit @limit offset @skip) r
limit @limit`)
}

// Index: the primary keys.
var strayLogs, strayProgress = strayRowsOf("attempt_logs_default"), strayRowsOf("attempt_progress_default")

// strayRowsOf is for the rows of a table whose tasks are gone and were created before the cutoff.
func strayRowsOf(table string) expired {
	return expiredRows(table, `
select l.ctid as at from tasker.`+table+` l
where l.task_uuid < tasker.uuid_floor(now() - @ttl_ms::bigint * interval '1 ms')
  and (select true from tasker.tasks t where t.task_uuid = l.task_uuid limit 1) is null
order by l.task_uuid limit @limit offset @skip`)
}

// expired deletes a batch of old rows, or counts them.
type expired struct{ remove, count *stmt.Statement }

// expiredRows is for the rows of a table that a statement selects.
func expiredRows(table, old string) expired {
	return expired{pg.Compile(`
with old as materialized (` + old + ` for update skip locked)
delete from tasker.` + table + ` where ctid = any (array(select at from old))`),
		pg.Compile(`select count(*)::int from (` + old + `) old`)}
}

func (e expired) purge(ctx context.Context, db pg.Runner, limits pg.Args, dry bool) (int, error) {
	if dry {
		return stmt.One[int](ctx, db, e.count.With(limits))
	}
	return pg.Run(ctx, db, e.remove.With(limits))
}

const goneDaemon = ` where heartbeat_at < clock_timestamp() - @ttl_ms::bigint * interval '1 ms' limit @limit offset @skip`

// Index: workers_alive is of those that live; daemons of a week are few.
var (
	goneWorkers = expired{pg.Compile(`
with old as materialized (select ctid as at, worker_uuid from tasker.workers` + goneDaemon + ` for update skip locked),
     begun as (delete from tasker.begun_claims where worker in (select worker_uuid from old))
delete from tasker.workers where ctid = any (array(select at from old))`),
		pg.Compile(`select count(*)::int from (select from tasker.workers` + goneDaemon + `) w`)}
	goneProcessors = expiredRows("processors", `select ctid as at from tasker.processors`+goneDaemon)
)
