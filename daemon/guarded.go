package daemon

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// guardedEngine is the engine for the API: through the breaker for the API's database
// work. Waiting for a task's end is not guarded, it would hold a trial for a minute.
type guardedEngine struct {
	supervised
	web *breaker.Breaker
}

// through calls fn through a breaker.
func through[T any](ctx context.Context, b *breaker.Breaker, fn func(ctx context.Context) (T, error)) (result T, err error) {
	err = b.Do(ctx, func(ctx context.Context) (err error) {
		result, err = fn(ctx)
		return err
	})
	return result, err
}

// Create implements rest.Engine.
func (g guardedEngine) Create(ctx context.Context, r orchestration.Request) (orchestration.Created, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.Created, error) { return g.Orchestrator.Create(ctx, r) })
}

// CreateMany implements rest.Engine.
func (g guardedEngine) CreateMany(ctx context.Context, requests []orchestration.Request) (results []orchestration.CreateResult) {
	err := g.web.Do(ctx, func(ctx context.Context) error {
		results = g.Orchestrator.CreateMany(ctx, requests)
		for i := range results {
			if v := judge(results[i].Err); v == breaker.Failure || v == breaker.Late {
				return results[i].Err
			}
		}
		return nil
	})
	var open *breaker.OpenError
	if errors.As(err, &open) {
		results = make([]orchestration.CreateResult, len(requests))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}

// Cancel implements rest.Engine.
func (g guardedEngine) Cancel(ctx context.Context, task uuid.UUID, actor, reason string) error {
	return g.web.Do(ctx, func(ctx context.Context) error { return g.Orchestrator.Cancel(ctx, task, actor, reason) })
}

// Act implements rest.Actions.
func (g guardedEngine) Act(ctx context.Context, task uuid.UUID, a orchestration.Action) error {
	return g.web.Do(ctx, func(ctx context.Context) error { return g.Orchestrator.Act(ctx, task, a) })
}

// ActOnMany implements rest.Actions.
func (g guardedEngine) ActOnMany(ctx context.Context, b orchestration.Bulk) (orchestration.BulkResult, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.BulkResult, error) { return g.Orchestrator.ActOnMany(ctx, b) })
}

// Preview implements rest.Actions.
func (g guardedEngine) Preview(ctx context.Context, task uuid.UUID, a orchestration.Action) (orchestration.Preview, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.Preview, error) { return g.Orchestrator.Preview(ctx, task, a) })
}

// PreviewReplay implements rest.Actions.
func (g guardedEngine) PreviewReplay(ctx context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Preview, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.Preview, error) {
		return g.Orchestrator.PreviewReplay(ctx, task, r)
	})
}

// Replay implements rest.Actions.
func (g guardedEngine) Replay(ctx context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Created, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.Created, error) { return g.Orchestrator.Replay(ctx, task, r) })
}

// Pause implements rest.Actions.
func (g guardedEngine) Pause(ctx context.Context, p store.Pause) error {
	return g.web.Do(ctx, func(ctx context.Context) error { return g.Orchestrator.Pause(ctx, p) })
}

// Resume implements rest.Actions.
func (g guardedEngine) Resume(ctx context.Context, p store.Pause) error {
	return g.web.Do(ctx, func(ctx context.Context) error { return g.Orchestrator.Resume(ctx, p) })
}

// DeprecateTemplate implements rest.Actions.
func (g guardedEngine) DeprecateTemplate(ctx context.Context, namespace, name, version string, deprecated bool, why orchestration.Why) error {
	return g.web.Do(ctx, func(ctx context.Context) error {
		return g.Orchestrator.DeprecateTemplate(ctx, namespace, name, version, deprecated, why)
	})
}

// guardedStore is the store for the API's reads. Health checks bypass the breaker: they
// show a recovery.
type guardedStore struct {
	*store.Store
	web *breaker.Breaker
}

// Task implements rest.Store.
func (g guardedStore) Task(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	return through(ctx, g.web, func(ctx context.Context) (*store.Task, error) { return g.Store.Task(ctx, id) })
}

// TaskWithoutResults implements rest.Store.
func (g guardedStore) TaskWithoutResults(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	return through(ctx, g.web, func(ctx context.Context) (*store.Task, error) { return g.Store.TaskWithoutResults(ctx, id) })
}

// ContextBytes implements rest.Store.
func (g guardedStore) ContextBytes(ctx context.Context, ids []uuid.UUID) (int64, error) {
	return through(ctx, g.web, func(ctx context.Context) (int64, error) { return g.Store.ContextBytes(ctx, ids) })
}

// Contexts implements rest.Store.
func (g guardedStore) Contexts(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]json.RawMessage, error) {
	return through(ctx, g.web, func(ctx context.Context) (map[uuid.UUID]json.RawMessage, error) { return g.Store.Contexts(ctx, ids) })
}

// TaskOfIdentity implements rest.Store.
func (g guardedStore) TaskOfIdentity(ctx context.Context, identity workflow.Identity) (uuid.UUID, error) {
	return through(ctx, g.web, func(ctx context.Context) (uuid.UUID, error) { return g.Store.TaskOfIdentity(ctx, identity) })
}

// Tasks implements rest.Store.
func (g guardedStore) Tasks(ctx context.Context, f store.TaskFilter) (store.TaskPage, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.TaskPage, error) { return g.Store.Tasks(ctx, f) })
}

// Timeline implements rest.Store.
func (g guardedStore) Timeline(ctx context.Context, task uuid.UUID) (store.Timeline, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Timeline, error) { return g.Store.Timeline(ctx, task) })
}

// Chain implements rest.Store.
func (g guardedStore) Chain(ctx context.Context, task uuid.UUID, limit int) (store.Chain, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Chain, error) { return g.Store.Chain(ctx, task, limit) })
}

// Attempts implements rest.Store.
func (g guardedStore) Attempts(ctx context.Context, task uuid.UUID, step int) ([]store.StepAttempt, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.StepAttempt, error) { return g.Store.Attempts(ctx, task, step) })
}

// Plans implements rest.Store.
func (g guardedStore) Plans(ctx context.Context, namespace string) ([]store.ListedPlan, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.ListedPlan, error) { return g.Store.Plans(ctx, namespace) })
}

// PlanNamed implements rest.Store.
func (g guardedStore) PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error) {
	return through(ctx, g.web, func(ctx context.Context) (*store.Plan, error) {
		return g.Store.PlanNamed(ctx, namespace, name, version)
	})
}

// TemplateVersion implements rest.Store.
func (g guardedStore) TemplateVersion(ctx context.Context, plan int32) (store.TemplateVersion, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.TemplateVersion, error) { return g.Store.TemplateVersion(ctx, plan) })
}
