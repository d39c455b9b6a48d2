package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const mixedYAML = `
name: mixed
namespace_name: mixed
version: 1.0.0
steps:
  - {name: a, handler: {callable: plain}}
  - {name: b, dependencies: [a], handler: {callable: transaction}}
  - {name: c, dependencies: [b], handler: {callable: plain}}
  - {name: d, dependencies: [c], handler: {callable: transaction}}
`

// With both daemons in one process, steps in transactions and others alternate: the
// former are reported, the latter settled, and none of them twice.
func TestTransactionsBesideSettlements(t *testing.T) {
	t.Parallel()
	n := &nearby{metrics: telemetry.Discard()}
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("mixed.yaml", []byte(mixedYAML))
		return errors.Join(err, w.RegisterTemplate(tmpl),
			w.Register("plain", worker.HandlerFunc(func(c *worker.StepContext) (any, error) { return c.StepName(), nil })),
			w.Register("transaction", worker.InTx(func(c *worker.StepContext, tx pgx.Tx) (any, error) {
				_, err := tx.Exec(c, `insert into kept (task_uuid, step, token) values ($1, $2, $3)`, c.TaskUUID(), c.StepName(), c.Token())
				return c.StepName(), err
			})))
	}, func(oc *orchestration.Config, wc *worker.Config) {
		_, err := oc.Store.Execer().Exec(t.Context(), `create table kept (task_uuid uuid, step text, token bigint, primary key (task_uuid, step))`)
		require.NoError(t, err)
		wc.Metrics = n.metrics
	})
	e.Orchestrator.ServeFirst(e.Worker.Host())
	const tasks = 40
	ids := make([]uuid.UUID, tasks)
	for i := range ids {
		ids[i] = e.Submit("mixed", "mixed", fmt.Sprintf(`{"i":%d}`, i))
	}
	for _, id := range ids {
		task := e.Await(id)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Equal(t, map[string]string{"a": `"a"`, "b": `"b"`, "c": `"c"`, "d": `"d"`}, enginetest.Results(task))
	}
	require.Equal(t, 2*tasks, e.DB.QueryInt(t, `select count(*) from kept k join tasker.step_attempts a using (task_uuid, token) where a.outcome = 1`))
	require.Positive(t, n.settled())
	require.LessOrEqual(t, n.settled(), float64(2*tasks), "a step reported in its transaction is not settled")
	pgtest.Eventually(t, patience, func() (bool, string) {
		h := e.Worker.Health()
		return h.Succeeded == 4*tasks, fmt.Sprintf("%+v", h)
	})
	h := e.Worker.Health()
	require.Zero(t, h.Stale+h.Failed)
}

