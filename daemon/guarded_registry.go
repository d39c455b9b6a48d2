package daemon

import (
	"context"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/store"
)

// Namespaces implements rest.Registry.
func (g guardedStore) Namespaces(ctx context.Context) ([]store.NamespaceState, error) {
	return through(ctx, g.web, g.Store.Namespaces)
}

// Workers implements rest.Registry.
func (g guardedStore) Workers(ctx context.Context, f store.WorkerFilter) ([]store.WorkerState, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.WorkerState, error) { return g.Store.Workers(ctx, f) })
}

// Sweeps implements rest.Registry.
func (g guardedStore) Sweeps(ctx context.Context) ([]store.SweepState, error) {
	return through(ctx, g.web, g.Store.Sweeps)
}

// guardedSweeps are the sweeps as the API runs them.
type guardedSweeps struct {
	runner *sweep.Runner
	web    *breaker.Breaker
}

// RunNow implements rest.Sweeps.
func (g guardedSweeps) RunNow(ctx context.Context, name string, dry bool) (sweep.Run, error) {
	return through(ctx, g.web, func(ctx context.Context) (sweep.Run, error) { return g.runner.RunNow(ctx, name, dry) })
}
