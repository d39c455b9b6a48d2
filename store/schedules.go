package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/signal"
)

// Errors of schedules.
var (
	// ErrScheduleExists: the namespace has a schedule of this name.
	ErrScheduleExists = errors.New("a schedule of this name exists")
	// ErrScheduleChanged: the schedule has been changed since it was read.
	ErrScheduleChanged = errors.New("the schedule has changed since it was read")
)

// Schedule creates tasks again and again.
type Schedule struct {
	UUID              uuid.UUID
	Namespace         string // of the template, too
	Name              string
	Template, Version string
	Cron, TimeZone    string
	Context           json.RawMessage
	Priority          int
	Tags              []string
	CatchUp           schedule.CatchUp
	MaxCatchUp        int
	Overlap           schedule.Overlap
	Jitter            time.Duration // whole seconds
	// Retries of its tasks, as in a request; 0 and nil: the template's.
	MaxAttempts int
	RetryDelays []time.Duration
	// Its state, ignored in definitions.
	PausedAt              *time.Time // nil: not paused
	PausedBy, PauseReason *string
	NextRunAt             time.Time
	LastRunAt             *time.Time // the scheduled time of the last run
	LastTask              *uuid.UUID
	LastError             *string // why the last due run created no task
	CreatedAt, UpdatedAt  time.Time
	Revision              int       // rises with each change of its definition
	ReadAt                time.Time // by the database's clock
}

// Policy is the schedule's policy for missed runs and for tasks that are alive.
func (s *Schedule) Policy() schedule.Policy {
	return schedule.Policy{CatchUp: s.CatchUp, MaxCatchUp: s.MaxCatchUp, Overlap: s.Overlap}
}

// scheduleColumns are those of Schedule, of s and its namespace n.
const scheduleColumns = `s.schedule_uuid, n.name, s.name, s.template, s.version, s.cron, s.time_zone, s.context, s.priority, s.tags,
       s.catch_up, s.max_catch_up, s.overlap, s.jitter_seconds, s.paused_at, s.paused_by, s.pause_reason, s.next_run_at, s.last_run_at,
       s.last_task_uuid, s.last_error, s.created_at, s.updated_at, s.revision, now(), coalesce(s.max_attempts, 0), s.retry_delays_ms`

// scheduleRow is a row of scheduleColumns.
type scheduleRow struct {
	Schedule
	jitter int
	delays []int64 // in milliseconds
}

func (r *scheduleRow) fields() []any {
	return []any{&r.UUID, &r.Namespace, &r.Name, &r.Template, &r.Version, &r.Cron, &r.TimeZone, &r.Context, &r.Priority, &r.Tags,
		&r.CatchUp, &r.MaxCatchUp, &r.Overlap, &r.jitter, &r.PausedAt, &r.PausedBy, &r.PauseReason, &r.NextRunAt, &r.LastRunAt,
		&r.LastTask, &r.LastError, &r.CreatedAt, &r.UpdatedAt, &r.Revision, &r.ReadAt,
		&r.MaxAttempts, &r.delays}
}

func (r *scheduleRow) schedule() Schedule {
	s := r.Schedule
	s.Jitter = time.Duration(r.jitter) * time.Second
	for _, ms := range r.delays {
		s.RetryDelays = append(s.RetryDelays, time.Duration(ms)*time.Millisecond)
	}
	return s
}

func scanSchedule(row pgx.CollectableRow) (Schedule, error) {
	var r scheduleRow
	err := row.Scan(r.fields()...)
	return r.schedule(), err
}

// oneSchedule runs a statement that returns scheduleColumns of one schedule; the error is
// ErrNotFound without one.
func oneSchedule(ctx context.Context, tx pgx.Tx, sql string, args ...any) (Schedule, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return Schedule{}, err
	}
	s, err := pgx.CollectExactlyOneRow(rows, scanSchedule)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, ErrNotFound
	}
	return s, err
}

// changedSchedule is the row that a change returns.
const changedSchedule = `
select ` + scheduleColumns + ` from changed s join tasker.namespaces n using (namespace_id)`

// Changes of one schedule.
// Index: the primary key; the unique name of the namespace, and within it.
const (
	insertSchedule = `
with changed as (
    insert into tasker.schedules (namespace_id, name, template, version, cron, time_zone, context, priority, tags, catch_up, max_catch_up,
                                  overlap, jitter_seconds, next_run_at, max_attempts, retry_delays_ms)
    select namespace_id, $2::text, $3::text, $4::text, $5::text, $6::text, $7::jsonb, $8::smallint, $9::text[], $10::smallint, $11::int,
           $12::smallint, $13::int, $14::timestamptz, nullif($15::int, 0), $16::bigint[]
    from tasker.namespaces where name = $1
    on conflict (namespace_id, name) do nothing returning *
)` + changedSchedule
	updateSchedule = `
with changed as (
    update tasker.schedules set template = $3, version = $4, cron = $5, time_zone = $6, context = $7::jsonb, priority = $8, tags = $9,
        catch_up = $10, max_catch_up = $11, overlap = $12, jitter_seconds = $13, next_run_at = coalesce($14::timestamptz, next_run_at),
        max_attempts = nullif($15::int, 0), retry_delays_ms = $16::bigint[],
        revision = revision + 1, updated_at = now()
    where schedule_uuid = $1 and revision = $2 returning *
)` + changedSchedule
	pauseSchedule = `
with changed as (
    update tasker.schedules set paused_at = coalesce(paused_at, now()), paused_by = $2, pause_reason = $3
    where schedule_uuid = $1 returning *
)` + changedSchedule
	resumeSchedule = `
with changed as (
    update tasker.schedules set paused_at = null, paused_by = null, pause_reason = null, next_run_at = $2
    where schedule_uuid = $1 returning *
)` + changedSchedule
	deleteSchedule = `
with changed as (delete from tasker.schedules where schedule_uuid = $1 returning *)` + changedSchedule
	lockSchedule = `
with changed as (select * from tasker.schedules where schedule_uuid = $1 for update)` + changedSchedule
)

