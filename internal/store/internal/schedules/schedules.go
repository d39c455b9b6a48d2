package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Calendar is the room of schedules. It is safe for concurrent use.
type Calendar struct {
	db       *pg.DB
	registry *registry.Memory
}

// New returns the room.
func New(db *pg.DB, r *registry.Memory) *Calendar { return &Calendar{db, r} }

// Errors of schedules.
var (
	// ErrScheduleExists: the namespace has a schedule of this name.
	ErrScheduleExists = errors.New("a schedule of this name exists")
	// ErrScheduleChanged: the schedule has been changed since it was read.
	ErrScheduleChanged = errors.New("the schedule has changed since it was read")
)

// Schedule creates tasks again and again.
type Schedule struct {
	UUID              uuid.UUID `sql:"schedule_uuid"`
	Namespace         string    // of the template, too
	Name              string
	Template, Version string
	Cron, TimeZone    string
	Context           json.RawMessage
	Priority          int
	Tags              []string
	CatchUp           schedule.CatchUp
	MaxCatchUp        int
	Overlap           schedule.Overlap
	Jitter            time.Duration `sql:"jitter_seconds,seconds"` // whole seconds
	// Retries of its tasks, as in a request; 0 and nil: the template's.
	MaxAttempts int
	RetryDelays []time.Duration `sql:"-"`
	// Its state, ignored in definitions.
	PausedAt              *time.Time // nil: not paused
	PausedBy, PauseReason *string
	NextRunAt             time.Time
	LastRunAt             *time.Time // the scheduled time of the last run
	LastTask              *uuid.UUID `sql:"last_task_uuid"`
	LastError             *string    // why the last due run created no task
	CreatedAt, UpdatedAt  time.Time
	Revision              int       // rises with each change of its definition
	ReadAt                time.Time // by the database's clock
}

// Policy is the schedule's policy for missed runs and for tasks that are alive.
func (s *Schedule) Policy() schedule.Policy {
	return schedule.Policy{CatchUp: s.CatchUp, MaxCatchUp: s.MaxCatchUp, Overlap: s.Overlap}
}

// scheduleColumns are those of scheduleRow, of s and its namespace n.
const scheduleColumns = `s.schedule_uuid, n.name as namespace, s.name, s.template, s.version, s.cron, s.time_zone, s.context, s.priority, s.tags,
       s.catch_up, s.max_catch_up, s.overlap, s.jitter_seconds, s.paused_at, s.paused_by, s.pause_reason, s.next_run_at, s.last_run_at,
       s.last_task_uuid, s.last_error, s.created_at, s.updated_at, s.revision, now() as read_at, coalesce(s.max_attempts, 0) as max_attempts,
       s.retry_delays_ms`

type scheduleRow struct {
	Schedule
	RetryDelaysMs []int64
}

func (r *scheduleRow) schedule() Schedule {
	s := r.Schedule
	for _, ms := range r.RetryDelaysMs {
		s.RetryDelays = append(s.RetryDelays, time.Duration(ms)*time.Millisecond)
	}
	return s
}

// oneSchedule runs a statement that returns scheduleColumns of one schedule; the error is
// ErrNotFound without one.
func oneSchedule(ctx context.Context, db stmt.Querier, c stmt.Call) (Schedule, error) {
	row, err := pg.OneOf[scheduleRow](ctx, db, c)
	return row.schedule(), err
}

// changedSchedule is the row that a change returns.
const changedSchedule = `
select ` + scheduleColumns + ` from changed s join tasker.namespaces n using (namespace_id)`

