package rest_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/store"
)

func TestFindATaskByItsKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := h.get("/v1/tasks/by-key?namespace=shapes&name=diamond&idempotency_key=a%2Fb+c")
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Contains(t, string(r.body), taskID.String())
	h.get("/v1/tasks/by-key?namespace=shapes&name=diamond&idempotency_key=other").refused(t, 404, "NOT_FOUND")
	h.get("/v1/tasks/by-key?namespace=shapes&name=square&idempotency_key=a%2Fb+c").refused(t, 404, "NOT_FOUND")
	h.get("/v1/tasks/by-key?namespace=shapes&name=diamond&idempotency_key=%ff%00").refused(t, 404, "NOT_FOUND")
	for _, query := range []string{"", "?namespace=shapes&name=diamond", "?namespace=shapes&idempotency_key=k", "?name=diamond&idempotency_key=k"} {
		h.get("/v1/tasks/by-key"+query).refused(t, 400, "BAD_REQUEST")
	}
	h.get("/v1/tasks/by-key?namespace=shapes&name=diamond&idempotency_key=k&wait=long").refused(t, 400, "BAD_REQUEST")
}

func TestADuplicateKeySaysWhereTheTaskIs(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.createErr = &orchestration.DuplicateError{Existing: taskID}
	r := h.do(http.MethodPost, "/v1/tasks", goodBody+`,"idempotency_key":"k"}`)
	require.Equal(t, taskID.String(), r.refused(t, 409, "CONFLICT").TaskUUID)
	require.Equal(t, "/v1/tasks/"+taskID.String(), r.Header.Get("Location"))
	h.engine.createErr = &orchestration.DuplicateError{}
	r = h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
	require.Empty(t, r.refused(t, 409, "CONFLICT").TaskUUID)
	require.Empty(t, r.Header.Get("Location"), "a guessed context reveals no identifiers")
}

func TestUseTheExistingTask(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	body := goodBody + `,"idempotency_key":"k","conflict_policy":"use_existing"}`
	r := h.do(http.MethodPost, "/v1/tasks", body)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Empty(t, r.Header.Get("Idempotent-Replayed"))
	require.EqualValues(t, "use_existing", h.engine.created[0].Conflict)

	h.engine.existing = true
	r = h.do(http.MethodPost, "/v1/tasks", body)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, "true", r.Header.Get("Idempotent-Replayed"))
	var task client.Task
	require.NoError(t, json.Unmarshal(r.body, &task))
	require.Equal(t, "steps_in_process", task.Status, "its current state, not a new task's")
	h.store.fails(store.ErrNotFound)
	h.do(http.MethodPost, "/v1/tasks", body).refused(t, 404, "NOT_FOUND")

	r = h.do(http.MethodPost, "/v1/tasks/batch", `{"tasks":[`+body+`]}`)
	require.JSONEq(t, `{"created":0,"failed":0,"existing":1,"results":[{"index":0,"task_uuid":"`+taskID.String()+`","existing":true}]}`, string(r.body))
}

func TestPriorityLevelsOverTheAPI(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := h.do(http.MethodPost, "/v1/tasks", goodBody+`,"priority_level":2}`)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, 60, *h.engine.created[0].Priority)
	var task client.Task
	require.NoError(t, json.Unmarshal(r.body, &task))
	require.Equal(t, 60, *task.Priority)
	require.Equal(t, 2, task.PriorityLevel)
	for _, extra := range []string{`"priority_level":0`, `"priority_level":11`, `"priority_level":5,"priority":0`} {
		h.do(http.MethodPost, "/v1/tasks", goodBody+","+extra+"}").refused(t, 400, "BAD_REQUEST")
	}
	h.do(http.MethodPost, "/v1/tasks", goodBody+`,"priority_level":1.5}`).refused(t, 422, "UNPROCESSABLE_ENTITY")
}

func TestRetriesOfATaskOverTheAPI(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := h.do(http.MethodPost, "/v1/tasks", goodBody+`,"retry_delays":["10s","1m30s"]}`)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, []time.Duration{10 * time.Second, 90 * time.Second}, h.engine.created[0].RetryDelays)
	var task client.Task
	require.NoError(t, json.Unmarshal(r.body, &task))
	require.Equal(t, 3, task.MaxAttempts)
	require.Equal(t, []string{"10s", "1m30s"}, task.RetryDelays)
	for _, step := range task.Steps {
		require.Equal(t, map[bool]int{true: 1, false: 3}[step.Name == "right"], step.MaxAttempts, "%s: a step that is not retryable stays so", step.Name)
	}
	for extra, code := range map[string]int{
		`"retry_delays":["soon"]`: 400, `"retry_delays":[""]`: 400, `"retry_delays":["-1s"]`: 400, `"max_attempts":0`: 200, `"max_attempts":-3`: 200,
		`"retry_delays":[10]`: 422, `"retry_delays":"10s"`: 422, `"max_attempts":"3"`: 422, `"max_attempts":1e99`: 422,
	} {
		require.Equal(t, code, h.do(http.MethodPost, "/v1/tasks", goodBody+","+extra+"}").StatusCode, extra)
	}
	for _, refused := range h.engine.created[1:] { // the engine's checks come after those of the API
		require.ErrorContains(t, refused.Check(), "max_attempts must be between 1 and 32767")
	}
}

func TestTaskWithAStartShowsIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for extra, want := range map[string]string{
		`"start_at":"2026-03-21T11:11:12Z"`: "2026-03-21T11:11:12Z", // the fake's clock shows an hour less
		`"start_at":"2026-03-21T09:11:12Z"`: "", `"delay_seconds":60`: "2026-03-21T10:12:12.123456Z", `"tags":[]`: "",
	} {
		r := h.do(http.MethodPost, "/v1/tasks", goodBody+","+extra+"}")
		var task client.Task
		require.NoError(t, json.Unmarshal(r.body, &task), "%s", r.body)
		if want == "" {
			require.Nil(t, task.StartAt, extra)
			require.Equal(t, "enqueued", task.Steps[0].CurrentState, extra)
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, want)
		require.NoError(t, err)
		require.WithinDuration(t, at, task.StartAt.Time, 0, extra)
		require.NotEqual(t, "enqueued", task.Steps[0].CurrentState, extra)
	}
}

// The fast reader and encoding/json give the same result.
func TestPrioritiesReadAlike(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for level := priorities.MinLevel; level <= priorities.MaxLevel; level++ {
		for _, body := range []map[string]any{{"priority_level": level}, {"priority": priorities.OfLevel(level)}} {
			for k, v := range map[string]any{"name": "diamond", "namespace": "shapes", "version": "1.0.0", "context": map[string]int{"n": level},
				"initiator": "i", "source_system": "s", "reason": "r"} {
				body[k] = v
			}
			text, err := json.Marshal(body)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", string(text)).StatusCode)
		}
		last := h.engine.created[len(h.engine.created)-2:]
		require.Equal(t, *last[0].Priority, *last[1].Priority)
	}
}
