package daemon

import (
	"context"

	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// RegisterTaskType implements rest.TaskTypes.
func (g guardedEngine) RegisterTaskType(ctx context.Context, template *workflow.Template, why orchestration.Why) (store.TaskType, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.TaskType, error) {
		return g.Orchestrator.RegisterTaskType(ctx, template, why)
	})
}

// DeleteTaskType implements rest.TaskTypes.
func (g guardedEngine) DeleteTaskType(ctx context.Context, namespace, name string, why orchestration.Why) (store.TaskType, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.TaskType, error) {
		return g.Orchestrator.DeleteTaskType(ctx, namespace, name, why)
	})
}

// TaskType implements rest.TaskTypes.
func (g guardedEngine) TaskType(ctx context.Context, namespace, name string) (store.TaskType, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.TaskType, error) {
		return g.Orchestrator.TaskType(ctx, namespace, name)
	})
}

// TaskTypes implements rest.TaskTypes.
func (g guardedEngine) TaskTypes(ctx context.Context, namespace string, limit, offset int) ([]store.TaskType, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.TaskType, error) {
		return g.Orchestrator.TaskTypes(ctx, namespace, limit, offset)
	})
}

// PlanOfType implements rest.TaskTypes.
func (g guardedEngine) PlanOfType(ctx context.Context, queue, name string) (*store.Plan, error) {
	return through(ctx, g.web, func(ctx context.Context) (*store.Plan, error) { return g.Orchestrator.PlanOfType(ctx, queue, name) })
}