// Changes of one schedule.
// Index: the primary key; the unique name of the namespace, and within it.
var (
	insertSchedule = pg.Compile(`
with changed as (
    insert into tasker.schedules (namespace_id, name, template, version, cron, time_zone, context, priority, tags, catch_up, max_catch_up,
                                  overlap, jitter_seconds, next_run_at, max_attempts, retry_delays_ms)
    select namespace_id, @name::text, @template::text, @version::text, @cron::text, @time_zone::text, @context::jsonb, @priority::smallint, @tags::text[], @catch_up::smallint, @max_catch_up::int,
           @overlap::smallint, @jitter_seconds::int, @next_run_at::timestamptz, nullif(@max_attempts::int, 0), @retry_delays_ms::bigint[]
    from tasker.namespaces where name = @namespace
    on conflict (namespace_id, name) do nothing returning *
)` + changedSchedule)
	updateSchedule = pg.Compile(`
with changed as (
    update tasker.schedules set template = @template, version = @version, cron = @cron, time_zone = @time_zone, context = @context::jsonb, priority = @priority, tags = @tags,
        catch_up = @catch_up, max_catch_up = @max_catch_up, overlap = @overlap, jitter_seconds = @jitter_seconds, next_run_at = coalesce(@next_run_at::timestamptz, next_run_at),
        max_attempts = nullif(@max_attempts::int, 0), retry_delays_ms = @retry_delays_ms::bigint[],
        revision = revision + 1, updated_at = now()
    where schedule_uuid = @schedule and revision = @revision returning *
)` + changedSchedule)
	pauseSchedule = pg.Compile(`
with changed as (
    update tasker.schedules set paused_at = coalesce(paused_at, now()), paused_by = @actor, pause_reason = @reason
    where schedule_uuid = @schedule returning *
)` + changedSchedule)
	resumeSchedule = pg.Compile(`
with changed as (
    update tasker.schedules set paused_at = null, paused_by = null, pause_reason = null, next_run_at = @next_run_at
    where schedule_uuid = @schedule returning *
)` + changedSchedule)
	deleteSchedule = pg.Compile(`
with changed as (delete from tasker.schedules where schedule_uuid = @schedule returning *)` + changedSchedule)
	lockSchedule = pg.Compile(`
with changed as (select * from tasker.schedules where schedule_uuid = @schedule for update)` + changedSchedule)
)

// definition returns the arguments of insertSchedule and updateSchedule.
func (s *Schedule) definition(next *time.Time) pg.Args {
	var delays []int64 // null where there are none
	for _, d := range s.RetryDelays {
		delays = append(delays, stmt.Millis(d))
	}
	return pg.Args{"template": s.Template, "version": s.Version, "cron": s.Cron, "time_zone": s.TimeZone, "context": string(s.Context),
		"priority": s.Priority, "tags": pg.NonNil(s.Tags), "catch_up": int16(s.CatchUp), "max_catch_up": s.MaxCatchUp,
		"overlap": int16(s.Overlap), "jitter_seconds": int(s.Jitter / time.Second), "next_run_at": next,
		"max_attempts": s.MaxAttempts, "retry_delays_ms": delays}
}

var scheduleClock = pg.Compile(`select now() as now, exists (select from tasker.namespaces where name = @namespace) as known`)

// changeSchedule runs a change of one schedule together with its record, and
// has every timer look again. A dry one is undone.
func (s *Calendar) changeSchedule(ctx context.Context, flow, doing string, by pg.OperatorAction,
	change func(ctx context.Context, tx pgx.Tx) (Schedule, error)) (Schedule, []signal.Signal, error) {
	return pg.Recorded(ctx, s.db, flow, doing, by, signal.TopicDue, func(ctx context.Context, tx pgx.Tx) (Schedule, map[string]any, error) {
		sched, err := change(ctx, tx)
		return sched, sched.target(), err
	})
}

// target names the schedule in records.
func (s *Schedule) target() map[string]any {
	return map[string]any{"schedule_id": s.UUID, "namespace": s.Namespace, "name": s.Name}
}

// CreateSchedule stores a new schedule and records the operator. first computes its first
// run from the database's clock. The signals, here and below, are to publish, unless the
// store sends them itself. A dry run, here and in UpdateSchedule, changes nothing. The
// error wraps ErrScheduleExists, or ErrNotFound if the namespace does not exist.
func (s *Calendar) CreateSchedule(ctx context.Context, def Schedule, by pg.OperatorAction, first func(now time.Time) time.Time) (Schedule, []signal.Signal, error) {
	return s.changeSchedule(ctx, "create_schedule", "create the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		type clock struct {
			Now   time.Time
			Known bool
		}
		at, err := stmt.One[clock](ctx, tx, scheduleClock.With(pg.Args{"namespace": def.Namespace}))
		if err != nil {
			return def, err
		}
		if !at.Known {
			return def, pg.ErrNotFound
		}
		next := first(at.Now)
		made, err := oneSchedule(ctx, tx, insertSchedule.With(def.definition(&next).And(pg.Args{"namespace": def.Namespace, "name": def.Name})))
		if errors.Is(err, pg.ErrNotFound) {
			err = ErrScheduleExists
		}
		return made, err
	})
}

