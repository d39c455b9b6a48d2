package sweep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// Store is the part of the store that sweeps need.
type Store interface {
	Leases
	SweepLiveness(ctx context.Context, limits store.LivenessLimits, dry bool) (store.Liveness, error)
	PastDeadline(ctx context.Context, limit int) ([]uuid.UUID, error)
	StaleTasks(ctx context.Context, th store.StaleThresholds, after uuid.UUID, limit int) (stale []store.StaleTask, next uuid.UUID, err error)
	StalledSteps(ctx context.Context, since time.Duration, limit int) ([]store.StalledStep, error)
	DeadLetterStats(ctx context.Context) ([]store.DeadLetterStats, error)
	Retain(ctx context.Context, limits store.RetentionLimits, dry bool) (store.Retained, error)
	SweepDependencies(ctx context.Context, from store.DependencyPlace, limit int, dry bool) (store.Stranded, error)
	OverdueSignals(ctx context.Context, overdue time.Duration) ([]signal.Signal, error)
	FinishLimits(ctx context.Context) (finished int, signals []signal.Signal, more bool, err error)
	MarkWaiting(ctx context.Context, after int32) (marked int, next int32, signals []signal.Signal, err error)
	ForgetKeys(ctx context.Context, after int32, dry bool) (forgotten int, next int32, err error)
	Age(ctx context.Context, bound time.Duration, limit int, dry bool) (store.Aged, error)
	Learn(ctx context.Context, alive time.Duration, seen map[uuid.UUID]int64) (store.Learned, error)
	Predicts() bool
	SendsSignals() bool
	NoteQueueDeaths(ctx context.Context, limit int, dry bool) (store.QueueDeaths, error)
	RatesToAddUp() bool
	AddUpRates(ctx context.Context, limit int) (added int, more bool, err error)
	Depths(ctx context.Context, limit int) ([]store.CallableLoad, error)
	KeepDepths(ctx context.Context, depths []store.CallDepth) error
	RetainQueues(ctx context.Context, ttl time.Duration, after uuid.UUID, batch int, dry bool) (store.QueueRetained, error)
}

var _ Store = (*store.Store)(nil)

// Tasks changes the tasks that sweeps find; the orchestrator does. Both methods count the
// changed tasks: others may have ended or moved since they were found. Both may be called
// again with the same tasks.
type Tasks interface {
	// CancelOverdue cancels tasks past their deadline.
	CancelOverdue(ctx context.Context, tasks []uuid.UUID) (changed int, err error)
	// EndStale ends stale tasks as failed, creates dead-letter entries for them, or both.
	EndStale(ctx context.Context, stale []store.StaleTask, toError, deadLetters bool) (changed int, err error)
}

// Config describes the sweeps of the product. Store, Tasks, Publisher and Holder are
// required, and the Settings of sweeps, retention and the dead letter queue.
type Config struct {
	Store     Store
	Tasks     Tasks
	Publisher signal.Publisher
	Holder    uuid.UUID // this process
	Settings  config.Orchestration
	Jitter    float64            // as in RunnerConfig
	Logger    *zap.Logger        // default none
	Metrics   *telemetry.Metrics // default none
}

// publish sends signals, unless the transaction has carried them.
func (c *Config) publish(list []signal.Signal) {
	if len(list) > 0 && !c.Store.SendsSignals() {
		c.Publisher.Publish(list...)
	}
}

// check rejects settings that lack a value: the defaults are those of package config.
func (c *Config) check() error {
	s, stale, r := c.Settings.Sweeps, c.Settings.DLQ.StalenessDetection, c.Settings.Retention
	err := errors.Join(
		settings.Positive("Liveness.Interval", s.Liveness.Interval), settings.Positive("Liveness.StaleAfter", s.Liveness.StaleAfter),
		settings.Positive("Liveness.DeadAfter", s.Liveness.DeadAfter), settings.Positive("Liveness.BatchSize", s.Liveness.BatchSize),
		settings.Positive("Deadlines.Interval", s.Deadlines.Interval), settings.Positive("Deadlines.BatchSize", s.Deadlines.BatchSize),
		settings.Positive("Dependencies.Interval", s.Dependencies.Interval), settings.Positive("Dependencies.BatchSize", s.Dependencies.BatchSize),
		settings.Positive("StalenessDetection.DetectionInterval", stale.DetectionInterval), settings.Positive("StalenessDetection.BatchSize", stale.BatchSize),
		settings.Positive("Retention.Interval", r.Interval), settings.Positive("Retention.BatchSize", r.BatchSize),
		settings.Positive("Taskmaster.Reaper.Interval", c.Settings.Taskmaster.Reaper.Interval),
		settings.Positive("Taskmaster.Retention.Interval", c.Settings.Taskmaster.Retention.Interval),
		settings.Positive("Taskmaster.Retention.BatchSize", c.Settings.Taskmaster.Retention.BatchSize),
		settings.Positive("Signals.Interval", s.Signals.Interval), settings.Positive("Signals.Overdue", s.Signals.Overdue),
		settings.Positive("Ageing.BatchSize", s.Ageing.BatchSize), settings.Positive("Predictions.Interval", s.Predictions.Interval),
		settings.Positive("Rates.Interval", s.Rates.Interval), settings.Positive("Rates.BatchSize", s.Rates.BatchSize),
		settings.Positive("Depths.Interval", s.Depths.Interval), settings.Positive("Depths.Limit", s.Depths.Limit))
	if err != nil {
		return fmt.Errorf("configure the sweeps: %w", err)
	}
	return nil
}

// New returns a runner of the product's sweeps, without those that are off. Nothing runs
// before Start. It returns an error when a required value is missing.
func New(cfg Config) (*Runner, error) {
	if cfg.Store == nil || cfg.Tasks == nil || cfg.Publisher == nil || cfg.Holder == uuid.Nil {
		return nil, errors.New("sweeps: store, tasks, publisher and holder are required")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	jobs := []Job{liveness(&cfg), signals(&cfg), predictions(&cfg), addUp(&cfg), depths(&cfg)}
	if cfg.Settings.Sweeps.Deadlines.Enabled {
		jobs = append(jobs, deadlines(&cfg))
	}
	jobs = append(jobs, dependencies(&cfg))
	if d := cfg.Settings.DLQ; d.Enabled && d.StalenessDetection.Enabled {
		jobs = append(jobs, stale(&cfg))
	}
	if cfg.Settings.Sweeps.Ageing.Bound > 0 {
		jobs = append(jobs, ageing(&cfg))
	}
	jobs = append(jobs, retention(&cfg), queueDeaths(&cfg))
	if cfg.Settings.Taskmaster.Retention.TTL > 0 {
		jobs = append(jobs, queueRetention(&cfg))
	}
	return NewRunner(RunnerConfig{Leases: cfg.Store, Holder: cfg.Holder, Jitter: cfg.Jitter, Logger: cfg.Logger, Metrics: cfg.Metrics}, jobs...)
}
