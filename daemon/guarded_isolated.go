package daemon

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// Isolated implements rest.Isolated.
func (g guardedEngine) Isolated(ctx context.Context, task uuid.UUID, q orchestration.IsolatedQuery) (t *store.Task, items []store.Isolated, err error) {
	items, err = through(ctx, g.web, func(ctx context.Context) (items []store.Isolated, err error) {
		t, items, err = g.Orchestrator.Isolated(ctx, task, q)
		return items, err
	})
	return t, items, err
}

// ReplayIsolated implements rest.Isolated.
func (g guardedEngine) ReplayIsolated(ctx context.Context, task uuid.UUID, r orchestration.ReplayIsolated) (orchestration.ReplayedIsolated, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.ReplayedIsolated, error) {
		return g.Orchestrator.ReplayIsolated(ctx, task, r)
	})
}
