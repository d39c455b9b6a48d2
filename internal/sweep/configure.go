package sweep

import (
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/store"
)

// Configure translates the settings of the sweeps, without the parts.
func Configure(o config.Orchestration) Config {
	l, d, w, stale, r, s := o.Sweeps.Liveness, o.Sweeps.Deadlines, o.Sweeps.Dependencies, o.DLQ.StalenessDetection, o.Retention, o.Sweeps.Signals
	limits := stale.Thresholds
	return Config{
		Liveness:     LivenessConfig{Interval: l.Interval, Stale: l.StaleAfter, Dead: l.DeadAfter, Batch: l.BatchSize},
		Deadlines:    DeadlinesConfig{Off: !d.Enabled, Interval: d.Interval, Batch: d.BatchSize},
		Dependencies: DependenciesConfig{Interval: w.Interval, Batch: w.BatchSize},
		Staleness: StalenessConfig{Off: !o.DLQ.Enabled || !stale.Enabled, Interval: stale.DetectionInterval, Batch: stale.BatchSize, DryRun: stale.DryRun,
			Thresholds: store.StaleThresholds{WaitingForDependencies: limits.WaitingForDependencies, WaitingForRetry: limits.WaitingForRetry,
				StepsInProcess: limits.StepsInProcess, MaxLifetime: limits.TaskMaxLifetime, Checkpoint: o.BatchProcessing.CheckpointStall},
			Actions: StaleActions{ToError: stale.Actions.AutoTransitionToError, DeadLetters: stale.Actions.AutoMoveToDLQ}},
		Retention: RetentionConfig{Interval: r.Interval, TTL: r.TTL, DeadLetterTTL: r.DeadLetterTTL, EventTTL: r.EventTTL, Batch: r.BatchSize, DryRun: r.DryRun},
		Signals:   SignalsConfig{Interval: s.Interval, Overdue: s.Overdue},
	}
}

// Check rejects a configuration that lacks a value without a default here.
func (c Config) Check() error {
	err := errors.Join(
		config.Positive("Liveness.Interval", c.Liveness.Interval), config.Positive("Liveness.Stale", c.Liveness.Stale),
		config.Positive("Liveness.Dead", c.Liveness.Dead), config.Positive("Liveness.Batch", c.Liveness.Batch),
		config.Positive("Deadlines.Interval", c.Deadlines.Interval), config.Positive("Deadlines.Batch", c.Deadlines.Batch),
		config.Positive("Dependencies.Interval", c.Dependencies.Interval), config.Positive("Dependencies.Batch", c.Dependencies.Batch),
		config.Positive("Staleness.Interval", c.Staleness.Interval), config.Positive("Staleness.Batch", c.Staleness.Batch),
		config.Positive("Retention.Interval", c.Retention.Interval), config.Positive("Retention.Batch", c.Retention.Batch),
		config.Positive("Signals.Interval", c.Signals.Interval), config.Positive("Signals.Overdue", c.Signals.Overdue))
	if err != nil {
		return fmt.Errorf("configure the sweeps: %w", err)
	}
	return nil
}