// UpdateSchedule changes the definition of a schedule, if it is unchanged since it was
// read; next computes its next run from the database's clock, nil: as before. The error
// wraps ErrScheduleChanged or ErrNotFound.
func (s *Calendar) UpdateSchedule(ctx context.Context, def Schedule, by pg.OperatorAction, next func(now time.Time) time.Time) (Schedule, []signal.Signal, error) {
	return s.changeSchedule(ctx, "update_schedule", "change the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		now, err := oneSchedule(ctx, tx, lockSchedule.With(pg.Args{"schedule": def.UUID}))
		if err != nil {
			return now, err
		}
		var at *time.Time
		if next != nil {
			t := next(now.ReadAt)
			at = &t
		}
		changed, err := oneSchedule(ctx, tx, updateSchedule.With(def.definition(at).And(pg.Args{"schedule": def.UUID, "revision": def.Revision})))
		if errors.Is(err, pg.ErrNotFound) {
			err = ErrScheduleChanged
		}
		return changed, err
	})
}

// PauseSchedule pauses a schedule. Pausing again changes actor and reason, not the time.
// The error, here and below, wraps ErrNotFound if the schedule does not exist.
func (s *Calendar) PauseSchedule(ctx context.Context, id uuid.UUID, by pg.OperatorAction) (Schedule, error) {
	sched, _, err := s.changeSchedule(ctx, "pause_schedule", "pause the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		return oneSchedule(ctx, tx, pauseSchedule.With(pg.Args{"schedule": id, "actor": by.Actor, "reason": by.Reason}))
	})
	return sched, err
}

// ResumeSchedule resumes a schedule; next computes its next run from its definition and
// the database's clock. A schedule that is not paused stays unchanged.
func (s *Calendar) ResumeSchedule(ctx context.Context, id uuid.UUID, by pg.OperatorAction, next func(s *Schedule) (time.Time, error)) (Schedule, []signal.Signal, error) {
	return s.changeSchedule(ctx, "resume_schedule", "resume the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		sched, err := oneSchedule(ctx, tx, lockSchedule.With(pg.Args{"schedule": id}))
		if err != nil || sched.PausedAt == nil {
			return sched, err
		}
		at, err := next(&sched)
		if err != nil {
			return sched, err
		}
		return oneSchedule(ctx, tx, resumeSchedule.With(pg.Args{"schedule": id, "next_run_at": at}))
	})
}

// DeleteSchedule deletes a schedule and returns it. Its tasks stay.
func (s *Calendar) DeleteSchedule(ctx context.Context, id uuid.UUID, by pg.OperatorAction) (Schedule, error) {
	sched, _, err := s.changeSchedule(ctx, "delete_schedule", "delete the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		return oneSchedule(ctx, tx, deleteSchedule.With(pg.Args{"schedule": id}))
	})
	return sched, err
}

// Index: the primary keys.
var readSchedule = pg.Compile(`
select ` + scheduleColumns + ` from tasker.schedules s join tasker.namespaces n using (namespace_id) where s.schedule_uuid = @schedule`)

// Schedule reads one schedule; the error wraps ErrNotFound if it does not exist.
func (s *Calendar) Schedule(ctx context.Context, id uuid.UUID) (Schedule, error) {
	row, err := pg.ReadOne[scheduleRow](ctx, s.db, "schedule", "read the schedule", readSchedule.With(pg.Args{"schedule": id}))
	return row.schedule(), err
}

// ScheduleFilter selects schedules for a list; zero values select everything.
type ScheduleFilter struct {
	Namespace, Name, Template string
	Paused                    *bool
	Limit                     int // 1–1,000
	Offset                    int
}

