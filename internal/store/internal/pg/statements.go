package pg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/enum"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Args are the arguments of a statement by name.
type Args = stmt.Args

// layout of the progress of tasks, which statements read with get_byte.
var layout = workflow.LayoutOfProgress()

// constants are the numbers and texts that statements name; see schema.sql.
var constants = stmt.Constants{
	"no_step": "0", "scheduled": number(BoardScheduled), "claimable": number(BoardClaimable), "in_progress": number(BoardInProgress), "reported": number(boardReported),
	// Whether clients follow transitions, see tasker.record_transition.
	"followed": `(select coalesce(pg_sequence_last_value('tasker.following'::regclass) > 1, false))`,
	// The same, and 2 more if a namespace wants results, see tasker.publish_result.
	"watched": `(select coalesce(pg_sequence_last_value('tasker.following'::regclass) > 1, false)::int
		+ 2 * coalesce(pg_sequence_last_value('tasker.results'::regclass) > 1, false)::int)`,
	"by_engine": number(EngineQueue), // the callable of steps that the engine runs
	"aged_lane": number(order.AgedLane),

	// Outcomes of attempts.
	"success": number(workflow.OutcomeSuccess), "failed": number(workflow.OutcomeFailed), "failed_for_good": number(workflow.OutcomeError),
	"lease_lost": number(workflow.OutcomeLeaseLost), "cancelled": number(workflow.OutcomeCancelled),

	// States of tasks.
	"task_pending": number(workflow.TaskPending), "task_in_process": number(workflow.TaskStepsInProcess),
	"task_waiting_for_dependencies": number(workflow.TaskWaitingForDependencies), "task_waiting_for_retry": number(workflow.TaskWaitingForRetry),
	"task_complete": number(workflow.TaskComplete), "task_resolved": number(workflow.TaskResolvedManually), "task_error": number(workflow.TaskError),
	"task_cancelled": number(workflow.TaskCancelled),

	// Kinds of messages about tasks.
	"ended": number(MessageEnded), "stop": number(messageStop), "dependencies": number(MessageDependencies), "dependency_failed": number(MessageFailed),
	"beyond_limit": number(MessageBeyond),

	"overlap_skip":  number(schedule.OverlapSkip),
	"worker_active": number(WorkerActive), "worker_stale": number(WorkerStale), "worker_dead": number(WorkerDead),
	"pending": number(ResolutionPending),
	"stale":   number(workflow.DeadLetterStaleness),
	// Of an encoded progress.
	"progress_header": strconv.Itoa(layout.Header), "progress_step": strconv.Itoa(layout.PerStep),
	"progress_group": strconv.Itoa(layout.PerGroup), "progress_plain": strconv.Itoa(layout.Plain),
	"progress_grouped": strconv.Itoa(layout.Grouped), "progress_ending": strconv.Itoa(layout.Ending),
	"progress_retry": strconv.Itoa(layout.Retry), "progress_max_attempts": strconv.Itoa(layout.MaxAttempts),

	// What numbers are shifted by that are not from the line of the callable.
	"not_of_callable": strconv.Itoa(1 << 62),

	"schema_version": strconv.Itoa(SchemaVersion),

	"separator": `E'\x1f'`, // stmt.Separator
}

// SchemaVersion is the newest migration that this program carries.
const SchemaVersion = 142

func number[E ~int | ~int16](e E) string { return strconv.Itoa(int(e)) }

// Rows says which rows a statement takes that picks its own. Rows have keys: the UUIDs of
// tasks, events or schedules.
type Rows struct {
	Limit  int         // at least 1
	Except []uuid.UUID // are left out
	Only   []uuid.UUID // no others are taken; nil: all may be
}

// UpTo are any rows up to a number.
func UpTo(limit int) Rows { return Rows{Limit: limit} }

// Args are the arguments of InRows, and the limit.
func (r Rows) Args() Args {
	return Args{"limit": r.Limit, "except": NonNil(r.Except), "only": r.Only}
}

// InRows is the condition that a column with the keys of Rows meets.
func InRows(column string) string {
	return `(` + column + ` <> all (@except::uuid[]) and (@only::uuid[] is null or ` + column + ` = any (@only::uuid[])))`
}

// Compile makes a statement of its text, see package stmt.
func Compile(text string) *stmt.Statement { return stmt.New(text, constants) }

// Read is a repeatable flow with a result.
func Read[T any](ctx context.Context, s *DB, flow, doing string, fn func(ctx context.Context, db *Conn) (T, error)) (read T, err error) {
	err = s.Repeatable(ctx, flow, doing, func(ctx context.Context, db *Conn) error {
		read, err = fn(ctx, db)
		return err
	})
	return read, err
}

