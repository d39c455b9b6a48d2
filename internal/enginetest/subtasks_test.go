package enginetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// child waits until a step is a task, and reads that.
func (w *waiting) child(id uuid.UUID, step string) *store.Task {
	w.t.Helper()
	return w.Read(*w.untilWaiting(id, step).Waiting.TaskUUID)
}

func TestAStepThatIsATask(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	task := w.Run("waits", "parent", `{"n":1}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	sub := result(t, task, "sub")
	require.Equal(t, "complete", sub["status"])
	require.Equal(t, map[string]any{"b": "done", "c": map[string]any{"a": 3.0}}, sub["results"], "those of the final steps")
	child := w.Read(uuid.MustParse(sub["task_uuid"].(string)))
	require.JSONEq(t, fmt.Sprintf(`{"n":2,"from":%q,"price":"$.5","list":[1,2]}`, task.UUID), string(child.Context))
	require.Equal(t, &store.ParentStep{Task: task.UUID, Step: 1, Depth: 1}, child.Parent)
	require.Equal(t, task.CorrelationID, child.CorrelationID)
	require.Equal(t, map[string]any{"sub": sub}, result(t, task, "last"))
}

func TestATaskThatFailsFailsItsStep(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	w.fails.Store(true)
	task := w.Run("waits", "parent", `{"n":1}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, 2, w.step(task.UUID, "sub").Attempts, "its retry block had it try another task")
	require.Equal(t, 2, w.DB.QueryInt(t, `select count(*) from tasker.tasks where parent_task_uuid = $1`, task.UUID))
	// "permanent", or "failed" where its sibling has ended after it.
	require.Contains(t, string(w.step(task.UUID, "sub").Error), "ended as error: step b: ")
}

func TestCancelGoesDown(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "over_blocked", `{}`)
	child := w.child(id, "sub")
	require.Eventually(t, func() bool { return w.step(child.UUID, "wait").State == workflow.StepInProgress }, patience, time.Millisecond)
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), id, "ana", "wrong one"))
	require.Equal(t, workflow.TaskCancelled, w.Await(id).State)
	child = w.Await(child.UUID)
	require.Equal(t, workflow.TaskCancelled, child.State)
	require.Equal(t, "step_called_off", *child.FinalReason)
	require.Eventually(t, func() bool { return w.DB.QueryInt(t, `select count(*) from tasker.task_messages`) == 0 }, patience, time.Millisecond)
}

// Tasks are cancelled within milliseconds of their creation, while three orchestrators
// begin their steps: no sub-workflow's task continues on its own.
func TestCancelGoesDownWhileStepsBegin(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	w.AnotherOrchestrator()
	w.AnotherOrchestrator()
	parents := 1500
	if testing.Short() {
		parents = 300
	}
	group := pool.New().WithMaxGoroutines(16).WithContext(t.Context()).WithFirstError()
	for i := range parents {
		group.Go(func(ctx context.Context) error {
			created, err := w.Orchestrator.Create(ctx, orchestration.Request{Namespace: "waits", Name: "over_unheard", Version: "1.0.0",
				Context: fmt.Appendf(nil, `{"n":%d}`, i)})
			if err != nil {
				return err
			}
			<-time.After(rand.N(20 * time.Millisecond)) // takes time: cancelled at a random moment
			return w.Orchestrator.Cancel(ctx, created.UUID, "ana", "wrong one")
		})
	}
	require.NoError(t, group.Wait())
	require.Eventually(t, func() bool {
		return w.DB.QueryInt(t, `select count(*) from tasker.task_messages`) == 0
	}, patience, 10*time.Millisecond)
	t.Logf("%d steps had begun as tasks", w.DB.QueryInt(t, `select count(*) from tasker.tasks where parent_task_uuid is not null`))
	require.Zero(t, w.DB.QueryInt(t, `select count(*) from tasker.board`), "tasks that continue on their own")
}

func TestATaskThatIsCancelledFailsItsStep(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "over_blocked", `{}`)
	child := w.child(id, "sub")
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), child.UUID, "ana", "not this task"))
	require.Equal(t, workflow.TaskError, w.Await(id).State)
	require.Contains(t, string(w.step(id, "sub").Error), "ended as cancelled: not this task")
}

