package enginetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// serving registers a template of one step for each callable, named after it, and
// handlers of some of them.
func serving(t *testing.T, templates []string, handlers ...string) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		for _, name := range templates {
			tmpl, _, err := template.Parse("one.yaml", fmt.Appendf(nil,
				"{name: %s, namespace_name: shared, version: 1.0.0, steps: [{name: only, handler: {callable: %s}, retry: {max_attempts: 1}}]}", name, name))
			require.NoError(t, err)
			require.NoError(t, w.RegisterTemplate(tmpl))
		}
		for _, name := range handlers {
			require.NoError(t, w.Register(name, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return name, nil })))
		}
		return nil
	}
}

// startWorker starts one more worker.
func startWorker(t *testing.T, c worker.Config, id string, register func(*worker.Worker) error) *worker.Worker {
	t.Helper()
	c.WorkerID = id
	w, err := worker.New(c)
	require.NoError(t, err)
	require.NoError(t, register(w))
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, w.Stop(ctx))
	})
	return w
}

// inEveryMode runs a test once for each mode in which daemons look for work.
func inEveryMode(t *testing.T, test func(t *testing.T, mode deploymode.Mode)) {
	t.Helper()
	for _, mode := range []deploymode.Mode{deploymode.PollingOnly, deploymode.EventDrivenOnly, deploymode.Hybrid} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// TestWorkersOfDifferentReleasesShareANamespace: a worker without a handler for a step
// leaves it to the others, however free it is.
func TestWorkersOfDifferentReleasesShareANamespace(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, mode deploymode.Mode) {
		var wc worker.Config
		e := enginetest.Start(t, serving(t, []string{"old"}, "old"), func(_ *orchestration.Config, c *worker.Config) {
			c.Mode = mode
			wc = *c
		})
		startWorker(t, wc, "new", serving(t, []string{"old", "new"}, "old", "new"))
		var ids []uuid.UUID
		for i := range 30 {
			for _, name := range []string{"old", "new"} {
				ids = append(ids, e.Submit("shared", name, fmt.Sprintf(`{"i":%d}`, i)))
			}
		}
		for _, id := range ids {
			task := e.Await(id)
			require.Equal(t, workflow.TaskComplete, task.State)
			require.Equal(t, 1, task.Steps[0].Attempts)
		}
	})
}

// TestAStepWaitsForAWorkerThatCanRunIt, without using an attempt; a handler registered
// while the worker runs counts.
func TestAStepWaitsForAWorkerThatCanRunIt(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, mode deploymode.Mode) {
		e := enginetest.Start(t, serving(t, []string{"known", "strange"}, "known"), func(_ *orchestration.Config, c *worker.Config) { c.Mode = mode })
		waits := e.Submit("shared", "strange", `{}`)
		for i := range 5 { // time to do it wrong
			require.Equal(t, workflow.TaskComplete, e.Await(e.Submit("shared", "known", fmt.Sprintf(`{"i":%d}`, i))).State)
		}
		step := e.Read(waits).Steps[0]
		require.True(t, step.Ready)
		require.Zero(t, step.Attempts)
		require.NoError(t, e.Worker.Register("strange", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
		task := e.Await(waits)
		require.Equal(t, workflow.TaskComplete, task.State)
		require.Equal(t, 1, task.Steps[0].Attempts)
	})
}

// TestACallableIsNewToAWorkerThatRuns: a template registered elsewhere, without a signal,
// names a callable for which the worker has a handler.
func TestACallableIsNewToAWorkerThatRuns(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, mode deploymode.Mode) {
		e := enginetest.Start(t, serving(t, []string{"known"}, "known", "later"), func(_ *orchestration.Config, c *worker.Config) { c.Mode = mode })
		require.Equal(t, workflow.TaskComplete, e.Await(e.Submit("shared", "known", `{}`)).State)
		tmpl, _, err := template.Parse("later.yaml", []byte("{name: later, namespace_name: shared, version: 1.0.0, steps: [{name: only, handler: {callable: later}}]}"))
		require.NoError(t, err)
		_, err = e.Store.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{tmpl.Resolve("test")})
		require.NoError(t, err)
		began := time.Now()
		require.Equal(t, workflow.TaskComplete, e.Await(e.Submit("shared", "later", `{}`)).State)
		t.Logf("after %v", time.Since(began).Round(time.Millisecond))
	})
}
