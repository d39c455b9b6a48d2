package operations

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// StaleThresholds bound the time of a task in a state, and its age; 0: unbounded. A
// template's lifecycle takes precedence.
type StaleThresholds struct {
	WaitingForDependencies time.Duration
	WaitingForRetry        time.Duration
	// StepsInProcess counts from the last step that ended. A task with a running step
	// whose lease is extended has only the limit of its template: handlers may take
	// hours.
	StepsInProcess time.Duration
	MaxLifetime    time.Duration // since the task was requested, or was to start
	// Checkpoint is the age at which the latest checkpoint of a running step is stale; a
	// step without one has no such limit. It is only shown: the lease shows that the
	// handler is alive.
	Checkpoint time.Duration
}

// The details of a staleness, besides the names of states.
const (
	StaleMaxLifetime = "max_lifetime"
	staleCheckpoint  = "checkpoint" // in the monitor only
)

// staleWalk is how many tasks one look passes over at most.
const staleWalk = 10_000

// judgedTasks measures living tasks against their thresholds, oldest first. Task UUIDs
// are of version 7, so the primary key is ordered by age, and tasks younger than the
// least threshold are not read. The parts are materialized so that they are computed
// once.
//
// The state is the shown one: a claimed first step, and a retry that has come due, are in
// process. For tasks whose steps have their own rows that is known after the first
// decision. Thresholds are in ms, null without one; part is the part of the least one from
// which tasks are read.
// Index: the primary keys, plans_lifecycle.
const judgedTasks = `
with walked as materialized (` + walkedTasks + ` and task_uuid > @after::uuid and task_uuid < (
        select tasker.uuid_floor(now() - interval '1 ms' * @part::float8 * least(@for_dependencies_ms::bigint, @for_retry_ms::bigint, @in_process_ms::bigint, @lifetime_ms::bigint, (
            select 60000 * min(least(nullif((lifecycle ->> 'max_waiting_for_dependencies_minutes')::bigint, 0),
                                     nullif((lifecycle ->> 'max_waiting_for_retry_minutes')::bigint, 0),
                                     nullif((lifecycle ->> 'max_steps_in_process_minutes')::bigint, 0),
                                     nullif((lifecycle ->> 'max_duration_minutes')::bigint, 0)))
            from tasker.plans where lifecycle is not null))))
    order by task_uuid limit @walk
)` + judgement

const (
	walkedTasks = `
    select task_uuid, plan_id, queue, priority, task_state, state, requested_at, state_since, updated_at, enqueued_at, claimed_at,
           coalesce(dead_letter, false) as dead_letter
    from tasker.board where slot = 0`
	judgement = `, shown as materialized (
    select *, case when task_state = {task_pending} and state >= {in_progress} or task_state = {task_waiting_for_retry} and state >= {claimable} then {task_in_process} else task_state end as shown
    from walked
), timed as materialized (
    select s.*, p.name,
           60000 * nullif((p.lifecycle ->> 'max_waiting_for_dependencies_minutes')::bigint, 0) as own_dependencies,
           60000 * nullif((p.lifecycle ->> 'max_waiting_for_retry_minutes')::bigint, 0) as own_retry,
           60000 * nullif((p.lifecycle ->> 'max_steps_in_process_minutes')::bigint, 0) as own_process,
           60000 * nullif((p.lifecycle ->> 'max_duration_minutes')::bigint, 0) as own_lifetime,
           (extract(epoch from now() - s.requested_at) * 1000)::bigint as age,
           (extract(epoch from now() - case when s.shown = s.task_state and s.shown = {task_in_process} then greatest(s.state_since, s.updated_at, s.requested_at)
                                            when s.shown = s.task_state then coalesce(s.state_since, s.requested_at)
                                            else coalesce(s.claimed_at, s.enqueued_at, s.requested_at) end) * 1000)::bigint as in_state
    from shown s
    cross join lateral (select name, lifecycle from tasker.plans where plan_id = any (array[s.plan_id]) limit 1) p
), limited as materialized (
    select t.*, case t.shown when {task_waiting_for_dependencies} then coalesce(t.own_dependencies, @for_dependencies_ms::bigint)
                    when {task_waiting_for_retry} then case when t.own_retry is not null then t.own_retry
                                     when t.in_state * 10 >= @for_retry_ms::bigint * 8 and ` + runsStep + ` then null else @for_retry_ms::bigint end
                    when {task_in_process} then case when t.own_process is not null then t.own_process
                                     when t.in_state * 10 >= @in_process_ms::bigint * 8 and ` + runsStep + ` then null else @in_process_ms::bigint end
                end as threshold,
           -- -- a delayed start in the future does not count
           case when t.task_state <> {task_pending} or t.state <> {scheduled} then coalesce(t.own_lifetime, case when not ` + waitsForLong + ` then @lifetime_ms::bigint end) end as lifetime
    from timed t
), judged as materialized (
    select l.*, case when l.age * 10 >= l.lifetime * 8 then (extract(epoch from now() - coalesce(
                    (select start_at from tasker.tasks where task_uuid = l.task_uuid), l.requested_at)) * 1000)::bigint else l.age end as lived
    from limited l
)`
	// exceeds is whether a judged task j is stale.
	exceeds = `not j.dead_letter and (j.in_state >= j.threshold or j.lived >= j.lifetime)`
)

