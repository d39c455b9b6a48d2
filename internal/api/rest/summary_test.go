package rest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	path := "/v1/tasks/" + taskID.String() + "/summary"
	h.get(path).golden(t, "summary")

	h.store.pending = workflow.DeadLetterExhausted
	h.store.task.Steps[1].State = workflow.StepError
	h.store.task.Steps[1].Error = json.RawMessage(`{"message":"m","retryable":false,"context":{"status_code":503}}`)
	var s client.TaskSummary
	h.get(path).into(t, &s)
	require.Equal(t, client.DLQSummary{InDLQ: true, DLQReason: ref("max_retries_exceeded"), ResolutionStatus: ref("pending")}, s.DLQ)
	require.Equal(t, &client.StepErrorSummary{StatusCode: ref(503)}, s.Steps[1].Error)
	require.Equal(t, "blocked_by_failures", s.Task.ExecutionStatus)
	require.Nil(t, s.Steps[0].Error, "it has completed")
	for _, odd := range []string{`"503"`, `1`, `600`, `200.5`, `null`} {
		h.store.task.Steps[1].Error = json.RawMessage(`{"message":"m","context":{"status_code":` + odd + `}}`)
		s = client.TaskSummary{}
		h.get(path).into(t, &s)
		require.Nil(t, s.Steps[1].Error.StatusCode, odd)
	}

	h.get("/v1/tasks/x/summary").refused(t, http.StatusBadRequest, "INVALID_UUID")
	missing := h.get("/v1/tasks/"+uuid.NewString()+"/summary").refused(t, http.StatusNotFound, "NOT_FOUND")
	require.Contains(t, missing.Message, "Task not found")
	h.store.fails(sqlError{})
	h.get(path).refused(t, http.StatusInternalServerError, "DATABASE_ERROR")
}

// Of a real task: the error of the failed step is that of its last attempt.
func TestSummaryOfATaskThatHasFailed(t *testing.T) {
	t.Parallel()
	c, _, _ := realHouse(t)
	ctx := t.Context()
	task, err := c.CreateTask(ctx, mood("bad"))
	require.NoError(t, err)
	_, err = c.Task(ctx, task.TaskUUID, 30*time.Second)
	require.NoError(t, err)
	_, err = c.AddDLQEntry(ctx, client.DLQAdd{TaskUUID: task.TaskUUID, Reason: "r", Actor: "a"})
	require.NoError(t, err)
	s, err := c.TaskSummary(ctx, task.TaskUUID)
	require.NoError(t, err)
	require.Equal(t, "error", s.Task.Status)
	require.Len(t, s.Template.Steps, 2)
	require.Equal(t, "error", s.Steps[1].CurrentState)
	require.False(t, s.Steps[1].Error.Retryable)
	require.NotEmpty(t, *s.Steps[1].Error.ErrorType)
	require.True(t, s.DLQ.InDLQ)
	require.Equal(t, "manual_dlq", *s.DLQ.DLQReason)
	known, err := c.TaskContext(ctx, task.TaskUUID)
	require.NoError(t, err)
	require.JSONEq(t, `{"mood":"bad"}`, string(known.Inputs))
	require.JSONEq(t, `1`, string(known.Merged["first"]))
	require.Len(t, known.Outputs, 1)
}

func TestContext(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	path := "/v1/tasks/" + taskID.String() + "/context"
	h.get(path).golden(t, "context")

	// A result under the name of an input, and a step without one.
	h.store.task.Context = json.RawMessage(`{"start":"early","n":12345678901234567890}`)
	h.store.task.Steps[2].State = workflow.StepComplete
	require.JSONEq(t, `{"inputs":{"start":"early","n":12345678901234567890},"outputs":{"start":{"n":36},"right":null},
		"merged":{"start":{"n":36},"right":null,"n":12345678901234567890}}`, string(h.get(path).body))

	h.get("/v1/tasks/x/context").refused(t, http.StatusBadRequest, "INVALID_UUID")
	h.get("/v1/tasks/"+uuid.NewString()+"/context").refused(t, http.StatusNotFound, "NOT_FOUND")
}
