package daemon

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// CreateSchedule implements rest.Schedules.
func (g guardedEngine) CreateSchedule(ctx context.Context, s store.Schedule, why orchestration.Why) (store.Schedule, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Schedule, error) { return g.Orchestrator.CreateSchedule(ctx, s, why) })
}

// UpdateSchedule implements rest.Schedules.
func (g guardedEngine) UpdateSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why, change func(s *store.Schedule)) (store.Schedule, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Schedule, error) {
		return g.Orchestrator.UpdateSchedule(ctx, id, why, change)
	})
}

// RunSchedule implements rest.Schedules.
func (g guardedEngine) RunSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (orchestration.Created, error) {
	return through(ctx, g.web, func(ctx context.Context) (orchestration.Created, error) {
		return g.Orchestrator.RunSchedule(ctx, id, why)
	})
}

// Schedule implements rest.Schedules.
func (g guardedEngine) Schedule(ctx context.Context, id uuid.UUID) (store.Schedule, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Schedule, error) { return g.Orchestrator.Schedule(ctx, id) })
}

// Schedules implements rest.Schedules.
func (g guardedEngine) Schedules(ctx context.Context, f store.ScheduleFilter) (store.SchedulePage, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.SchedulePage, error) { return g.Orchestrator.Schedules(ctx, f) })
}

// PauseSchedule implements rest.Schedules.
func (g guardedEngine) PauseSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Schedule, error) { return g.Orchestrator.PauseSchedule(ctx, id, why) })
}

// ResumeSchedule implements rest.Schedules.
func (g guardedEngine) ResumeSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Schedule, error) { return g.Orchestrator.ResumeSchedule(ctx, id, why) })
}

// DeleteSchedule implements rest.Schedules.
func (g guardedEngine) DeleteSchedule(ctx context.Context, id uuid.UUID, why orchestration.Why) (store.Schedule, error) {
	return through(ctx, g.web, func(ctx context.Context) (store.Schedule, error) { return g.Orchestrator.DeleteSchedule(ctx, id, why) })
}