// runsStep is whether a task t has a step that runs, or that waits on purpose.
const runsStep = `(t.state = {in_progress} or t.state = {no_step} and exists (
    select from tasker.board where task_uuid = t.task_uuid and slot > 0 and (lease_until is not null or wait is not null)))`

// waitsForLong is whether a task t that is old for its default lifetime has a
// step that waits: how long is for its template to say.
const waitsForLong = `(t.state = {no_step} and t.age * 10 >= @lifetime_ms::bigint * 8 and exists (
    select from tasker.board where task_uuid = t.task_uuid and slot > 0 and wait is not null))`

// staleTasks selects those that exceed a threshold and have no open dead letter; a last
// row says how far the look came.
var staleTasks = pg.Compile(judgedTasks + `
(select j.task_uuid, j.shown as state, case when j.in_state >= j.threshold then tasker.task_state_name(j.shown) else '` + StaleMaxLifetime + `' end as reason,
        j.in_state / 60000 as minutes_in_state, j.lived / 60000 as minutes_old,
        case when j.in_state >= j.threshold then j.threshold else j.lifetime end / 60000 as threshold_minutes,
        n.name as namespace, j.name, 0 as walked
 from judged j
 cross join lateral (select name from tasker.namespaces where namespace_id = any (array[j.queue]) limit 1) n
 where ` + exceeds + `
 order by j.task_uuid limit @limit)
union all
(select task_uuid, 0, '', 0, 0, 0, '', '', (select count(*) from walked)::int from walked order by task_uuid desc limit 1)`)

// stillStale are those of some tasks that exceed a threshold.
// Index: the primary keys.
var stillStale = pg.Compile(`
with walked as materialized (` + walkedTasks + ` and task_uuid = any ((select @tasks::uuid[])::uuid[])
)` + judgement + ` select j.task_uuid from judged j where ` + exceeds)

// warningPart is the part of a threshold from which the state is a warning.
const warningPart = `0.8`

// stalenessMonitor shows how near tasks are to their nearest threshold.
var stalenessMonitor = pg.Compile(judgedTasks + `
select j.task_uuid, n.name as namespace, j.name, j.shown as state,
       case when j.in_state::float8 / j.threshold >= j.part then tasker.task_state_name(j.shown) else '` + StaleMaxLifetime + `' end as detail,
       j.in_state / 60000 as minutes_in_state, j.lived / 60000 as minutes_old,
       case when j.in_state::float8 / j.threshold >= j.part then j.threshold else j.lifetime end / 60000 as threshold_minutes,
       case when j.part >= 1 then 3 when j.part >= ` + warningPart + ` then 2 else 1 end as health, j.priority, j.part
from (select * from judged cross join lateral (
          select greatest(in_state::float8 / threshold, lived::float8 / lifetime) as part offset 0) p
      where part is not null order by part desc, task_uuid limit @limit) j
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[j.queue]) limit 1) n
order by j.part desc, j.task_uuid`)