// TestTheDatabaseDoesNotTakeATransaction: a step whose transaction the database has no room for runs again until it
// has, and uses no attempt.
func TestTheDatabaseDoesNotTakeATransaction(t *testing.T) {
	t.Parallel()
	const yaml = `
name: %s
namespace_name: room
version: 1.0.0
steps:
  - {name: only, handler: {callable: %s}, retry: {max_attempts: %d, backoff: fixed, backoff_base_ms: 1}}
`
	const refuse = `create sequence refused; create function refuse() returns trigger language plpgsql as $$
		begin
			if %s and nextval('refused') <= %d then raise exception 'no room' using errcode = '53100'; end if;
			return new;
		end $$; create %s trigger refuse before %s for each row execute function refuse()`
	cases := map[string]struct {
		when, trigger, event string
		times, attempts      int
		state                workflow.TaskState
		ran                  int64
	}{
		"report":            {`old.state = 3 and new.state = 4 and new.outcome = 1`, "", "update on tasker.board", 2, 2, workflow.TaskComplete, 3},
		"next task":         {`new.correlation_id is not null and exists (select from kept where task_uuid <> new.task_uuid)`, "", "insert on tasker.tasks", 2, 2, workflow.TaskComplete, 3},
		"handler":           {`true`, "", "insert on kept", 2, 2, workflow.TaskComplete, 3},
		"only attempt":      {`true`, "", "insert on kept", 2, 1, workflow.TaskError, 1},
		"commit":            {`true`, "constraint", "insert on kept", 2, 2, workflow.TaskComplete, 3},
		"again, and others": {`new.step = 'only'`, "", "insert on kept", 1_000_000, 2, workflow.TaskError, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran atomic.Int64
			e := enginetest.Start(t, func(w *worker.Worker) error {
				var failed []error
				for name, attempts := range map[string]int{"tx": c.attempts, "next": 1, "other": 1} {
					tmpl, _, err := template.Parse("room.yaml", fmt.Appendf(nil, yaml, name, name, attempts))
					failed = append(failed, err, w.RegisterTemplate(tmpl))
				}
				plain := worker.HandlerFunc(func(*worker.StepContext) (any, error) { return nil, nil })
				return errors.Join(append(failed, w.Register("next", plain), w.Register("other", plain),
					worker.HandleTx(w, "tx", func(c *worker.StepContext, tx pgx.Tx, _ struct{}) (any, error) {
						ran.Add(1)
						if _, err := tx.Exec(c, `insert into kept (task_uuid, step, token) values ($1, $2, $3)`, c.TaskUUID(), c.StepName(), c.Token()); err != nil {
							return nil, err
						}
						return worker.Continue[any](nil, worker.NextTask{Name: "next", Version: "1.0.0"})
					}))...)
			}, func(oc *orchestration.Config, _ *worker.Config) {
				trigger := fmt.Sprintf(refuse, c.when, c.times, c.trigger, c.event)
				if c.trigger != "" {
					trigger = strings.Replace(trigger, "before insert on kept", "after insert on kept deferrable initially deferred", 1)
				}
				_, err := oc.Store.Execer().Exec(t.Context(), `create table kept (task_uuid uuid, step text, token bigint, primary key (task_uuid, step)); `+trigger)
				require.NoError(t, err)
			})
			id := e.Submit("room", "tx", `{}`)
			if c.ran == 0 {
				n := 0
				pgtest.Eventually(t, patience, func() (bool, string) {
					n++
					e.Await(e.Submit("room", "other", fmt.Sprintf(`{"n":%d}`, n)))
					ends, err := e.Store.TaskEnds(t.Context(), []uuid.UUID{id})
					require.NoError(t, err)
					return ends[id] != 0, "the step goes on for ever"
				})
			}
			task := e.Await(id)
			require.Equal(t, c.state, task.State, "%s", task.Steps[0].Error)
			if c.ran > 0 {
				require.Equal(t, c.ran, ran.Load())
				require.Equal(t, 1, task.Steps[0].Attempts)
			}
			require.Equal(t, c.state == workflow.TaskComplete, e.DB.QueryInt(t, `select count(*) from kept`) == 1)
		})
	}
}

// A workflow that creates another one, with both ends checked.
func TestATransactionThatCreatesTasks(t *testing.T) {
	t.Parallel()
	const yaml = `
name: %s
namespace_name: families
version: 1.0.0
steps:
  - {name: only, handler: {callable: %s}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 1}}
`
	e := enginetest.Start(t, func(w *worker.Worker) error {
		var failed []error
		for name, callable := range map[string]string{"parent": "parent", "child": "child"} {
			tmpl, _, err := template.Parse("family.yaml", fmt.Appendf(nil, yaml, name, callable))
			failed = append(failed, err, w.RegisterTemplate(tmpl))
		}
		return errors.Join(append(failed,
			worker.HandleTx(w, "parent", func(c *worker.StepContext, tx pgx.Tx, in struct{ Attempts, Children int }) ([]uuid.UUID, error) {
				children := make([]uuid.UUID, in.Children)
				for i := range children {
					made, err := c.CreateTask(tx, worker.TaskRequest{Namespace: "families", Name: "child", Version: "1.0.0",
						Context: json.RawMessage(`{}`), IdempotencyKey: fmt.Sprint(c.TaskUUID(), "/", i)})
					if err != nil {
						return nil, err
					}
					children[i] = made.UUID
				}
				if c.Attempt() < in.Attempts {
					return nil, errors.New("none of them must be there")
				}
				return children, nil
			}),
			w.Register("child", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "done", nil })))...)
	})
	task := e.Run("families", "parent", `{"attempts":3,"children":5}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 3, task.Steps[0].Attempts)
	var children []uuid.UUID
	require.NoError(t, json.Unmarshal(task.Steps[0].Result, &children))
	require.Len(t, children, 5)
	for _, id := range children {
		child := e.Await(id)
		require.Equal(t, workflow.TaskComplete, child.State)
		require.Equal(t, task.CorrelationID, *child.ParentCorrelationID)
	}
	require.Equal(t, 6, e.DB.QueryInt(t, `select count(*) from tasker.tasks`), "a rollback leaves no task")

	failing := e.Run("families", "parent", `{"attempts":9,"children":2}`)
	require.Equal(t, workflow.TaskError, failing.State)
	require.Equal(t, 7, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}

// An operator's cancel arrives while the handler works, at its report, and after.
func TestCancelsAroundATransaction(t *testing.T) {
	t.Parallel()
	inside, release := make(chan uuid.UUID), make(chan struct{})
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return registerPromise(w, func(c *worker.StepContext, tx pgx.Tx) (any, error) {
			result, err := keep(c, tx)
			if at, _ := c.InputValue("at"); at == "work" {
				inside <- c.TaskUUID()
				<-release
			}
			return result, err
		})
	}, func(oc *orchestration.Config, _ *worker.Config) {
		_, err := oc.Store.Execer().Exec(t.Context(), keptTable)
		require.NoError(t, err)
	})
	id := e.Submit("promises", "promise", `{"at":"work"}`)
	require.Equal(t, id, <-inside)
	require.NoError(t, e.Orchestrator.Cancel(t.Context(), id, "test", "no longer wanted"), "it waits for no handler")
	close(release)
	require.Equal(t, workflow.TaskCancelled, e.Await(id).State)
	require.Eventually(t, func() bool { h := e.Worker.Health(); return h.Stale == 1 && h.Running == 0 }, patience, 5*time.Millisecond)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from kept`))

	// At any moment: one of the two succeeds, never both.
	ids := make([]uuid.UUID, 200)
	var group sync.WaitGroup
	for i := range ids {
		id := e.Submit("promises", "promise", fmt.Sprintf(`{"i":%d}`, i))
		ids[i] = id
		group.Go(func() {
			<-time.After(time.Duration(rand.IntN(8000)) * time.Microsecond)                   // takes time: cancelled at a random moment
			_ = e.Orchestrator.Cancel(context.WithoutCancel(t.Context()), id, "test", "late") // it may have ended
		})
	}
	group.Wait()
	complete := 0
	for _, id := range ids {
		task := e.Await(id)
		if task.State == workflow.TaskComplete {
			complete++
		} else {
			require.Equal(t, workflow.TaskCancelled, task.State)
		}
	}
	require.Zero(t, e.DB.QueryInt(t, broken))
	require.Equal(t, complete, e.DB.QueryInt(t, `select count(*) from kept`))
	t.Logf("%d of %d were complete before their cancel", complete, len(ids))
}

