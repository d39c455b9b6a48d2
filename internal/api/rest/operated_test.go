package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/backpressure"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
)

// The parts that the daemons put behind the routes.
var (
	_ rest.Engine    = enginetest.Supervised{}
	_ rest.Store     = (*store.Store)(nil)
	_ rest.Breakers  = (*breaker.Set)(nil)
	_ rest.Admission = (*backpressure.Admission)(nil)
)

// operatedHouse is a realHouse with everything for operators.
func operatedHouse(t *testing.T) (*client.Client, *enginetest.Engine) {
	t.Helper()
	base, transport, e := operatedAt(t)
	return client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}}), e
}

// operatedAt is the same by its address.
func operatedAt(t *testing.T, options ...func(*rest.Orchestrator)) (base string, transport *http.Transport, e *enginetest.Engine) {
	t.Helper()
	_, _, e = realHouse(t)
	o := rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: e.Orchestrator}, Store: e.Store,
		ID: "test", MaxEventConsumers: 2, NewEvents: e.Orchestrator.NewEvents, MaxEventStreams: 2,
		Thresholds: store.StaleThresholds{WaitingForRetry: time.Hour, StepsInProcess: time.Hour}}
	for _, option := range options {
		option(&o)
	}
	s, err := rest.NewOrchestrator(bounded(t, rest.Config{Address: "127.0.0.1:0", MaxWait: time.Minute}), o)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	transport = &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Stop(context.Background()))
	})
	return "http://" + s.Addr().String(), transport, e
}

// ended creates a task and waits for its end.
func ended(t *testing.T, c *client.Client, wish, status string) *client.Task {
	t.Helper()
	task, err := c.CreateTask(t.Context(), mood(wish))
	require.NoError(t, err)
	return endOf(t, c, task.TaskUUID, status)
}

func endOf(t *testing.T, c *client.Client, id, status string) *client.Task {
	t.Helper()
	task, err := c.Task(t.Context(), id, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, status, task.Status)
	return task
}

func secondOf(task *client.Task) string {
	for _, s := range task.Steps {
		if s.Name == "second" {
			return s.WorkflowStepUUID
		}
	}
	return ""
}

func TestRepairByHand(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	task := ended(t, c, "bad", "error")
	entry, err := c.AddDLQEntry(ctx, client.DLQAdd{TaskUUID: task.TaskUUID, Reason: "look", Actor: "ana", Metadata: json.RawMessage(`{"a":1}`)})
	require.NoError(t, err)
	require.Equal(t, client.ResolutionPending, entry.ResolutionStatus)
	queue, err := c.InvestigationQueue(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, entry.DLQEntryUUID, queue[0].DLQEntryUUID)
	stats, err := c.DLQStats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats[0].Pending)

	why := client.StepAction{ActionType: client.ActionReset, Reason: "again", ResetBy: "ana"}
	_, err = c.ActOnStep(ctx, task.TaskUUID, secondOf(task), why)
	require.NoError(t, err)
	endOf(t, c, task.TaskUUID, "error") // it still fails

	first := task.Steps[0].WorkflowStepUUID
	_, err = c.ActOnStep(ctx, task.TaskUUID, first, why)
	require.ErrorContains(t, err, "to ResetForRetry")
	step, err := c.ActOnStep(ctx, task.TaskUUID, secondOf(task), client.StepAction{ActionType: client.ActionComplete, Reason: "by hand", CompletedBy: "ana",
		CompletionData: &client.CompletionData{Result: json.RawMessage(`{"n":3}`), Metadata: json.RawMessage(`{"ticket":"X-1","number":12345678901234567890}`)}})
	require.NoError(t, err)
	require.Equal(t, "complete", step.CurrentState)
	require.Contains(t, string(step.Results), `"n":3`)
	require.Contains(t, string(step.Results), `"custom":{"completed_by":"ana","completion_reason":"by hand","manually_completed":true,"number":12345678901234567890,"ticket":"X-1"}`)
	require.Contains(t, string(step.Results), `"execution_time_ms":0`)
	endOf(t, c, task.TaskUUID, "complete")
	closed, err := c.DLQEntryOfTask(ctx, task.TaskUUID)
	require.NoError(t, err)
	require.Equal(t, client.ResolutionManuallyResolved, closed.ResolutionStatus, "it closes automatically")
	dry := false
	nothing := int64(0)
	purged, err := c.PurgeDLQ(ctx, client.DLQPurge{OlderThanSeconds: &nothing, Reason: "r", Actor: "a", DryRun: &dry})
	require.NoError(t, err)
	require.Equal(t, 1, purged.Purged)
	_, err = c.DLQEntryOfTask(ctx, task.TaskUUID)
	require.True(t, client.IsNotFound(err))
}

