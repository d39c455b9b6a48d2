package daemon

import (
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
)

// sweepConfig gives the orchestrator's sweeps their settings and the parts they act on.
func (d *Orchestrator) sweepConfig(o config.Orchestration, self store.Daemon) sweep.Config {
	return sweep.Config{Store: d.store, Tasks: d.engine, Publisher: d.publisher, Holder: self.UUID, Settings: o, Logger: d.log.Named("sweeps"), Metrics: d.metrics}
}
