package store

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

// args are the arguments of a statement by name.
type args = stmt.Args

// constants are the numbers and texts that statements name; see schema.sql.
var constants = stmt.Constants{
	"no_step": "0", "scheduled": number(boardScheduled), "claimable": number(boardClaimable), "in_progress": number(boardInProgress), "reported": number(boardReported),
	"by_engine": number(engineQueue), // the callable of steps that the engine runs

	// Outcomes of attempts.
	"success": number(workflow.OutcomeSuccess), "lease_lost": number(workflow.OutcomeLeaseLost), "cancelled": number(workflow.OutcomeCancelled),

	// States of tasks.
	"task_pending": number(workflow.TaskPending), "task_in_process": number(workflow.TaskStepsInProcess),
	"task_waiting_for_dependencies": number(workflow.TaskWaitingForDependencies), "task_waiting_for_retry": number(workflow.TaskWaitingForRetry),
	"task_complete": number(workflow.TaskComplete), "task_error": number(workflow.TaskError),

	// Kinds of messages about tasks.
	"ended": number(messageEnded), "stop": number(messageStop), "dependencies": number(messageDependencies), "dependency_failed": number(messageFailed),

	"overlap_skip":  number(schedule.OverlapSkip),
	"worker_active": number(WorkerActive), "worker_stale": number(WorkerStale), "worker_dead": number(WorkerDead),
	"pending":   number(ResolutionPending),
	"stale":     number(workflow.DeadLetterStaleness),
	"separator": `E'\x1f'`, // stmt.Separator
}

func number[E ~int | ~int16](e E) string { return strconv.Itoa(int(e)) }

// compile makes a statement of its text, see package stmt.
func compile(text string) *stmt.Statement { return stmt.New(text, constants) }

// readAll is a repeatable flow of one statement; it returns the rows.
func readAll[T any](ctx context.Context, s *Store, flow, doing string, c stmt.Call) (list []T, err error) {
	err = s.repeatable(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		list, err = stmt.All[T](ctx, db, c)
		return err
	})
	return list, err
}

// readOne is readAll for one row; without one the error wraps ErrNotFound.
func readOne[T any](ctx context.Context, s *Store, flow, doing string, c stmt.Call) (row T, err error) {
	err = s.repeatable(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		row, err = oneOf[T](ctx, db, c)
		return err
	})
	return row, err
}

// oneOf returns the only row of a statement, or ErrNotFound.
func oneOf[T any](ctx context.Context, db stmt.Querier, c stmt.Call) (T, error) {
	row, err := stmt.One[T](ctx, db, c)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return row, err
}

// execute is a repeatable flow of one statement; it returns the number of affected rows.
func execute(ctx context.Context, s *Store, flow, doing string, c stmt.Call) (affected int, err error) {
	err = s.repeatable(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		affected, err = run(ctx, db, c)
		return err
	})
	return affected, err
}

// run executes a statement and returns the number of affected rows.
func run(ctx context.Context, db execer, c stmt.Call) (affected int, err error) {
	tag, err := db.Exec(ctx, c.SQL, c.Args...)
	return int(tag.RowsAffected()), err
}

// uuids are UUIDs in the form for the database. pgx would format each uuid.UUID as text
// and parse that again; bytes are sent unchanged.
type uuids = [][16]byte

// distinct are the ids in order, each once.
func distinct(ids uuids) uuids {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(sorted)
}

// nonNil is the list, not nil: null is another value.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// text is null for the empty string.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// jsonText is the text of a document; null for no JSON at all.
func jsonText(raw json.RawMessage) *string { return text(string(raw)) }

// millis rounds up, so that nothing is due early; negative durations are 0.
func millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// execer is a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// CountLimit bounds the count of tasks for a list. A filter that selects more sets
// TaskPage.CountIsBound: counting further would read the whole ledger for a number
// without use.
const CountLimit = 100_000

// planForValues is for statements whose index depends on the filters that are set; the
// batch is one transaction.
const planForValues = `select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
	set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)`
