package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/workflow"
)

// ErrDeadLetterOpen says that the task has another open entry, so this one cannot be reopened.
var ErrDeadLetterOpen = errors.New("the task has another open dead letter")

// Resolution is the outcome of a dead letter. The numbers are stored.
type Resolution int16

// The resolutions.
const (
	ResolutionPending Resolution = iota + 1
	ResolutionManuallyResolved
	ResolutionPermanentlyFailed
	ResolutionCancelled
)

var resolutionNames = [...]string{
	ResolutionPending: "pending", ResolutionManuallyResolved: "manually_resolved",
	ResolutionPermanentlyFailed: "permanently_failed", ResolutionCancelled: "cancelled",
}

// Resolutions lists all resolutions.
func Resolutions() []Resolution {
	return []Resolution{ResolutionPending, ResolutionManuallyResolved, ResolutionPermanentlyFailed, ResolutionCancelled}
}

// String is the snake_case name.
func (r Resolution) String() string {
	if r <= 0 || int(r) >= len(resolutionNames) {
		return fmt.Sprintf("unknown resolution %d", int(r))
	}
	return resolutionNames[r]
}

// DeadLetter is an entry of the dead-letter queue: a task to investigate, and the
// findings. At most one of a task is pending.
type DeadLetter struct {
	UUID, TaskUUID               uuid.UUID
	Namespace, TaskName, Version string
	OriginalState                workflow.TaskState // when the entry was made
	CurrentState                 workflow.TaskState // now, as stored; 0: the task was deleted
	Reason                       workflow.DeadLetterReason
	Detail                       string // details of the cause
	At                           time.Time
	Resolution                   Resolution
	ResolvedAt                   *time.Time // nil while it is pending
	Notes, ResolvedBy            *string
	Snapshot                     json.RawMessage // of the task when the entry was made
	Metadata                     json.RawMessage // nil: none
	ReplayedAs                   *uuid.UUID      // the task created from this one
	CreatedAt, UpdatedAt         time.Time
}

// DeadLetterFilter selects entries; zero values select everything.
type DeadLetterFilter struct {
	Resolution  *Resolution                `json:"resolution,omitempty"`
	Reason      *workflow.DeadLetterReason `json:"reason,omitempty"`
	Namespace   string                     `json:"namespace,omitempty"`
	Name        string                     `json:"name,omitempty"`  // of the template
	Since       *time.Time                 `json:"since,omitempty"` // made then or later
	Until       *time.Time                 `json:"until,omitempty"` // made before
	Limit       int                        `json:"limit"`           // 1–10,000
	Offset      int                        `json:"offset,omitempty"`
	OldestFirst bool                       `json:"oldest_first,omitempty"`
}

// DeadLetters lists entries, newest first by default.
func (s *Store) DeadLetters(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error) {
	resolutions, reasons := Resolutions(), workflow.DeadLetterReasons()
	if f.Resolution != nil {
		resolutions = []Resolution{*f.Resolution}
	}
	if f.Reason != nil {
		reasons = []workflow.DeadLetterReason{*f.Reason}
	}
	query := listDeadLetters
	if f.OldestFirst {
		query = oldestDeadLetters
	}
	return s.readDeadLetters(ctx, "list_dead_letters", "list dead letters", query,
		numbers(resolutions), numbers(reasons), f.Since, f.Until, f.Namespace, f.Name, f.Limit, f.Offset)
}

// DeadLetter reads one entry, or ErrNotFound.
func (s *Store) DeadLetter(ctx context.Context, id uuid.UUID) (DeadLetter, error) {
	return onlyDeadLetter(s.readDeadLetters(ctx, "dead_letter", "read the dead letter", oneDeadLetter, id))
}

// DeadLetterOfTask reads the latest entry of a task, or ErrNotFound.
func (s *Store) DeadLetterOfTask(ctx context.Context, task uuid.UUID) (DeadLetter, error) {
	return onlyDeadLetter(s.readDeadLetters(ctx, "dead_letter", "read the dead letter of the task", latestDeadLetter, task))
}

func onlyDeadLetter(list []DeadLetter, err error) (DeadLetter, error) {
	if err != nil {
		return DeadLetter{}, err
	}
	if len(list) == 0 {
		return DeadLetter{}, fmt.Errorf("read the dead letter: %w", ErrNotFound)
	}
	return list[0], nil
}

func (s *Store) readDeadLetters(ctx context.Context, flow, doing, query string, args ...any) (list []DeadLetter, err error) {
	err = s.repeatable(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[DeadLetter])
		return err
	})
	return list, err
}

// DeadLetterUpdate changes an entry; nil fields stay.
type DeadLetterUpdate struct {
	Resolution *Resolution
	Notes, By  *string
	Metadata   json.RawMessage // an object; its keys are merged
	ReplayedAs *uuid.UUID
}

// UpdateDeadLetter changes an entry and returns it. The error wraps ErrNotFound if it
// does not exist, and ErrDeadLetterOpen if it should become pending again while another
// entry of its task is.
func (s *Store) UpdateDeadLetter(ctx context.Context, id uuid.UUID, u DeadLetterUpdate) (DeadLetter, error) {
	var entry DeadLetter
	var resolution *int16
	if u.Resolution != nil {
		number := int16(*u.Resolution)
		resolution = &number
	}
	err := s.call(ctx, "update_dead_letter", "change the dead letter", func(ctx context.Context, db *conn) error {
		return s.inTx(ctx, db, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(lockDeadLetterTask, id)
			b.Queue(updateDeadLetter, id, resolution, u.Notes, u.By, document(u.Metadata), u.ReplayedAs)
			b.Queue(markDeadLetterTask, id)
			b.Queue(oneDeadLetter, id).Query(func(rows pgx.Rows) (err error) {
				entry, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[DeadLetter])
				return err
			})
			return deadLetterError(tx.SendBatch(ctx, b).Close())
		})
	})
	return entry, err
}

// MarkReplayed records that another task replaces the task of an entry, and closes the
// entry.
func (s *Store) MarkReplayed(ctx context.Context, id, newTask uuid.UUID, actor string) error {
	closed := ResolutionManuallyResolved
	_, err := s.UpdateDeadLetter(ctx, id, DeadLetterUpdate{Resolution: &closed, By: &actor, ReplayedAs: &newTask})
	return err
}

func deadLetterError(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case errors.As(err, &pg) && pg.Code == uniqueViolation:
		return ErrDeadLetterOpen
	}
	return err
}

// PurgeDeadLetters deletes up to limit entries that were closed longer ago than
// olderThan and returns how many; a dry run only counts them.
func (s *Store) PurgeDeadLetters(ctx context.Context, olderThan time.Duration, limit int, dry bool) (purged int, err error) {
	err = s.call(ctx, "purge_dead_letters", "purge dead letters", func(ctx context.Context, db *conn) error {
		if dry {
			return db.QueryRow(ctx, countClosedDeadLetters, olderThan.Milliseconds(), limit).Scan(&purged)
		}
		tag, err := db.Exec(ctx, purgeDeadLetters, olderThan.Milliseconds(), limit)
		purged = int(tag.RowsAffected())
		return err
	})
	return purged, err
}

// numbers are enumerations as the database has them.
func numbers[E ~int16](list []E) []int16 {
	out := make([]int16, len(list))
	for i, e := range list {
		out[i] = int16(e)
	}
	return out
}

// document is null for no JSON at all.
func document(d json.RawMessage) *string {
	if len(d) == 0 {
		return nil
	}
	text := string(d)
	return &text
}
