package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const goodBody = `{"name":"diamond","namespace":"shapes","version":"1.0.0","context":{"n":1},` +
	`"initiator":"ops","source_system":"console","reason":"demo"`

func TestCreate(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := h.do(http.MethodPost, "/v1/tasks", goodBody+`,"tags":["a"],"priority":-3,"idempotency_key":"k",
		"correlation_id":"019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f11","parent_correlation_id":"019D1C5E-0C3E-7A41-9A0E-5B7B1B0A1F12",
		"requested_at":"2026-03-21T10:11:12","options":{"x":1},"unknown_key":[1]}`)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	r.golden(t, "created")
	require.Equal(t, []orchestration.Request{{
		Namespace: "shapes", Name: "diamond", Version: "1.0.0", Context: json.RawMessage(`{"n":1}`),
		Initiator: "ops", SourceSystem: "console", Reason: "demo", Tags: []string{"a"}, Priority: ref(-3),
		CorrelationID: &correlationID, ParentCorrelationID: &workerID, IdempotencyKey: "k",
	}}, h.engine.created)
}

func TestCreateCorrelationHeader(t *testing.T) {
	t.Parallel()
	other := uuid.NewString()
	for name, c := range map[string]struct {
		body, header string
		want         *uuid.UUID
	}{
		"from the header":       {goodBody + "}", correlationID.String(), &correlationID},
		"the body's counts":     {goodBody + `,"correlation_id":"` + correlationID.String() + `"}`, other, &correlationID},
		"no UUID, not ours":     {goodBody + "}", "trace-7", nil},
		"null means absent":     {goodBody + `,"correlation_id":null}`, "", nil},
		"neither: made further": {goodBody + "}", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			r := h.do(http.MethodPost, "/v1/tasks", c.body, "X-Correlation-Id", c.header)
			require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
			require.Equal(t, c.want, h.engine.created[0].CorrelationID)
		})
	}
}

func TestCreateLater(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC().Truncate(time.Microsecond)
	for name, c := range map[string]struct {
		extra string
		in    time.Duration
		at    *time.Time
	}{
		"delay":        {extra: `,"delay_seconds":1.5`, in: 1500 * time.Millisecond},
		"a huge delay": {extra: `,"delay_seconds":1e300`, in: 1e9 * time.Second},
		"an instant":   {extra: `,"start_at":"` + at.Format(time.RFC3339Nano) + `"`, at: &at},
		"a finer one":  {extra: `,"start_at":"` + at.Add(999).Format(time.RFC3339Nano) + `"`, at: &at},
		"another zone": {extra: `,"start_at":"` + at.In(time.FixedZone("", 7200)).Format(time.RFC3339Nano) + `"`, at: &at},
		"lower-case":   {extra: `,"start_at":"` + strings.ToLower(at.Format(time.RFC3339Nano)) + `"`, at: &at},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", goodBody+c.extra+"}").StatusCode)
			got := h.engine.created[0]
			require.Equal(t, c.in, got.StartIn)
			if c.at == nil {
				require.Nil(t, got.StartAt)
			} else {
				require.WithinDuration(t, *c.at, *got.StartAt, 0)
			}
		})
	}
}

