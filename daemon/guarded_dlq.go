package daemon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// ReplayDeadLetters implements rest.Actions.
func (g guardedEngine) ReplayDeadLetters(ctx context.Context, r orchestration.ReplayMany) (orchestration.BulkResult, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.BulkResult, error) {
		return g.Orchestrator.ReplayDeadLetters(ctx, r)
	})
}

// DeadLetters implements rest.DeadLetters.
func (g guardedStore) DeadLetters(ctx context.Context, f store.DeadLetterFilter) ([]store.DeadLetter, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.DeadLetter, error) { return g.Store.DeadLetters(ctx, f) })
}

// DeadLetter implements rest.DeadLetters.
func (g guardedStore) DeadLetter(ctx context.Context, id uuid.UUID) (store.DeadLetter, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.DeadLetter, error) { return g.Store.DeadLetter(ctx, id) })
}

// DeadLetterOfTask implements rest.DeadLetters.
func (g guardedStore) DeadLetterOfTask(ctx context.Context, task uuid.UUID) (store.DeadLetter, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.DeadLetter, error) { return g.Store.DeadLetterOfTask(ctx, task) })
}

// UpdateDeadLetter implements rest.DeadLetters.
func (g guardedStore) UpdateDeadLetter(ctx context.Context, id uuid.UUID, u store.DeadLetterUpdate) (store.DeadLetter, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.DeadLetter, error) { return g.Store.UpdateDeadLetter(ctx, id, u) })
}

// DeadLetterStats implements rest.DeadLetters.
func (g guardedStore) DeadLetterStats(ctx context.Context) ([]store.DeadLetterStats, error) {
	return through(ctx, g.web, g.Store.DeadLetterStats)
}

// InvestigationQueue implements rest.DeadLetters.
func (g guardedStore) InvestigationQueue(ctx context.Context, limit int) ([]store.QueueEntry, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.QueueEntry, error) { return g.Store.InvestigationQueue(ctx, limit) })
}

// StalenessMonitor implements rest.DeadLetters.
func (g guardedStore) StalenessMonitor(ctx context.Context, th store.StaleThresholds, limit int) ([]store.StalenessEntry, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.StalenessEntry, error) {
		return g.Store.StalenessMonitor(ctx, th, limit)
	})
}

// OpenDeadLetter implements rest.DeadLetters.
func (g guardedStore) OpenDeadLetter(ctx context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string,
	metadata json.RawMessage,
) (l store.DeadLetter, created bool, err error) {
	err = g.web.Do(ctx, func(ctx context.Context) (err error) {
		l, created, err = g.Store.OpenDeadLetter(ctx, task, reason, detail, actor, metadata)
		return err
	})
	return l, created, err
}

// PurgeDeadLetters implements rest.DeadLetters.
func (g guardedStore) PurgeDeadLetters(ctx context.Context, olderThan time.Duration, limit int, dry bool) (int, error) {
	return through(ctx, g.web, func(ctx context.Context) (int, error) { return g.Store.PurgeDeadLetters(ctx, olderThan, limit, dry) })
}

// RecordAction implements rest.DeadLetters.
func (g guardedStore) RecordAction(ctx context.Context, a store.OperatorAction) error {
	return g.web.Do(ctx, func(ctx context.Context) error { return g.Store.RecordAction(ctx, a) })
}
