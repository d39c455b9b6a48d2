package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const hopYAML = `
name: hop
namespace_name: chains
version: 1.0.0
input_schema: {type: object, properties: {left: {type: integer}}}
steps:
  - name: only
    handler: {callable: hop}
    retry: {retryable: true, max_attempts: 1000, backoff: fixed, backoff_base_ms: 1}
`

const leafYAML = `
name: leaf
namespace_name: leaves
version: 2.0.0
input_schema: {type: object, required: [n], properties: {n: {type: integer}}}
steps:
  - {name: only, handler: {callable: leaf}}
`

// astray counts invalid links between tasks: an accepted execution with a number of next
// tasks other than one, a next task without an accepted execution, and a one-sided link.
const astray = `
select (select count(*) from (select from tasker.step_attempts a left join tasker.v_task_continuations c using (task_uuid, token)
                              where a.outcome = 1 and a.result ? 'left' group by a.task_uuid, a.token having count(c.continued_by) <> 1) w)
     + (select count(*) from tasker.v_task_continuations c left join tasker.step_attempts a on a.task_uuid = c.task_uuid and a.token = c.token and a.outcome = 1
                              where a.task_uuid is null)
     + (select count(*) from tasker.tasks n left join tasker.v_task_continuations c on c.continued_by = n.task_uuid and c.task_uuid = n.continues_task_uuid
                              where n.continues_task_uuid is not null and c.task_uuid is null)`

type hopInput struct {
	Left int    `json:"left"`
	Key  string `json:"key"`
}

// hops counts down, a task for each number.
func hops(_ *worker.StepContext, in hopInput) (any, error) {
	if in.Left == 0 {
		return "there", nil
	}
	return worker.Continue[any](map[string]int{"left": in.Left}, worker.NextTask{Context: fmt.Appendf(nil, `{"left":%d,"key":%q}`, in.Left-1, in.Key)})
}

// chains runs an engine with the two templates.
func chains(t *testing.T, hop worker.HandlerFunc, options ...enginetest.Option) *enginetest.Engine {
	t.Helper()
	return enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, hopYAML, leafYAML), w.Register("hop", hop),
			w.Register("leaf", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "leaf", nil })))
	}, options...)
}

// last follows a chain without branches to its end.
func last(t *testing.T, e *enginetest.Engine, id uuid.UUID) (*store.Task, int) {
	t.Helper()
	for n := 0; ; n++ {
		task := e.Await(id)
		if len(task.ContinuedBy) == 0 {
			return task, n
		}
		require.Len(t, task.ContinuedBy, 1)
		id = task.ContinuedBy[0]
	}
}

