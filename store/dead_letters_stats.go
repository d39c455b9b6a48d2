package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

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
	reason, resolution int16
	entries            int
	newest, oldest     time.Time
	seconds            *float64 // total, of closed ones
}

// DeadLetterStats returns the counts of each reason with entries.
func (s *Store) DeadLetterStats(ctx context.Context) ([]DeadLetterStats, error) {
	var stats []DeadLetterStats
	err := s.repeatable(ctx, "dead_letter_stats", "count dead letters", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, deadLetterStats, numbers(workflow.DeadLetterReasons()), numbers(Resolutions()), CountLimit+1)
		if err != nil {
			return err
		}
		var counts []deadLetterCount
		var c deadLetterCount
		_, err = pgx.ForEachRow(rows, []any{&c.reason, &c.resolution, &c.entries, &c.newest, &c.oldest, &c.seconds}, func() error {
			counts = append(counts, c)
			return nil
		})
		stats = statsOf(counts)
		return err
	})
	return stats, err
}

// statsOf combines the counts, which come sorted by reason.
func statsOf(counts []deadLetterCount) (stats []DeadLetterStats) {
	for len(counts) > 0 {
		of := DeadLetterStats{Reason: workflow.DeadLetterReason(counts[0].reason), Oldest: counts[0].oldest, Newest: counts[0].newest}
		closed, seconds := 0, 0.0
		for len(counts) > 0 && counts[0].reason == int16(of.Reason) {
			c := counts[0]
			counts = counts[1:]
			if c.seconds != nil {
				closed, seconds = closed+c.entries, seconds+*c.seconds
			}
			if c.entries > CountLimit {
				c.entries, of.CountIsBound = CountLimit, true
			}
			*of.count(Resolution(c.resolution)) = c.entries
			of.Total += c.entries
			if c.oldest.Before(of.Oldest) {
				of.Oldest = c.oldest
			}
			if c.newest.After(of.Newest) {
				of.Newest = c.newest
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
	UUID, TaskUUID      uuid.UUID
	Namespace, TaskName string
	OriginalState       workflow.TaskState
	CurrentState        workflow.TaskState // as stored; 0: the task was deleted
	Reason              workflow.DeadLetterReason
	Detail              string
	At                  time.Time
	Minutes             float64 // in the queue
	MinutesInState      *int    // of a living task
	// Score is the weight of the reason (a cycle 1,000, a step that failed permanently
	// 500, staleness 100, no worker 50, by hand 10) plus one per minute in the queue.
	Score float64
}

// InvestigationQueue lists up to limit pending entries, the most urgent first.
func (s *Store) InvestigationQueue(ctx context.Context, limit int) (list []QueueEntry, err error) {
	err = s.repeatable(ctx, "investigation_queue", "list the investigation queue", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, investigationQueue, numbers(workflow.DeadLetterReasons()), limit, int16(ResolutionPending))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[QueueEntry])
		return err
	})
	return list, err
}