func TestATaskThatTakesTooLong(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	task := w.Run("waits", "impatient", `{}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, string(task.Steps[0].Error), "the task blocked did not end within 100ms")
	var child uuid.UUID
	require.NoError(t, child.UnmarshalText([]byte(w.DB.QueryString(t, `select task_uuid::text from tasker.tasks where parent_task_uuid = $1`, task.UUID))))
	require.Equal(t, workflow.TaskCancelled, w.Await(child).State)
}

func TestTasksThatCannotBegin(t *testing.T) {
	t.Parallel()
	w := startWaiting(t, func(c *orchestration.Config, _ *worker.Config) { c.MaxTaskDepth = 3 })
	for name, why := range map[string]string{
		"lost":    "Template not found: waits/nobody_knows/1.0.0",
		"wrong":   `there is no \"context.nothing\"`,
		"invalid": "context",
	} {
		task := w.Run("waits", name, `{}`)
		require.Equal(t, workflow.TaskError, task.State, name)
		require.Contains(t, string(task.Steps[0].Error), why, name)
		require.Contains(t, string(task.Steps[0].Error), enginestep.ErrorTypeCannotRun)
	}
	task := w.Run("waits", "endless", `{}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, 4, w.DB.QueryInt(t, `select count(*) from tasker.tasks where depth is not null or correlation_id is null and task_uuid = $1`, task.UUID), "itself and three below")
	require.Equal(t, 3, w.DB.QueryInt(t, `select max(depth) from tasker.tasks`))
}

// A step whose task the database rejects fails alone; the others begin.
func TestAStepThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	w.DB.Exec(t, `alter table tasker.received_events add constraint no check (taken_by is null)`)
	require.Zero(t, w.send(orchestration.Event{Namespace: "waits", Name: "payment.received", Key: "bad"}).Steps)
	bad := w.Submit("waits", "paid", `{"order":"bad"}`)
	good := w.Submit("waits", "nap", `{"for":"1ms"}`)
	require.Equal(t, workflow.TaskComplete, w.Await(good).State)
	require.Equal(t, workflow.TaskError, w.Await(bad).State)
	require.Contains(t, string(w.step(bad, "paid").Error), "the database refuses")
}

func (w *waiting) submitAfter(name, failure string, on ...uuid.UUID) uuid.UUID {
	w.t.Helper()
	created, err := w.Orchestrator.Create(w.t.Context(), orchestration.Request{Namespace: "waits", Name: name, Version: "1.0.0",
		Context: fmt.Appendf(nil, `{"u":%q}`, uuid.NewString()), DependsOn: on, OnDependencyFailure: failure})
	require.NoError(w.t, err)
	return created.UUID
}

func TestTasksThatDependOnOthers(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	waiting, done := w.Submit("waits", "told", `{}`), w.Submit("waits", "simple", `{}`)
	require.Equal(t, workflow.TaskComplete, w.Await(done).State)
	for _, name := range []string{"simple", "fan", "nap"} {
		dependent := w.submitAfter(name, "", waiting, done, waiting)
		require.Eventually(t, func() bool {
			return w.DB.QueryInt(t, `select count(*) from tasker.task_dependencies where task_uuid = $1`, dependent) == 1
		}, patience, time.Millisecond, "the ended task counts")
		task := w.Read(dependent)
		require.Equal(t, []uuid.UUID{waiting, done, waiting}, task.DependsOn)
		require.Equal(t, workflow.TaskPending, task.State)
		require.Equal(t, workflow.StepPending, task.Steps[0].State)
		require.Equal(t, "tasks", task.Steps[0].Waiting.Kind)
	}
	after := w.submitAfter("simple", "", waiting)
	chain := w.submitAfter("simple", "", after)
	w.untilWaiting(waiting, "told")
	require.Zero(t, w.DB.QueryInt(t, `select count(*) from tasker.step_attempts where task_uuid in ($1, $2)`, after, chain))
	w.send(orchestration.Event{Name: "go", TaskUUID: &waiting})
	require.Equal(t, workflow.TaskComplete, w.Await(chain).State)
	require.True(t, w.Read(chain).Steps[0].CreatedAt.After(*w.Read(after).CompletedAt))
	for _, name := range []string{"simple", "fan"} {
		require.Zero(t, w.DB.QueryInt(t, `select count(*) from tasker.task_dependencies d join tasker.tasks t using (task_uuid) join tasker.plans p using (plan_id) where p.name = $1`, name))
	}
	_, err := w.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "waits", Name: "simple", Version: "1.0.0", Context: json.RawMessage(`{"x":1}`), DependsOn: []uuid.UUID{uuid.New()}})
	var invalid *orchestration.InvalidError
	require.ErrorAs(t, err, &invalid)
}

func TestDependenciesThatFail(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	blocked := w.Submit("waits", "blocked", `{}`)
	strict, lenient := w.submitAfter("simple", "", blocked), w.submitAfter("simple", "continue", blocked)
	below := w.submitAfter("simple", "", strict)
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), blocked, "ana", "why"))
	for _, id := range []uuid.UUID{strict, below} {
		task := w.Await(id)
		require.Equal(t, workflow.TaskCancelled, task.State)
		require.Equal(t, "dependency_failed", *task.FinalReason)
	}
	require.Equal(t, workflow.TaskComplete, w.Await(lenient).State)
	late := w.submitAfter("simple", "", blocked)
	require.Equal(t, workflow.TaskCancelled, w.Await(late).State, "it had failed already")
}

// Three orchestrators begin, notify and release the same tasks.
func TestWaitsOfManyOrchestrators(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	w.AnotherOrchestrator()
	w.AnotherOrchestrator()
	ids := make([]uuid.UUID, 0, 60)
	for i := range 20 {
		ids = append(ids, w.Submit("waits", "parent", fmt.Sprintf(`{"n":%d}`, i)), w.Submit("waits", "nap", fmt.Sprintf(`{"for":"%dms"}`, 100+i)))
		ids = append(ids, w.submitAfter("fan", "", ids[len(ids)-1]))
	}
	for _, id := range ids {
		require.Equal(t, workflow.TaskComplete, w.Await(id).State)
	}
	require.Zero(t, w.DB.QueryInt(t, `select count(*) from tasker.task_dependencies`))
	require.Eventually(t, func() bool { return w.DB.QueryInt(t, `select count(*) from tasker.task_messages`) == 0 }, patience, time.Millisecond)
	require.Zero(t, w.DB.QueryInt(t, `select count(*) from tasker.board`))
}