// Fields that a handler leaves empty come from its task, and both tasks show each other.
func TestATaskContinuesAnother(t *testing.T) {
	t.Parallel()
	for name, hop := range map[string]worker.HandlerFunc{
		"plain": func(*worker.StepContext) (any, error) {
			return worker.Continue(map[string]int{"left": 1}, worker.NextTask{Namespace: "leaves", Name: "leaf", Version: "2.0.0", StartIn: 50 * time.Millisecond})
		},
		"in a transaction": worker.TypedTx(func(c *worker.StepContext, tx pgx.Tx, _ hopInput) (map[string]int, error) {
			if _, err := tx.Exec(c, `create table beside (n int)`); err != nil {
				return nil, err
			}
			return worker.Continue(map[string]int{"left": 1}, worker.NextTask{Namespace: "leaves", Name: "leaf", Version: "2.0.0", StartIn: 50 * time.Millisecond})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metrics := telemetry.Discard()
			e := chains(t, hop, func(_ *orchestration.Config, wc *worker.Config) { wc.Metrics = metrics })
			priority, parent := 7, uuid.New()
			created, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "chains", Name: "hop", Version: "1.0.0", Priority: &priority,
				Context: json.RawMessage(`{"left":9,"n":3}`), Initiator: "Ada", SourceSystem: "shop", Tags: []string{"a", "b"}, ParentCorrelationID: &parent})
			require.NoError(t, err)
			task := e.Await(created.UUID)
			require.Equal(t, workflow.TaskComplete, task.State)
			require.JSONEq(t, `{"left":1}`, string(task.Steps[0].Result))
			require.Nil(t, task.ContinuesTask)
			require.Len(t, task.ContinuedBy, 1)
			next := e.Await(task.ContinuedBy[0])
			require.Equal(t, workflow.TaskComplete, next.State)
			require.Equal(t, "leaf", next.Plan.Template.Name)
			require.Equal(t, task.UUID, *next.ContinuesTask)
			require.JSONEq(t, `{"left":9,"n":3}`, string(next.Context))
			require.Equal(t, task.CorrelationID, next.CorrelationID)
			require.Equal(t, parent, *next.ParentCorrelationID)
			require.Equal(t, 7, next.Priority)
			require.Equal(t, []string{"a", "b"}, next.Tags)
			require.Equal(t, "Ada", *next.Initiator)
			require.Equal(t, "shop", *next.SourceSystem)
			require.NotNil(t, next.StartAt)
			require.Zero(t, e.DB.QueryInt(t, astray))
			require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.v_task_continuations c where c.task_uuid = $1 and c.step_name = 'only'
				and c.step_uuid = tasker.step_uuid($1, 0)`, task.UUID))
			history, err := e.Store.Timeline(t.Context(), task.UUID)
			require.NoError(t, err)
			require.Contains(t, history.Events, store.TaskEvent{Seconds: history.Events[1].Seconds, From: "steps_in_process", To: "steps_in_process",
				Actor: "test", Reason: "continued by " + next.UUID.String()})
			require.Eventually(t, func() bool { return testutil.ToFloat64(metrics.TasksCreated.WithLabelValues("leaves")) == 1 }, patience, 5*time.Millisecond)
			require.Eventually(t, func() bool { return e.Worker.Host().TransactionPool().Acquired == 0 }, patience, 5*time.Millisecond)
		})
	}
}

// A task that continues itself repeatedly leaves only its history, also if worker and
// orchestrator share a process.
func TestAChainGrowsNothing(t *testing.T) {
	t.Parallel()
	for _, near := range []bool{false, true} {
		t.Run(fmt.Sprintf("near=%v", near), func(t *testing.T) {
			t.Parallel()
			e := chains(t, worker.Typed(hops))
			if near {
				e.Orchestrator.ServeFirst(e.Worker.Host())
			}
			growsNothing(t, e)
		})
	}
}

func growsNothing(t *testing.T, e *enginetest.Engine) {
	const links = 60
	first := e.Submit("chains", "hop", fmt.Sprintf(`{"left":%d,"key":"x"}`, links))
	end, n := last(t, e, first)
	require.Equal(t, links, n)
	require.Equal(t, first, end.CorrelationID, "the chain is one correlation")
	require.Zero(t, e.DB.QueryInt(t, astray))
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.task_identities`), "only the first task was requested")
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.board`))

	whole, err := e.Store.Chain(t.Context(), first, store.MaxChain)
	require.NoError(t, err)
	require.Len(t, whole.Tasks, links+1)
	require.False(t, whole.MoreBefore || whole.MoreAfter)
	require.Equal(t, first, whole.Tasks[0].UUID)
	require.Equal(t, end.UUID, whole.Tasks[links].UUID)
	middle, err := e.Store.Chain(t.Context(), whole.Tasks[30].UUID, 10)
	require.NoError(t, err)
	require.True(t, middle.MoreBefore && middle.MoreAfter)
	require.Len(t, middle.Tasks, 21)
	for i, task := range middle.Tasks {
		require.Equal(t, whole.Tasks[20+i].UUID, task.UUID)
		require.Equal(t, whole.Tasks[19+i].UUID, *task.ContinuesTask)
		if i < 20 {
			require.Equal(t, []uuid.UUID{whole.Tasks[21+i].UUID}, task.ContinuedBy)
		}
	}
	_, err = e.Store.Chain(t.Context(), uuid.New(), 10)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// An existing task with the key is the next task, and chains may meet in it, or close.
func TestChainsMeetInATaskThatExists(t *testing.T) {
	t.Parallel()
	e := chains(t, worker.Typed(func(_ *worker.StepContext, in hopInput) (any, error) {
		next := worker.NextTask{IdempotencyKey: in.Key, Context: json.RawMessage(`{"left":0}`)}
		if in.Left == 0 {
			return "there", nil
		}
		return worker.Continue[any](map[string]int{"left": in.Left}, next)
	}))
	goal, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "chains", Name: "hop", Version: "1.0.0", IdempotencyKey: "goal",
		Context: json.RawMessage(`{"left":0}`), Initiator: "Ada"})
	require.NoError(t, err)
	for i := range 3 {
		task := e.Run("chains", "hop", fmt.Sprintf(`{"left":%d,"key":"goal"}`, i+1))
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Equal(t, []uuid.UUID{goal.UUID}, task.ContinuedBy)
	}
	met := e.Await(goal.UUID)
	require.Nil(t, met.ContinuesTask, "it stays as it is")
	require.Equal(t, "Ada", *met.Initiator)
	require.Zero(t, e.DB.QueryInt(t, astray))
	require.Equal(t, 4, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))

	// A ring ends for any limit.
	e.DB.Exec(t, `insert into tasker.task_events (task_uuid, from_state, to_state, actor, metadata)
		select $1, 4, 4, 'test', jsonb_build_object('continued_by', task_uuid, 'step', 0, 'token', 0) from tasker.tasks where task_uuid <> $1`, goal.UUID)
	ring, err := e.Store.Chain(t.Context(), goal.UUID, store.MaxChain)
	require.NoError(t, err)
	require.Len(t, ring.Tasks, 4)
	require.False(t, ring.MoreBefore || ring.MoreAfter)

	own, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "chains", Name: "hop", Version: "1.0.0", IdempotencyKey: "own",
		Context: json.RawMessage(`{"left":1,"key":"own"}`)})
	require.NoError(t, err)
	task := e.Await(own.UUID)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, string(task.Steps[0].Error), "the next task is the task itself")
	require.Empty(t, task.ContinuedBy)
}

// A next task that cannot be created is a permanent failure, and so is a marked one.
func TestARefusedNextTaskFailsTheStep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		next    worker.NextTask
		message string
	}{
		"schema":    {worker.NextTask{Context: json.RawMessage(`{"left":"many"}`)}, "context/left"},
		"template":  {worker.NextTask{Name: "nothing", Version: "1.0.0"}, "Template not found: chains/nothing/1.0.0"},
		"namespace": {worker.NextTask{Namespace: "nowhere", Name: "leaf"}, "Template not found: nowhere/leaf"},
		"no object": {worker.NextTask{Context: json.RawMessage(`[1]`)}, "context must be a JSON object"},
		"start":     {worker.NextTask{StartIn: -time.Second}, "the start must be within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := chains(t, func(*worker.StepContext) (any, error) { return worker.Continue[any](1, tt.next) })
			task := e.Run("chains", "hop", `{}`)
			require.Equal(t, workflow.TaskError, task.State)
			require.Equal(t, 1, task.Steps[0].Attempts)
			require.Contains(t, string(task.Steps[0].Error), "NextTaskRefused")
			require.Contains(t, string(task.Steps[0].Error), tt.message)
			require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
			require.Empty(t, task.ContinuedBy)
		})
	}
	e := chains(t, func(*worker.StepContext) (any, error) {
		_, err := worker.Continue[any](1, worker.NextTask{})
		return nil, worker.Permanent(fmt.Errorf("not so: %w", err))
	})
	task := e.Run("chains", "hop", `{}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Empty(t, task.ContinuedBy)
}

