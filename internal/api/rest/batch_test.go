package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

const batchPath = "/v1/tasks/batch"

func batchOf(tasks ...string) string { return `{"tasks":[` + strings.Join(tasks, ",") + `]}` }

func TestBatchAnswersForEachTask(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	existing := uuid.New()
	h.engine.failOn = map[string]error{
		"twice": &orchestration.DuplicateError{Existing: existing}, "nowhere": &orchestration.UnknownTemplateError{Namespace: "n", Name: "nowhere", Version: "1"},
		"bad": &orchestration.InvalidError{Problems: []string{"version must not be empty"}},
	}
	named := func(name string) string { return strings.Replace(goodBody, `"diamond"`, `"`+name+`"`, 1) + "}" }
	body := batchOf(named("diamond"), named("twice"), `{"name":7}`, named("nowhere"), `{"name":"x"}`, named("bad"),
		goodBody+`,"delay_seconds":-1}`, goodBody+`,"start_at":"tomorrow"}`, goodBody+`,"priority":3}`)
	var got client.TaskBatch
	h.do(http.MethodPost, batchPath, body, "X-Correlation-Id", correlationID.String()).into(t, &got)
	require.Equal(t, 2, got.Created)
	require.Equal(t, 7, got.Failed)
	for i, code := range []string{"", "CONFLICT", "UNPROCESSABLE_ENTITY", "NOT_FOUND", "UNPROCESSABLE_ENTITY", "BAD_REQUEST", "BAD_REQUEST",
		"BAD_REQUEST", ""} {
		require.Equal(t, i, got.Results[i].Index)
		if code == "" {
			require.Equal(t, client.TaskBatchResult{Index: i, TaskUUID: taskID.String()}, got.Results[i])
			continue
		}
		require.Empty(t, got.Results[i].TaskUUID)
		require.Equal(t, code, got.Results[i].Error.Code, i)
	}
	require.Equal(t, existing.String(), got.Results[1].Error.TaskUUID)
	require.Equal(t, "name must not be of JSON type number", got.Results[2].Error.Message)
	require.Equal(t, &correlationID, h.engine.created[0].CorrelationID)
}

// Tasks of templates that are not there name those of the same name, as single ones do. The
// database is asked once, and for a bounded number of names.
func TestBatchNamesTemplatesOfTheSameName(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.store.named = []store.NamedTemplate{{Name: "d", Namespace: "examples", Version: "1.0.0"}}
	h.engine.failOn = map[string]error{}
	var tasks []string
	unknown := func(name string) {
		h.engine.failOn[name] = &orchestration.UnknownTemplateError{Namespace: "default", Name: name, Version: "1.0.0"}
		tasks = append(tasks, strings.Replace(goodBody, `"diamond"`, `"`+name+`"`, 1)+"}")
	}
	create := func() (got client.TaskBatch) {
		h.store.asked = nil
		h.do(http.MethodPost, batchPath, batchOf(tasks...)).into(t, &got)
		return got
	}
	unknown("diamond")
	delete(h.engine.failOn, "diamond")
	require.Equal(t, 1, create().Created)
	require.Empty(t, h.store.asked, "no template was unknown")

	unknown("d")
	unknown("e")
	unknown("d")
	got := create()
	require.Equal(t, [][]string{{"d", "e"}}, h.store.asked)
	require.Equal(t, "NOT_FOUND", got.Results[1].Error.Code)
	alone := h.do(http.MethodPost, "/v1/tasks", tasks[1]).refused(t, 404, "NOT_FOUND").Message
	require.Equal(t, "Template not found: default/d/1.0.0; did you mean examples/d?", alone)
	for i, says := range map[int]string{1: alone, 2: "Template not found: default/e/1.0.0", 3: alone} {
		require.Equal(t, says, got.Results[i].Error.Message)
	}

	for i := range 300 {
		unknown(fmt.Sprint("t", i))
	}
	require.Equal(t, 303, create().Failed)
	require.Len(t, h.store.asked, 1)
	require.Len(t, h.store.asked[0], 100)

	h.store.err = errors.New("odd")
	require.Equal(t, "Template not found: default/d/1.0.0", create().Results[1].Error.Message)
}

