package rest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/workflow"
)

// TestResultsAreShownWhereTheyAreAskedFor: of the last steps or of all, with failures.
func TestResultsAreShownWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	path := "/v1/tasks/" + taskID.String()
	var plain, last, all client.Task
	r := h.get(path)
	r.into(t, &plain)
	require.NotContains(t, string(r.body), `"results"`)
	require.NotContains(t, string(r.body), `"errors"`)
	h.get(path+"?include=results").into(t, &last)
	require.Empty(t, last.Results, "the last step has not run")
	require.Equal(t, "no route", last.Errors["left"].Message)
	require.Equal(t, "Unreachable", last.Errors["left"].ErrorType)
	h.get(path+"?include=all_results").into(t, &all)
	require.JSONEq(t, `{"n":36}`, string(all.Results["start"]))
	require.Len(t, all.Results, 1)

	for i := range h.store.task.Steps {
		s := &h.store.task.Steps[i]
		s.State, s.CompletedAt, s.Result = workflow.StepComplete, at(9), json.RawMessage(`{"of":"`+s.Name+`"}`)
		h.store.task.Progress.Steps[i].Status = workflow.StatusComplete
	}
	var ended client.Task
	for _, query := range []string{"?include=results", "?include=results&wait=1s", "?wait=1s"} {
		ended = client.Task{}
		h.get(path+query).into(t, &ended)
		require.Len(t, ended.Results, 1, query)
		require.JSONEq(t, `{"of":"end"}`, string(ended.Results["end"]))
		require.Empty(t, ended.Errors)
	}
	ended = client.Task{}
	h.do(http.MethodPost, "/v1/tasks?wait=1s&include=results", goodBody+"}").into(t, &ended)
	require.JSONEq(t, `{"of":"end"}`, string(ended.Results["end"]))
	ended = client.Task{}
	h.do(http.MethodPost, "/v1/tasks?wait=1s", goodBody+"}").into(t, &ended)
	require.JSONEq(t, `{"of":"end"}`, string(ended.Results["end"]), "who waits wants the results")
	ended = client.Task{}
	h.get("/v1/tasks/by-key?namespace=shapes&name=diamond&idempotency_key=a/b%20c&include=all_results").into(t, &ended)
	require.Len(t, ended.Results, 4)
	h.get(path+"?include=everything").refused(t, http.StatusBadRequest, "BAD_REQUEST")

	shown, err := client.New(client.Config{BaseURL: h.started()}).Task(t.Context(), taskID.String(), time.Second, client.IncludeResults)
	require.NoError(t, err)
	require.JSONEq(t, `{"of":"end"}`, string(shown.Results["end"]))
}

// TestTheRootLeadsToTheAPIPage on both daemons.
func TestTheRootLeadsToTheAPIPage(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := h.get("/")
	require.Equal(t, http.StatusFound, r.StatusCode)
	require.Equal(t, "/api-docs/ui", r.Header.Get("Location"))
	w, err := rest.NewWorker(bounded(t, rest.Config{}), rest.Worker{ID: "w", Type: "general", Status: newFakeStatus()})
	require.NoError(t, err)
	h.server = w
	require.Equal(t, http.StatusFound, h.get("/").StatusCode)
	require.Equal(t, http.StatusNotFound, h.get("/nothing").StatusCode)
}