// A result rejected by the fence creates no task, and a handler that ends its transaction
// itself does not create its next task without the report.
func TestAResultThatIsRefusedContinuesNothing(t *testing.T) {
	t.Parallel()
	inside, release := make(chan uuid.UUID), make(chan struct{})
	e := chains(t, func(c *worker.StepContext) (any, error) {
		inside <- c.TaskUUID()
		<-release
		return worker.Continue(map[string]int{"left": 1}, worker.NextTask{})
	})
	id := e.Submit("chains", "hop", `{}`)
	require.Equal(t, id, <-inside)
	require.NoError(t, e.Orchestrator.Cancel(t.Context(), id, "test", "no longer wanted"))
	close(release)
	require.Equal(t, workflow.TaskCancelled, e.Await(id).State)
	require.Eventually(t, func() bool { return e.Worker.Health().Running == 0 }, patience, 5*time.Millisecond)
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Zero(t, e.DB.QueryInt(t, astray))

	ended := chains(t, worker.InTx(func(c *worker.StepContext, tx pgx.Tx) (any, error) {
		_, err := tx.Exec(c, `rollback`)
		if err != nil {
			return nil, err
		}
		return worker.Continue[any](1, worker.NextTask{})
	}))
	task := ended.Run("chains", "hop", `{}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, 1, ended.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}

// Connections are killed between the handler's end and the commit, at each relevant
// moment: one next task for the accepted execution, and none for the others.
func TestOneNextTaskAtEachCut(t *testing.T) {
	t.Parallel()
	for _, c := range cuts {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			e := chains(t, worker.TypedTx(func(ctx *worker.StepContext, tx pgx.Tx, in hopInput) (any, error) {
				if ctx.Attempt() == 1 && in.Left > 0 {
					if _, err := tx.Exec(ctx, "select 1 /*"+string(c)+"*/"); err != nil {
						return nil, err
					}
				}
				return hops(ctx, in)
			}), func(oc *orchestration.Config, wc *worker.Config) {
				wc.HeartbeatInterval = 20 * time.Millisecond
				wc.Transactions.Pool = sever(t, oc.Store.Execer(), 4)
			})
			end, n := last(t, e, e.Submit("chains", "hop", `{"left":2}`))
			require.Equal(t, workflow.TaskComplete, end.State)
			require.Equal(t, 2, n)
			require.Equal(t, 3, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
			require.Zero(t, e.DB.QueryInt(t, astray))
		})
	}
}

// The connections of plain handlers that continue are killed at any moment.
func TestChainsUnderKills(t *testing.T) {
	t.Parallel()
	count, links, enough := 20, 12, 150
	if testing.Short() {
		count, links, enough = 8, 6, 30
	}
	e := chains(t, worker.Typed(hops), func(_ *orchestration.Config, wc *worker.Config) { wc.HeartbeatInterval = 20 * time.Millisecond })
	ids := make([]uuid.UUID, count)
	for i := range ids {
		ids[i] = e.Submit("chains", "hop", fmt.Sprintf(`{"left":%d,"key":"%d"}`, links, i))
	}
	over, kills := make(chan struct{}), make(chan int, 1)
	go func() {
		killed := 0
		defer func() { kills <- killed }()
		for killed < enough {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond): // takes time: the faults are spread over the run
			}
			var n int
			err := e.Store.Execer().QueryRow(context.WithoutCancel(t.Context()), `select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
				where datname = current_database() and application_name like '%-transactions' and state <> 'idle' order by random() limit 1) v`).Scan(&n)
			if err == nil {
				killed += n
			}
		}
	}()
	for _, id := range ids {
		end, n := last(t, e, id)
		require.Equal(t, workflow.TaskComplete, end.State)
		require.Equal(t, links, n)
	}
	close(over)
	killed := <-kills
	require.Positive(t, killed)
	require.Equal(t, count*(links+1), e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Zero(t, e.DB.QueryInt(t, astray))
	t.Logf("%d kills; %d attempts for %d links", killed, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`), count*links)
}

