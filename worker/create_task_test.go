package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func TestHandlersMayCreateTasks(t *testing.T) {
	t.Parallel()
	c := newCounter(t, Config{MaxConcurrent: 4}, "notify", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
		var unknown *UnknownTemplateError
		var duplicate *DuplicateTaskError
		var invalid *InvalidTaskError
		var in struct {
			N     int
			Child bool
		}
		if err := json.Unmarshal(ctx.Input(), &in); err != nil {
			return nil, err
		}
		if err := record(ctx, tx); err != nil || in.Child {
			return nil, err
		}
		request := TaskRequest{Namespace: "books", Name: "book", Version: "1.0.0", IdempotencyKey: fmt.Sprint("child-", in.N),
			Context: json.RawMessage(`{"child":true}`), Initiator: "test"}
		child, err := ctx.CreateTask(tx, request)
		if err != nil {
			return nil, err
		}
		if _, err := ctx.CreateTask(tx, request); !errors.As(err, &duplicate) || duplicate.Existing != child.UUID {
			return nil, fmt.Errorf("the duplicate was not reported: %w", err)
		}
		bad := request
		bad.Name = "nothing"
		if _, err := ctx.CreateTask(tx, bad); !errors.As(err, &unknown) {
			return nil, fmt.Errorf("found a template that does not exist: %w", err)
		}
		bad = request
		bad.Context = json.RawMessage(`{"n":"no number"}`)
		if _, err := ctx.CreateTask(tx, bad); !errors.As(err, &invalid) {
			return nil, fmt.Errorf("took a context that does not fit the schema: %w", err)
		}
		inner, err := tx.Begin(ctx)
		if err != nil {
			return nil, err
		}
		request.IdempotencyKey += "-undone"
		if _, err := ctx.CreateTask(inner, request); err != nil {
			return nil, err
		}
		if err := inner.Rollback(ctx); err != nil {
			return nil, err
		}
		if in.N%2 == 1 && ctx.Attempt() == 1 {
			return nil, errors.New("the child must go as well")
		}
		return child.UUID, nil
	}))
	ids := c.create(t, c.tmpl, 10)
	pgtest.Eventually(t, patient, func() (bool, string) {
		c.orchestrate(t)
		n := c.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`)
		return n == 20, fmt.Sprintf("%d of 20 steps", n)
	})
	c.finish(t, ids, workflow.TaskComplete)
	require.Equal(t, 20, c.books())
	require.Equal(t, 10, c.db.QueryInt(t, `select count(*) from tasker.tasks where idempotency_key like 'child-%'`))
	require.Equal(t, 10, c.db.QueryInt(t, `select count(*) from tasker.tasks c join tasker.tasks p on p.correlation_id = c.parent_correlation_id where c.idempotency_key is not null`))
	pgtest.Eventually(t, patient, func() (bool, string) { // counted after the commit becomes visible
		n := testutil.ToFloat64(c.metrics.TasksCreated.WithLabelValues("books"))
		return n >= 10, fmt.Sprint(n, " are counted")
	})
	require.InDelta(t, 10, testutil.ToFloat64(c.metrics.TasksCreated.WithLabelValues("books")), 0)
	for _, id := range ids {
		task, err := c.Task(t.Context(), id)
		require.NoError(t, err)
		var child uuid.UUID
		require.NoError(t, json.Unmarshal(task.Steps[0].Result, &child))
		made, err := c.Task(t.Context(), child)
		require.NoError(t, err)
		require.Equal(t, workflow.TaskComplete, made.State)
	}
}

// A handler with its own transaction: the engine does not see its commit, so the signal
// must be part of it.
func TestTasksCreatedInATransactionOfTheHandlersOwn(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, booksYAML)
	pool := b.db.Pool(t)
	cfg := Config{Events: quick()}
	cfg.Events.Poller.Interval = time.Minute // only a signal finds the child in time
	w := b.worker(t, cfg, tmpl)
	require.NoError(t, w.Register("book", HandlerFunc(func(ctx *StepContext) (any, error) {
		if _, child := ctx.InputValue("child"); child {
			return "child", nil
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := ctx.CreateTask(tx, TaskRequest{Namespace: "books", Name: "book", Version: "1.0.0", Context: json.RawMessage(`{"child":true}`)}); err != nil {
			return nil, err
		}
		return nil, tx.Commit(ctx)
	})))
	start(t, w)
	b.finish(t, b.create(t, tmpl, 1), workflow.TaskComplete)
	pgtest.Eventually(t, patient, func() (bool, string) {
		b.orchestrate(t)
		return b.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`) == 2, "the child has not run"
	})
}
