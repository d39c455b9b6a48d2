package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const patience = 60 * time.Second

// shapes of tasks; their handlers are in nearby.
var shapesYAML = []string{`
name: chain
namespace_name: near
version: 1.0.0
steps:
  - {name: a, handler: {callable: count}}
  - {name: b, dependencies: [a], handler: {callable: count}}
  - {name: c, dependencies: [b], handler: {callable: count}}
  - {name: d, dependencies: [c], handler: {callable: count}}
`, `
name: flaky
namespace_name: near
version: 1.0.0
steps:
  - {name: a, handler: {callable: count}}
  - {name: b, dependencies: [a], handler: {callable: flaky}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 50}}
  - {name: c, dependencies: [b], handler: {callable: count}}
  - {name: d, dependencies: [c], handler: {callable: count}}
`, `
name: held
namespace_name: near
version: 1.0.0
steps:
  - {name: a, handler: {callable: count}}
  - {name: b, dependencies: [a], handler: {callable: held}}
  - {name: c, dependencies: [b], handler: {callable: count}}
`, `
name: diamond
namespace_name: near
version: 1.0.0
steps:
  - {name: a, handler: {callable: count}}
  - {name: l, dependencies: [a], handler: {callable: count}}
  - {name: r, dependencies: [a], handler: {callable: count}}
  - {name: m, dependencies: [l, r], handler: {callable: count}}
  - {name: z, dependencies: [m], handler: {callable: count}}
`, `
name: wide
namespace_name: near
version: 1.0.0
steps:
  - {name: a, handler: {callable: count}}
  - {name: b, dependencies: [a], handler: {callable: count}}
  - {name: c, dependencies: [a], handler: {callable: count}}
  - {name: d, dependencies: [a], handler: {callable: count}}
  - {name: e, dependencies: [a], handler: {callable: count}}
  - {name: f, dependencies: [a], handler: {callable: count}}
  - {name: z, dependencies: [b, c, d, e, f], handler: {callable: count}}
`}

// nearby is a worker in the process of an orchestrator.
type nearby struct {
	metrics *telemetry.Metrics
	release chan struct{} // handlers "held" wait for it, ignoring their contexts
}

// settled is how many successes the worker has settled.
func (n *nearby) settled() float64 {
	return testutil.ToFloat64(n.metrics.StepsSettled.WithLabelValues(settle.Lone)) + testutil.ToFloat64(n.metrics.StepsSettled.WithLabelValues(settle.Taken))
}

// requireSettled waits until a number of successes are settled: a task may be complete
// before its worker has the answer to its last settlement.
func (n *nearby) requireSettled(t *testing.T, want float64) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		return n.settled() >= want, fmt.Sprintf("%v of %v successes are settled", n.settled(), want)
	})
	require.InDelta(t, want, n.settled(), 0)
}

func (n *nearby) register(w *worker.Worker) error {
	if err := enginetest.RegisterTemplates(w, shapesYAML...); err != nil {
		return err
	}
	// count is how many steps lie on the longest way to this one.
	count := worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
		longest := 0
		for name := range c.DependencyResults() {
			before, err := worker.ResultOf[int](c, name)
			if err != nil {
				return nil, err
			}
			longest = max(longest, before)
		}
		return longest + 1, nil
	})
	return errors.Join(w.Register("count", count),
		w.Register("flaky", worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
			if c.Attempt() < 3 {
				return nil, errors.New("not yet")
			}
			return count(c)
		})),
		w.Register("held", worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
			<-n.release
			return count(c)
		})))
}

// startNearby runs orchestrator and worker as embedded mode does.
func startNearby(t *testing.T, options ...enginetest.Option) (*enginetest.Engine, *nearby) {
	t.Helper()
	n := &nearby{metrics: telemetry.Discard(), release: make(chan struct{})}
	e := enginetest.Start(t, n.register, append(options, func(_ *orchestration.Config, c *worker.Config) { c.Metrics = n.metrics })...)
	e.Orchestrator.ServeFirst(e.Worker.Host())
	return e, n
}

func TestSettleRunsAWholeChain(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	task := e.Run("near", "chain", `{}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, enginetest.Results(task))
	n.requireSettled(t, 4)
	// Not all three for certain: while a look of the worker is due, the next step goes
	// over the board.
	require.Positive(t, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where step_no > 0 and claimed_at = enqueued_at`))
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.task_events`))
	require.Equal(t, 4, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`))
}