// Change is Transaction with a result, which fn returns with the signals to send.
func Change[T any](ctx context.Context, s *DB, flow, doing string, fn func(ctx context.Context, tx pgx.Tx) (T, []signal.Signal, error)) (done T, err error) {
	err = s.Transaction(ctx, flow, doing, func(ctx context.Context, tx pgx.Tx) (signals []signal.Signal, err error) {
		done, signals, err = fn(ctx, tx)
		return signals, err
	})
	return done, err
}

// ReadAll is Read of one statement; it returns the rows.
func ReadAll[T any](ctx context.Context, s *DB, flow, doing string, c stmt.Call) ([]T, error) {
	return Read(ctx, s, flow, doing, func(ctx context.Context, db *Conn) ([]T, error) { return stmt.All[T](ctx, db, c) })
}

// ReadOne is ReadAll for one row; without one the error wraps ErrNotFound.
func ReadOne[T any](ctx context.Context, s *DB, flow, doing string, c stmt.Call) (T, error) {
	return Read(ctx, s, flow, doing, func(ctx context.Context, db *Conn) (T, error) { return OneOf[T](ctx, db, c) })
}

// ReadMap is ReadAll that returns a map: of makes an entry of each row.
func ReadMap[T any, K comparable, V any](ctx context.Context, s *DB, flow, doing string, c stmt.Call, of func(row *T) (K, V)) (map[K]V, error) {
	rows, err := ReadAll[T](ctx, s, flow, doing, c)
	m := make(map[K]V, len(rows))
	for i := range rows {
		k, v := of(&rows[i])
		m[k] = v
	}
	return m, err
}

// OneOf returns the only row of a statement, or ErrNotFound.
func OneOf[T any](ctx context.Context, db stmt.Querier, c stmt.Call) (T, error) {
	row, err := stmt.One[T](ctx, db, c)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return row, err
}

// Execute is Read of one statement; it returns the number of affected rows.
func Execute(ctx context.Context, s *DB, flow, doing string, c stmt.Call) (affected int, err error) {
	return Read(ctx, s, flow, doing, func(ctx context.Context, db *Conn) (int, error) { return Run(ctx, db, c) })
}

// Run executes a statement and returns the number of affected rows.
func Run(ctx context.Context, db Execer, c stmt.Call) (affected int, err error) {
	tag, err := db.Exec(ctx, c.SQL, c.Args...)
	return int(tag.RowsAffected()), err
}

