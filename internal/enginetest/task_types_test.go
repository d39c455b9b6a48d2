package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// typeTemplate is the template that the API makes of a task type.
func typeTemplate(t testing.TB, namespace, name, version, retry string) *workflow.Template {
	t.Helper()
	template, _, err := template.Parse("t.yaml", fmt.Appendf(nil,
		"name: %[2]s\nnamespace_name: %[1]s\nversion: '%[3]s'\nidentity: {strategy: always_unique}\nsteps:\n  - {name: %[2]s, handler: {callable: mail.send}, retry: %[4]s}\n",
		namespace, name, version, retry))
	require.NoError(t, err)
	return template
}

// post serves a namespace that does not exist yet; its handler waits for slow.
func post(t *testing.T, slow <-chan struct{}, options ...enginetest.Option) *enginetest.Engine {
	options = append(options, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"test", "mail"} })
	return enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(handlers(slow)(w), w.Register("mail.send", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			if slow != nil {
				<-slow
			}
			return ctx.MaxAttempts(), nil
		})))
	}, options...)
}

// enqueue creates a task of a type, as the API does.
func enqueue(t *testing.T, e *enginetest.Engine, queue, name string) (orchestration.Created, error) {
	t.Helper()
	plan, err := e.Orchestrator.PlanOfType(t.Context(), queue, name)
	if err != nil {
		return orchestration.Created{}, err
	}
	return e.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: plan.Template.Namespace, Name: name, Version: plan.Template.Version,
		Context: json.RawMessage(`{}`)})
}

// TestAWorkerThatRunsLearnsOfTypes: in every mode, of a type registered after its start,
// in a namespace that did not exist then.
func TestAWorkerThatRunsLearnsOfTypes(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, mode deploymode.Mode) {
		e := post(t, nil, func(o *orchestration.Config, w *worker.Config) {
			o.Orchestration.Mode, o.Readiness.Mode, w.Mode = mode, mode, mode
		})
		_, err := enqueue(t, e, "", "email")
		var unknown *orchestration.UnknownTypeError
		require.ErrorAs(t, err, &unknown)
		for _, version := range []string{"1", "2"} {
			retry := map[string]string{"1": "{max_attempts: 4}", "2": "{max_attempts: 7}"}[version]
			_, err = e.Orchestrator.RegisterTaskType(t.Context(), typeTemplate(t, "mail", "email", version, retry), ana)
			require.NoError(t, err)
			for range 3 {
				created, err := enqueue(t, e, "", "email")
				require.NoError(t, err)
				task := e.Await(created.UUID)
				require.Equal(t, workflow.TaskComplete, task.State)
				require.JSONEq(t, map[string]string{"1": "4", "2": "7"}[version], string(task.Steps[0].Result), "the highest version")
			}
		}
	})
}

func TestTheLifeOfATaskType(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	e := post(t, slow)
	ctx := t.Context()
	first, err := e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "mail", "email", "1", "{max_attempts: 4}"), ana)
	require.NoError(t, err)
	running, err := enqueue(t, e, "mail", "email")
	require.NoError(t, err)
	e.Until(running.UUID, func(now *store.Task) bool { return now.Steps[0].State == workflow.StepInProgress })

	// Other content under the same version is rejected, as a task has used it.
	bob := orchestration.Why{Actor: "bob", Reason: "more patience"}
	_, err = e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "mail", "email", "1", "{max_attempts: 9}"), bob)
	require.ErrorIs(t, err, store.ErrVersionUsed)
	second, err := e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "mail", "email", "2", "{max_attempts: 9}"), bob)
	require.NoError(t, err)
	require.NotEqual(t, first.Plan.ID, second.Plan.ID)
	require.Equal(t, []string{"ana", "bob"}, []string{second.CreatedBy, second.UpdatedBy})
	same, err := e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "mail", "email", "1", "{max_attempts: 4}"), bob)
	require.NoError(t, err)
	require.Equal(t, second.Plan.ID, same.Plan.ID, "the highest version is enqueued, not the last that was registered")
	waiting, err := enqueue(t, e, "mail", "email")
	require.NoError(t, err)
	require.Equal(t, second.Plan.ID, waiting.Plan.ID)

	// Two queues with a type of one name.
	_, err = e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "test", "email", "1", "{max_attempts: 1}"), ana)
	require.NoError(t, err)
	e.Store.ForgetPlanNames()
	_, err = enqueue(t, e, "", "email")
	require.ErrorContains(t, err, "several queues have the task type email; send queue")
	list, err := e.Orchestrator.TaskTypes(ctx, "", 10, 0)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "mail", list[0].Plan.Template.Namespace)

	// The name of a workflow cannot be reused, and a missing type cannot be deleted.
	_, err = e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "test", "ok", "1.0.0", "{max_attempts: 1}"), ana)
	require.ErrorIs(t, err, store.ErrNoTaskType)
	_, err = e.Orchestrator.DeleteTaskType(ctx, "mail", "none", ana)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = e.Orchestrator.DeleteTaskType(ctx, "test", "ok", ana)
	require.ErrorIs(t, err, store.ErrNotFound)

	gone, err := e.Orchestrator.DeleteTaskType(ctx, "mail", "email", ana)
	require.NoError(t, err)
	require.Equal(t, second.Plan.ID, gone.Plan.ID)
	_, err = enqueue(t, e, "mail", "email")
	var unknown *orchestration.UnknownTypeError
	require.ErrorAs(t, err, &unknown)
	_, err = e.Orchestrator.Create(ctx, orchestration.Request{Namespace: "mail", Name: "email", Version: "1", Context: json.RawMessage(`{}`)})
	var none *orchestration.UnknownTemplateError
	require.ErrorAs(t, err, &none, "nor by the name of the template")
	close(slow)
	require.JSONEq(t, `4`, string(e.Await(running.UUID).Steps[0].Result), "the existing task continues with its plan")
	require.JSONEq(t, `9`, string(e.Await(waiting.UUID).Steps[0].Result))
	_, err = e.Orchestrator.RegisterTaskType(ctx, typeTemplate(t, "mail", "email", "1", "{max_attempts: 4}"), ana)
	require.NoError(t, err)
	again, err := enqueue(t, e, "mail", "email")
	require.NoError(t, err)
	require.Equal(t, first.Plan.ID, again.Plan.ID)
	require.Equal(t, workflow.TaskComplete, e.Await(again.UUID).State)
	require.Equal(t, 6, e.DB.QueryInt(t, `select count(*) from tasker.operator_actions where action in ('register_task_type', 'delete_task_type')
		and target->>'name' = 'email' and actor in ('ana', 'bob')`))
}

// TestManyRegisterOneType: concurrently, on two orchestrators, with other contents: one
// is in force in the end, and the type has one row.
func TestManyRegisterOneType(t *testing.T) {
	t.Parallel()
	e := post(t, nil)
	two := [2]*orchestration.Orchestrator{e.Orchestrator, e.AnotherOrchestrator()}
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = two[i%2].RegisterTaskType(t.Context(), typeTemplate(t, "mail", "email", fmt.Sprint(i%3), fmt.Sprintf("{max_attempts: %d}", 1+i%5)), ana)
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.task_types`))
	require.Equal(t, 3, e.DB.QueryInt(t, `select count(*) from tasker.plans where name = 'email' and current`), "one per version")
	created, err := enqueue(t, e, "", "email")
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, e.Await(created.UUID).State)
}