// SchedulePage is one page of a list, by namespace and name.
type SchedulePage struct {
	Schedules []Schedule
	Total     int // up to CountLimit
}

// selectedSchedules is shared by the page and its count.
// Index: the unique name of the namespace, and within it.
const selectedSchedules = `
from tasker.schedules s join tasker.namespaces n using (namespace_id)
where (@namespace = '' or n.name = @namespace) and (@name = '' or s.name = @name) and (@template = '' or s.template = @template)
      and (@paused::boolean is null or (s.paused_at is not null) = @paused)`

var (
	listSchedules  = pg.Compile(`select ` + scheduleColumns + selectedSchedules + ` order by n.name, s.name limit @limit offset @offset`)
	countSchedules = pg.Compile(`select count(*) from (select 1 ` + selectedSchedules + ` limit @limit) c`)
)

// Schedules lists schedules by namespace and name.
func (s *Calendar) Schedules(ctx context.Context, f ScheduleFilter) (page SchedulePage, err error) {
	err = s.db.Repeatable(ctx, "schedules", "list the schedules", func(ctx context.Context, db *pg.Conn) error {
		page.Schedules = []Schedule{}
		filter := pg.Args{"namespace": f.Namespace, "name": f.Name, "template": f.Template, "paused": f.Paused}
		b := &pgx.Batch{}
		b.Queue(pg.PlanForValues)
		listSchedules.With(filter.And(pg.Args{"limit": f.Limit, "offset": f.Offset})).Queue(b).Query(stmt.Rows(func(row *scheduleRow) {
			page.Schedules = append(page.Schedules, row.schedule())
		}))
		countSchedules.With(filter.And(pg.Args{"limit": pg.CountLimit})).Queue(b).Query(stmt.Row(&page.Total))
		return db.SendBatch(ctx, b).Close()
	})
	return page, err
}

// DueSchedule is a due schedule, locked until the transaction ends.
type DueSchedule struct {
	Schedule
	// Plan is the current one of its template version; nil: none.
	Plan *registry.Plan
	// Broken says why the existing plan cannot be used.
	Broken error
	// Alive says that the task of its last run is alive. It is read only for schedules
	// whose policy depends on it.
	Alive bool
}

// Firing is the decision about a due schedule. The zero value leaves it unchanged.
type Firing struct {
	Tasks []board.NewTask // in the order of their runs; each with an identity
	Runs  []time.Time     // what each of the tasks is for
	// NextRun is its next due time; zero: as before.
	NextRun time.Time
	// Error is stored as Schedule.LastError; empty: cleared.
	Error string
	// Pause pauses the schedule for this reason, because it cannot continue.
	Pause string
}

// Fired is the result of running due schedules.
type Fired struct {
	Schedules int
	// Refused are the schedules whose runs a quota rejects: they stay due.
	Refused []uuid.UUID
	// Accepted are the created tasks; the others exist already from the same run, or are refused.
	Accepted board.AcceptedTasks
	Signals  []signal.Signal // to publish, unless the store sends them itself
}

// pausedByItself is the recorded actor for a schedule that could not continue.
const pausedByItself = "tasker"

