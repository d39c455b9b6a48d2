package daemon

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// sweepConfig completes the settings of the orchestrator's sweeps.
func (d *Orchestrator) sweepConfig(o config.Orchestration, self store.Daemon) sweep.Config {
	cfg := sweep.Configure(o)
	cfg.Store, cfg.Tasks, cfg.Publisher, cfg.Holder = d.store, sweptTasks{d.engine}, d.publisher, self.UUID
	cfg.Logger, cfg.Metrics = d.log, d.metrics
	return cfg
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