func TestReplayByHand(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	old := ended(t, c, "bad", "error")
	again, err := c.ActOnTask(ctx, old.TaskUUID, client.TaskAction{Action: client.ActionReplay, Reason: "r", Actor: "ana", Context: json.RawMessage(`{"mood":"good"}`)})
	require.NoError(t, err)
	require.NotEqual(t, old.TaskUUID, again.TaskUUID)
	require.Equal(t, &old.CorrelationID, again.ParentCorrelationID)
	endOf(t, c, again.TaskUUID, "complete")

	var olds []string
	for range 3 {
		task := ended(t, c, "bad", "error")
		_, err := c.AddDLQEntry(ctx, client.DLQAdd{TaskUUID: task.TaskUUID, Reason: "look", Actor: "ana"})
		require.NoError(t, err)
		olds = append(olds, task.TaskUUID)
	}
	filter := &client.DLQFilter{Namespace: "shapes", TaskName: "chain"}
	found, err := c.ReplayDLQ(ctx, client.DLQReplay{Filter: filter, Reason: "r", Actor: "ana"})
	require.NoError(t, err)
	require.True(t, found.DryRun)
	require.Subset(t, found.Tasks, olds)
	really := false
	done, err := c.ReplayDLQ(ctx, client.DLQReplay{Filter: filter, Reason: "r", Actor: "ana", PerSecond: 100, DryRun: &really})
	require.NoError(t, err)
	require.Equal(t, found.Matched, done.Changed)
	pending, err := c.DLQEntries(ctx, client.DLQListOptions{ResolutionStatus: client.ResolutionPending, TaskName: "chain"})
	require.NoError(t, err)
	for _, e := range pending {
		require.NotContains(t, olds, e.TaskUUID, "closed, or a new one of the new task")
	}
	closed, err := c.DLQEntryOfTask(ctx, olds[0])
	require.NoError(t, err)
	require.NotNil(t, closed.ReplayedAs)
	_, err = c.ReplayDLQ(ctx, client.DLQReplay{DLQEntryUUID: closed.DLQEntryUUID, Reason: "r", Actor: "ana"})
	require.True(t, client.IsConflict(err), "%v", err)
}

func TestBulkByHand(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	var ids []string
	for range 3 {
		ids = append(ids, ended(t, c, "bad", "error").TaskUUID)
	}
	good := ended(t, c, "good", "complete")
	bulk := client.BulkAction{Filter: client.BulkFilter{Namespace: "shapes", Tag: "t", States: []string{"error"}, StepName: "second"},
		Action: client.ActionComplete, Result: json.RawMessage(`7`), Reason: "r", Actor: "ana"}
	dry, err := c.ActOnTasks(ctx, bulk)
	require.NoError(t, err)
	require.True(t, dry.DryRun)
	require.ElementsMatch(t, ids, dry.Tasks)
	endOf(t, c, ids[0], "error")
	really := false
	bulk.DryRun = &really
	done, err := c.ActOnTasks(ctx, bulk)
	require.NoError(t, err)
	require.Equal(t, 3, done.Changed)
	for _, id := range ids {
		endOf(t, c, id, "complete")
	}
	_, err = c.ActOnTask(ctx, good.TaskUUID, client.TaskAction{Action: client.ActionFail, Reason: "r", Actor: "ana"})
	require.ErrorContains(t, err, "does not allow fail")
}

func TestCreationsWithoutAVersion(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	request := mood("good")
	version := request.Version
	request.Version = ""
	task, err := c.CreateTask(ctx, request)
	require.NoError(t, err)
	require.Equal(t, version, task.Version)
	detail, err := c.Template(ctx, request.Namespace, request.Name, version)
	require.NoError(t, err)
	require.True(t, detail.Registration.Used)
	require.Len(t, detail.Registration.ContentHash, 64)
	detail, err = c.DeprecateTemplate(ctx, request.Namespace, request.Name, version, client.Why{Reason: "old", Actor: "ana"})
	require.NoError(t, err)
	require.NotNil(t, detail.Registration.DeprecatedAt)
	request.IdempotencyKey = "another"
	_, err = c.CreateTask(ctx, request)
	require.True(t, client.IsNotFound(err))
	require.ErrorContains(t, err, "no version of it that is not deprecated")
	request.Version = version
	_, err = c.CreateTask(ctx, request)
	require.NoError(t, err)
	detail, err = c.UndeprecateTemplate(ctx, request.Namespace, request.Name, version, client.Why{})
	require.NoError(t, err)
	require.Nil(t, detail.Registration.DeprecatedAt)
	_, err = c.DeprecateTemplate(ctx, request.Namespace, request.Name, "0", client.Why{Reason: "old", Actor: "ana"})
	require.True(t, client.IsNotFound(err))
}

func TestPauseByHand(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	n, err := c.PauseNamespace(ctx, "shapes", client.Why{Reason: "down", Actor: "ana"})
	require.NoError(t, err)
	require.True(t, n.Paused)
	require.Equal(t, "ana", *n.PausedBy)
	task, err := c.CreateTask(ctx, mood("good"))
	require.NoError(t, err)
	n, err = c.ResumeNamespace(ctx, "shapes", client.Why{})
	require.NoError(t, err)
	require.False(t, n.Paused)
	endOf(t, c, task.TaskUUID, "complete")
	_, err = c.PauseNamespace(ctx, "nowhere", client.Why{Reason: "down", Actor: "ana"})
	require.True(t, client.IsNotFound(err))
	_, err = c.PauseCallable(ctx, "shapes", "nothing", client.Why{Reason: "down", Actor: "ana"})
	require.True(t, client.IsNotFound(err))
	require.ErrorContains(t, err, `no step of namespace "shapes" has the callable "nothing"`)
	n, err = c.PauseCallable(ctx, "shapes", "test.mood", client.Why{Reason: "down", Actor: "ana"})
	require.NoError(t, err)
	require.False(t, n.Paused)
	require.Equal(t, "test.mood", n.PausedCallables[0].Callable)
	task, err = c.CreateTask(ctx, mood("good"))
	require.NoError(t, err)
	n, err = c.ResumeCallable(ctx, "shapes", "test.mood", client.Why{})
	require.NoError(t, err)
	require.Empty(t, n.PausedCallables)
	endOf(t, c, task.TaskUUID, "complete")
	require.Eventually(t, func() bool {
		list, err := c.Workers(ctx, client.WorkerListOptions{Status: "active", Namespace: "shapes"})
		return err == nil && len(list) == 1
	}, 30*time.Second, 50*time.Millisecond)
	_, err = c.Sweeps(ctx)
	require.NoError(t, err)
	_, err = c.Staleness(ctx, 0)
	require.NoError(t, err)
}
