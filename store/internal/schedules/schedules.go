package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tasker-go/tasker/store/internal/registry"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/stmt"
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
		delays = append(delays, pg.Millis(d))
	}
	return pg.Args{"template": s.Template, "version": s.Version, "cron": s.Cron, "time_zone": s.TimeZone, "context": string(s.Context),
		"priority": s.Priority, "tags": pg.NonNil(s.Tags), "catch_up": int16(s.CatchUp), "max_catch_up": s.MaxCatchUp,
		"overlap": int16(s.Overlap), "jitter_seconds": int(s.Jitter / time.Second), "next_run_at": next,
		"max_attempts": s.MaxAttempts, "retry_delays_ms": delays}
}

var scheduleClock = pg.Compile(`select now() as now, exists (select from tasker.namespaces where name = @namespace) as known`)

// errDry rolls back a dry run.
var errDry = errors.New("dry run")

// changeSchedule runs a change of one schedule together with its record, and
// has every timer look again. A dry one is undone.
func (s *Calendar) changeSchedule(ctx context.Context, flow, doing string, by pg.OperatorAction,
	change func(ctx context.Context, tx pgx.Tx) (Schedule, error)) (sched Schedule, signals []signal.Signal, err error) {
	err = s.db.Transaction(ctx, flow, doing, func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		if sched, err = change(ctx, tx); err != nil {
			return nil, err
		}
		if by.DryRun {
			return nil, errDry
		}
		by.Target = map[string]any{"schedule_id": sched.UUID, "namespace": sched.Namespace, "name": sched.Name}
		by.Matched, by.Changed = 1, 1
		if err := pg.InsertAction(ctx, tx, by); err != nil {
			return nil, err
		}
		signals = []signal.Signal{{Topic: signal.TopicDue}}
		return signals, nil
	})
	if errors.Is(err, errDry) {
		err = nil
	}
	return sched, signals, err
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
		listSchedules.With(filter.And(pg.Args{"limit": f.Limit, "offset": f.Offset})).Queue(b).Query(stmt.Rows(func(row *scheduleRow) error {
			page.Schedules = append(page.Schedules, row.schedule())
			return nil
		}))
		countSchedules.With(filter.And(pg.Args{"limit": pg.CountLimit})).Queue(b).Query(stmt.Row(&page.Total))
		return db.SendBatch(ctx, b).Close()
	})
	return page, err
}
