package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// taskServer answers creations with a pending task and questions with the ones given, in turn.
func taskServer(t *testing.T, created client.Task, then ...client.Task) *client.Client {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := created
		if r.Method == http.MethodGet {
			answer = then[min(int(asked.Add(1))-1, len(then)-1)]
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return client.New(client.Config{BaseURL: server.URL})
}

func TestRun(t *testing.T) {
	t.Parallel()
	type sum struct{ Total int }
	request := client.TaskRequest{Name: "add", Namespace: "sums", Version: "1.0.0", Context: json.RawMessage(`{}`)}
	pending := client.Task{TaskUUID: "t", Status: "pending"}
	results := func(text ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i, r := range text {
			m["step"+strconv.Itoa(i)] = json.RawMessage(r)
		}
		return m
	}
	complete := client.Task{TaskUUID: "t", Status: "complete", Results: results(`{"total":7}`)}

	got, err := client.Run[sum](t.Context(), taskServer(t, pending, client.Task{TaskUUID: "t", Status: "steps_in_process"}, complete), request)
	require.NoError(t, err)
	require.Equal(t, sum{7}, got)

	both, err := client.Run[map[string]sum](t.Context(), taskServer(t, pending, client.Task{TaskUUID: "t", Status: "complete",
		Results: results(`{"total":7}`, `{"total":8}`)}), request)
	require.NoError(t, err)
	require.Equal(t, map[string]sum{"step0": {7}, "step1": {8}}, both)

	got, err = client.Run[sum](t.Context(), taskServer(t, client.Task{TaskUUID: "t", Status: "complete"}, complete), request)
	require.NoError(t, err, "a duplicate that had ended")
	require.Equal(t, sum{7}, got)

	_, err = client.Run[sum](t.Context(), taskServer(t, pending, client.Task{TaskUUID: "t", Namespace: "sums", Name: "add", Status: "error"}), request)
	var failed *client.EndedError
	require.ErrorAs(t, err, &failed)
	require.EqualError(t, err, "task t of sums/add ended as error")

	_, err = client.Run[[]int](t.Context(), taskServer(t, pending, complete), request)
	require.ErrorContains(t, err, "decode the result of task t")
}

func TestEachTask(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(strings.Replace(r.URL.Query().Get("cursor"), client.NewestTasks, "1", 1))
		if page == 3 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(client.TaskList{Tasks: []client.Task{{TaskUUID: strconv.Itoa(2 * page)}, {TaskUUID: strconv.Itoa(2*page + 1)}},
			NextCursor: strconv.Itoa(page + 1)})
	}))
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL})
	var seen []string
	var last error
	for task, err := range c.EachTask(t.Context(), client.TaskListOptions{PerPage: 2}) {
		if last = err; err == nil {
			seen = append(seen, task.TaskUUID)
		}
	}
	require.Equal(t, []string{"2", "3", "4", "5"}, seen)
	require.Error(t, last)
	for task, err := range c.EachTask(t.Context(), client.TaskListOptions{}) {
		require.NoError(t, err)
		require.Equal(t, "2", task.TaskUUID)
		break
	}
}