const latecomerYAML = `
name: latecomer
namespace_name: mixed
version: 1.0.0
steps: [{name: a, handler: {callable: plain}}]
`

// said records a worker's signals.
type said struct {
	signal.Publisher
	mu     sync.Mutex
	topics []signal.Topic
}

func (s *said) Publish(signals ...signal.Signal) {
	s.mu.Lock()
	for _, one := range signals {
		s.topics = append(s.topics, one.Topic)
	}
	s.mu.Unlock()
	s.Publisher.Publish(signals...)
}

func (s *said) all() []signal.Topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.topics)
}

// The dependencies of a task created by a handler are checked by orchestrators: the
// worker signals them after the commit, as for other due work.
func TestATaskWithDependenciesFromAHandlerIsSignalled(t *testing.T) {
	t.Parallel()
	var on atomic.Pointer[uuid.UUID]
	var received said
	e := enginetest.Start(t, func(w *worker.Worker) error {
		creator, _, err := template.Parse("creator.yaml", []byte(strings.NewReplacer("latecomer", "creator", "plain", "create").Replace(latecomerYAML)))
		late, _, err2 := template.Parse("latecomer.yaml", []byte(latecomerYAML))
		return errors.Join(err, err2, w.RegisterTemplate(creator), w.RegisterTemplate(late),
			w.Register("plain", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			w.Register("create", worker.InTx(func(c *worker.StepContext, tx pgx.Tx) (any, error) {
				created, err := c.CreateTask(tx, worker.TaskRequest{Namespace: "mixed", Name: "latecomer", Version: "1.0.0",
					Context: json.RawMessage(`{"late":true}`), DependsOn: []uuid.UUID{*on.Load()}})
				return created.UUID, err
			})))
	}, func(_ *orchestration.Config, wc *worker.Config) {
		received.Publisher, wc.Publisher = wc.Publisher, &received
	})
	on.Store(&e.Run("mixed", "latecomer", `{}`).UUID)
	require.NotContains(t, received.all(), signal.TopicDue)
	var late uuid.UUID
	require.NoError(t, json.Unmarshal(e.Run("mixed", "creator", `{}`).Steps[0].Result, &late))
	require.Equal(t, workflow.TaskComplete, e.Await(late).State)
	pgtest.Eventually(t, patience, func() (bool, string) { // the commit precedes the signal
		return slices.Contains(received.all(), signal.TopicDue), fmt.Sprint(received.all())
	})
}
