// Package board reads Tasker's tables and fills them with tasks, for measuring only. All
// SQL on those tables is in sql.go.
package board

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/order/simulate"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/workflow"
)

// Board reads and fills the tables of one database. It is not safe for
// concurrent use.
type Board struct {
	db    *pgx.Conn
	dsn   string
	store *store.Store // opened when it is first needed
	calls int
}

// Open connects; the caller closes the board.
func Open(ctx context.Context, dsn string) (*Board, error) {
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the board: %w", err)
	}
	return &Board{db: db, dsn: dsn}, nil
}

// Close ends the connections.
func (b *Board) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = b.db.Close(ctx) // its error does not matter
	if b.store != nil {
		b.store.Close()
	}
}

// Live counts the tasks that have not ended.
func (b *Board) Live(ctx context.Context) (n int64, err error) {
	if err := b.db.QueryRow(ctx, liveTasks).Scan(&n); err != nil {
		return 0, fmt.Errorf("count live tasks: %w", err)
	}
	return n, nil
}

// Drained reports whether all tasks have ended. It asks less of the database than Live.
func (b *Board) Drained(ctx context.Context) (drained bool, err error) {
	var live bool
	if err := b.db.QueryRow(ctx, anyLive).Scan(&live); err != nil {
		return false, fmt.Errorf("look for live tasks: %w", err)
	}
	return !live, nil
}

// Alive reports whether a task has not ended yet.
func (b *Board) Alive(ctx context.Context, task string) (alive bool, err error) {
	if err := b.db.QueryRow(ctx, liveTask, task).Scan(&alive); err != nil {
		return false, fmt.Errorf("look for task %s: %w", task, err)
	}
	return alive, nil
}

// Times are the times of tasks that have ended, from the request to the first
// claim and to the end. Their order is any.
func (b *Board) Times(ctx context.Context, tasks []string) (claimed, ended []time.Duration, err error) {
	rows, err := b.db.Query(ctx, taskTimes, tasks)
	if err != nil {
		return nil, nil, fmt.Errorf("read the times of tasks: %w", err)
	}
	var c, e float64
	_, err = pgx.ForEachRow(rows, []any{&c, &e}, func() error {
		claimed, ended = append(claimed, seconds(c)), append(ended, seconds(e))
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the times of tasks: %w", err)
	}
	return claimed, ended, complete(len(ended), len(tasks))
}

// Recorded are the executions of the benchmark's tasks, as `tasker-ctl schedule simulate`
// reads them; the tenant of a task is what it is for.
func (b *Board) Recorded(ctx context.Context) (records []simulate.Record, err error) {
	s, err := b.Store(ctx)
	if err != nil {
		return nil, err
	}
	f := store.RecordingFilter{Namespace: load.Namespace, From: time.Now().Add(-time.Hour), To: time.Now(), TenantPath: []string{"for"}, Features: []string{"ms"}}
	for {
		page, next, err := s.Recording(ctx, f)
		if err != nil || next == uuid.Nil {
			return records, err
		}
		records, f.After = append(records, page...), next
	}
}

// LiveOf is the number of tasks of a priority that have not ended.
func (b *Board) LiveOf(ctx context.Context, priority int) (n int, err error) {
	if err = b.db.QueryRow(ctx, liveOf, priority).Scan(&n); err != nil {
		err = fmt.Errorf("count the live tasks: %w", err)
	}
	return n, err
}

// TimesFor are the times of the tasks with a reason, from the request to the end. Their order
// is any.
func (b *Board) TimesFor(ctx context.Context, reason string) ([]time.Duration, error) {
	rows, err := b.db.Query(ctx, timesFor, reason)
	if err != nil {
		return nil, fmt.Errorf("read the times of tasks: %w", err)
	}
	took, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (time.Duration, error) {
		var s float64
		err := row.Scan(&s)
		return seconds(s), err
	})
	if err != nil {
		return nil, fmt.Errorf("read the times of tasks: %w", err)
	}
	return took, nil
}

// Claims counts the claims of each value of a field of the context, in a time from the
// database's clock now on.
func (b *Board) Claims(ctx context.Context, field string, from, until time.Time) (map[string]int, error) {
	rows, err := b.db.Query(ctx, claimsOf, field, from, until)
	if err != nil {
		return nil, fmt.Errorf("count the claims: %w", err)
	}
	counts := map[string]int{}
	var value string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&value, &n}, func() error { counts[value] = n; return nil })
	if err != nil {
		return nil, fmt.Errorf("count the claims: %w", err)
	}
	return counts, nil
}