func TestCreateRefusesBadBodies(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for name, c := range map[string]struct {
		body, contentType string
		status            int
		code, says        string
	}{
		"malformed":            {`{"name":`, "application/json", 400, "JSON_ERROR", "not JSON"},
		"empty":                {``, "application/json", 400, "JSON_ERROR", "not JSON"},
		"two values":           {`{} {}`, "application/json", 400, "JSON_ERROR", "not JSON"},
		"not UTF-8":            {"{\"name\":\"\xff\"}", "application/json", 400, "JSON_ERROR", "UTF-8"},
		"a list":               {`[1]`, "application/json", 422, "UNPROCESSABLE_ENTITY", "object, not array"},
		"null":                 {`null`, "application/json", 422, "UNPROCESSABLE_ENTITY", "missing field: name, namespace"},
		"wrong type":           {`{"name":7}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "name must not be of JSON type number"},
		"priority a fraction":  {goodBody + `,"priority":1.5}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "priority"},
		"priority too large":   {goodBody + `,"priority":99999999999999999999}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "priority"},
		"tags of numbers":      {goodBody + `,"tags":[1]}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "tags"},
		"missing fields":       {`{"name":"a","namespace":"b","version":"c","context":{},"initiator":"i"}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "source_system, reason"},
		"empty version":        {strings.Replace(goodBody, `"1.0.0"`, `""`, 1) + "}", "application/json", 400, "BAD_REQUEST", "version must not be empty"},
		"null afterwards":      {goodBody + `,"reason":null,"context":null}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "missing field: reason, context"},
		"null context":         {strings.Replace(goodBody, `{"n":1}`, "null", 1) + "}", "application/json", 422, "UNPROCESSABLE_ENTITY", "context"},
		"bad correlation":      {goodBody + `,"correlation_id":"x"}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "correlation_id must be a UUID"},
		"bad parent":           {goodBody + `,"parent_correlation_id":"x"}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "parent_correlation_id"},
		"bad start":            {goodBody + `,"start_at":"tomorrow"}`, "application/json", 400, "BAD_REQUEST", "start_at: invalid time \"tomorrow\": want RFC 3339 with a zone"},
		"a start without zone": {goodBody + `,"start_at":"2026-03-21T10:00:00"}`, "application/json", 400, "BAD_REQUEST", "want RFC 3339 with a zone"},
		"a deadline without":   {goodBody + `,"deadline":"2026-03-21 10:00:00"}`, "application/json", 400, "BAD_REQUEST", "deadline: invalid time"},
		"start of a number":    {goodBody + `,"start_at":7}`, "application/json", 422, "UNPROCESSABLE_ENTITY", "start_at is wrong: invalid time 7"},
		"start and delay":      {goodBody + `,"start_at":"2026-01-01T00:00:00Z","delay_seconds":1}`, "application/json", 400, "BAD_REQUEST", "not both"},
		"negative delay":       {goodBody + `,"delay_seconds":-1}`, "application/json", 400, "BAD_REQUEST", "negative"},
		"no content type":      {goodBody + `}`, "", 415, "UNSUPPORTED_MEDIA_TYPE", "application/json"},
		"another one":          {goodBody + `}`, "text/plain", 415, "UNSUPPORTED_MEDIA_TYPE", "application/json"},
		"5 MB":                 {`{"name":"` + strings.Repeat("x", 5<<20) + `"}`, "application/json", 413, "PAYLOAD_TOO_LARGE", "2097152"},
	} {
		t.Run(name, func(t *testing.T) {
			e := h.do(http.MethodPost, "/v1/tasks", c.body, "Content-Type", c.contentType).refused(t, c.status, c.code)
			require.Contains(t, e.Message, c.says)
		})
	}
	require.Empty(t, h.engine.created)
}

func TestCreateAcceptsKindredContentTypes(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, contentType := range []string{"application/json; charset=utf-8", "Application/JSON", "application/vnd.tasker+json"} {
		require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", goodBody+"}", "Content-Type", contentType).StatusCode, contentType)
	}
}

func TestCreatedLaterIsNotReady(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var got client.Task
	h.do(http.MethodPost, "/v1/tasks", goodBody+`,"delay_seconds":60}`).into(t, &got)
	require.Zero(t, got.ReadySteps)
	require.Equal(t, "pending", got.Steps[0].CurrentState)
	require.Nil(t, got.Steps[0].NextRetryAt, "the first execution is not a retry")
	h.do(http.MethodPost, "/v1/tasks?wait=1s", goodBody+"}").golden(t, "task_waited")
}

func TestCreateFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err         error
		status      int
		code, says  string
		retry, task string
	}{
		"invalid":          {&orchestration.InvalidError{Problems: []string{"name must not be empty", "x"}}, 400, "BAD_REQUEST", "name must not be empty; x", "", ""},
		"unknown template": {&orchestration.UnknownTemplateError{Namespace: "a", Name: "b", Version: "c"}, 404, "NOT_FOUND", "Template not found: a/b/c", "", ""},
		"duplicate":        {&orchestration.DuplicateError{}, 409, "CONFLICT", "already exists", "", ""},
		"duplicate key":    {&orchestration.DuplicateError{Existing: taskID}, 409, "CONFLICT", taskID.String(), "", taskID.String()},
		"database away":    {fmt.Errorf("create: %w", store.ErrUnavailable), 503, "SERVICE_UNAVAILABLE", "database", "5", ""},
		"stopping":         {fmt.Errorf("create: %w", command.ErrStopped), 503, "SERVICE_UNAVAILABLE", "shutting down", "2", ""},
		"a broken query":   {fmt.Errorf("create: %w", sqlError{}), 500, "DATABASE_ERROR", "Database operation failed", "", ""},
		"anything else":    {errors.New("the disk of host dbhost-7 is full"), 500, "INTERNAL_ERROR", "unexpected", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.engine.createErr = c.err
			r := h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
			e := r.refused(t, c.status, c.code)
			require.Contains(t, e.Message, c.says)
			require.Equal(t, c.retry, r.Header.Get("Retry-After"))
			require.Equal(t, c.retry != "", e.RetryAfterSeconds > 0)
			require.Equal(t, c.task, e.TaskUUID)
			if c.status == 500 {
				require.NotContains(t, string(r.body), "secret")
				require.NotContains(t, string(r.body), "dbhost-7")
				require.Equal(t, r.Header.Get("X-Request-Id"), e.RequestID)
				logged := h.logs.FilterField(zap.String("request_id", e.RequestID)).FilterMessage("a request failed").All()
				require.Len(t, logged, 1)
				require.Contains(t, fmt.Sprint(logged[0].ContextMap()["error"]), c.err.Error())
			}
		})
	}
}

// An outage is not logged once more by each request that it refuses, and an unexpected failure
// is each time.
func TestAnOutageIsNotLoggedByRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		logged int
	}{"refused": {fmt.Errorf("create: %w", store.ErrUnavailable), 1}, "unexpected": {errors.New("the disk is full"), 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.engine.createErr = c.err
			for range 20 {
				require.GreaterOrEqual(t, h.do(http.MethodPost, "/v1/tasks", goodBody+"}").StatusCode, 500)
			}
			require.Equal(t, c.logged, h.logs.FilterMessage("a request failed").Len())
		})
	}
}

// A template that is not there is looked for in the other namespaces that the client may see,
// and among the versions of its own.
func TestTemplatesOfTheSameNameAreNamed(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for name, c := range map[string]struct {
		namespaces []string
		err        orchestration.UnknownTemplateError
		says       string
	}{
		"elsewhere": {nil, orchestration.UnknownTemplateError{Namespace: "shapes", Name: "d", Version: "9"},
			"Template not found: shapes/d/9; did you mean examples/d or lines/d?"},
		"hidden": {[]string{"shapes", "lines"}, orchestration.UnknownTemplateError{Namespace: "shapes", Name: "d", Version: "9"},
			"Template not found: shapes/d/9; did you mean lines/d?"},
		"versions": {nil, orchestration.UnknownTemplateError{Namespace: "examples", Name: "d", Version: "3.0.0"},
			"Template not found: examples/d/3.0.0; did you mean examples/d/2.0.0 or examples/d/1.0.0 or lines/d?"},
		"nothing": {nil, orchestration.UnknownTemplateError{Namespace: "shapes", Name: "e", Version: "9"}, "Template not found: shapes/e/9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.Access = i.access() })
			h.engine.createErr = &c.err
			h.store.named = []store.NamedTemplate{{Name: "d", Namespace: "examples", Version: "2.0.0"},
				{Name: "d", Namespace: "examples", Version: "1.0.0"}, {Name: "d", Namespace: "lines", Version: "1.0.0"}}
			e := h.do(http.MethodPost, "/v1/tasks", goodBody+"}", "Authorization", "Bearer "+i.token(c.namespaces, "tasks:create")).refused(t, 404, "NOT_FOUND")
			require.Equal(t, c.says, e.Message)
		})
	}
	h := newHouse(t)
	h.store.named = []store.NamedTemplate{{Name: "d", Namespace: "lines", Version: "1.0.0"}}
	require.Equal(t, "Template not found: examples/d/3.0.0; did you mean lines/d?", h.get("/v1/templates/examples/d/3.0.0").refused(t, 404, "NOT_FOUND").Message)
	require.Equal(t, "Template not found: examples/e/3.0.0", h.get("/v1/templates/examples/e/3.0.0").refused(t, 404, "NOT_FOUND").Message)
}