// definition lists the definition of a schedule, as insertSchedule and updateSchedule
// take it.
func (s *Schedule) definition(next *time.Time) []any {
	var delays []int64 // null where there are none
	for _, d := range s.RetryDelays {
		delays = append(delays, millis(d))
	}
	return []any{s.Template, s.Version, s.Cron, s.TimeZone, string(s.Context), s.Priority, nonNil(s.Tags), int16(s.CatchUp), s.MaxCatchUp,
		int16(s.Overlap), int(s.Jitter / time.Second), next, s.MaxAttempts, delays}
}

// errDry rolls back a dry run.
var errDry = errors.New("dry run")

// changeSchedule runs a change of one schedule together with its record, and
// has every timer look again. A dry one is undone.
func (s *Store) changeSchedule(ctx context.Context, flow, doing string, by OperatorAction,
	change func(ctx context.Context, tx pgx.Tx) (Schedule, error)) (sched Schedule, signals []signal.Signal, err error) {
	err = s.call(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			if sched, err = change(ctx, tx); err != nil {
				return nil, err
			}
			if by.DryRun {
				return nil, errDry
			}
			by.Target = map[string]any{"schedule_id": sched.UUID, "namespace": sched.Namespace, "name": sched.Name}
			by.Matched, by.Changed = 1, 1
			if err := insertAction(ctx, tx, by); err != nil {
				return nil, err
			}
			signals = []signal.Signal{{Topic: signal.TopicDue}}
			return signals, nil
		})
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
func (s *Store) CreateSchedule(ctx context.Context, def Schedule, by OperatorAction, first func(now time.Time) time.Time) (Schedule, []signal.Signal, error) {
	return s.changeSchedule(ctx, "create_schedule", "create the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		var now time.Time
		var known bool
		if err := tx.QueryRow(ctx, `select now(), exists (select from tasker.namespaces where name = $1)`, def.Namespace).Scan(&now, &known); err != nil {
			return def, err
		}
		if !known {
			return def, ErrNotFound
		}
		next := first(now)
		made, err := oneSchedule(ctx, tx, insertSchedule, append([]any{def.Namespace, def.Name}, def.definition(&next)...)...)
		if errors.Is(err, ErrNotFound) {
			err = ErrScheduleExists
		}
		return made, err
	})
}

// UpdateSchedule changes the definition of a schedule, if it is unchanged since it was
// read; next computes its next run from the database's clock, nil: as before. The error
// wraps ErrScheduleChanged or ErrNotFound.
func (s *Store) UpdateSchedule(ctx context.Context, def Schedule, by OperatorAction, next func(now time.Time) time.Time) (Schedule, []signal.Signal, error) {
	return s.changeSchedule(ctx, "update_schedule", "change the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		now, err := oneSchedule(ctx, tx, lockSchedule, def.UUID)
		if err != nil {
			return now, err
		}
		var at *time.Time
		if next != nil {
			t := next(now.ReadAt)
			at = &t
		}
		changed, err := oneSchedule(ctx, tx, updateSchedule, append([]any{def.UUID, def.Revision}, def.definition(at)...)...)
		if errors.Is(err, ErrNotFound) {
			err = ErrScheduleChanged
		}
		return changed, err
	})
}

// PauseSchedule pauses a schedule. Pausing again changes actor and reason, not the time.
// The error, here and below, wraps ErrNotFound if the schedule does not exist.
func (s *Store) PauseSchedule(ctx context.Context, id uuid.UUID, by OperatorAction) (Schedule, error) {
	sched, _, err := s.changeSchedule(ctx, "pause_schedule", "pause the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		return oneSchedule(ctx, tx, pauseSchedule, id, by.Actor, by.Reason)
	})
	return sched, err
}

// ResumeSchedule resumes a schedule; next computes its next run from its definition and
// the database's clock. A schedule that is not paused stays unchanged.
func (s *Store) ResumeSchedule(ctx context.Context, id uuid.UUID, by OperatorAction, next func(s *Schedule) (time.Time, error)) (Schedule, []signal.Signal, error) {
	return s.changeSchedule(ctx, "resume_schedule", "resume the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		sched, err := oneSchedule(ctx, tx, lockSchedule, id)
		if err != nil || sched.PausedAt == nil {
			return sched, err
		}
		at, err := next(&sched)
		if err != nil {
			return sched, err
		}
		return oneSchedule(ctx, tx, resumeSchedule, id, at)
	})
}

// DeleteSchedule deletes a schedule and returns it. Its tasks stay.
func (s *Store) DeleteSchedule(ctx context.Context, id uuid.UUID, by OperatorAction) (Schedule, error) {
	sched, _, err := s.changeSchedule(ctx, "delete_schedule", "delete the schedule", by, func(ctx context.Context, tx pgx.Tx) (Schedule, error) {
		return oneSchedule(ctx, tx, deleteSchedule, id)
	})
	return sched, err
}