var (
	// claimDueSchedules locks due schedules by the transaction's clock. Concurrent calls
	// skip them, and find them advanced later.
	// Index: schedules_due.
	claimDueSchedules = pg.Compile(`
select schedule_uuid ` + firstDue + ` for update skip locked`)
	// dueSchedules are those that claimDueSchedules would take.
	// Index: schedules_due.
	dueSchedules = pg.Compile(`select schedule_uuid ` + firstDue)
	// claimSchedule locks one, due or not, and waits for its lock.
	// Index: the primary key.
	claimSchedule = pg.Compile(`select schedule_uuid from tasker.schedules where schedule_uuid = @schedule for update`)
	// describeDue reads the inputs of the decision about locked schedules. Its snapshot is younger
	// than the locks: it sees the task of a run whose transaction they have waited for.
	// Index: the primary keys, those of registry.PlanForUse.
	describeDue = pg.Compile(`
select ` + scheduleColumns + `, coalesce(p.plan_id, 0) as plan_id,
       s.overlap = {overlap_skip} and exists (select from tasker.board b where b.task_uuid = any (array[s.last_task_uuid]) and b.slot = 0) as alive
from unnest((select @schedules::uuid[])) d(id)
cross join lateral (select * from tasker.schedules where schedule_uuid = d.id limit 1) s
cross join lateral (select name from tasker.namespaces where namespace_id = s.namespace_id offset 0) n
left join lateral (
    select plan_id from ` + registry.PlanForUse("s.namespace_id", "s.template", "s.version") + `) p on true
order by s.next_run_at`)
	// advanceSchedules advances schedules. The task of a run is the one with its
	// identity: the new one, or that of the first try.
	// Index: the primary keys.
	advanceSchedules = pg.Compile(`
update tasker.schedules s
set next_run_at = coalesce(f.next_run_at, s.next_run_at), last_run_at = coalesce(f.last_run_at, s.last_run_at),
    last_task_uuid = coalesce((select i.task_uuid from tasker.task_identities i where i.identity = any (array[f.identity]) limit 1), s.last_task_uuid),
    last_error = f.error, paused_at = case when f.pause is null then s.paused_at else now() end,
    paused_by = case when f.pause is null then s.paused_by else '` + pausedByItself + `' end, pause_reason = coalesce(f.pause, s.pause_reason)
from ` + stmt.List[advance]("f") + `
where s.schedule_uuid = any (array[f.schedule_uuid])`)
)

// firstDue are the schedules that have been due for longest.
var firstDue = `from tasker.schedules
where paused_at is null and next_run_at <= now() and ` + pg.InRows("schedule_uuid") + ` order by next_run_at limit @limit`

// DueSchedules returns the schedules that RunDueSchedules would take.
func (s *Calendar) DueSchedules(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	return pg.ReadAll[uuid.UUID](ctx, s.db, "due_schedules", "list the due schedules", dueSchedules.With(rows.Args()))
}

// advance is what a run changes of its schedule; zero values leave it unchanged, or clear
// the error.
type advance struct {
	ScheduleUUID uuid.UUID
	NextRunAt    time.Time `sql:",omitzero"`
	LastRunAt    time.Time `sql:",omitzero"`
	Identity     []byte    // of the task; nil: none was created
	Error        string    `sql:",omitzero"`
	Pause        string    `sql:",omitzero"`
}

// RunDueSchedules takes due schedules, which are the keys of the rows, calls decide, creates
// their tasks and advances them, in one transaction of a fixed number of statements: a
// run is made once, or not yet. now is the database's clock. decide returns one answer
// per schedule, in order; it may be called again if the transaction is rolled back
// because of a conflict.
func (s *Calendar) RunDueSchedules(ctx context.Context, rows pg.Rows, decide func(now time.Time, due []DueSchedule) []Firing) (Fired, error) {
	return s.runSchedules(ctx, "run_schedules", "run the due schedules", claimDueSchedules.With(rows.Args()), nil,
		func(due []DueSchedule) ([]Firing, error) { return decide(due[0].ReadAt, due), nil })
}

// RunSchedule is RunDueSchedules for one schedule, at any time and even if it is paused,
// and records the operator. If decide returns an error, nothing is changed. The error
// wraps that, or ErrNotFound if the schedule does not exist.
func (s *Calendar) RunSchedule(ctx context.Context, id uuid.UUID, by pg.OperatorAction, decide func(now time.Time, due *DueSchedule) (Firing, error)) (Fired, error) {
	fired, err := s.runSchedules(ctx, "run_schedule", "run the schedule", claimSchedule.With(pg.Args{"schedule": id}), &by,
		func(due []DueSchedule) ([]Firing, error) {
			f, err := decide(due[0].ReadAt, &due[0])
			return []Firing{f}, err
		})
	if err == nil && fired.Schedules == 0 {
		err = fmt.Errorf("run the schedule: %w", pg.ErrNotFound)
	}
	return fired, err
}