func TestCreateSaysThatItWasCreated(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.onCreate = func(context.Context) error { h.store.fails(store.ErrUnavailable); return nil }
	require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", goodBody+"}").StatusCode, "the new task is not read")
	e := h.do(http.MethodPost, "/v1/tasks?wait=1s", goodBody+"}").refused(t, 503, "SERVICE_UNAVAILABLE")
	require.Contains(t, e.Message, "was created as "+taskID.String())
	require.Equal(t, taskID.String(), e.TaskUUID)
}

func TestBackpressure(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for saturation, retry := range map[float64]string{0.90: "15", 0.94: "15", 0.95: "30", 1: "30"} {
		h.engine.change(func(s *fakeStatus) { s.saturation = saturation })
		r := h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
		r.refused(t, 503, "BACKPRESSURE")
		require.Equal(t, retry, r.Header.Get("Retry-After"))
	}
	h.engine.change(func(s *fakeStatus) { s.saturation = 0.89 })
	require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", goodBody+"}").StatusCode)
}

func TestGetTask(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/tasks/"+taskID.String()).golden(t, "task")
	e := h.get("/v1/tasks/nonsense").refused(t, 400, "INVALID_UUID")
	require.Contains(t, e.Message, "nonsense")
	e = h.get("/v1/tasks/"+uuid.NewString()).refused(t, 404, "NOT_FOUND")
	require.Contains(t, e.Message, "Task not found")
	h.store.fails(store.ErrUnavailable)
	h.get("/v1/tasks/"+taskID.String()).refused(t, 503, "SERVICE_UNAVAILABLE")
	require.Equal(t, http.StatusServiceUnavailable, h.do(http.MethodHead, "/v1/tasks/"+taskID.String(), "").StatusCode)
}

// TestATaskTellsWhatNoWorkerCanRun: all or some of its waiting steps.
func TestATaskTellsWhatNoWorkerCanRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	task := h.store.task
	for i := range task.Steps {
		task.Steps[i].Ready, task.Steps[i].State = i < 2, workflow.StepPending
	}
	step := store.Unserved{Namespace: "shapes", Handler: workflow.HandlerReference{Callable: "draw"}, Workers: true, Handlers: []string{"drew"}}
	for unserved, want := range map[int]string{0: "has_ready_steps", 1: "has_ready_steps", 2: "waiting_for_worker"} {
		h.store.unserved = map[int]store.Unserved{}
		for no := range unserved {
			h.store.unserved[task.Steps[no].No] = step
		}
		var got client.Task
		h.get("/v1/tasks/"+taskID.String()).into(t, &got)
		require.Equal(t, want, got.ExecutionStatus)
		require.Equal(t, want == "waiting_for_worker", got.RecommendedAction == "start_worker")
		for i := range got.Steps {
			if i >= unserved {
				require.Nil(t, got.Steps[i].Waiting)
				continue
			}
			require.Equal(t, &client.Waiting{Kind: client.WaitingForWorker, Reason: "no worker serves draw; did you mean drew"}, got.Steps[i].Waiting)
		}
	}
}