// A handler that succeeds during the stop of its worker has its next task created, as
// others have their results reported.
func TestContinuingWhileTheWorkerStops(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{})
	e := chains(t, func(c *worker.StepContext) (any, error) {
		close(inside)
		<-c.Done()
		if !errors.Is(context.Cause(c), worker.ErrShutdown) {
			return nil, context.Cause(c)
		}
		return worker.Continue[any](map[string]int{"left": 1}, worker.NextTask{})
	})
	id := e.Submit("chains", "hop", `{}`)
	<-inside
	stopAtOnce(t, e)
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Len(t, task.ContinuedBy, 1)
	require.Zero(t, e.DB.QueryInt(t, astray))
}

// The same if it waits for a connection that is in use when the worker is stopped.
func TestContinuingWhileTheWorkerStopsAndConnectionsAreShort(t *testing.T) {
	t.Parallel()
	held, returns := make(chan struct{}), make(chan struct{})
	holder := worker.InTx(func(c *worker.StepContext, _ pgx.Tx) (any, error) {
		close(held)
		<-c.Done()
		return nil, context.Cause(c)
	})
	e := chains(t, func(c *worker.StepContext) (any, error) {
		if _, hold := c.InputValue("hold"); hold {
			return holder(c)
		}
		defer close(returns)
		return worker.Continue[any](map[string]int{"left": 1}, worker.NextTask{})
	}, func(_ *orchestration.Config, wc *worker.Config) { wc.Transactions.MaxConnections = 1 })
	e.Submit("chains", "hop", `{"hold":true}`)
	<-held
	id := e.Submit("chains", "hop", `{}`)
	<-returns
	stopAtOnce(t, e)
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Len(t, task.ContinuedBy, 1)
	require.Equal(t, 1, task.Steps[0].Attempts)
	require.Zero(t, e.DB.QueryInt(t, astray))
}

// stopAtOnce stops the worker and cancels its handlers at once, which leaves them the
// whole grace.
func stopAtOnce(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- e.Worker.Stop(ctx) }()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { s := e.Worker.Health().State; return s == "draining", s })
	require.NoError(t, e.Worker.Stop(ctx), "a second call forces it")
	require.NoError(t, <-first)
}
