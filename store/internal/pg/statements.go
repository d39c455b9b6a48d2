package pg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Args are the arguments of a statement by name.
type Args = stmt.Args

// constants are the numbers and texts that statements name; see schema.sql.
var constants = stmt.Constants{
	"no_step": "0", "scheduled": number(BoardScheduled), "claimable": number(BoardClaimable), "in_progress": number(BoardInProgress), "reported": number(boardReported),
	"by_engine": number(EngineQueue), // the callable of steps that the engine runs

	// Outcomes of attempts.
	"success": number(workflow.OutcomeSuccess), "lease_lost": number(workflow.OutcomeLeaseLost), "cancelled": number(workflow.OutcomeCancelled),

	// States of tasks.
	"task_pending": number(workflow.TaskPending), "task_in_process": number(workflow.TaskStepsInProcess),
	"task_waiting_for_dependencies": number(workflow.TaskWaitingForDependencies), "task_waiting_for_retry": number(workflow.TaskWaitingForRetry),
	"task_complete": number(workflow.TaskComplete), "task_error": number(workflow.TaskError),

	// Kinds of messages about tasks.
	"ended": number(MessageEnded), "stop": number(messageStop), "dependencies": number(MessageDependencies), "dependency_failed": number(MessageFailed),

	"overlap_skip":  number(schedule.OverlapSkip),
	"worker_active": number(WorkerActive), "worker_stale": number(WorkerStale), "worker_dead": number(WorkerDead),
	"pending": number(ResolutionPending),
	"stale":   number(workflow.DeadLetterStaleness),
	// Of an encoded progress.
	"progress_retry": strconv.Itoa(workflow.ProgressRetry), "progress_max_attempts": strconv.Itoa(workflow.ProgressMaxAttempts),

	"separator": `E'\x1f'`, // stmt.Separator
}

func number[E ~int | ~int16](e E) string { return strconv.Itoa(int(e)) }

// Compile makes a statement of its text, see package stmt.
func Compile(text string) *stmt.Statement { return stmt.New(text, constants) }

// ReadAll is a repeatable flow of one statement; it returns the rows.
func ReadAll[T any](ctx context.Context, s *DB, flow, doing string, c stmt.Call) (list []T, err error) {
	err = s.Repeatable(ctx, flow, doing, func(ctx context.Context, db *Conn) error {
		list, err = stmt.All[T](ctx, db, c)
		return err
	})
	return list, err
}

// ReadOne is ReadAll for one row; without one the error wraps ErrNotFound.
func ReadOne[T any](ctx context.Context, s *DB, flow, doing string, c stmt.Call) (row T, err error) {
	err = s.Repeatable(ctx, flow, doing, func(ctx context.Context, db *Conn) error {
		row, err = OneOf[T](ctx, db, c)
		return err
	})
	return row, err
}

// OneOf returns the only row of a statement, or ErrNotFound.
func OneOf[T any](ctx context.Context, db stmt.Querier, c stmt.Call) (T, error) {
	row, err := stmt.One[T](ctx, db, c)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return row, err
}

// Execute is a repeatable flow of one statement; it returns the number of affected rows.
func Execute(ctx context.Context, s *DB, flow, doing string, c stmt.Call) (affected int, err error) {
	err = s.Repeatable(ctx, flow, doing, func(ctx context.Context, db *Conn) error {
		affected, err = Run(ctx, db, c)
		return err
	})
	return affected, err
}

// Run executes a statement and returns the number of affected rows.
func Run(ctx context.Context, db Execer, c stmt.Call) (affected int, err error) {
	tag, err := db.Exec(ctx, c.SQL, c.Args...)
	return int(tag.RowsAffected()), err
}

// UUIDs are UUIDs in the form for the database. pgx would format each uuid.UUID as text
// and parse that again; bytes are sent unchanged.
type UUIDs = [][16]byte

// Distinct are the ids in order, each once.
func Distinct(ids UUIDs) UUIDs {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(sorted)
}

// NonNil is the list, not nil: null is another value.
func NonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Text is null for the empty string.
func Text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// JSONText is the text of a document; null for no JSON at all.
func JSONText(raw json.RawMessage) *string { return Text(string(raw)) }

// Millis rounds up, so that nothing is due early; negative durations are 0.
func Millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// Execer is a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// CountLimit bounds the count of tasks for a list. A filter that selects more sets
// TaskPage.CountIsBound: counting further would read the whole ledger for a number
// without use.
const CountLimit = 100_000

// PlanForValues is for statements whose index depends on the filters that are set; the
// batch is one transaction.
const PlanForValues = `select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
	set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)`