func TestEndedTask(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	task := h.store.task
	task.State, task.CompletedAt, task.Initiator, task.SourceSystem, task.Tags = workflow.TaskComplete, at(9), nil, nil, nil
	for i := range task.Steps {
		task.Steps[i].State, task.Steps[i].Ready = workflow.StepComplete, false
	}
	var got client.Task
	h.get("/v1/tasks/"+taskID.String()).into(t, &got)
	require.Equal(t, "complete", got.Status)
	require.Equal(t, *at(9), got.CompletedAt.Time)
	require.Equal(t, "unknown", got.Initiator)
	require.Equal(t, []string{}, got.Tags)
	require.Equal(t, "all_complete", got.ExecutionStatus)
	require.InDelta(t, 100, got.CompletionPercentage, 0)
}

func TestWait(t *testing.T) {
	t.Parallel()
	asked := make(chan time.Duration, 1)
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.RequestTimeout = time.Second; c.MaxWait = time.Minute })
	h.engine.wait = func(ctx context.Context) (bool, error) {
		deadline, _ := ctx.Deadline()
		asked <- time.Until(deadline).Round(time.Second)
		return true, nil
	}
	for query, want := range map[string]time.Duration{"30s": 30 * time.Second, "30": 30 * time.Second, "5m": time.Minute} {
		require.Equal(t, http.StatusOK, h.get("/v1/tasks/"+taskID.String()+"?wait="+query).StatusCode)
		require.Equal(t, want, await(t, asked), query)
		require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks?wait="+query, goodBody+"}").StatusCode)
		require.Equal(t, want, await(t, asked), query)
	}
	require.Equal(t, http.StatusOK, h.get("/v1/tasks/"+taskID.String()+"?wait=0s").StatusCode)
	require.Empty(t, asked)
	for _, query := range []string{"soon", "-1s", "1x"} {
		h.get("/v1/tasks/"+taskID.String()+"?wait="+query).refused(t, 400, "BAD_REQUEST")
		h.do(http.MethodPost, "/v1/tasks?wait="+query, goodBody+"}").refused(t, 400, "BAD_REQUEST")
	}
	h.engine.wait = func(context.Context) (bool, error) { return false, store.ErrUnavailable }
	h.get("/v1/tasks/"+taskID.String()+"?wait=1s").refused(t, 503, "SERVICE_UNAVAILABLE")
	h.engine.wait = func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
	require.Equal(t, http.StatusOK, h.get("/v1/tasks/"+taskID.String()+"?wait=1ms").StatusCode)
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	waiting := make(chan struct{})
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.MaxWaiting = 1 })
	h.engine.wait = func(ctx context.Context) (bool, error) { close(waiting); <-ctx.Done(); return false, nil }
	first := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		w := record(h, request(http.MethodGet, "/v1/tasks/"+taskID.String()+"?wait=1m", "").WithContext(ctx))
		first <- w.Code
	}()
	await(t, waiting)
	// A second wait would close the channel again.
	require.Equal(t, http.StatusOK, h.get("/v1/tasks/"+taskID.String()+"?wait=1m").StatusCode)
	cancel()
	await(t, first)

	forbidden := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.MaxWait = 0 })
	forbidden.engine.wait = func(context.Context) (bool, error) { t.Error("waited"); return false, nil }
	require.Equal(t, http.StatusOK, forbidden.get("/v1/tasks/"+taskID.String()+"?wait=1m").StatusCode)
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.RequestTimeout = time.Millisecond })
	h.engine.onCreate = func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("create: %w: %w", store.ErrUnavailable, ctx.Err())
	}
	h.do(http.MethodPost, "/v1/tasks", goodBody+"}").refused(t, 504, "TIMEOUT")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.do(http.MethodDelete, "/v1/tasks/"+taskID.String(), "").golden(t, "task")
	require.Equal(t, []string{"orchestrator-1"}, h.engine.cancelled)
	h.do(http.MethodDelete, "/v1/tasks/x", "").refused(t, 400, "INVALID_UUID")
	for _, unread := range []error{store.ErrUnavailable, store.ErrNotFound} {
		h.store.err = unread
		e := h.do(http.MethodDelete, "/v1/tasks/"+taskID.String(), "").refused(t, 503, "SERVICE_UNAVAILABLE")
		require.Contains(t, e.Message, "The action was carried out")
	}
	h.store.err = nil
	h.engine.cancelErr = fmt.Errorf("cancel: %w", store.ErrTaskEnded)
	e := h.do(http.MethodDelete, "/v1/tasks/"+taskID.String(), "").refused(t, 400, "BAD_REQUEST")
	require.Equal(t, "Cannot cancel a completed task", e.Message)
	h.engine.cancelErr = fmt.Errorf("cancel: %w", store.ErrNotFound)
	h.do(http.MethodDelete, "/v1/tasks/"+uuid.NewString(), "").refused(t, 404, "NOT_FOUND")
}

