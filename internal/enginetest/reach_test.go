package enginetest_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// walled is an engine with walls between namespaces: content of alpha may use granted, and nothing
// else. Each namespace has a template "own"; those of alpha run a template of another one.
func walled(t *testing.T) *enginetest.Engine {
	t.Helper()
	step := func(name, callable string) workflow.StepTemplate {
		return workflow.StepTemplate{Name: name, Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: callable}}
	}
	sub := func(name, namespace string) *workflow.Template {
		return &workflow.Template{Name: name, Namespace: "alpha", Version: "1.0.0", Steps: []workflow.StepTemplate{{Name: "sub", Kind: workflow.KindTask,
			Task: &workflow.TaskSettings{Namespace: namespace, Name: "own"}}}}
	}
	return enginetest.Start(t, func(w *worker.Worker) error {
		var errs []error
		for _, namespace := range []string{"alpha", "beta", "granted"} {
			errs = append(errs, w.RegisterTemplate(&workflow.Template{Name: "own", Namespace: namespace, Version: "1.0.0", Steps: []workflow.StepTemplate{step("a", "ok")}}))
		}
		errs = append(errs, w.RegisterTemplate(sub("to_beta", "beta")), w.RegisterTemplate(sub("to_nowhere", "nowhere")), w.RegisterTemplate(sub("to_granted", "granted")),
			w.RegisterTemplate(&workflow.Template{Name: "next", Namespace: "alpha", Version: "1.0.0", Steps: []workflow.StepTemplate{step("a", "next")}}),
			w.Register("ok", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "secret", nil })),
			w.Register("next", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				to, err := worker.Field[string](ctx, "to")
				if err != nil {
					return nil, err
				}
				return worker.Continue[any](nil, worker.NextTask{Namespace: to, Name: "own"})
			})))
		return errors.Join(errs...)
	}, func(c *orchestration.Config, w *worker.Config) {
		c.Reach = &auth.Reach{Walled: true, Grants: map[string][]string{"alpha": {"granted"}}}
		w.Namespaces = []string{"alpha", "beta", "granted"}
	})
}

// TestASubWorkflowStaysWithinReach: a template of alpha runs no handler of beta, whoever brought it, and
// learns nothing about what beta has.
func TestASubWorkflowStaysWithinReach(t *testing.T) {
	t.Parallel()
	e := walled(t)
	why := map[string]string{}
	for _, name := range []string{"to_beta", "to_nowhere"} {
		task := e.Run("alpha", name, `{}`)
		require.Equal(t, workflow.TaskError, task.State, name)
		require.Equal(t, 1, task.Steps[0].Attempts, "a repetition would be refused too")
		var failure struct{ Message string }
		require.NoError(t, json.Unmarshal(task.Steps[0].Error, &failure))
		why[name] = failure.Message
	}
	require.Contains(t, why["to_beta"], "the namespace alpha may not use the namespace beta (common.namespaces.grants)")
	require.Contains(t, why["to_nowhere"], "the namespace alpha may not use the namespace nowhere (common.namespaces.grants)")
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue where n.name = 'beta'`))

	require.Equal(t, workflow.TaskComplete, e.Run("alpha", "to_granted", `{}`).State)
	require.Equal(t, workflow.TaskComplete, e.Run("beta", "own", `{}`).State, "others go on")
}

// TestNextTasksStayWithinReach: by the rule that orchestrators have published to workers.
func TestNextTasksStayWithinReach(t *testing.T) {
	t.Parallel()
	e := walled(t)
	require.Eventually(t, func() bool { return e.Store.AgreedRules() != "" }, patience, time.Millisecond)
	for to, state := range map[string]workflow.TaskState{"alpha": workflow.TaskComplete, "granted": workflow.TaskComplete, "beta": workflow.TaskError} {
		task := e.Run("alpha", "next", `{"to":"`+to+`"}`)
		require.Equal(t, state, task.State, to)
		if state == workflow.TaskError {
			require.Contains(t, string(task.Steps[0].Error), "NextTaskRefused")
			require.Contains(t, string(task.Steps[0].Error), "may not use the namespace beta")
		}
	}
}

// TestDependenciesStayWithinReach: a task of another namespace does not exist for one that depends on it.
func TestDependenciesStayWithinReach(t *testing.T) {
	t.Parallel()
	e := walled(t)
	foreign, own := e.Run("beta", "own", `{}`).UUID, e.Run("alpha", "own", `{}`).UUID
	create := func(on uuid.UUID) error {
		r := orchestration.Request{Namespace: "alpha", Name: "own", Version: "1.0.0", Context: json.RawMessage(`{"on":"` + on.String() + `"}`), Initiator: "test", DependsOn: []uuid.UUID{on}}
		r.Reach(func(namespace string) bool { return namespace == "granted" })
		_, err := e.Orchestrator.Create(t.Context(), r)
		return err
	}
	absent := uuid.New()
	var unknown, hidden *submission.InvalidError
	require.ErrorAs(t, create(absent), &unknown)
	require.ErrorAs(t, create(foreign), &hidden)
	require.Len(t, hidden.Error(), len(unknown.Error()), "%s: %s", unknown, hidden)
	require.NoError(t, create(own))
}
