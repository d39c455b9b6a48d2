package enginetest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const endingYAML = `
name: ending
namespace_name: test
version: 1.0.0
steps:
  - name: left
    handler: {callable: op.ok}
    publishes_events: [{name: left.done, schema: {}}]
  - {name: right, handler: {callable: op.ok}}
  - {name: join, handler: {callable: op.tx}, dependencies: [left, right]}
  - {name: beside, handler: {callable: op.large}}
`

const loneYAML = `
name: lone
namespace_name: test
version: 1.0.0
steps: [{name: only, handler: {callable: op.ok}}]
`

// TestResultsOfEveryEnd: whether a worker that settles ends a task, an orchestrator, an operator
// or the engine, its end is an event once it is there, after those of its steps.
func TestResultsOfEveryEnd(t *testing.T) {
	t.Parallel()
	for name, only := range map[string]bool{"workers settle": false, "orchestrators decide": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperators(true)
			e := enginetest.Start(t, func(w *worker.Worker) error {
				return errors.Join(o.register(w), enginetest.RegisterTemplates(w, endingYAML, loneYAML),
					w.Register("op.large", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return strings.Repeat("x", 300_000), nil })),
					w.Register("op.tx", worker.InTx(func(ctx *worker.StepContext, tx store.Tx) (any, error) {
						_, err := tx.Exec(ctx, `select 1`)
						return "joined", err
					})))
			}, func(c *orchestration.Config, w *worker.Config) { c.DeadLetters, w.Report.Only = true, only })
			require.NoError(t, e.Store.WantResults(t.Context(), "test", true))
			operated := func() uuid.UUID {
				task := e.Submit("test", "operated", fmt.Sprintf(`{"u":%q}`, uuid.NewString()))
				<-o.running
				e.Until(task, func(got *store.Task) bool { return got.Steps[0].State == workflow.StepError })
				return task
			}
			act := func(kind orchestration.ActionKind) uuid.UUID {
				task := operated()
				require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(kind, nil)))
				return task
			}
			lone := func(change func(*orchestration.Request)) uuid.UUID {
				r := orchestration.Request{Namespace: "test", Name: "lone", Version: "1.0.0", Context: fmt.Appendf(nil, `{"u":%q}`, uuid.NewString()), Initiator: "test"}
				change(&r)
				created, err := e.Orchestrator.Create(t.Context(), r)
				require.NoError(t, err)
				return created.UUID
			}
			broken := operated()
			e.DB.Exec(t, `update tasker.board set progress = '\x09' where task_uuid = $1 and slot = 0`, broken)
			cancelled := act(orchestration.ActionCancel)
			tasks := map[string]uuid.UUID{
				"cancelled":         cancelled,
				"error by hand":     act(orchestration.ActionFail),
				"resolved_manually": act(orchestration.ActionResolveManually),
				"error broken":      broken,
				"error":             operated(),
				"complete":          lone(func(r *orchestration.Request) { r.IdempotencyKey = "key-1" }),
				"complete with":     e.Submit("test", "ending", `{}`),
				"cancelled after":   lone(func(r *orchestration.Request) { r.DependsOn = []uuid.UUID{cancelled} }),
			}
			close(o.release)
			again := tasks["error"]
			require.Equal(t, workflow.TaskError, e.Await(again).State)
			o.broken.Store(false)
			require.NoError(t, e.Orchestrator.Act(t.Context(), again, by(orchestration.ActionResetForRetry, step(t, again, "fragile"))))
			for how, task := range tasks {
				state := strings.Fields(how)[0]
				if task == again {
					state = "complete"
				}
				require.Equal(t, state, e.Await(task).State.String(), how)
			}
			require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts a where task_state is not null
				and 1 <> (select count(*) from tasker.domain_events d where d.task_uuid = a.task_uuid and d.name = 'tasker.task.' || tasker.task_state_name(a.task_state))`))
			events := func(task uuid.UUID) string {
				return e.DB.QueryString(t, `select string_agg(d.name || ' ' || case jsonb_typeof(d.payload) when 'object' then d.payload - 'task_name' - 'task_version' else d.payload end::text, ', ' order by position) from tasker.domain_events d where task_uuid = $1`, task)
			}
			require.Equal(t, len(tasks)+1, e.DB.QueryInt(t, `select count(*) from tasker.domain_events where name ~ '^tasker'`), "one came back")
			require.Equal(t, `tasker.task.complete {"state": "complete", "results": {"only": "ok"}, "idempotency_key": "key-1"}`, events(tasks["complete"]))
			require.Equal(t, `left.done "ok", tasker.task.complete {"state": "complete", "results_left_out": true}`, events(tasks["complete with"]))
			require.Contains(t, events(again), `"failure": {"error": {`)
			require.Contains(t, events(again), `"step_name": "fragile"`)
			require.Contains(t, events(again), `tasker.task.complete {"state": "complete", "results": {"last": "mended"}}`)
			require.Contains(t, events(broken), `tasker.task.error {"state": "error", "reason": "the records of the task contradict each other`)
			require.Equal(t, tasks["complete"].String()+" 0", e.DB.QueryString(t,
				`select (message->'metadata'->>'step_uuid') || ' ' || (select attempt from tasker.domain_events d where d.event_uuid = v.event_uuid) from tasker.v_domain_events v where task_uuid = $1`, tasks["complete"]))
		})
	}
}

// TestNoResultsUnlessTheyAreWanted: neither of another namespace, nor after they were given up.
func TestNoResultsUnlessTheyAreWanted(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, loneYAML, strings.Replace(loneYAML, "test", "other", 1)),
			w.Register("op.ok", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "ok", nil })))
	}, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"test", "other"} })
	published := func() int {
		e.Run("test", "lone", fmt.Sprintf(`{"u":%q}`, uuid.NewString()))
		e.Run("other", "lone", fmt.Sprintf(`{"u":%q}`, uuid.NewString()))
		return e.DB.QueryInt(t, `select count(*) from tasker.domain_events`)
	}
	require.ErrorIs(t, e.Store.WantResults(t.Context(), "none", true), store.ErrNotFound)
	require.Zero(t, published())
	require.NoError(t, e.Store.WantResults(t.Context(), "other", true))
	require.Equal(t, 1, published())
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.domain_events d join tasker.namespaces n using (namespace_id) where n.name = 'other'`))
	require.NoError(t, e.Store.WantResults(t.Context(), "test", false))
	require.Equal(t, 2, published())
	require.NoError(t, e.Store.WantResults(t.Context(), "other", false))
	require.Equal(t, 2, published())
	require.Equal(t, 1, e.DB.QueryInt(t, `select last_value from tasker.results`))
}
