package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/store"
)

// The longest runs of the sweeps of tasks.
const (
	deadlinesLease    = time.Minute
	dependenciesLease = time.Minute
	stalenessLease    = 2 * time.Minute
)

// The actions on tasks, beside those on stale ones.
var (
	cancelTask = action{"cancelled", "would_cancel"}
	lookAgain  = action{"looked_at_again", "would_look_at_again"}
)

// maxPreview bounds what a dry run of the deadlines counts.
const maxPreview = 10_000

// overdue is one run that cancels tasks past their deadline.
type overdue struct {
	*Config
	dry   bool
	batch int
	stuck int // tried and possibly unchanged: they must not hide the others
	tried map[uuid.UUID]bool
}

func deadlines(cfg *Config) Job {
	d := cfg.Settings.Sweeps.Deadlines
	return Job{Name: "deadlines", Interval: d.Interval, Lease: deadlinesLease, Run: inBatches(deadlinesLease, false, func(dry bool) look {
		run := &overdue{Config: cfg, dry: dry, batch: d.BatchSize, tried: map[uuid.UUID]bool{}}
		if dry {
			run.batch = maxPreview
		}
		return run.look
	})}
}

func (o *overdue) look(ctx context.Context, res *Result) (more bool, err error) {
	limit := o.batch + o.stuck
	found, err := o.Store.PastDeadline(ctx, limit)
	if err != nil {
		return false, err
	}
	fresh := make([]uuid.UUID, 0, len(found))
	for _, id := range found {
		if !o.tried[id] && len(fresh) < o.batch {
			o.tried[id] = true
			fresh = append(fresh, id)
		}
	}
	if len(fresh) == 0 {
		return false, nil
	}
	changed := len(fresh)
	if !o.dry {
		changed, err = o.Tasks.CancelOverdue(ctx, fresh)
	}
	o.stuck += len(fresh) - changed
	res.tally(cancelTask.name(o.dry), len(fresh), changed, err)
	for _, id := range fresh {
		res.show(id.String(), cancelTask.name(o.dry), "past its deadline")
	}
	return len(found) >= limit, err
}

// dependencies looks again at tasks that wait for others and that nothing would release. No
// flow of the engine leaves such a task behind.
func dependencies(cfg *Config) Job {
	d := cfg.Settings.Sweeps.Dependencies
	var place store.DependencyPlace // where the last run stopped at its bounds
	begin := func(dry bool) look {
		after := place
		if dry {
			after = store.DependencyPlace{} // a dry run does not move the place
		}
		return func(ctx context.Context, res *Result) (more bool, err error) {
			found, err := cfg.Store.SweepDependencies(ctx, after, d.BatchSize, dry)
			if err != nil {
				return false, err
			}
			res.count(lookAgain.name(dry), len(found.Tasks))
			for _, id := range found.Tasks {
				res.show(id.String(), lookAgain.name(dry), "it waits for others, and nothing would have released it")
			}
			cfg.publish(found.Signals)
			if after = found.Next; !dry {
				place = after
			}
			return after != store.DependencyPlace{}, nil
		}
	}
	return Job{Name: "dependencies", Interval: d.Interval, Lease: dependenciesLease, Run: inBatches(dependenciesLease, true, begin)}
}

// staleness acts on tasks that no longer move.
type staleness struct {
	*Config
	limits store.StaleThresholds
	// place is where the last run stopped at its bounds: old and healthy tasks must not
	// hide those behind them for ever.
	place uuid.UUID
}

// Thresholds are the limits for tasks whose template has none.
func Thresholds(o config.Orchestration) store.StaleThresholds {
	t := o.DLQ.StalenessDetection.Thresholds
	return store.StaleThresholds{WaitingForDependencies: t.WaitingForDependencies, WaitingForRetry: t.WaitingForRetry,
		StepsInProcess: t.StepsInProcess, MaxLifetime: t.TaskMaxLifetime, Checkpoint: o.BatchProcessing.CheckpointStall}
}

