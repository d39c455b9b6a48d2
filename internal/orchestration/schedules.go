package orchestration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal"
)

// maxUpdateTries bounds how often a change is repeated because another one was faster.
const maxUpdateTries = 3

// Why says who changes a schedule and for what reason. A dry change is checked and
// returned, but not kept.
type Why struct {
	Actor, Reason string // required
	DryRun        bool
}

func (w Why) action(name string) store.OperatorAction {
	return store.OperatorAction{Actor: w.Actor, Reason: w.Reason, Action: name, DryRun: w.DryRun}
}

// CreateSchedule keeps a new schedule. Missing fields get defaults: UTC, an empty
// context, missed runs are skipped, overlapping ones allowed. The error is an
// *InvalidError or *UnknownTemplateError for a fault of the client; it wraps
// store.ErrScheduleExists where the name is taken.
func (o *Orchestrator) CreateSchedule(ctx context.Context, s store.Schedule, why Why) (store.Schedule, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return s, err
	}
	complete(&s)
	spec, err := o.checkSchedule(ctx, &s)
	if err != nil {
		return s, err
	}
	made, signals, err := o.store.CreateSchedule(ctx, s, why.action("create_schedule"), spec.First)
	if why.DryRun {
		made.UUID = uuid.Nil
	}
	return made, o.rescheduled(signals, err)
}

// UpdateSchedule changes a schedule; namespace and name stay. With another expression
// or time zone its next run is computed by these, from now. The error is as for
// CreateSchedule; it wraps store.ErrNotFound, or store.ErrScheduleChanged when
// concurrent changes keep winning.
func (o *Orchestrator) UpdateSchedule(ctx context.Context, id uuid.UUID, why Why, change func(s *store.Schedule)) (s store.Schedule, err error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return s, err
	}
	for range maxUpdateTries {
		old, err := o.store.Schedule(ctx, id)
		if err != nil {
			return old, err
		}
		s, err = o.updateSchedule(ctx, old, why, change)
		if !errors.Is(err, store.ErrScheduleChanged) {
			return s, err
		}
	}
	return s, fmt.Errorf("change the schedule: %w", store.ErrScheduleChanged)
}

func (o *Orchestrator) updateSchedule(ctx context.Context, old store.Schedule, why Why, change func(s *store.Schedule)) (store.Schedule, error) {
	next := old
	change(&next)
	next.Namespace, next.Name = old.Namespace, old.Name
	complete(&next)
	spec, err := o.checkSchedule(ctx, &next)
	if err != nil {
		return next, err
	}
	var first func(now time.Time) time.Time
	if next.Cron != old.Cron || next.TimeZone != old.TimeZone {
		first = spec.First
	}
	changed, signals, err := o.store.UpdateSchedule(ctx, next, why.action("update_schedule"), first)
	return changed, o.rescheduled(signals, err)
}

// PauseSchedule stops runs of a schedule; tasks that it has created continue.
func (o *Orchestrator) PauseSchedule(ctx context.Context, id uuid.UUID, why Why) (store.Schedule, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.Schedule{}, err
	}
	return o.store.PauseSchedule(ctx, id, why.action("pause_schedule"))
}

// ResumeSchedule lets a schedule run again. Runs due in the pause were missed: the
// policy says whether they are made up for.
func (o *Orchestrator) ResumeSchedule(ctx context.Context, id uuid.UUID, why Why) (store.Schedule, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.Schedule{}, err
	}
	s, signals, err := o.store.ResumeSchedule(ctx, id, why.action("resume_schedule"), func(s *store.Schedule) (time.Time, error) {
		spec, err := schedule.Parse(s.Cron, s.TimeZone)
		if err != nil {
			return time.Time{}, invalidSpec(err)
		}
		if s.CatchUp != schedule.CatchUpSkip || s.NextRunAt.After(s.ReadAt) {
			return s.NextRunAt, nil
		}
		next := spec.After(s.NextRunAt, s.ReadAt)
		if next.IsZero() {
			return next, invalid("the schedule has no further run")
		}
		return next, nil
	})
	return s, o.rescheduled(signals, err)
}

// DeleteSchedule deletes a schedule and returns it; tasks that it has created stay.
func (o *Orchestrator) DeleteSchedule(ctx context.Context, id uuid.UUID, why Why) (store.Schedule, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.Schedule{}, err
	}
	return o.store.DeleteSchedule(ctx, id, why.action("delete_schedule"))
}

// RunSchedule makes a run of a schedule now, besides the due ones and even while it is
// paused. The error is a *ScheduleBusyError when the schedule must not run beside the
// task of its last run, else as for Create; it wraps store.ErrNotFound where there is
// no such schedule.
func (o *Orchestrator) RunSchedule(ctx context.Context, id uuid.UUID, why Why) (Created, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return Created{}, err
	}
	var task store.NewTask
	fired, err := o.store.RunSchedule(ctx, id, why.action("run_schedule"), func(now time.Time, due *store.DueSchedule) (store.Firing, error) {
		if due.Alive {
			return store.Firing{}, &ScheduleBusyError{Task: *due.LastTask}
		}
		at := now.Truncate(time.Second)
		r := runOf(&due.Schedule, at, "run/"+uuid.NewString(), cut("run by hand by "+why.Actor+": "+why.Reason, MaxReasonLength))
		var err error
		o.judge(&r)
		task, err = taskOf(ctx, due, &r)
		return store.Firing{Tasks: []store.NewTask{task}, Runs: []time.Time{at}}, err
	})
	if err != nil {
		return Created{}, err
	}
	o.publish(fired.Signals)
	o.scheduleLook()
	o.metrics.ScheduleRuns.WithLabelValues(runByHand).Inc()
	settle.CountCreated(o.metrics, task.Plan, 1)
	return submission.Answer(&task, store.CreatedTask{UUID: task.UUID, RequestedAt: fired.Accepted[task.UUID].RequestedAt}, submission.ConflictFail)
}

// Schedule reads a schedule; the error wraps store.ErrNotFound.
func (o *Orchestrator) Schedule(ctx context.Context, id uuid.UUID) (store.Schedule, error) {
	return o.store.Schedule(ctx, id)
}

// Schedules lists schedules.
func (o *Orchestrator) Schedules(ctx context.Context, f store.ScheduleFilter) (store.SchedulePage, error) {
	return o.store.Schedules(ctx, f)
}

// rescheduled notifies all timers that a schedule may be due earlier than they know.
func (o *Orchestrator) rescheduled(signals []signal.Signal, err error) error {
	if err == nil {
		o.publish(signals)
		o.readiness.WakeIn(0)
	}
	return err
}

// cut shortens a text to a number of characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
