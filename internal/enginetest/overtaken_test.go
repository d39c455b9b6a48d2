package enginetest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const chained = `
name: chain
namespace_name: test
version: 1.0.0
steps:
  - {name: first, handler: {callable: test.first}}
  - {name: second, depends_on: [first], handler: {callable: test.second}}
`

const single = `
name: single
namespace_name: test
version: 1.0.0
steps:
  - {name: only, handler: {callable: test.second}}
`

// startChained runs an engine in which no step of test.second is claimed until resume is called. Then one
// runs until ends is closed.
func startChained(t *testing.T) (e *enginetest.Engine, resume func(), ends chan struct{}) {
	running, ends := make(chan struct{}), make(chan struct{})
	e = enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, chained, single),
			w.Register("test.first", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			w.Register("test.second", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				close(running)
				select {
				case <-ends:
				case <-ctx.Done():
				}
				return 2, ctx.Err()
			})))
	})
	second := store.Pause{Namespace: "test", Callable: "test.second", Actor: "ana", Reason: "r"}
	require.NoError(t, e.Orchestrator.Pause(t.Context(), second))
	return e, func() {
		require.NoError(t, e.Orchestrator.Resume(t.Context(), second))
		e.Bus.Publish(signal.Signal{Topic: signal.WorkerTopic("test")})
		<-running
	}, ends
}

// TestATaskThatMovesOnIsNotStale: a task is found stale, and moves on before the sweep ends it.
func TestATaskThatMovesOnIsNotStale(t *testing.T) {
	t.Parallel()
	e, resume, ends := startChained(t)
	id := e.Submit("test", "chain", `{}`)
	e.Until(id, func(now *store.Task) bool { return now.Steps[1].State == workflow.StepEnqueued })
	var stale []store.StaleTask
	require.Eventually(t, func() (found bool) {
		var err error
		stale, _, err = e.Store.StaleTasks(t.Context(), store.StaleThresholds{StepsInProcess: time.Millisecond}, uuid.Nil, 10)
		return err == nil && len(stale) == 1
	}, patience, time.Millisecond)
	resume()
	changed, err := e.Orchestrator.EndStale(t.Context(), stale, true, true)
	require.NoError(t, err)
	close(ends)
	require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	require.Zero(t, changed)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.dlq_entries`))
}

// TestATaskThatBeginsIsNotPastItsDeadline: a task is found waiting past its deadline, and
// begins before the sweep cancels it.
func TestATaskThatBeginsIsNotPastItsDeadline(t *testing.T) {
	t.Parallel()
	e, resume, ends := startChained(t)
	id := e.Submit("test", "single", `{}`)
	e.DB.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 min'`)
	late, err := e.Store.PastDeadline(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{id}, late)
	resume()
	changed, err := e.Orchestrator.CancelOverdue(t.Context(), late)
	require.NoError(t, err)
	close(ends)
	require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	require.Zero(t, changed)
}

// TestATaskThatCannotBeEndedHoldsUpNoOthers: of two tasks that a sweep ends together the
// database rejects one.
func TestATaskThatCannotBeEndedHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	e, _, _ := startChained(t)
	ids := []uuid.UUID{e.Submit("test", "single", `{}`), e.Submit("test", "single", `{"n":2}`), e.Submit("test", "single", `{"n":3}`)}
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$
		begin
			raise exception 'refused by the test' using errcode = 'check_violation';
		end $$`)
	e.DB.Exec(t, fmt.Sprintf(`create trigger refuse before insert on tasker.step_attempts for each row when (new.task_uuid = '%s') execute function refuse()`, ids[1]))
	e.DB.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 min'`)
	changed, err := e.Orchestrator.CancelOverdue(t.Context(), ids)
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, 2, changed)
	require.Equal(t, workflow.TaskCancelled, e.Await(ids[0]).State)
	require.Equal(t, workflow.TaskCancelled, e.Await(ids[2]).State)
	accept(t, e.DB)
	changed, err = e.Orchestrator.CancelOverdue(t.Context(), ids)
	require.NoError(t, err)
	require.Equal(t, 1, changed)
}

// TestADeadLetterThatCannotBeOpenedHoldsUpNoOthers: a sweep that only opens dead letters finds
// three stale tasks, and the database rejects the entry of the first.
func TestADeadLetterThatCannotBeOpenedHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	e, _, _ := startChained(t)
	stale := make([]store.StaleTask, 3)
	for i := range stale {
		stale[i] = store.StaleTask{UUID: e.Submit("test", "single", fmt.Sprintf(`{"n":%d}`, i)), Reason: "why"}
	}
	e.DB.Exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by the test' using errcode = 'check_violation'; end $$`)
	e.DB.Exec(t, fmt.Sprintf(`create trigger refuse before insert on tasker.dlq_entries for each row when (new.task_uuid = '%s') execute function refuse()`, stale[0].UUID))
	changed, err := e.Orchestrator.EndStale(t.Context(), stale, false, true)
	require.ErrorContains(t, err, "refused by the test")
	require.Equal(t, 2, changed)
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.dlq_entries`))
}