func stale(cfg *Config) Job {
	d := cfg.Settings.DLQ.StalenessDetection
	s := &staleness{Config: cfg, limits: Thresholds(cfg.Settings)}
	run := inBatches(stalenessLease, true, s.begin)
	return Job{Name: "staleness", Interval: d.DetectionInterval, Lease: stalenessLease, DryRun: d.DryRun, Watch: s.watch,
		Run: func(ctx context.Context, dry bool) (Result, error) {
			begun := time.Now()
			s.Metrics.StalenessRuns.Inc()
			defer func() { s.Metrics.StalenessDuration.Observe(time.Since(begun).Seconds()) }()
			res, err := run(ctx, dry)
			return res, errors.Join(err, s.showStalled(ctx, &res))
		}}
}

func (s *staleness) begin(dry bool) look {
	after := s.place
	if dry {
		after = uuid.Nil // a dry run does not move the place
	}
	return func(ctx context.Context, res *Result) (more bool, err error) {
		tasks, next, err := s.Store.StaleTasks(ctx, s.limits, after, s.Settings.DLQ.StalenessDetection.BatchSize)
		if err != nil {
			return false, err
		}
		err = s.end(ctx, res, tasks, dry)
		if final(ctx, err) {
			return false, err
		}
		if after = next; !dry {
			s.place = next
		}
		return next != uuid.Nil, err
	}
}

// end applies the configured actions to the tasks, or records what they would do.
func (s *staleness) end(ctx context.Context, res *Result, tasks []store.StaleTask, dry bool) (err error) {
	if len(tasks) == 0 {
		return nil
	}
	s.Metrics.StalenessDetected.Add(float64(len(tasks)))
	do, changed := s.Settings.DLQ.StalenessDetection.Actions, len(tasks)
	if !dry && (do.AutoTransitionToError || do.AutoMoveToDLQ) {
		changed, err = s.Tasks.EndStale(ctx, tasks, do.AutoTransitionToError, do.AutoMoveToDLQ)
		if do.AutoTransitionToError {
			s.Metrics.StalenessToError.Add(float64(changed))
		}
	}
	name := staleAction(do.AutoTransitionToError, do.AutoMoveToDLQ).name(dry)
	res.tally(name, len(tasks), changed, err)
	for i := range tasks {
		t := &tasks[i]
		res.show(t.UUID.String(), name, fmt.Sprintf("%s/%s, %s for %d min, %d min old; %s is limited to %d min",
			t.Namespace, t.Name, t.State, t.MinutesInState, t.MinutesOld, t.Reason, t.ThresholdMinutes))
	}
	return err
}

// staleAction names the configured actions on a stale task; without any it is only counted.
func staleAction(toError, deadLetters bool) action {
	switch {
	case toError && deadLetters:
		return action{"transitioned_to_dlq_and_error", "would_transition_to_dlq_and_error"}
	case deadLetters:
		return action{"moved_to_dlq_only", "would_move_to_dlq_only"}
	case toError:
		return action{"transitioned_to_error_only", "would_transition_to_error_only"}
	}
	return action{"detected_only", "detected_only"}
}

const (
	// stalled marks a running step that saves no more checkpoints. Its handler is alive,
	// or its lease would end: so it is only shown.
	stalled = "checkpoint_stalled"
	// maxStalled bounds how many are counted.
	maxStalled = 1000
)

// showStalled records the running steps whose last checkpoint is too old.
func (s *staleness) showStalled(ctx context.Context, res *Result) error {
	steps, err := s.stalledSteps(ctx)
	res.count(stalled, len(steps))
	for i := range steps {
		x := &steps[i]
		res.show(x.TaskUUID.String(), stalled, fmt.Sprintf("%s/%s, step %s: no checkpoint for %d min, after %d items",
			x.Namespace, x.Name, x.StepName, x.MinutesSince, x.Items))
	}
	return err
}

func (s *staleness) stalledSteps(ctx context.Context) ([]store.StalledStep, error) {
	if s.limits.Checkpoint <= 0 {
		return nil, nil
	}
	return s.Store.StalledSteps(ctx, s.limits.Checkpoint, maxStalled)
}

// watch counts the dead letter queue, up to store.CountLimit per reason, and the steps
// that save no more checkpoints.
func (s *staleness) watch(ctx context.Context) error {
	stats, err := s.Store.DeadLetterStats(ctx)
	if err != nil {
		return err
	}
	pending := 0
	for i := range stats {
		pending += stats[i].Pending
	}
	s.Metrics.DLQPending.Set(float64(pending))
	steps, err := s.stalledSteps(ctx)
	if err != nil {
		return err
	}
	s.Metrics.CheckpointsStalled.Set(float64(len(steps)))
	return nil
}