func TestChain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	path := "/v1/tasks/" + taskID.String() + "/chain"
	var chain client.Chain
	r := h.get(path)
	r.golden(t, "chain")
	r.into(t, &chain)
	require.Equal(t, taskID.String(), chain.TaskUUID)
	require.True(t, chain.MoreBefore)
	require.False(t, chain.MoreAfter)
	require.Len(t, chain.Tasks, 2)
	require.Equal(t, []string{taskID.String()}, chain.Tasks[0].ContinuedBy)
	require.Empty(t, chain.Tasks[0].ContinuesTaskUUID)
	require.Equal(t, chain.Tasks[0].TaskUUID, chain.Tasks[1].ContinuesTaskUUID)
	require.Empty(t, chain.Tasks[1].Steps)
	h.get(path+"?limit=500").into(t, &chain)
	require.Equal(t, []int{50, 500}, h.store.chained)
	for _, limit := range []string{"0", "501", "x"} {
		h.get(path+"?limit="+limit).refused(t, 400, "BAD_REQUEST")
	}
	h.get("/v1/tasks/"+uuid.NewString()+"/chain").refused(t, 404, "NOT_FOUND")
	h.get("/v1/tasks/x/chain").refused(t, 400, "INVALID_UUID")
	h.store.fails(sqlError{})
	h.get(path).refused(t, 500, "DATABASE_ERROR")
}

func TestTimelineAndVerify(t *testing.T) {
	t.Parallel()
	problems, failed := []string{"a", "b"}, error(nil)
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Verify = func(context.Context, uuid.UUID) ([]string, error) { return problems, failed }
	})
	h.get("/v1/tasks/"+taskID.String()+"/timeline").golden(t, "timeline")
	h.get("/v1/tasks/"+uuid.NewString()+"/timeline").refused(t, 404, "NOT_FOUND")
	h.get("/v1/tasks/x/timeline").refused(t, 400, "INVALID_UUID")

	var v client.Verification
	h.get("/v1/tasks/"+taskID.String()+"/verify").into(t, &v)
	require.Equal(t, client.Verification{TaskUUID: taskID.String(), Problems: []string{"a", "b"}}, v)
	problems = nil
	h.get("/v1/tasks/"+taskID.String()+"/verify").into(t, &v)
	require.True(t, v.OK)
	require.Equal(t, []string{}, v.Problems)
	failed = store.ErrNotFound
	h.get("/v1/tasks/"+taskID.String()+"/verify").refused(t, 404, "NOT_FOUND")
	h.get("/v1/tasks/x/verify").refused(t, 400, "INVALID_UUID")
	failed = sqlError{}
	h.get("/v1/tasks/"+taskID.String()+"/verify").refused(t, 500, "DATABASE_ERROR")

	without := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) { o.Verify = nil })
	without.get("/v1/tasks/"+taskID.String()+"/verify").refused(t, 404, "NOT_FOUND")
}

// An ended task needs no recommendation, unless it failed.
func TestNothingIsRecommendedForWhatHasEnded(t *testing.T) {
	t.Parallel()
	for state, want := range map[workflow.TaskState]string{workflow.TaskComplete: "none", workflow.TaskCancelled: "none",
		workflow.TaskResolvedManually: "none", workflow.TaskError: "execute_ready_steps", workflow.TaskStepsInProcess: "execute_ready_steps"} {
		h := newHouse(t)
		h.store.task.State = state
		var task client.Task
		h.get("/v1/tasks/"+taskID.String()).into(t, &task)
		require.Equal(t, want, task.RecommendedAction, state)
	}
}