func (s *Calendar) runSchedules(ctx context.Context, flow, doing string, claim stmt.Call, by *pg.OperatorAction,
	decide func(due []DueSchedule) ([]Firing, error)) (Fired, error) {
	return pg.Change(ctx, s.db, flow, doing, func(ctx context.Context, tx pgx.Tx) (fired Fired, _ []signal.Signal, err error) {
		due, err := s.takeSchedules(ctx, tx, claim)
		if err != nil || len(due) == 0 {
			return fired, nil, err
		}
		firings, err := decide(due)
		if err != nil {
			return fired, nil, err
		}
		if fired, err = s.fire(ctx, tx, due, firings); err == nil && by != nil {
			action := *by
			action.Target = due[0].target()
			action.Matched, action.Changed = 1, len(fired.Accepted)
			err = pg.InsertAction(ctx, tx, action)
		}
		return fired, fired.Signals, err
	})
}

// takeSchedules locks schedules and reads them with their plans.
func (s *Calendar) takeSchedules(ctx context.Context, tx pgx.Tx, claim stmt.Call) (due []DueSchedule, err error) {
	locked, err := stmt.All[[16]byte](ctx, tx, claim)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	type row struct {
		scheduleRow
		PlanID int32 // 0: the plan does not exist any more
		Alive  bool
	}
	var ids []int32
	err = stmt.Each(ctx, tx, describeDue.With(pg.Args{"schedules": locked}), func(r *row) {
		due, ids = append(due, DueSchedule{Schedule: r.schedule(), Alive: r.Alive}), append(ids, r.PlanID)
	})
	if err != nil {
		return nil, err
	}
	plans, err := s.registry.PlansOn(ctx, tx, ids)
	for i, id := range ids {
		due[i].Plan, due[i].Broken = plans.Usable[id], plans.Broken[id]
	}
	return due, err
}

// fire creates the tasks and moves the schedules on.
func (s *Calendar) fire(ctx context.Context, tx pgx.Tx, due []DueSchedule, firings []Firing) (Fired, error) {
	if len(firings) != len(due) {
		return Fired{}, fmt.Errorf("decided about %d of %d schedules", len(firings), len(due))
	}
	fired := Fired{Schedules: len(due), Accepted: board.AcceptedTasks{}}
	var tasks []board.NewTask
	for i := range firings {
		tasks = append(tasks, firings[i].Tasks...)
	}
	if len(tasks) > 0 {
		b := &pgx.Batch{}
		var create stmt.Call
		create, fired.Signals = board.Creation(tasks, board.DistinctIdentities(tasks), nil)
		fired.Signals = s.db.WithTransitions(fired.Signals)
		create.Queue(b).Query(fired.Accepted.Collect)
		board.Relate(b, tasks, nil)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fired, err
		}
	}
	moved := make([]advance, len(due))
	for i := range firings {
		if firings[i].refused(fired.Accepted) {
			fired.Refused = append(fired.Refused, due[i].UUID)
		}
		moved[i] = firings[i].advance(due[i].UUID)
	}
	_, err := pg.Run(ctx, tx, advanceSchedules.With(pg.Args{"f": moved}))
	return fired, err
}

// quotaRefuses is the error of a schedule that waits for a place.
const quotaRefuses = "a run waits: the quota of the namespace is used up"

// refused reports whether a quota has rejected runs. The schedule stays due from the first of them on.
func (f *Firing) refused(accepted board.AcceptedTasks) bool {
	at := slices.IndexFunc(f.Tasks, func(t board.NewTask) bool { return accepted[t.UUID].RefusedFor > 0 })
	if at < 0 {
		return false
	}
	f.Error, f.Pause, f.NextRun = quotaRefuses, "", f.Runs[at]
	f.Tasks, f.Runs = f.Tasks[:at], f.Runs[:at]
	return true
}

func (f *Firing) advance(schedule uuid.UUID) advance {
	a := advance{ScheduleUUID: schedule, NextRunAt: f.NextRun, Error: f.Error, Pause: f.Pause}
	if n := len(f.Tasks); n > 0 {
		a.LastRunAt = f.Runs[n-1]
		if f.Tasks[n-1].Identity != nil {
			a.Identity = f.Tasks[n-1].Identity[:]
		}
	}
	return a
}