func TestBatchThatIsNone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.MaxBodyBytes = 1 << 20 })
	many := func(n int) string { return `{"tasks":[{}` + strings.Repeat(",{}", n-1) + `]}` }
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		says   string
	}{
		"malformed":      {`{"tasks":[`, 400, "JSON_ERROR", "not JSON"},
		"malformed task": {batchOf(goodBody+"}", `{"name":}`), 400, "JSON_ERROR", "not JSON"},
		"not UTF-8":      {batchOf("{\"name\":\"\xff\"}"), 400, "JSON_ERROR", "UTF-8"},
		"a list":         {`[{}]`, 422, "UNPROCESSABLE_ENTITY", "object, not array"},
		"no tasks":       {`{}`, 422, "UNPROCESSABLE_ENTITY", "missing field: tasks"},
		"null":           {`{"tasks":null}`, 422, "UNPROCESSABLE_ENTITY", "missing field: tasks"},
		"no list":        {`{"tasks":{}}`, 422, "UNPROCESSABLE_ENTITY", "tasks must not be of JSON type object"},
		"empty":          {`{"tasks":[]}`, 400, "BAD_REQUEST", "1 to 10000 entries"},
		"too many":       {many(client.MaxBatchTasks + 1), 400, "BAD_REQUEST", "1 to 10000 entries"},
		"too large":      {`{"tasks":["` + strings.Repeat("x", 8<<20) + `"]}`, 413, "PAYLOAD_TOO_LARGE", "8388608"},
	} {
		t.Run(name, func(t *testing.T) {
			e := h.do(http.MethodPost, batchPath, c.body).refused(t, c.status, c.code)
			require.Contains(t, e.Message, c.says)
		})
	}
	h.do(http.MethodPost, batchPath, batchOf("{}"), "Content-Type", "text/plain").refused(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	require.Empty(t, h.engine.created)
	var got client.TaskBatch
	h.do(http.MethodPost, batchPath, many(client.MaxBatchTasks)).into(t, &got)
	require.Equal(t, client.MaxBatchTasks, got.Failed, "not one of them has a name")
}

// The answer is a failure only if no task was created, and none is the cause: then the
// same request may be repeated.
func TestBatchWithoutADatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	away := fmt.Errorf("create the tasks: %w", store.ErrUnavailable)
	h.engine.failOn = map[string]error{"later": away}
	later := strings.Replace(goodBody, `"diamond"`, `"later"`, 1) + "}"
	r := h.do(http.MethodPost, batchPath, batchOf(later, later, later, `{}`))
	r.refused(t, 503, "SERVICE_UNAVAILABLE")
	require.Equal(t, "5", r.Header.Get("Retry-After"))
	require.Equal(t, 1, h.logs.FilterMessage("a request failed").Len(), "one cause, one line")

	var got client.TaskBatch
	h.do(http.MethodPost, batchPath, batchOf(goodBody+"}", later)).into(t, &got)
	require.Equal(t, 1, got.Created)
	require.Equal(t, "SERVICE_UNAVAILABLE", got.Results[1].Error.Code)
	require.EqualValues(t, 5, got.Results[1].Error.RetryAfterSeconds)

	h.engine.failOn = map[string]error{"later": errors.New("odd")}
	require.NotEmpty(t, h.do(http.MethodPost, batchPath, batchOf(later)).refused(t, 500, "INTERNAL_ERROR").RequestID)
}

func TestBatchUnderPressure(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.saturation = 0.91
	r := h.do(http.MethodPost, batchPath, batchOf(goodBody+"}"))
	r.refused(t, 503, "BACKPRESSURE")
	require.Equal(t, "15", r.Header.Get("Retry-After"))
	require.Empty(t, h.engine.created)
}

// Batches beyond the limit wait with their bodies unread.
func TestBatchesTakeTurns(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	inside, release := make(chan struct{}), make(chan struct{})
	h.engine.onCreate = func(context.Context) error { inside <- struct{}{}; <-release; return nil }
	const places = 4
	done := make(chan int, places+1)
	send := func(ctx context.Context) {
		go func() {
			done <- record(h, request(http.MethodPost, batchPath, batchOf(goodBody+"}")).WithContext(ctx)).Code
		}()
	}
	for range places {
		send(t.Context())
	}
	for range places {
		await(t, inside)
	}
	ctx, cancel := context.WithCancel(t.Context())
	send(ctx)
	cancel()
	require.Equal(t, http.StatusGatewayTimeout, await(t, done), "its client has left")
	close(release)
	for range places {
		require.Equal(t, http.StatusOK, await(t, done))
	}
}

// FuzzBatch sends any body: the answer is never a 5xx, and it has an entry for
// each task.
func FuzzBatch(f *testing.F) {
	for _, seed := range []string{
		batchOf(goodBody + "}"), batchOf(), `{}`, `{"tasks":[1]}`, `{"tasks":[{}]} `, `{"tasks":[{}],"tasks":[]}`, `{"Tasks":[null]}`,
		batchOf(goodBody+`,"tags":["a"]}`, goodBody+`,"priority":1e400}`),
	} {
		f.Add([]byte(seed))
	}
	h := newHouse(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		h.engine.change(func(*fakeStatus) { h.engine.created = nil })
		w := record(h, request(http.MethodPost, batchPath, string(body)))
		if w.Code >= 500 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if w.Code != http.StatusOK {
			return
		}
		var sent struct{ Tasks []json.RawMessage }
		var got client.TaskBatch
		require.NoError(t, json.Unmarshal(body, &sent))
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Len(t, got.Results, len(sent.Tasks))
		require.Equal(t, len(h.engine.created), got.Created)
		require.Equal(t, len(sent.Tasks), got.Created+got.Failed)
	})
}
