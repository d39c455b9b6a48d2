package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

const (
	eventsPath    = "/v1/external-events"
	approvalsPath = "/v1/approvals"
	approvalToken = "7b8d7b7e-3c1f-4c43-9a53-0d6c33f3c001"
	approvalPath  = approvalsPath + "/" + approvalToken
)

// fakeWaits has one approval, and records requests.
type fakeWaits struct{ *fakeOperator }

func (f fakeWaits) ReceiveEvent(_ context.Context, e orchestration.Event) (store.Delivered, error) {
	return store.Delivered{UUID: taskID, Steps: 1, ExpiresAt: time.Unix(0, 0)}, f.note("event", e)
}

func (f fakeWaits) Approvals(_ context.Context, filter store.ApprovalFilter) (store.ApprovalPage, error) {
	return store.ApprovalPage{Approvals: []store.Approval{{Token: approvalToken, TaskUUID: taskID}}, Unreadable: []uuid.UUID{taskID}}, f.note("approvals", filter)
}

func (f fakeWaits) Approval(_ context.Context, token string) (store.Approval, error) {
	return f.known(token)
}

func (f fakeWaits) Decide(_ context.Context, token string, v orchestration.Verdict) (store.Approval, error) {
	a, err := f.known(token)
	if err == nil {
		err = f.note("decide", v)
	}
	return a, err
}

func (f fakeWaits) known(token string) (store.Approval, error) {
	if token != approvalToken {
		return store.Approval{}, store.ErrNotFound
	}
	return store.Approval{Token: token, TaskUUID: taskID, Step: "approve"}, nil
}

func TestRequestsToWaits(t *testing.T) {
	t.Parallel()
	h, o := guarded(t)
	for _, c := range []struct {
		route, body string
		status      int
	}{
		{"GET " + approvalsPath + "?limit=0", "", http.StatusOK},
		{"GET " + approvalsPath + "?limit=1001", "", http.StatusBadRequest},
		{"GET " + approvalsPath + "?task_uuid=x", "", http.StatusBadRequest},
		{"GET " + approvalPath, "", http.StatusOK},
		{"GET " + approvalsPath + "/" + uuid.NewString(), "", http.StatusNotFound},
		{"GET " + approvalsPath + "/x", "", http.StatusNotFound},
		{"POST " + approvalsPath + "/x", `{"approved":true,"actor":"a"}`, http.StatusNotFound},
		{"POST " + approvalPath, `{"actor":"a"}`, http.StatusUnprocessableEntity},
		{"POST " + approvalPath, `{"approved":true,"actor":" "}`, http.StatusBadRequest},
		{"POST " + approvalPath, `{"approved":false,"actor":"a"}`, http.StatusOK},
		{"POST " + eventsPath, `{"key":"k","namespace":"n"}`, http.StatusUnprocessableEntity},
		{"POST " + eventsPath, `{"name":"n","task_uuid":"x"}`, http.StatusUnprocessableEntity},
	} {
		status, _ := serve(h, o, c.route, c.body)
		require.Equal(t, c.status, status, "%s %s", c.route, c.body)
	}
}

// A task that waits for an event, then for a person, and then is another task.
func TestWaitsOverTheAPI(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	request := mood("")
	request.Name, request.Context = "waiting", json.RawMessage(`{"order":7}`)
	task, err := c.CreateTask(ctx, request)
	require.NoError(t, err)
	after := mood("")
	after.Context, after.DependsOn = json.RawMessage(`{"mood":"","after":1}`), []string{task.TaskUUID}
	dependent, err := c.CreateTask(ctx, after)
	require.NoError(t, err)
	require.Equal(t, "pending", dependent.Status)
	require.Equal(t, []string{task.TaskUUID}, dependent.DependsOn)
	require.Equal(t, "tasks", dependent.Steps[0].Waiting.Kind)

	waits := func(id string, step int) *client.Waiting {
		t.Helper()
		var w *client.Waiting
		require.Eventually(t, func() bool {
			got, err := c.Task(ctx, id, 0)
			require.NoError(t, err)
			w = got.Steps[step].Waiting
			return w != nil
		}, 30*time.Second, 5*time.Millisecond)
		return w
	}
	require.Equal(t, &client.Waiting{Kind: "wait_for_event", Event: "paid", Key: "7"}, waits(task.TaskUUID, 0))
	receipt, err := c.SendEvent(ctx, client.ExternalEvent{Name: "paid", Namespace: "shapes", Key: "7", ID: "1", Payload: json.RawMessage(`12.5`)})
	require.NoError(t, err)
	require.Equal(t, 1, receipt.Delivered)
	receipt, err = c.SendEvent(ctx, client.ExternalEvent{Name: "paid", Namespace: "shapes", Key: "7", ID: "1"})
	require.NoError(t, err)
	require.True(t, receipt.Duplicate)
	_, err = c.SendEvent(ctx, client.ExternalEvent{Name: "paid", Namespace: "nowhere", Key: "7"})
	require.True(t, client.IsNotFound(err))

	require.Equal(t, "May it?", waits(task.TaskUUID, 1).Prompt)
	list, err := c.Approvals(ctx, client.ApprovalListOptions{TaskUUID: task.TaskUUID})
	require.NoError(t, err)
	require.Len(t, list, 1)
	shown, err := c.Approval(ctx, list[0].Token)
	require.NoError(t, err)
	require.Equal(t, list[0], *shown)
	_, err = c.Decide(ctx, shown.Token, client.Verdict{Approved: true, Actor: "ana", Data: json.RawMessage(`{"mood":""}`)})
	require.NoError(t, err)
	_, err = c.Decide(ctx, shown.Token, client.Verdict{Approved: true, Actor: "ana"})
	require.True(t, client.IsNotFound(err))

	ended := endOf(t, c, task.TaskUUID, "complete")
	var sub struct {
		Result struct {
			TaskUUID string `json:"task_uuid"`
		} `json:"result"`
	}
	step, err := c.Step(ctx, task.TaskUUID, ended.Steps[2].WorkflowStepUUID)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(step.Results, &sub))
	child, err := c.Task(ctx, sub.Result.TaskUUID, 0)
	require.NoError(t, err)
	require.Equal(t, task.TaskUUID, *child.ParentTaskUUID)
	require.Equal(t, ended.Steps[2].WorkflowStepUUID, *child.ParentStepUUID)
	endOf(t, c, dependent.TaskUUID, "complete")
	_, err = c.SendEvent(ctx, client.ExternalEvent{Name: "paid", TaskUUID: task.TaskUUID})
	require.True(t, client.IsConflict(err), "the task has ended")
	after.DependsOn, after.IdempotencyKey = []string{uuid.NewString()}, uuid.NewString()
	_, err = c.CreateTask(ctx, after)
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusBadRequest, refusal.Status)
}