// Find executes a statement that must affect rows; without any the error is ErrNotFound.
func Find(ctx context.Context, db Execer, c stmt.Call) error {
	affected, err := Run(ctx, db, c)
	if err == nil && affected == 0 {
		return ErrNotFound
	}
	return err
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

// Column is a value of each row.
func Column[T, V any](rows []T, of func(row *T) V) []V {
	list := make([]V, len(rows))
	for i := range rows {
		list[i] = of(&rows[i])
	}
	return list
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

// Execer is a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// CountLimit bounds the counts of lists, and how deep their pages go. What has more sets
// CountIsBound: counting further would read the whole ledger for a number
// without use.
const CountLimit = 100_000

// PlanForValues is for statements whose index depends on the filters that are set; the
// batch is one transaction. The costs of the pools make the planner think of parallel workers
// for a few thousand rows, and starting those takes longer than reading them.
const PlanForValues = `select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
	set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true), set_config('max_parallel_workers_per_gather', '0', true)`

// The states of the board's rows.
const (
	BoardScheduled int16 = iota + 1 // or waiting
	BoardClaimable
	BoardInProgress
	boardReported
)

// EngineQueue is the queue of steps that the engine runs: no worker claims from it,
// whatever the task's namespace.
const EngineQueue = 0

// The kinds of messages about tasks, as in the column.
const (
	MessageEnded        int16 = iota + 1 // it has ended and has dependents
	messageStop                          // cancel it, its step was called off
	MessageDependencies                  // check its dependencies
	MessageFailed                        // cancel it, a dependency has failed
	MessageBeyond                        // cancel it, a step of it is beyond a limit
)

// The classes of the product's advisory locks: of turns, whose objects are callables, or the one
// below; of sorting the steps of limited callables by keys; and, shared, of creations that place
// them in the lines of keys.
const (
	TurnLock        = 0x7461736b
	SortLock        = TurnLock + 1
	PlaceLock       = TurnLock + 2
	EventTurnObject = -3
)

// WorkerStatus is the fleet's judgement of a worker. The numbers are stored.
type WorkerStatus int16

// The statuses. A dead worker stays dead: its process registers again under a new UUID.
const (
	WorkerActive WorkerStatus = iota + 1
	WorkerStale
	WorkerDead
)

var workerStatusNames = enum.Names[WorkerStatus]{WorkerActive: "active", WorkerStale: "stale", WorkerDead: "dead"}

// String is the name used in JSON and metrics.
func (s WorkerStatus) String() string { return workerStatusNames.Name(s) }

// Resolution is the outcome of a dead letter. The numbers are stored.
type Resolution int16

// The resolutions.
const (
	ResolutionPending Resolution = iota + 1
	ResolutionManuallyResolved
	ResolutionPermanentlyFailed
	ResolutionCancelled
)

var resolutionNames = enum.Names[Resolution]{
	ResolutionPending: "pending", ResolutionManuallyResolved: "manually_resolved",
	ResolutionPermanentlyFailed: "permanently_failed", ResolutionCancelled: "cancelled",
}

// AllResolutions lists all resolutions.
func AllResolutions() []Resolution { return resolutionNames.All() }

// String is the snake_case name.
func (r Resolution) String() string { return resolutionNames.Name(r) }

// OperatorAction is an action of an operator, or a dry run of one.
type OperatorAction struct {
	Actor            string
	Action           string // such as cancel or pause_namespace
	Reason           string
	Target           any // the selection, written as JSON
	Matched, Changed int // numbers of selected and changed items
	DryRun           bool
}

// Runner runs statements, with and without rows.
type Runner interface {
	Execer
	stmt.Querier
}

// ActionRecord is the record of an operator's action, written in the transactions that
// perform it: the first makes it, each later one adds what it changed, and moves its time.
// nil records nothing. It is not safe for concurrent use.
type ActionRecord struct {
	OperatorAction
	id int64 // 0, or that of a transaction that was rolled back: it is still to be made
}

// Add records changed items of the action in a transaction.
func (r *ActionRecord) Add(ctx context.Context, tx Runner, changed int) error {
	if r == nil {
		return nil
	}
	if r.id != 0 {
		n, err := Run(ctx, tx, addToAction.With(Args{"action_id": r.id, "changed": changed}))
		if err != nil || n > 0 {
			return err
		}
	}
	a := r.OperatorAction
	a.Changed = changed
	record, err := a.record()
	if err == nil {
		r.id, err = stmt.One[int64](ctx, tx, record)
	}
	return err
}

// Index: the primary keys; that of tasks.
var (
	// recordAction adds the namespace of the task that an action is about, so that its operators find it.
	recordAction = Compile(`
insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run)
select @actor, @action, @reason, coalesce((select jsonb_build_object('namespace', n.name) from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue
    where t.task_uuid = (w.target ->> 'task_uuid')::uuid), '{}') || w.target, @matched, @changed, @dry_run
from (select @target::jsonb as target) w returning action_id`)
	addToAction = Compile(`update tasker.operator_actions set changed = changed + @changed, at = clock_timestamp() where action_id = @action_id`)
)

// InsertAction records an action on a connection or in a transaction.
func InsertAction(ctx context.Context, db Execer, a OperatorAction) error {
	record, err := a.record()
	if err == nil {
		_, err = Run(ctx, db, record)
	}
	return err
}

func (a *OperatorAction) record() (stmt.Call, error) {
	target := []byte(`{}`)
	if a.Target != nil {
		var err error
		if target, err = json.Marshal(a.Target); err != nil {
			return stmt.Call{}, fmt.Errorf("encode the target of the action: %w", err)
		}
	}
	return recordAction.With(Args{"actor": a.Actor, "action": a.Action, "reason": a.Reason, "target": string(target),
		"matched": a.Matched, "changed": a.Changed, "dry_run": a.DryRun}), nil
}

// errDry rolls back a dry run.
var errDry = errors.New("dry run")

// Recorded is Change of one thing by an operator, together with its record: fn returns the
// changed thing and what names it. The signals are of one topic; empty: none. A dry run is
// undone.
func Recorded[T any](ctx context.Context, s *DB, flow, doing string, by OperatorAction, topic signal.Topic,
	fn func(ctx context.Context, tx pgx.Tx) (T, map[string]any, error)) (done T, signals []signal.Signal, err error) {
	err = s.Transaction(ctx, flow, doing, func(ctx context.Context, tx pgx.Tx) (_ []signal.Signal, err error) {
		if done, by.Target, err = fn(ctx, tx); err != nil {
			return nil, err
		}
		if by.DryRun {
			return nil, errDry
		}
		if signals = nil; topic != "" {
			signals = []signal.Signal{{Topic: topic}}
		}
		by.Matched, by.Changed = 1, 1
		return signals, InsertAction(ctx, tx, by)
	})
	if errors.Is(err, errDry) {
		err = nil
	}
	return done, signals, err
}