// Now is the database's clock.
func (b *Board) Now(ctx context.Context) (now time.Time, err error) {
	if err := b.db.QueryRow(ctx, clock).Scan(&now); err != nil {
		return now, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// MostClaims is how many claims were made in any time of a length.
func (b *Board) MostClaims(ctx context.Context, window time.Duration) (n int, err error) {
	if err := b.db.QueryRow(ctx, mostClaims, window).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the claims of %v: %w", window, err)
	}
	return n, nil
}

// Disorder counts the claims of tasks that were made before the task before, of the same
// value of a field and by the number n in the context, had been reported.
func (b *Board) Disorder(ctx context.Context, field string) (tasks, wrong int, err error) {
	if err := b.db.QueryRow(ctx, disorder, field).Scan(&tasks, &wrong); err != nil {
		return 0, 0, fmt.Errorf("compare the times of tasks: %w", err)
	}
	return tasks, wrong, nil
}

// Starts are the times of load.Stamp tasks from the request to the beginning
// of the handler. Their order is any.
func (b *Board) Starts(ctx context.Context, tasks []string) ([]time.Duration, error) {
	rows, err := b.db.Query(ctx, stampTimes, tasks)
	if err != nil {
		return nil, fmt.Errorf("read the stamps of handlers: %w", err)
	}
	starts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (time.Duration, error) {
		var s float64
		err := row.Scan(&s)
		return seconds(s), err
	})
	if err != nil {
		return nil, fmt.Errorf("read the stamps of handlers: %w", err)
	}
	return starts, complete(len(starts), len(tasks))
}

func complete(found, asked int) error {
	if found != asked {
		return fmt.Errorf("%d of %d tasks are recorded", found, asked)
	}
	return nil
}

// WorkSpan is the time from the first claim to the last end of all tasks.
func (b *Board) WorkSpan(ctx context.Context) (time.Duration, error) { return b.span(ctx, workSpan) }

// WholeSpan is the time from the first request to the last end of all tasks.
func (b *Board) WholeSpan(ctx context.Context) (time.Duration, error) { return b.span(ctx, wholeSpan) }

func (b *Board) span(ctx context.Context, query string) (time.Duration, error) {
	var s float64
	if err := b.db.QueryRow(ctx, query).Scan(&s); err != nil {
		return 0, fmt.Errorf("read the span of the work: %w", err)
	}
	return seconds(s), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Store is the product's own access to the database.
func (b *Board) Store(ctx context.Context) (*store.Store, error) {
	if b.store == nil {
		s, err := store.Open(ctx, store.Options{URL: b.dsn})
		if err != nil {
			return nil, fmt.Errorf("open the store: %w", err)
		}
		b.store = s
	}
	return b.store, nil
}

// Register registers the benchmark's workflows in many namespaces, and those of the
// examples in theirs.
func (b *Board) Register(ctx context.Context, namespaces []string) error {
	all, err := examples.Templates()
	if err != nil {
		return err
	}
	for _, n := range namespaces {
		templates, err := load.Templates(n)
		if err != nil {
			return err
		}
		all = append(all, templates...)
	}
	return b.RegisterTemplates(ctx, all)
}

// RegisterTemplates registers templates.
func (b *Board) RegisterTemplates(ctx context.Context, all []*workflow.Template) error {
	s, err := b.Store(ctx)
	if err != nil {
		return err
	}
	const environment = "development"
	for i, t := range all {
		all[i] = t.Resolve(environment)
	}
	if _, err := s.RegisterTemplates(ctx, store.Registrant{Environment: environment}, all); err != nil {
		return fmt.Errorf("register templates: %w", err)
	}
	return nil
}

// Create makes n tasks through the store, as an orchestrator does for one
// request with many tasks.
func (b *Board) Create(ctx context.Context, w load.Workflow, n int) error {
	s, err := b.Store(ctx)
	if err != nil {
		return err
	}
	plan, err := s.PlanNamed(ctx, w.Namespace, w.Name, "1.0.0")
	if err != nil {
		return fmt.Errorf("find the plan of %s: %w", w.Name, err)
	}
	contexts := make([]json.RawMessage, n)
	for i := range contexts {
		contexts[i] = json.RawMessage(`{"even_number":2}`)
	}
	return create(ctx, s, plan, "bench", contexts)
}

// CreateFor makes tasks of a workflow with contexts and a reason, in their order.
func (b *Board) CreateFor(ctx context.Context, w load.Workflow, reason string, contexts []json.RawMessage) error {
	s, err := b.Store(ctx)
	if err != nil {
		return err
	}
	plan, err := s.PlanNamed(ctx, w.Namespace, w.Name, "1.0.0")
	if err != nil {
		return fmt.Errorf("find the plan of %s: %w", w.Name, err)
	}
	for part := range slices.Chunk(contexts, createdAtOnce) {
		if err := create(ctx, s, plan, reason, part); err != nil {
			return err
		}
	}
	return nil
}

// createdAtOnce is how many tasks one transaction creates at most, as a request may.
const createdAtOnce = 1000

func create(ctx context.Context, s *store.Store, plan *store.Plan, reason string, contexts []json.RawMessage) error {
	batch := make([]store.NewTask, len(contexts))
	for i, context := range contexts {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an id: %w", err)
		}
		batch[i] = store.NewTask{UUID: id, Plan: plan, Context: context, CorrelationID: id, Initiator: "bench", SourceSystem: "bench", Reason: reason}
	}
	if _, err := s.CreateTasks(ctx, batch); err != nil {
		return fmt.Errorf("create tasks: %w", err)
	}
	return nil
}