func TestSettleLeavesFailuresToTheBoard(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	task := e.Run("near", "flaky", `{}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 3, task.Steps[1].Attempts)
	require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, enginetest.Results(task))
	// The end of waiting for a retry is an event, so the task is taken for that step.
	n.requireSettled(t, 4)
	require.InDelta(t, 3, testutil.ToFloat64(n.metrics.StepsSettled.WithLabelValues(settle.Lone)), 0)
}

// running waits until the held step of a task runs.
func running(t *testing.T, e *enginetest.Engine, attempt int) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.DB.QueryInt(t, fmt.Sprintf(`select count(*) from tasker.board where step_no = 1 and state = 3 and attempt = %d`, attempt)) == 1, "not claimed"
	})
}

// TestSettleTakesWhatOthersWaitFor: the shortest path does not notify dependents, so such
// a task is taken.
func TestSettleTakesWhatOthersWaitFor(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	id := e.Submit("near", "held", `{}`)
	running(t, e, 1)
	after, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "near", Name: "chain", Version: "1.0.0",
		Context: json.RawMessage(`{}`), DependsOn: []uuid.UUID{id}})
	require.NoError(t, err)
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.DB.QueryInt(t, `select count(*) from tasker.board where awaited`) == 1, "no dependent is recorded"
	})
	close(n.release)
	require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	require.Equal(t, workflow.TaskComplete, e.Await(after.UUID).State)
	n.requireSettled(t, 7)
	require.InDelta(t, 2, testutil.ToFloat64(n.metrics.StepsSettled.WithLabelValues(settle.Taken)), 0)
}

func TestSettleLosesToACancel(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	id := e.Submit("near", "held", `{}`)
	running(t, e, 1)
	require.NoError(t, e.Orchestrator.Cancel(t.Context(), id, "ana", "enough"))
	close(n.release)
	require.Equal(t, workflow.TaskCancelled, e.Await(id).State)
	pgtest.Eventually(t, patience, func() (bool, string) { return e.Worker.Health().Running == 0, "still running" })
	n.requireSettled(t, 1)
}

func TestSettleLosesToTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	id := e.Submit("near", "held", `{}`)
	running(t, e, 1)
	first := e.DB.QueryInt(t, `select token from tasker.board where state = 3`)
	pgtest.Eventually(t, patience, func() (bool, string) { // a heartbeat may come in between
		e.DB.Exec(t, `update tasker.board set lease_until = clock_timestamp() where state = 3 and token = $1`, first)
		_, err := e.Store.ExpireLeases(t.Context(), store.UpTo(10), 10)
		return e.DB.QueryInt(t, `select count(*) from tasker.board where state = 3 and token > $1`, first) == 1, fmt.Sprint(err)
	})
	close(n.release) // both executions end; one of them has the claim
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 1, task.Steps[1].Attempts, "a loss uses none")
	require.Zero(t, task.Steps[1].Crashes)
	require.Equal(t, 4, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`))
}

// TestSettleBesideOthers: workers that settle and one that reports, and three
// orchestrators, decide about the same tasks at once.
func TestSettleBesideOthers(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t, func(o *orchestration.Config, w *worker.Config) { o.ApplyBatch, w.MaxConcurrent = 7, 3 })
	close(n.release)
	second := e.AnotherOrchestrator()
	e.AnotherOrchestrator()
	beside := worker.Config{Store: e.Store, EventSource: e.Bus, Publisher: e.Bus, Environment: "test",
		Events: coordinator.Config{}, MaxConcurrent: 3, Lease: 10 * time.Second, HeartbeatInterval: time.Second}
	startWorker(t, beside, "settles", n.register)
	beside.Report.Only = true
	startWorker(t, beside, "reports", n.register)
	var ids []uuid.UUID
	for i := range 240 {
		o := e.Orchestrator
		if i%2 == 1 {
			o = second
		}
		name := []string{"chain", "diamond", "flaky", "held", "wide"}[i%5]
		created, err := o.Create(t.Context(), orchestration.Request{Namespace: "near", Name: name, Version: "1.0.0", Context: fmt.Appendf(nil, `{"i":%d}`, i)})
		require.NoError(t, err)
		ids = append(ids, created.UUID)
	}
	for _, id := range ids {
		require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	}
	require.Positive(t, testutil.ToFloat64(n.metrics.StepsSettled.WithLabelValues(settle.Lone)))
	require.Positive(t, testutil.ToFloat64(n.metrics.StepsSettled.WithLabelValues(settle.Taken)))
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.board`))
	// 48 of each: 4, 5, 4 and two failures, 3, 7 attempts.
	require.Equal(t, 48*(4+5+6+3+7), e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where step_no >= 0`))
}
