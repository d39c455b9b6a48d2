package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// ErrDeadLetterOpen says that the task has another open entry, so this one cannot be reopened.
var ErrDeadLetterOpen = errors.New("the task has another open dead letter")

// DeadLetter is an entry of the dead-letter queue: a task to investigate, and the
// findings. At most one of a task is pending.
type DeadLetter struct {
	UUID                         uuid.UUID `sql:"dlq_entry_uuid"`
	TaskUUID                     uuid.UUID
	Namespace, TaskName, Version string
	OriginalState                workflow.TaskState // when the entry was made
	CurrentState                 workflow.TaskState // now, as stored; 0: the task was deleted
	Reason                       workflow.DeadLetterReason
	Detail                       string    // details of the cause
	At                           time.Time `sql:"dlq_timestamp"`
	Resolution                   Resolution
	ResolvedAt                   *time.Time `sql:"resolution_timestamp"` // nil while it is pending
	Notes                        *string    `sql:"resolution_notes"`
	ResolvedBy                   *string
	Snapshot                     json.RawMessage `sql:"task_snapshot"` // of the task when the entry was made
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
	resolutions, reasons := allResolutions(), workflow.DeadLetterReasons()
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
	return readAll[DeadLetter](ctx, s, "list_dead_letters", "list dead letters", query.With(args{"resolutions": numbers(resolutions),
		"reasons": numbers(reasons), "since": f.Since, "until": f.Until, "namespace": f.Namespace, "name": f.Name, "limit": f.Limit, "offset": f.Offset}))
}

// DeadLetter reads one entry, or ErrNotFound.
func (s *Store) DeadLetter(ctx context.Context, id uuid.UUID) (DeadLetter, error) {
	return readOne[DeadLetter](ctx, s, "dead_letter", "read the dead letter", oneDeadLetter.With(args{"entry": id}))
}

// DeadLetterOfTask reads the latest entry of a task, or ErrNotFound.
func (s *Store) DeadLetterOfTask(ctx context.Context, task uuid.UUID) (DeadLetter, error) {
	return readOne[DeadLetter](ctx, s, "dead_letter", "read the dead letter of the task", latestDeadLetter.With(args{"task": task}))
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
			lockDeadLetterTask.With(args{"entry": id}).Queue(b)
			updateDeadLetter.With(args{"entry": id, "resolution": resolution, "notes": u.Notes, "resolved_by": u.By,
				"metadata": jsonText(u.Metadata), "replayed_as": u.ReplayedAs}).Queue(b)
			markDeadLetterTask.With(args{"entry": id}).Queue(b)
			oneDeadLetter.With(args{"entry": id}).Queue(b).Query(stmt.Row(&entry))
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
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case serverCode(err) == uniqueViolation:
		return ErrDeadLetterOpen
	}
	return err
}

