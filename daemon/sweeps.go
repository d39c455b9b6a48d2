package daemon

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/sweep"
)

// staleThresholds translates the thresholds of staleness.
func staleThresholds(o config.Orchestration) store.StaleThresholds {
	c := o.DLQ.StalenessDetection.Thresholds
	return store.StaleThresholds{WaitingForDependencies: c.WaitingForDependencies(), WaitingForRetry: c.WaitingForRetry(),
		StepsInProcess: c.StepsInProcess(), MaxLifetime: c.TaskMaxLifetime(), Checkpoint: o.BatchProcessing.CheckpointStall()}
}

// sweepConfig translates what the orchestrator looks after from time to time.
func (d *Orchestrator) sweepConfig(o config.Orchestration, self store.Daemon) sweep.Config {
	l, stale, r := o.Sweeps.Liveness, o.DLQ.StalenessDetection, o.Retention
	return sweep.Config{
		Store: d.store, Tasks: sweptTasks{d.engine}, Publisher: d.publisher, Holder: self.UUID,
		Liveness: sweep.LivenessConfig{Interval: l.Interval(), Stale: l.StaleAfter(), Dead: l.DeadAfter(), Batch: l.BatchSize},
		Deadlines: sweep.DeadlinesConfig{Off: !o.Sweeps.Deadlines.Enabled, Interval: o.Sweeps.Deadlines.Interval(),
			Batch: o.Sweeps.Deadlines.BatchSize},
		Dependencies: sweep.DependenciesConfig{Interval: o.Sweeps.Dependencies.Interval(), Batch: o.Sweeps.Dependencies.BatchSize},
		Staleness: sweep.StalenessConfig{Off: !o.DLQ.Enabled || !stale.Enabled, Interval: stale.DetectionInterval(), Batch: stale.BatchSize,
			DryRun: stale.DryRun, Thresholds: staleThresholds(o),
			Actions: sweep.StaleActions{ToError: stale.Actions.AutoTransitionToError, DeadLetters: stale.Actions.AutoMoveToDLQ}},
		Retention: sweep.RetentionConfig{Interval: r.Interval(), TTL: r.TTL(), DeadLetterTTL: r.DeadLetterTTL(), EventTTL: r.EventTTL(), Batch: r.BatchSize, DryRun: r.DryRun},
		Signals:   sweep.SignalsConfig{Interval: o.Sweeps.Signals.Interval(), Overdue: o.Sweeps.Signals.Overdue()},
		Logger:    d.log, Metrics: d.metrics,
	}
}

// sweptTasks lets sweeps act on tasks by the engine's rules.
type sweptTasks struct{ engine *orchestration.Orchestrator }

// CancelOverdue implements sweep.Tasks.
func (t sweptTasks) CancelOverdue(ctx context.Context, tasks []uuid.UUID) (int, error) {
	return t.engine.CancelOverdue(ctx, tasks)
}

// EndStale implements sweep.Tasks.
func (t sweptTasks) EndStale(ctx context.Context, stale []store.StaleTask, do sweep.StaleActions) (int, error) {
	return t.engine.EndStale(ctx, stale, orchestration.StaleActions(do))
}
