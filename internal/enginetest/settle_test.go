package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
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
`}

// nearby is a worker's orchestrator in the same process. It counts what was
// accepted.
type nearby struct {
	orchestrator   atomic.Pointer[orchestration.Orchestrator]
	accepted, next atomic.Int64
	failing        atomic.Bool
	release        chan struct{} // handlers "held" wait for it, whatever happens to them
}

func (n *nearby) Settle(ctx context.Context, taker store.ClaimRequest, list []store.Settlement) ([]store.Settled, error) {
	answers, err := n.orchestrator.Load().Settle(ctx, taker, list)
	for _, a := range answers {
		if a.Accepted {
			n.accepted.Add(1)
		}
		if a.Next != nil {
			n.next.Add(1)
		}
	}
	if n.failing.Load() {
		return nil, errors.New("the answer was lost")
	}
	return answers, err
}

// settled waits until a number of answers have come: a task may be seen complete
// before its worker has the answer to its last settlement.
func (n *nearby) settled(t *testing.T, accepted int64) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		now := n.accepted.Load()
		return now >= accepted, fmt.Sprintf("%d of %d settlements are accepted", now, accepted)
	})
	require.Equal(t, accepted, n.accepted.Load())
}

func (n *nearby) register(w *worker.Worker) error {
	for _, src := range shapesYAML {
		tmpl, _, err := workflow.ParseTemplate("shape.yaml", []byte(src))
		if err != nil {
			return err
		}
		if err := w.RegisterTemplate(tmpl); err != nil {
			return err
		}
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
	n := &nearby{release: make(chan struct{})}
	e := enginetest.Start(t, n.register, append(options, func(_ *orchestration.Config, c *worker.Config) { c.Settler = n })...)
	n.orchestrator.Store(e.Orchestrator)
	e.Orchestrator.ServeFirst(e.Worker)
	return e, n
}

func TestSettleRunsAWholeChain(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	task := e.Run("near", "chain", `{}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, enginetest.Results(task))
	n.settled(t, 4)
	// Not all three for sure: while the worker is about to look, the next step
	// goes over the board.
	require.Positive(t, n.next.Load())
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
	// The end of waiting for a retry is an event, so that step is reported.
	n.settled(t, 3)
}

// running waits until the held step of a task runs.
func running(t *testing.T, e *enginetest.Engine, attempt int) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.DB.QueryInt(t, fmt.Sprintf(`select count(*) from tasker.board where step_no = 1 and state = 3 and attempt = %d`, attempt)) == 1, "not claimed"
	})
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
	n.settled(t, 1)
}

func TestSettleLosesToTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t)
	id := e.Submit("near", "held", `{}`)
	running(t, e, 1)
	pgtest.Eventually(t, patience, func() (bool, string) { // a heartbeat may come in between
		e.DB.Exec(t, `update tasker.board set lease_until = clock_timestamp() where state = 3 and attempt = 1`)
		_, err := e.Store.ExpireLeases(t.Context(), 10)
		return e.DB.QueryInt(t, `select count(*) from tasker.board where attempt = 1 and state = 3`) == 0, fmt.Sprint(err)
	})
	running(t, e, 2)
	close(n.release) // both attempts end; one of them holds the claim
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 2, task.Steps[1].Attempts)
	require.Equal(t, 1, task.Steps[1].Crashes)
	require.Equal(t, 4, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`))
}

// TestSettleWithoutAnAnswer: it was committed, nobody knows, and the next step
// is claimed by nobody. Its lease brings it back.
func TestSettleWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t, func(_ *orchestration.Config, c *worker.Config) {
		c.Lease, c.HeartbeatInterval = 2*time.Second, 500*time.Millisecond
	})
	n.failing.Store(true)
	id := e.Submit("near", "chain", `{}`)
	pgtest.Eventually(t, patience, func() (bool, string) { return e.Worker.Health().Stale == 1, "not refused" })
	n.failing.Store(false)
	task := e.Await(id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 1, task.Steps[1].Crashes)
	require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, enginetest.Results(task))
}

// TestSettleBesideOthers: an ordinary worker and a second orchestrator work on
// the same database.
func TestSettleBesideOthers(t *testing.T) {
	t.Parallel()
	e, n := startNearby(t, func(o *orchestration.Config, w *worker.Config) { o.ApplyBatch, w.MaxConcurrent = 7, 3 })
	close(n.release)
	second := e.AnotherOrchestrator()
	other, err := worker.New(worker.Config{Store: e.Store, EventSource: e.Bus, Publisher: e.Bus, WorkerID: "other", Environment: "test",
		Events: coordinator.Config{}, MaxConcurrent: 3, Lease: 10 * time.Second, HeartbeatInterval: time.Second})
	require.NoError(t, err)
	require.NoError(t, n.register(other))
	require.NoError(t, other.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, other.Stop(ctx))
	})
	var ids []uuid.UUID
	for i := range 240 {
		o := e.Orchestrator
		if i%2 == 1 {
			o = second
		}
		name := []string{"chain", "diamond", "flaky", "held", "diamond"}[i%5]
		created, err := o.Create(t.Context(), orchestration.Request{Namespace: "near", Name: name, Version: "1.0.0", Context: fmt.Appendf(nil, `{"i":%d}`, i)})
		require.NoError(t, err)
		ids = append(ids, created.UUID)
	}
	for _, id := range ids {
		require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	}
	require.Positive(t, n.accepted.Load())
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.board`))
	// 48 of each: 4, 5, 4 and two failures, 3, 5 attempts.
	require.Equal(t, 48*(4+5+6+3+5), e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where step_no >= 0`))
}
