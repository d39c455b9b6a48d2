package store

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/migration"
	"github.com/tasker-go/tasker/internal/store/internal/operations"
	"github.com/tasker-go/tasker/internal/store/internal/waits"
)

// Names of the rooms that only tests say.
type (
	Settled         = board.Settled
	Fate            = board.Fate
	EndsNotified    = waits.EndsNotified
	MigrationStatus = migration.Status
)

// Values that only tests name.
const (
	FateOpen       = board.FateOpen
	StalenessStale = operations.StalenessStale
)

// ErrWorkFailed is board.ErrWorkFailed.
var ErrWorkFailed = board.ErrWorkFailed

// BaselineVersion is the migration that schema.sql is.
const BaselineVersion = migration.BaselineVersion

// MoveFrontiers is board.MoveFrontiers.
func (s *Store) MoveFrontiers(ctx context.Context) error { return board.MoveFrontiers(ctx, s.Board) }

// AtFrontier is board.AtFrontier.
func (s *Store) AtFrontier() (bool, int64) { return board.AtFrontier(s.Board) }

// Steady is board.Steady.
func (s *Store) Steady() { board.Steady(s.Board) }

// LanesCoolAtOnce is board.CoolLanesAtOnce.
func (s *Store) LanesCoolAtOnce() { board.CoolLanesAtOnce(s.Board) }

// TakeTask takes one live task; it waits for locks. The error wraps ErrTaskEnded or
// ErrNotFound if the task is not alive.
func (s *Store) TakeTask(ctx context.Context, task uuid.UUID) (*Taken, error) {
	taken, err := s.TakeTasks(ctx, []uuid.UUID{task}, Taking{})
	if err == nil && len(taken.Tasks) == 0 {
		taken.Release()
		err = s.WhyNotAlive(ctx, task)
	}
	return taken, err
}
