package daemon

import (
	"context"

	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// ReceiveEvent implements rest.Waits.
func (g guardedEngine) ReceiveEvent(ctx context.Context, e orchestration.Event) (store.Delivered, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Delivered, error) { return g.Orchestrator.ReceiveEvent(ctx, e) })
}

// Approvals implements rest.Waits.
func (g guardedEngine) Approvals(ctx context.Context, f store.ApprovalFilter) ([]store.Approval, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.Approval, error) { return g.Orchestrator.Approvals(ctx, f) })
}

// Approval implements rest.Waits.
func (g guardedEngine) Approval(ctx context.Context, token string) (store.Approval, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Approval, error) { return g.Orchestrator.Approval(ctx, token) })
}

// Decide implements rest.Waits.
func (g guardedEngine) Decide(ctx context.Context, token string, v orchestration.Verdict) (store.Approval, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Approval, error) { return g.Orchestrator.Decide(ctx, token, v) })
}