// chunk is how many tasks one statement makes.
const chunk = 100_000

// GenerateWaiting inserts n waiting one-step tasks directly into the tables, spread over
// the namespaces.
func (b *Board) GenerateWaiting(ctx context.Context, namespaces []string, n int) error {
	return b.generate(ctx, generateWaiting, namespaces, n, false)
}

// GenerateFinished inserts n ended one-step tasks directly into the tables.
func (b *Board) GenerateFinished(ctx context.Context, namespaces []string, n int) error {
	return b.generate(ctx, generateFinished, namespaces, n, true)
}

func (b *Board) generate(ctx context.Context, statement string, namespaces []string, n int, ended bool) error {
	plans, queues, plan, err := b.plans(ctx, namespaces)
	if err != nil {
		return err
	}
	progress, err := progressOf(plan, ended)
	if err != nil {
		return err
	}
	for made := 0; made < n; made += chunk {
		b.calls++
		args := []any{min(chunk, n-made), strconv.Itoa(b.calls) + b.dsn, plans, queues, progress}
		if !ended {
			args = append(args, order.Priority.Lane(order.Step{}))
		}
		if _, err := b.db.Exec(ctx, statement, args...); err != nil {
			return fmt.Errorf("generate tasks: %w", err)
		}
	}
	if _, err := b.db.Exec(ctx, freshen); err != nil {
		return fmt.Errorf("freshen the statistics: %w", err)
	}
	return nil
}

func (b *Board) plans(ctx context.Context, namespaces []string) (plans, queues []int32, last *store.Plan, err error) {
	s, err := b.Store(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, n := range namespaces {
		if last, err = s.PlanNamed(ctx, n, load.OneStep.Name, "1.0.0"); err != nil {
			return nil, nil, nil, fmt.Errorf("find the plan of namespace %s: %w", n, err)
		}
		plans, queues = append(plans, last.ID), append(queues, last.Queue)
	}
	return plans, queues, last, nil
}

// progressOf is the stored progress of a one-step task.
func progressOf(plan *store.Plan, ended bool) ([]byte, error) {
	progress, effects, err := workflow.Advance(plan.Plan, workflow.TaskPending, workflow.NewProgress(plan.Plan), workflow.Rules{}, workflow.Created{})
	if err == nil && ended {
		progress, _, err = workflow.Advance(plan.Plan, effects.State, progress, workflow.Rules{}, workflow.Reported{Step: 0, Attempt: 1, Success: true})
	}
	if err != nil {
		return nil, fmt.Errorf("work out the progress of a task: %w", err)
	}
	return progress.Encode(), nil
}

// Read begins a transaction, reads the board in it, and leaves it open. With repeatable
// the transaction keeps its snapshot.
func Read(ctx context.Context, db *pgx.Conn, repeatable bool) error {
	level := pgx.ReadCommitted
	if repeatable {
		level = pgx.RepeatableRead
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		return fmt.Errorf("begin to read: %w", err)
	}
	if _, err := tx.Exec(ctx, readSomething); err != nil {
		return fmt.Errorf("read something: %w", err)
	}
	return nil // the transaction ends with the connection
}