// PurgeDeadLetters deletes up to limit entries that were closed longer ago than
// olderThan and returns how many; a dry run only counts them.
func (s *Store) PurgeDeadLetters(ctx context.Context, olderThan time.Duration, limit int, dry bool) (purged int, err error) {
	err = s.call(ctx, "purge_dead_letters", "purge dead letters", func(ctx context.Context, db *conn) error {
		limits := args{"older_ms": olderThan.Milliseconds(), "limit": limit}
		if dry {
			purged, err = stmt.One[int](ctx, db, countClosedDeadLetters.With(limits))
		} else {
			purged, err = run(ctx, db, purgeDeadLetters.With(limits))
		}
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

// stateToOpen locks a task's row and returns its state; of an ended task the final one.
// Index: the primary keys.
var (
	liveStateToOpen  = compile(`select task_state from tasker.board where task_uuid = @task and slot = 0 for update`)
	endedStateToOpen = compile(`select task_state from tasker.step_attempts where task_uuid = @task and task_state is not null limit 1`)
	// addOpener records the operator who opened an entry and the metadata.
	addOpener = compile(`
update tasker.dlq_entries
set metadata = coalesce(metadata, '{}') || jsonb_build_object('opened_by', @actor::text) || coalesce(@metadata::jsonb, '{}')
where dlq_entry_uuid = @entry`)
)

// OpenDeadLetter opens a dead letter for a task, alive or ended; metadata are an object
// or nil. A task with an open entry keeps it (created is false), with the detail added.
// The error wraps ErrNotFound if the task does not exist. While this runs a claim skips a
// step in the task's row; a poll finds it.
func (s *Store) OpenDeadLetter(ctx context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string, metadata json.RawMessage) (entry DeadLetter, created bool, err error) {
	err = s.call(ctx, "open_dead_letter", "open a dead letter", func(ctx context.Context, db *conn) error {
		return s.inTx(ctx, db, func(tx pgx.Tx) error {
			state, err := stateToOpen(ctx, tx, task)
			if err != nil {
				return err
			}
			type row struct {
				DlqEntryUUID, TaskUUID uuid.UUID
				Created                bool
			}
			open := []openedLetter{{TaskUUID: task, OriginalState: state, Reason: reason, Detail: detail}}
			opened, err := stmt.One[row](ctx, tx, recordDeadLetters.With(args{"o": open}))
			if err != nil {
				return deadLetterError(err) // no row: the task is not in the ledger
			}
			created = opened.Created
			b := &pgx.Batch{}
			addOpener.With(args{"entry": opened.DlqEntryUUID, "actor": actor, "metadata": jsonText(metadata)}).Queue(b)
			oneDeadLetter.With(args{"entry": opened.DlqEntryUUID}).Queue(b).Query(stmt.Row(&entry))
			return tx.SendBatch(ctx, b).Close()
		})
	})
	return entry, created, err
}

func stateToOpen(ctx context.Context, tx pgx.Tx, task uuid.UUID) (state workflow.TaskState, err error) {
	state, err = oneOf[workflow.TaskState](ctx, tx, liveStateToOpen.With(args{"task": task}))
	if errors.Is(err, ErrNotFound) {
		state, err = oneOf[workflow.TaskState](ctx, tx, endedStateToOpen.With(args{"task": task}))
	}
	return state, err
}

// DescribeStale adds to the open entries of stale tasks the exceeded threshold and the
// time in their states. Tasks without an entry for their staleness are skipped.
func (s *Store) DescribeStale(ctx context.Context, stale []StaleTask) error {
	list := make([]staleness, len(stale))
	for i := range stale {
		list[i] = staleness{stale[i].UUID, stale[i].MinutesInState, stale[i].ThresholdMinutes}
	}
	_, err := execute(ctx, s, "describe_stale", "describe stale tasks", describeStale.With(args{"o": list}))
	return err
}

// DeadLetterStats counts the entries of one reason. Each resolution is counted
// up to CountLimit.
type DeadLetterStats struct {
	Reason            workflow.DeadLetterReason
	Total             int // of the four below
	Pending           int
	ManuallyResolved  int
	PermanentlyFailed int
	Cancelled         int
	CountIsBound      bool // one of them is CountLimit, and there are more
	Oldest, Newest    time.Time
	// AverageResolution is the mean time from opening to closing of those counted; nil if
	// none was closed.
	AverageResolution *time.Duration
}

// deadLetterCount is a row of deadLetterStats.
type deadLetterCount struct {
	Reason         workflow.DeadLetterReason
	Resolution     Resolution
	Entries        int
	Newest, Oldest time.Time
	Seconds        *float64 // total, of closed ones
}

// DeadLetterStats returns the counts of each reason with entries.
func (s *Store) DeadLetterStats(ctx context.Context) ([]DeadLetterStats, error) {
	counts, err := readAll[deadLetterCount](ctx, s, "dead_letter_stats", "count dead letters", deadLetterStats.With(args{
		"reasons": numbers(workflow.DeadLetterReasons()), "resolutions": numbers(allResolutions()), "limit": CountLimit + 1}))
	return statsOf(counts), err
}

// statsOf combines the counts, which come sorted by reason.
func statsOf(counts []deadLetterCount) (stats []DeadLetterStats) {
	for len(counts) > 0 {
		of := DeadLetterStats{Reason: counts[0].Reason, Oldest: counts[0].Oldest, Newest: counts[0].Newest}
		closed, seconds := 0, 0.0
		for len(counts) > 0 && counts[0].Reason == of.Reason {
			c := counts[0]
			counts = counts[1:]
			if c.Seconds != nil {
				closed, seconds = closed+c.Entries, seconds+*c.Seconds
			}
			if c.Entries > CountLimit {
				c.Entries, of.CountIsBound = CountLimit, true
			}
			*of.count(c.Resolution) = c.Entries
			of.Total += c.Entries
			if c.Oldest.Before(of.Oldest) {
				of.Oldest = c.Oldest
			}
			if c.Newest.After(of.Newest) {
				of.Newest = c.Newest
			}
		}
		if closed > 0 {
			mean := time.Duration(seconds / float64(closed) * float64(time.Second))
			of.AverageResolution = &mean
		}
		stats = append(stats, of)
	}
	return stats
}

func (d *DeadLetterStats) count(r Resolution) *int {
	switch r {
	case ResolutionManuallyResolved:
		return &d.ManuallyResolved
	case ResolutionPermanentlyFailed:
		return &d.PermanentlyFailed
	case ResolutionCancelled:
		return &d.Cancelled
	default:
		return &d.Pending
	}
}

// QueueEntry is a pending dead letter in the order of investigation.
type QueueEntry struct {
	UUID                uuid.UUID `sql:"dlq_entry_uuid"`
	TaskUUID            uuid.UUID
	Namespace, TaskName string
	OriginalState       workflow.TaskState
	CurrentState        workflow.TaskState // as stored; 0: the task was deleted
	Reason              workflow.DeadLetterReason
	Detail              string
	At                  time.Time `sql:"dlq_timestamp"`
	Minutes             float64   // in the queue
	MinutesInState      *int      // of a living task
	// Score is the weight of the reason (a cycle 1,000, a step that failed permanently
	// 500, staleness 100, no worker 50, by hand 10) plus one per minute in the queue.
	Score float64
}

// InvestigationQueue lists up to limit pending entries, the most urgent first.
func (s *Store) InvestigationQueue(ctx context.Context, limit int) ([]QueueEntry, error) {
	return readAll[QueueEntry](ctx, s, "investigation_queue", "list the investigation queue", investigationQueue.With(args{
		"reasons": numbers(workflow.DeadLetterReasons()), "limit": limit, "resolution": int16(ResolutionPending)}))
}
