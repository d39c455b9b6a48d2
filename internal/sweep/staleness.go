package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/store"
)

// StalenessConfig configures the sweep of tasks that no longer move.
type StalenessConfig struct {
	Off      bool
	DryRun   bool
	Interval time.Duration
	Batch    int // tasks examined at once
	// Thresholds apply to tasks whose template has none; 0 turns one off.
	Thresholds store.StaleThresholds
	Actions    StaleActions
}

// stalenessLease bounds a run.
const stalenessLease = 2 * time.Minute

// StaleActions are the actions on a stale task. With neither it is only counted.
type StaleActions struct {
	ToError     bool // the task ends with the state error
	DeadLetters bool // a dead-letter entry is created
}

// action names the configured actions.
func (a StaleActions) action() action {
	switch {
	case a.ToError && a.DeadLetters:
		return action{"transitioned_to_dlq_and_error", "would_transition_to_dlq_and_error"}
	case a.DeadLetters:
		return action{"moved_to_dlq_only", "would_move_to_dlq_only"}
	case a.ToError:
		return action{"transitioned_to_error_only", "would_transition_to_error_only"}
	default:
		return action{"detected_only", "detected_only"}
	}
}

type staleness struct {
	store   Store
	tasks   Tasks
	metrics *telemetry.Metrics
	cfg     StalenessConfig
	bounds  bounds
	// after is the place where the last run stopped at its bounds: old and healthy tasks
	// must not hide those behind them for ever.
	after uuid.UUID
}

func stalenessJob(cfg Config) Job {
	c := cfg.Staleness
	s := &staleness{store: cfg.Store, tasks: cfg.Tasks, metrics: cfg.Metrics, cfg: c, bounds: boundsOf(stalenessLease)}
	return Job{Name: "staleness", Interval: c.Interval, Lease: stalenessLease, DryRun: c.DryRun, Run: s.run, Watch: s.watch}
}

func (s *staleness) run(ctx context.Context, dry bool) (res Result, err error) {
	begin := time.Now()
	s.metrics.StalenessRuns.Inc()
	defer func() {
		took := time.Since(begin)
		s.metrics.StalenessDuration.Observe(float64(took) / float64(time.Millisecond))
	}()
	after := s.after
	if dry {
		after = uuid.Nil // a dry run does not move the place
	}
	var errs failures
	res.More, err = s.bounds.repeat(ctx, func() (more bool, err error) {
		stale, next, err := s.store.StaleTasks(ctx, s.cfg.Thresholds, after, s.cfg.Batch)
		if err != nil {
			return false, err
		}
		if err := errs.add(ctx, s.end(ctx, &res, stale, dry)); err != nil {
			return false, err
		}
		after = next
		if !dry {
			s.after = next
		}
		return next != uuid.Nil, nil
	})
	return res, errs.join(errors.Join(err, s.showStalled(ctx, &res)))
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
		res.show(Finding{Subject: x.TaskUUID.String(), Action: stalled, Detail: fmt.Sprintf("%s/%s, step %s: no checkpoint for %d min, after %d items",
			x.Namespace, x.Name, x.StepName, x.MinutesSince, x.Items)})
	}
	return err
}

func (s *staleness) stalledSteps(ctx context.Context) ([]store.StalledStep, error) {
	since := s.cfg.Thresholds.Checkpoint
	if since <= 0 {
		return nil, nil
	}
	return s.store.StalledSteps(ctx, since, maxStalled)
}

// end applies the configured actions to the tasks, or records what they would do.
func (s *staleness) end(ctx context.Context, res *Result, stale []store.StaleTask, dry bool) error {
	if len(stale) == 0 {
		return nil
	}
	s.metrics.StalenessDetected.Add(float64(len(stale)))
	actions := s.cfg.Actions
	changed, err := len(stale), error(nil)
	if !dry && actions != (StaleActions{}) {
		changed, err = s.tasks.EndStale(ctx, stale, actions)
		if actions.ToError {
			s.metrics.StalenessToError.Add(float64(changed))
		}
	}
	name := actions.action().name(dry)
	res.tally(name, len(stale), changed, err)
	for i := range stale {
		res.show(Finding{Subject: stale[i].UUID.String(), Action: name, Detail: describe(&stale[i])})
	}
	return err
}

func describe(t *store.StaleTask) string {
	return fmt.Sprintf("%s/%s, %s for %d min, %d min old; %s is limited to %d min",
		t.Namespace, t.Name, t.State, t.MinutesInState, t.MinutesOld, t.Reason, t.ThresholdMinutes)
}

// watch counts the dead letter queue, up to store.CountLimit per reason, and the steps
// that save no more checkpoints.
func (s *staleness) watch(ctx context.Context) error {
	stats, err := s.store.DeadLetterStats(ctx)
	if err != nil {
		return err
	}
	pending := 0
	for i := range stats {
		pending += stats[i].Pending
	}
	s.metrics.DLQPending.Set(float64(pending))
	steps, err := s.stalledSteps(ctx)
	if err != nil {
		return err
	}
	s.metrics.CheckpointsStalled.Set(float64(len(steps)))
	return nil
}