func (th StaleThresholds) arguments(after uuid.UUID, limit int, part float64) pg.Args {
	return th.bounds().And(pg.Args{"after": after, "walk": staleWalk, "limit": limit, "part": part})
}

func (th StaleThresholds) bounds() pg.Args {
	ms := func(d time.Duration) *int64 {
		if d <= 0 {
			return nil
		}
		return new(max(d.Milliseconds(), 1))
	}
	return pg.Args{"for_dependencies_ms": ms(th.WaitingForDependencies), "for_retry_ms": ms(th.WaitingForRetry),
		"in_process_ms": ms(th.StepsInProcess), "lifetime_ms": ms(th.MaxLifetime)}
}

// StaleTask is a task that is past a threshold.
type StaleTask struct {
	UUID             uuid.UUID          `sql:"task_uuid"`
	State            workflow.TaskState // as shown
	Reason           string             // which threshold: the name of a state, StaleMaxLifetime
	MinutesInState   int
	MinutesOld       int // since it was requested, or was to start
	ThresholdMinutes int
	Namespace, Name  string

	by StaleThresholds `sql:"-"` // it was found by
}

// StaleTasks lists up to limit tasks that exceed a threshold and have no open dead
// letter. One call reads at most 10,000 tasks: next is where to continue, uuid.Nil at the
// end.
func (s *Operations) StaleTasks(ctx context.Context, th StaleThresholds, after uuid.UUID, limit int) (stale []StaleTask, next uuid.UUID, err error) {
	err = s.db.Repeatable(ctx, "stale_tasks", "look for stale tasks", func(ctx context.Context, db *pg.Conn) error {
		type row struct {
			StaleTask
			Walked int
		}
		stale, next = nil, uuid.Nil
		return stmt.Each(ctx, db, staleTasks.With(th.arguments(after, limit, 1)), func(r *row) {
			switch {
			case r.State != 0:
				r.by = th
				stale = append(stale, r.StaleTask)
			case r.Walked >= staleWalk:
				next = r.UUID
			}
		})
	})
	if len(stale) >= limit { // the remaining tasks are still to be read
		next = stale[0].UUID
		for i := range stale {
			if bytes.Compare(stale[i].UUID[:], next[:]) > 0 {
				next = stale[i].UUID
			}
		}
	}
	return stale, next, err
}

// StillStale leaves out the taken tasks that have moved on since they were found stale, all by
// the same thresholds.
func (s *Operations) StillStale(ctx context.Context, taken *board.Taken, found []StaleTask) error {
	return taken.Keep(ctx, "look at stale tasks again", func(tasks pg.UUIDs) stmt.Call {
		return stillStale.With(found[0].by.bounds().And(pg.Args{"tasks": tasks}))
	})
}

// StalenessHealth is how near a task is to its threshold.
type StalenessHealth int16

// The healths: below 80 % of the threshold, below it, and past it.
const (
	StalenessHealthy StalenessHealth = iota + 1
	StalenessWarning
	StalenessStale
)

// String is the name used in JSON.
func (h StalenessHealth) String() string {
	switch h {
	case StalenessStale:
		return "stale"
	case StalenessWarning:
		return "warning"
	default:
		return "healthy"
	}
}

// StalenessEntry is a living task with its nearest threshold.
type StalenessEntry struct {
	TaskUUID         uuid.UUID
	Namespace, Name  string
	State            workflow.TaskState // as shown
	Detail           string             // which threshold: the name of a state, StaleMaxLifetime
	MinutesInState   int                // or since the last checkpoint, if that is the threshold
	MinutesOld       int
	ThresholdMinutes int
	Health           StalenessHealth
	Priority         int
	Part             float64 // of the threshold that has passed; 1: all of it
}

