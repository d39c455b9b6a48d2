package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// board submits over HTTP and reads the times in the database.
type board struct {
	db  *pgx.Conn
	api *client.Client
	n   int
}

func newBoard(ctx context.Context, dsn, url string) (*board, error) {
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return &board{db: db, api: client.New(client.Config{BaseURL: url, Timeout: 30 * time.Second})}, nil
}

func (b *board) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = b.db.Close(ctx)
}

func (b *board) submit(ctx context.Context, name string) (string, error) {
	b.n++
	task, err := b.api.CreateTask(ctx, client.TaskRequest{Name: name, Namespace: "examples", Version: "1.0.0",
		Context: json.RawMessage(fmt.Sprintf(`{"even_number":2,"run":%d}`, b.n)), Initiator: "bench", SourceSystem: "bench", Reason: "bench"})
	if err != nil {
		return "", err
	}
	return task.TaskUUID, nil
}

type result struct{ p50, p95, p99, start time.Duration }

// warmUp tasks are run before those that count: plans are cached, statements
// prepared.
const warmUp = 20

func (b *board) latency(ctx context.Context, name string, tasks, warm int) (result, error) {
	var ids []string
	for i := range tasks + warm {
		id, err := b.submit(ctx, name)
		if err != nil {
			return result{}, err
		}
		task, err := b.api.Task(ctx, id, 30*time.Second)
		if err != nil {
			return result{}, err
		}
		if task.Status != "complete" {
			return result{}, fmt.Errorf("task %s is %s", id, task.Status)
		}
		if i >= warm {
			ids = append(ids, id)
		}
	}
	var r result
	var p50, p95, p99, start float64
	err := b.db.QueryRow(ctx, `
		select percentile_cont(0.5) within group (order by took), percentile_cont(0.95) within group (order by took),
		       percentile_cont(0.99) within group (order by took), percentile_cont(0.5) within group (order by began)
		from (select extract(epoch from t.completed_at - t.requested_at)::float8 took,
		             (select extract(epoch from min(claimed_at) - t.requested_at)::float8 from tasker.step_attempts a where a.task_uuid = t.task_uuid) began
		      from tasker.tasks t where task_uuid = any ($1::uuid[])) x`, ids).Scan(&p50, &p95, &p99, &start)
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	r.p50, r.p95, r.p99, r.start = seconds(p50), seconds(p95), seconds(p99), seconds(start)
	return r, err
}

// burst submits n diamonds at once and reports the rate from the first request
// to the last end.
func (b *board) burst(ctx context.Context, n int) error {
	errs := make(chan error, 16)
	for w := range 16 {
		go func() {
			var err error
			for i := w; i < n && err == nil; i += 16 {
				_, err = b.api.CreateTask(ctx, client.TaskRequest{Name: "diamond", Namespace: "examples", Version: "1.0.0",
					Context: json.RawMessage(fmt.Sprintf(`{"even_number":2,"burst":%d}`, i)), Initiator: "bench", SourceSystem: "burst", Reason: "bench"})
			}
			errs <- err
		}()
	}
	for range 16 {
		if err := <-errs; err != nil {
			return err
		}
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		var left int
		if err := b.db.QueryRow(ctx, `select count(*) from tasker.live_tasks`).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	var took float64
	if err := b.db.QueryRow(ctx, `select extract(epoch from max(completed_at) - min(requested_at))::float8 from tasker.tasks
		where source_system = 'burst'`).Scan(&took); err != nil {
		return err
	}
	fmt.Printf("\n%d diamonds submitted at once by 16 clients: %.2f s, %.0f tasks/s, %.0f steps/s\n\n", n, took, float64(n)/took, float64(4*n)/took)
	return nil
}

// oneStep is the plain queue: a workflow of one step.
const oneStep = `
name: one_step
namespace_name: examples
version: 1.0.0
steps:
  - name: only
    handler: {callable: sequence.square_input}
`

// backlog creates n one-step tasks in transactions of 1,000.
func backlog(ctx context.Context, dsn string, n int) error {
	s, err := store.Open(ctx, store.Options{URL: dsn})
	if err != nil {
		return err
	}
	defer s.Close()
	t, _, err := workflow.ParseTemplate("one_step.yaml", []byte(oneStep))
	if err != nil {
		return err
	}
	if err := s.RegisterTemplates(ctx, "development", []*workflow.Template{t.Resolve("development")}); err != nil {
		return err
	}
	plan, err := s.PlanNamed(ctx, t.Namespace, t.Name, t.Version)
	if err != nil {
		return err
	}
	begin := time.Now()
	for made := 0; made < n; {
		batch := make([]store.NewTask, min(1000, n-made))
		for i := range batch {
			id := uuid.Must(uuid.NewV7())
			batch[i] = store.NewTask{UUID: id, Plan: plan, Context: json.RawMessage(`{"even_number":2}`), CorrelationID: id, SourceSystem: "drain"}
		}
		if _, err := s.CreateTasks(ctx, batch); err != nil {
			return err
		}
		made += len(batch)
	}
	fmt.Printf("%d one-step tasks created in transactions of 1,000: %.0f tasks/s\n", n, float64(n)/time.Since(begin).Seconds())
	return nil
}

// drain waits until the backlog is done and reports the rate from the first
// claim to the last end.
func (b *board) drain(ctx context.Context, n int) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for left := 1; left > 0; {
		if err := b.db.QueryRow(ctx, `select count(*) from tasker.live_tasks`).Scan(&left); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	var took float64
	if err := b.db.QueryRow(ctx, `select extract(epoch from max(t.completed_at) - min(a.claimed_at))::float8
		from tasker.tasks t join tasker.step_attempts a using (task_uuid) where t.source_system = 'drain'`).Scan(&took); err != nil {
		return err
	}
	fmt.Printf("%d one-step tasks drained by one worker and one orchestrator: %.2f s, %.0f tasks/s\n\n", n, took, float64(n)/took)
	return nil
}

// statements shows where the database has spent its time.
func (b *board) statements(ctx context.Context) error {
	rows, err := b.db.Query(ctx, `
		select s.calls, s.total_exec_time, s.rows, s.wal_bytes::bigint, left(regexp_replace(s.query, '\s+', ' ', 'g'), 70)
		from pg_stat_statements s join pg_database d on d.oid = s.dbid
		where d.datname = current_database() order by s.total_exec_time desc limit 14`)
	if err != nil {
		return err
	}
	fmt.Printf("%8s %10s %9s %12s  statement\n", "calls", "ms", "rows", "WAL bytes")
	var (
		calls, count, wal int64
		took              float64
		query             string
	)
	_, err = pgx.ForEachRow(rows, []any{&calls, &took, &count, &wal, &query}, func() error {
		fmt.Printf("%8d %10.1f %9d %12d  %s\n", calls, took, count, wal, query)
		return nil
	})
	fmt.Println()
	return err
}
