package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
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
	SendsSignals() bool
}

var _ Store = (*store.Store)(nil)

// Tasks changes the tasks that sweeps find; the orchestrator does. Both methods count the
// changed tasks: others may have ended or moved since they were found. Both may be called
// again with the same tasks.
type Tasks interface {
	// CancelOverdue cancels tasks past their deadline.
	CancelOverdue(ctx context.Context, tasks []uuid.UUID) (changed int, err error)
	// EndStale applies the actions to stale tasks.
	EndStale(ctx context.Context, stale []store.StaleTask, actions StaleActions) (changed int, err error)
}

// Config describes the sweeps of the product: see Configure. Store, Tasks, Publisher and
// Holder are required, and the values that Check requires.
type Config struct {
	Store     Store
	Tasks     Tasks
	Publisher signal.Publisher
	Holder    uuid.UUID // this process

	Liveness     LivenessConfig
	Deadlines    DeadlinesConfig
	Dependencies DependenciesConfig
	Staleness    StalenessConfig
	Retention    RetentionConfig
	Signals      SignalsConfig

	Jitter  float64            // as in RunnerConfig
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// New returns a runner of the product's sweeps, without those that are off. Nothing runs
// before Start. It returns an error when a required value is missing.
func New(cfg Config) (*Runner, error) {
	if cfg.Store == nil || cfg.Tasks == nil || cfg.Publisher == nil || cfg.Holder == uuid.Nil {
		return nil, errors.New("sweeps: store, tasks, publisher and holder are required")
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	var jobs []Job
	add := func(off bool, job func(Config) Job) {
		if !off {
			jobs = append(jobs, job(cfg))
		}
	}
	add(cfg.Liveness.Off, livenessJob)
	add(cfg.Signals.Off, signalsJob)
	add(cfg.Deadlines.Off, deadlinesJob)
	add(cfg.Dependencies.Off, dependenciesJob)
	add(cfg.Staleness.Off, stalenessJob)
	add(cfg.Retention.Off, retentionJob)
	return NewRunner(RunnerConfig{Leases: cfg.Store, Holder: cfg.Holder, Jitter: cfg.Jitter, Logger: cfg.Logger, Metrics: cfg.Metrics}, jobs...)
}