// StalenessMonitor lists up to limit of the 10,000 oldest living tasks, stale ones first,
// then those nearest to a threshold. Tasks without a threshold are excluded. Those whose
// steps have not saved a checkpoint for long are included at any age.
func (s *Operations) StalenessMonitor(ctx context.Context, th StaleThresholds, limit int) (list []StalenessEntry, err error) {
	err = s.db.Repeatable(ctx, "staleness_monitor", "measure the staleness of tasks", func(ctx context.Context, db *pg.Conn) error {
		list, err = stmt.All[StalenessEntry](ctx, db, stalenessMonitor.With(th.arguments(uuid.Nil, limit, 0)))
		if err != nil || th.Checkpoint <= 0 {
			return err
		}
		warned := pg.Args{"since_ms": (th.Checkpoint * 4 / 5).Milliseconds(), "limit": limit} // from a warning on
		stalled, err := stmt.All[StalledStep](ctx, db, stalledSteps.With(warned))
		list = withStalled(list, stalled, th.Checkpoint, limit)
		return err
	})
	return list, err
}

// withStalled adds the tasks of stalled steps, each once, with its nearest threshold.
func withStalled(list []StalenessEntry, stalled []StalledStep, threshold time.Duration, limit int) []StalenessEntry {
	known := make(map[uuid.UUID]int, len(list))
	for i := range list {
		known[list[i].TaskUUID] = i
	}
	for i := range stalled {
		e := stalled[i].entry(threshold)
		at, twice := known[e.TaskUUID]
		switch {
		case !twice:
			known[e.TaskUUID] = len(list)
			list = append(list, e)
		case list[at].Part < e.Part:
			list[at] = e
		}
	}
	slices.SortStableFunc(list, func(a, b StalenessEntry) int { return cmp.Compare(b.Part, a.Part) })
	return list[:min(len(list), limit)]
}

// entry is a stalled step as the monitor shows its task.
func (x *StalledStep) entry(threshold time.Duration) StalenessEntry {
	e := StalenessEntry{TaskUUID: x.TaskUUID, Namespace: x.Namespace, Name: x.Name, State: workflow.TaskStepsInProcess, Detail: staleCheckpoint,
		MinutesInState: x.MinutesSince, MinutesOld: x.MinutesOld, ThresholdMinutes: int(threshold / time.Minute), Health: StalenessWarning,
		Priority: x.Priority, Part: x.SecondsSince / threshold.Seconds()}
	if e.Part >= 1 {
		e.Health = StalenessStale
	}
	return e
}

// pastDeadline lists tasks that have not begun and whose deadline has passed, and those of
// queues that wait again. Other tasks lose their deadline with their first decision.
// Index: board_deadline.
var pastDeadline = pg.Compile(waitsTooLong + ` order by t.deadline limit @limit`)

// stillPastDeadline are those of some tasks.
// Index: the primary key.
var stillPastDeadline = pg.Compile(waitsTooLong + ` and t.slot = 0 and t.task_uuid = any ((select @tasks::uuid[])::uuid[])`)

const waitsTooLong = `
select t.task_uuid from tasker.board t
where t.deadline is not null and t.deadline <= (select clock_timestamp()) and t.token is null
  and (t.task_state = {task_pending} or t.plan_id = any (array(select plan_id from tasker.plans where name = '` + plainqueue.Template + `')))
  and not exists (select from tasker.board where task_uuid = t.task_uuid and slot > 0 and token is not null)`

// PastDeadline lists up to limit tasks that still wait although their deadline
// has passed, the longest past first.
func (s *Operations) PastDeadline(ctx context.Context, limit int) ([]uuid.UUID, error) {
	return pg.ReadAll[uuid.UUID](ctx, s.db, "past_deadline", "look for tasks past their deadline", pastDeadline.With(pg.Args{"limit": limit}))
}

