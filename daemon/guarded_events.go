package daemon

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/store"
)

// Events implements rest.Events.
func (g guardedStore) Events(ctx context.Context, f store.EventFilter) (store.EventPage, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.EventPage, error) { return g.Store.Events(ctx, f) })
}

// EventConsumers implements rest.Events.
func (g guardedStore) EventConsumers(ctx context.Context, limit int) ([]store.EventConsumer, error) {
	return through(ctx, g.web, func(ctx context.Context) ([]store.EventConsumer, error) { return g.Store.EventConsumers(ctx, limit) })
}

// ClaimEvents implements rest.Events.
func (g guardedStore) ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (store.ClaimedEvents, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.ClaimedEvents, error) {
		return g.Store.ClaimEvents(ctx, consumer, holder, limit, lease)
	})
}

// AckEvents implements rest.Events.
func (g guardedStore) AckEvents(ctx context.Context, consumer string, token, position int64, letGo bool) error {
	return g.web.Do(ctx, func(ctx context.Context) error { return g.Store.AckEvents(ctx, consumer, token, position, letGo) })
}

// LastEvent implements rest.Events.
func (g guardedStore) LastEvent(ctx context.Context, namespace string) (int64, error) {
	return through(ctx, g.web, func(ctx context.Context) (int64, error) { return g.Store.LastEvent(ctx, namespace) })
}

// EventConsumer implements rest.Events.
func (g guardedStore) EventConsumer(ctx context.Context, name string) (store.EventConsumer, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.EventConsumer, error) { return g.Store.EventConsumer(ctx, name) })
}

// CreateEventConsumer implements rest.Events.
func (g guardedStore) CreateEventConsumer(ctx context.Context, def store.EventConsumer, from store.EventPlace, most int, by store.OperatorAction) (store.EventConsumer, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.EventConsumer, error) {
		return g.Store.CreateEventConsumer(ctx, def, from, most, by)
	})
}

// ResetEventConsumer implements rest.Events.
func (g guardedStore) ResetEventConsumer(ctx context.Context, name string, to store.EventPlace, by store.OperatorAction) (store.EventConsumer, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.EventConsumer, error) {
		return g.Store.ResetEventConsumer(ctx, name, to, by)
	})
}

// DeleteEventConsumer implements rest.Events.
func (g guardedStore) DeleteEventConsumer(ctx context.Context, name string, by store.OperatorAction) (store.EventConsumer, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.EventConsumer, error) {
		return g.Store.DeleteEventConsumer(ctx, name, by)
	})
}
