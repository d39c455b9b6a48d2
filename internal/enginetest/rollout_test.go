package enginetest_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// pod is a worker of one release: its handler returns the callable, its template has a
// version.
func pod(t *testing.T, version, callable string) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("roll.yaml", fmt.Appendf(nil,
			"{name: roll, namespace_name: test, version: %q, steps: [{name: only, handler: {callable: %s}}]}", version, callable))
		require.NoError(t, err)
		require.NoError(t, w.RegisterTemplate(tmpl))
		for _, name := range []string{"first", "second", "third"} {
			require.NoError(t, w.Register(name, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return name, nil })))
		}
		return nil
	}
}

func TestAnOldPodRestartsDuringARollOut(t *testing.T) {
	t.Parallel()
	var wc worker.Config
	e := enginetest.Start(t, pod(t, "1.9", "first"), func(_ *orchestration.Config, w *worker.Config) { wc = *w })
	core, lines := observer.New(zap.WarnLevel)
	start := func(id string, register func(*worker.Worker) error) *worker.Worker {
		c := wc
		c.Logger, c.Tags = zap.New(core), []string{id}
		return startWorker(t, c, id, register)
	}
	n := 0
	result := func(version string) string {
		n++
		created, err := e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "test", Name: "roll", Version: version,
			Context: fmt.Appendf(nil, `{"n":%d}`, n), Initiator: "test", SourceSystem: "test", Reason: "test"})
		require.NoError(t, err)
		task := e.Await(created.UUID)
		require.Equal(t, workflow.TaskComplete, task.State)
		return task.Plan.Template.Version + " " + string(task.Steps[0].Result)
	}
	require.Equal(t, `1.9 "first"`, result(""))
	start("new", pod(t, "1.10", "second"))
	e.Store.ForgetPlanNames()
	require.Equal(t, `1.10 "second"`, result(""))

	start("old again", pod(t, "1.9", "first"))
	e.Store.ForgetPlanNames()
	require.Equal(t, `1.10 "second"`, result(""), "the order of registration does not count")
	require.Equal(t, `1.9 "first"`, result("1.9"))
	require.Zero(t, lines.Len())

	// A pod with other content of a used version: a restarted old one, or a new one
	// without a new version.
	w := start("changed", pod(t, "1.10", "third"))
	e.Store.ForgetPlanNames()
	require.Equal(t, `1.10 "second"`, result(""), "no version goes back")
	require.Equal(t, "running", w.Health().State)
	require.Empty(t, w.Health().Missing)
	refused := lines.FilterMessage(store.RefusedTemplate)
	require.Equal(t, 1, refused.Len(), "it is logged once")
	states, err := e.Store.Workers(t.Context(), store.WorkerFilter{})
	require.NoError(t, err)
	shown := map[string]int{}
	for _, s := range states {
		shown[s.ID] = len(s.Refused)
		for _, c := range s.Refused {
			require.NotEqual(t, c.Brought, c.Registered)
			require.Equal(t, c.String(), refused.All()[0].ContextMap()["template"])
		}
	}
	require.Equal(t, map[string]int{"test": 0, "new": 0, "old again": 0, "changed": 1}, shown)

	// The handlers of that pod run steps of other templates.
	other, _, err := template.Parse("other.yaml", []byte("{name: roll, namespace_name: test, version: '1.11', steps: [{name: only, tags: [changed], handler: {callable: third}}]}"))
	require.NoError(t, err)
	_, err = e.Store.RegisterTemplates(t.Context(), store.Registrant{ID: uuid.NewString(), Environment: "test"}, []*workflow.Template{other.Resolve("test")})
	require.NoError(t, err)
	require.Equal(t, `1.11 "third"`, result(""))
}