// StillPastDeadline leaves out the taken tasks that have begun since they were found.
func (s *Operations) StillPastDeadline(ctx context.Context, taken *board.Taken) error {
	return taken.Keep(ctx, "look at tasks past their deadline again", func(tasks pg.UUIDs) stmt.Call {
		return stillPastDeadline.With(pg.Args{"tasks": tasks})
	})
}

// StalledStep is a running step whose last checkpoint is old.
type StalledStep struct {
	TaskUUID              uuid.UUID
	Step                  int
	Namespace, Name       string // of the template
	StepName              string
	Items                 int64 // processed, by the checkpoint
	MinutesSince          int   // the checkpoint
	MinutesOld            int   // since the task was requested
	Priority              int
	SecondsSince          float64
	CheckpointAt, Claimed time.Time
}

// stalledSteps lists running steps with old checkpoints, oldest first. An ended lease is left to its sweep; running steps without a checkpoint
// are not included.
// Index: board_leases, from now on, then the primary keys.
var stalledSteps = pg.Compile(`
with stalled as materialized (
    select s.task_uuid, s.step_no, s.claimed_at, (s.checkpoint ->> 'items_processed')::bigint as items, (s.checkpoint ->> 'timestamp')::timestamptz as at
    from tasker.board s
    where s.state = {in_progress} and s.lease_until > (select clock_timestamp()) and s.checkpoint is not null
      and (s.checkpoint ->> 'timestamp')::timestamptz < (select clock_timestamp() - @since_ms::bigint * interval '1 ms')
    order by at, task_uuid limit @limit
)
select x.task_uuid, x.step_no as step, n.name as namespace, p.name, p.steps[x.step_no + 1] as step_name, x.items,
       floor(a.since / 60)::int as minutes_since, (extract(epoch from now() - t.requested_at) / 60)::int as minutes_old,
       t.priority, a.since as seconds_since, x.at as checkpoint_at, x.claimed_at as claimed
from stalled x
cross join lateral (select plan_id, queue, requested_at, priority from tasker.board where task_uuid = x.task_uuid and slot = 0 limit 1) t
cross join lateral (select name, steps from tasker.plans where plan_id = any (array[t.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[t.queue]) limit 1) n
cross join lateral (select extract(epoch from clock_timestamp() - x.at)::float8 as since offset 0) a
order by x.at, x.task_uuid`)

// StalledSteps lists up to limit running steps that have saved checkpoints, and
// none for so long.
func (s *Operations) StalledSteps(ctx context.Context, since time.Duration, limit int) ([]StalledStep, error) {
	return pg.ReadAll[StalledStep](ctx, s.db, "stalled_steps", "look for stalled steps",
		stalledSteps.With(pg.Args{"since_ms": since.Milliseconds(), "limit": limit}))
}

// Operations is the room of operators and sweeps. It is safe for concurrent use.
type Operations struct {
	db     *pg.DB
	aging  aging // retention's memory of the ledger
	agreed atomic.Pointer[string]
}

// New returns the room.
func New(db *pg.DB) *Operations {
	s := &Operations{db: db}
	db.Remember(func() { s.aging.keep(nil) })
	return s
}

// takeSweep takes the lease of a sweep that is due, or requested now, and not running.
// The lease is in a row, so it works through a pooler in transaction mode and expires
// with its holder.
// Index: the primary key.
var takeSweep = pg.Compile(`
insert into tasker.sweeps as w (name, holder, next_at, lease_until, started_at, runs)
values (@name, @holder, clock_timestamp() + @interval_ms::bigint * interval '1 ms', clock_timestamp() + @lease_ms::bigint * interval '1 ms', clock_timestamp(), 1)
on conflict (name) do update
set holder = excluded.holder, next_at = excluded.next_at, lease_until = excluded.lease_until, started_at = excluded.started_at,
    finished_at = null, runs = w.runs + 1
where (w.next_at <= clock_timestamp() or @now) and (coalesce(w.lease_until <= clock_timestamp(), true) or @now and w.holder = excluded.holder)
returning true`)

// TakeSweep tries to become the holder of a sweep in the fleet. It succeeds if interval
// has passed since the last run began, or with now at once, unless another holder runs
// it: a holder whose EndSweep was lost may begin again. It holds it for at most lease, within which EndSweep should end it. The database's clock
// decides.
func (s *Operations) TakeSweep(ctx context.Context, name string, holder uuid.UUID, interval, lease time.Duration, now bool) (taken bool, err error) {
	err = s.db.Call(ctx, "take_sweep", "take the sweep", func(ctx context.Context, db *pg.Conn) error {
		n, err := pg.Run(ctx, db, takeSweep.With(pg.Args{"name": name, "holder": holder, "interval_ms": interval.Milliseconds(),
			"lease_ms": lease.Milliseconds(), "now": now}))
		taken = n > 0
		return err
	})
	return taken, err
}

var endSweep = pg.Compile(`
update tasker.sweeps set lease_until = null, finished_at = clock_timestamp(), result = @result
where name = @name and holder = @holder and lease_until is not null`)

// EndSweep ends a sweep with its result, as JSON. It does nothing if another holder has
// the lease.
func (s *Operations) EndSweep(ctx context.Context, name string, holder uuid.UUID, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result of the sweep: %w", err)
	}
	_, err = pg.Execute(ctx, s.db, "end_sweep", "end the sweep", endSweep.With(pg.Args{"name": name, "holder": holder, "result": string(text)}))
	return err
}

// SweepState is the state of a sweep.
type SweepState struct {
	Name       string
	Running    bool // by the database's clock
	Holder     uuid.UUID
	NextAt     time.Time // when it is due
	StartedAt  time.Time
	FinishedAt *time.Time // of the run that began at StartedAt; nil: not ended
	Runs       int64
	Result     json.RawMessage // of the last ended run; nil: none
}

var listSweeps = pg.Compile(`
select name, coalesce(lease_until > clock_timestamp(), false) as running, holder, next_at, started_at, finished_at, runs, result
from tasker.sweeps order by name limit 1000`)

// Sweeps lists all sweeps that ever ran, by name.
func (s *Operations) Sweeps(ctx context.Context) ([]SweepState, error) {
	return pg.ReadAll[SweepState](ctx, s.db, "sweeps", "list the sweeps", listSweeps.With(nil))
}

// RecordAction records an operator's action.
func (s *Operations) RecordAction(ctx context.Context, a pg.OperatorAction) error {
	return s.db.Call(ctx, "record_action", "record the operator's action", func(ctx context.Context, db *pg.Conn) error {
		return pg.InsertAction(ctx, db, a)
	})
}

// stuckSessions are those that hold one of the product's advisory locks (apply slots,
// claims and event positions) and wait for their client. The time-out of idle
// transactions ends most of them. It does not cover a client that stopped while it was
// sending a batch or reading rows: such a session is active, waits for the network, and
// only the time-out of the whole transaction applies. An active one gets twice the time:
// a slow statement may just be sending its rows. Sessions of other roles are not touched,
// since ending them may not be allowed.
var stuckSessions = pg.Compile(`
select a.pid, pg_terminate_backend(a.pid)
from (select distinct pid from pg_locks
      where locktype = 'advisory' and classid = @class::int::oid and granted
        and database = (select oid from pg_database where datname = current_database())) l
join pg_stat_activity a on a.pid = l.pid
where a.usename = current_user and a.pid <> pg_backend_pid() and a.wait_event_type = 'Client'
  and a.state_change < clock_timestamp() - @held_ms::bigint * interval '1 ms' * case when a.state = 'active' then 2 else 1 end`)

// EndStuck ends the sessions of frozen processes that hold needed locks, and returns
// their number. It reads the server's locks: call it after a lock wait, or every few
// seconds, not in a loop.
func (s *Operations) EndStuck(ctx context.Context) (ended int, err error) {
	return pg.Execute(ctx, s.db, "end_stuck", "end the sessions of frozen processes",
		stuckSessions.With(pg.Args{"held_ms": s.db.Opts.HoldTimeout.Milliseconds(), "class": int32(pg.TurnLock)}))
}
