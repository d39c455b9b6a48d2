package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

const id = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10"

// goldenTask is the answer of the server's golden files.
func goldenTask(t testing.TB) string {
	t.Helper()
	raw, err := os.ReadFile("../internal/api/rest/testdata/task.json")
	require.NoError(t, err)
	return string(raw)
}

type step struct {
	status int
	body   string
	header []string // pairs
}

// script serves one step per request, the last one again and again, and counts.
func script(t testing.TB, steps ...step) (*client.Client, *atomic.Int32, *http.Request) {
	t.Helper()
	var calls atomic.Int32
	last := &http.Request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1))
		body, _ := io.ReadAll(r.Body)
		*last = *r.Clone(context.WithoutCancel(r.Context()))
		last.Body = io.NopCloser(strings.NewReader(string(body)))
		s := steps[min(n, len(steps))-1]
		for i := 0; i+1 < len(s.header); i += 2 {
			w.Header().Set(s.header[i], s.header[i+1])
		}
		if s.status == 0 {
			hijacked, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = hijacked.Close() // the connection breaks
			}
			return
		}
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.body)
	}))
	t.Cleanup(server.Close)
	return client.New(client.Config{BaseURL: server.URL + "/prefix/", Token: "secret", APIKey: "key", HTTP: server.Client()}), &calls, last
}

func TestTask(t *testing.T) {
	t.Parallel()
	c, _, last := script(t, step{200, goldenTask(t), nil})
	task, err := c.Task(t.Context(), id, 1500*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, id, task.TaskUUID)
	require.False(t, task.Terminal())
	require.Equal(t, time.Date(2026, 3, 21, 10, 11, 12, 123456000, time.UTC), task.CreatedAt.Time)
	require.Equal(t, time.Date(2026, 3, 21, 10, 11, 16, 123456000, time.UTC), task.Steps[1].NextRetryAt.Time)
	require.Equal(t, "/prefix/v1/tasks/"+id, last.URL.Path)
	require.Equal(t, "1.5s", last.URL.Query().Get("wait"))
	require.Equal(t, "Bearer secret", last.Header.Get("Authorization"))
	require.Equal(t, "key", last.Header.Get("X-API-Key"))
	again, err := json.Marshal(task)
	require.NoError(t, err)
	require.JSONEq(t, goldenTask(t), string(again), "encoding reverses decoding")
}

func TestMissingFieldsAreNamed(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"status": "status", "created_at": "created_at", "completed_at": "completed_at", "steps": "steps",
		"steps.0.attempts": "steps[0].attempts",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var doc map[string]any
			require.NoError(t, json.Unmarshal([]byte(goldenTask(t)), &doc))
			if name, nested := strings.CutPrefix(path, "steps.0."); nested {
				delete(doc["steps"].([]any)[0].(map[string]any), name)
			} else {
				delete(doc, path)
			}
			body, err := json.Marshal(doc)
			require.NoError(t, err)
			c, calls, _ := script(t, step{200, string(body), nil})
			_, err = c.Task(t.Context(), id, 0)
			require.ErrorContains(t, err, "required field "+want+" is missing")
			require.EqualValues(t, 1, calls.Load())
		})
	}
	c, _, _ := script(t, step{200, strings.Replace(goldenTask(t), `"steps_in_process"`, "null", 1), nil})
	_, err := c.Task(t.Context(), id, 0)
	require.ErrorContains(t, err, "status is missing")
	c, _, _ = script(t, step{200, "<html>", nil})
	_, err = c.Task(t.Context(), id, 0)
	require.ErrorContains(t, err, "read the answer")
	c, _, _ = script(t, step{200, strings.Replace(goldenTask(t), "2026-03-21T10:11:12.123456Z", "yesterday", 1), nil})
	_, err = c.Task(t.Context(), id, 0)
	require.ErrorContains(t, err, "yesterday")
}

func TestEveryCall(t *testing.T) {
	t.Parallel()
	file := func(name string) string {
		raw, err := os.ReadFile("../internal/api/rest/testdata/" + name + ".json")
		require.NoError(t, err)
		return strings.ReplaceAll(string(raw), `"now"`, `"2026-03-21T10:11:12.123456Z"`)
	}
	ctx := t.Context()
	for name, c := range map[string]struct {
		answer, method, path string
		call                 func(c *client.Client) (any, error)
	}{
		"create": {file("task"), "POST", "/v1/tasks", func(c *client.Client) (any, error) { return c.CreateTask(ctx, client.TaskRequest{}) }},
		"list":   {file("list"), "GET", "/v1/tasks", func(c *client.Client) (any, error) { return c.Tasks(ctx, client.TaskListOptions{Page: 1, PerPage: 2}) }},
		"cancel": {file("task"), "DELETE", "/v1/tasks/" + id, func(c *client.Client) (any, error) { return c.CancelTask(ctx, id, client.Why{}) }},
		"steps":  {file("steps"), "GET", "/v1/tasks/x/workflow_steps", func(c *client.Client) (any, error) { return c.Steps(ctx, "x") }},
		"step":   {file("step"), "GET", "/v1/tasks/x/workflow_steps/y", func(c *client.Client) (any, error) { return c.Step(ctx, "x", "y") }},
		"audit":  {file("audit"), "GET", "/v1/tasks/x/workflow_steps/y/audit", func(c *client.Client) (any, error) { return c.StepAudit(ctx, "x", "y") }},
		"preview": {file("preview"), "POST", "/v1/tasks/x/actions/preview", func(c *client.Client) (any, error) {
			return c.PreviewAction(ctx, "x", client.TaskAction{})
		}},
		"chain":    {file("chain"), "GET", "/v1/tasks/x/chain", func(c *client.Client) (any, error) { return c.Chain(ctx, "x", 20) }},
		"timeline": {file("timeline"), "GET", "/v1/tasks/x/timeline", func(c *client.Client) (any, error) { return c.Timeline(ctx, "x") }},
		"verify": {`{"task_uuid":"x","ok":false,"problems":["p"]}`, "GET", "/v1/tasks/x/verify",
			func(c *client.Client) (any, error) { return c.VerifyTask(ctx, "x") }},
		"templates": {file("templates"), "GET", "/v1/templates", func(c *client.Client) (any, error) { return c.Templates(ctx, "shapes") }},
		"template": {file("template"), "GET", "/v1/templates/a%2Fb/%2E%2E/1.0", func(c *client.Client) (any, error) {
			return c.Template(ctx, "a/b", "..", "1.0")
		}},
		"fleet":          {file("fleet"), "GET", "/v1/admin/fleet", func(c *client.Client) (any, error) { return c.Fleet(ctx) }},
		"mode":           {`{"mode":"Hybrid"}`, "GET", "/v1/admin/deployment-mode", func(c *client.Client) (any, error) { return c.Mode(ctx) }},
		"log levels":     {`{"levels":{"all":"info"}}`, "GET", "/v1/log-levels", func(c *client.Client) (any, error) { return c.LogLevels(ctx, nil) }},
		"set log levels": {`{"levels":{"all":"debug"}}`, "PUT", "/v1/log-levels", func(c *client.Client) (any, error) { return c.LogLevels(ctx, map[string]string{"all": "debug"}) }},
		"set mode":       {`{"mode":"Hybrid"}`, "PUT", "/v1/admin/deployment-mode", func(c *client.Client) (any, error) { return c.SetMode(ctx, "Hybrid") }},
		"health":         {file("health"), "GET", "/health", func(c *client.Client) (any, error) { return c.Health(ctx) }},
		"live":           {file("worker_live"), "GET", "/health/live", func(c *client.Client) (any, error) { return c.Live(ctx) }},
		"ready":          {file("worker_ready"), "GET", "/health/ready", func(c *client.Client) (any, error) { return c.Ready(ctx) }},
		"detailed":       {file("health_detailed"), "GET", "/health/detailed", func(c *client.Client) (any, error) { return c.DetailedHealth(ctx) }},
		"metrics":        {"# HELP x", "GET", "/metrics", func(c *client.Client) (any, error) { return c.Metrics(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, calls, last := script(t, step{200, c.answer, nil})
			got, err := c.call(api)
			require.NoError(t, err)
			require.NotEmpty(t, got)
			require.Equal(t, c.method, last.Method)
			require.Equal(t, "/prefix"+c.path, last.URL.EscapedPath())
			require.EqualValues(t, 1, calls.Load())

			failing, _, _ := script(t, step{404, `{"error":{"code":"NOT_FOUND","message":"no"}}`, nil})
			_, err = c.call(failing)
			require.True(t, client.IsNotFound(err), "%v", err)
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step step
		want client.Error
	}{
		"envelope": {step{404, `{"error":{"code":"NOT_FOUND","message":"no task"}}`, []string{"X-Request-Id", "r1"}},
			client.Error{Status: 404, Code: "NOT_FOUND", Message: "no task", RequestID: "r1"}},
		"conflict": {step{409, `{"error":{"code":"CONFLICT","message":"m","task_uuid":"u"}}`, nil},
			client.Error{Status: 409, Code: "CONFLICT", Message: "m", TaskUUID: "u"}},
		"retry in the body": {step{429, `{"error":{"code":"BACKPRESSURE","message":"m","retry_after_seconds":7}}`, nil},
			client.Error{Status: 429, Code: "BACKPRESSURE", Message: "m", RetryAfter: 7 * time.Second}},
		"retry in the header": {step{429, `{"error":{"code":"BACKPRESSURE","message":"m","retry_after_seconds":7}}`, []string{"Retry-After", "9"}},
			client.Error{Status: 429, Code: "BACKPRESSURE", Message: "m", RetryAfter: 9 * time.Second}},
		"flat": {step{404, `{"error":"template_not_found","message":"m","request_id":null}`, nil},
			client.Error{Status: 404, Code: "TEMPLATE_NOT_FOUND", Message: "m"}},
		"problem": {step{422, `{"type":"about:blank","title":"Unprocessable","detail":"mode","status":422}`, nil},
			client.Error{Status: 422, Code: "UNPROCESSABLE_ENTITY", Message: "mode"}},
		"problem without detail": {step{403, `{"title":"Forbidden"}`, nil}, client.Error{Status: 403, Code: "FORBIDDEN", Message: "Forbidden"}},
		"text":                   {step{400, "bad\n  gateway", nil}, client.Error{Status: 400, Code: "BAD_REQUEST", Message: "bad gateway"}},
		"nothing":                {step{401, "", nil}, client.Error{Status: 401, Code: "UNAUTHORIZED", Message: "no message"}},
		"a redirect":             {step{307, "", []string{"Location", "http://elsewhere"}}, client.Error{Status: 307, Code: "TEMPORARY_REDIRECT", Message: "no message"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				for i := 0; i+1 < len(c.step.header); i += 2 {
					w.Header().Set(c.step.header[i], c.step.header[i+1])
				}
				w.WriteHeader(c.step.status)
				_, _ = io.WriteString(w, c.step.body)
			}))
			defer server.Close()
			_, err := client.New(client.Config{BaseURL: server.URL}).Task(t.Context(), id, 0)
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			var refusal *client.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, c.want, *refusal)
			require.Contains(t, err.Error(), refusal.Message)
			require.EqualValues(t, 1, calls.Load(), "a 4xx is not repeated")
		})
	}
}

// TestCallRepeatsWhatIsSafe: a POST may create something, so an answer that is lost ends the call.
func TestCallRepeatsWhatIsSafe(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]int32{http.MethodGet: 2, http.MethodPut: 2, http.MethodDelete: 2, http.MethodPost: 1, http.MethodPatch: 1} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			calls.Add(1)
			panic(http.ErrAbortHandler) // the answer is lost
		}))
		err := client.New(client.Config{BaseURL: server.URL, MaxRetries: 1}).Call(t.Context(), method, []string{"v1", "things"}, struct{}{}, nil)
		server.Close()
		require.Error(t, err)
		require.Equal(t, want, calls.Load(), method)
	}
}

func TestCreateTasks(t *testing.T) {
	t.Parallel()
	const other = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f11"
	busy := step{503, `{"error":{"code":"SERVICE_UNAVAILABLE","message":"m"}}`, nil}
	partly := step{200, `{"created":1,"failed":3,"results":[{"index":0,"task_uuid":"` + id + `"},` +
		`{"index":1,"error":{"code":"CONFLICT","message":"m","task_uuid":"` + other + `"}},{"index":2,"error":{"code":"CONFLICT","message":"m"}},` +
		`{"index":3,"error":{"code":"BAD_REQUEST","message":"m"}}]}`, nil}
	keyed := []client.TaskRequest{{IdempotencyKey: "a"}, {IdempotencyKey: "b"}, {IdempotencyKey: "c"}, {IdempotencyKey: "d"}}

	c, _, last := script(t, partly)
	batch, err := c.CreateTasks(t.Context(), keyed)
	require.NoError(t, err)
	require.Equal(t, "/prefix/v1/tasks/batch", last.URL.Path)
	var sent wire.TaskBatchRequest
	require.NoError(t, json.NewDecoder(last.Body).Decode(&sent))
	require.Len(t, sent.Tasks, 4)
	require.Equal(t, 3, batch.Failed)
	require.Equal(t, other, batch.Results[1].Error.TaskUUID, "no retry: the task belongs to another request")

	c, calls, _ := script(t, busy, partly)
	batch, err = c.CreateTasks(t.Context(), keyed)
	require.NoError(t, err)
	require.EqualValues(t, 2, calls.Load())
	require.Equal(t, 2, batch.Created)
	require.Equal(t, 2, batch.Failed)
	require.Equal(t, client.TaskBatchResult{Index: 1, TaskUUID: other}, batch.Results[1])
	require.Equal(t, "CONFLICT", batch.Results[2].Error.Code)

	c, calls, _ = script(t, busy, partly)
	_, err = c.CreateTasks(t.Context(), append(keyed[:3:3], client.TaskRequest{}))
	require.Error(t, err)
	require.EqualValues(t, 1, calls.Load(), "the task without a key might be created twice")
}

func TestRetries(t *testing.T) {
	t.Parallel()
	busy := step{503, `{"error":{"code":"SERVICE_UNAVAILABLE","message":"m"}}`, nil}
	broken := step{}
	good := step{200, goldenTask(t), nil}
	conflict := step{409, `{"error":{"code":"CONFLICT","message":"m","task_uuid":"` + id + `"}}`, nil}
	keyed := client.TaskRequest{IdempotencyKey: "k"}
	get := func(c *client.Client) error { _, err := c.Task(context.Background(), id, 0); return err }
	create := func(r client.TaskRequest) func(*client.Client) error {
		return func(c *client.Client) error { _, err := c.CreateTask(context.Background(), r); return err }
	}
	enqueue := func(c *client.Client) error {
		e, err := c.Enqueue(context.Background(), client.EnqueueRequest{Type: "t", IdempotencyKey: "k", ConflictPolicy: "fail"})
		if err == nil {
			require.Equal(t, client.Enqueued{ID: id, Status: "pending", Queue: "q"}, *e)
		}
		return err
	}
	enqueued := step{200, `{"id":"` + id + `","type":"t","queue":"q","status":"pending","attempts":0,"max_attempts":3,"payload":{},"created_at":"2026-03-21T09:00:00Z"}`, nil}
	cancel := func(c *client.Client) error {
		_, err := c.CancelTask(context.Background(), id, client.Why{})
		return err
	}
	for name, c := range map[string]struct {
		steps []step
		call  func(*client.Client) error
		calls int32
		fails string
	}{
		"5xx":                                     {[]step{busy, busy, good}, get, 3, ""},
		"a broken connection":                     {[]step{broken, good}, get, 2, ""},
		"never well":                              {[]step{busy}, get, 4, "SERVICE_UNAVAILABLE"},
		"create without a key, 5xx":               {[]step{busy, good}, create(client.TaskRequest{}), 1, "SERVICE_UNAVAILABLE"},
		"create without a key, broken":            {[]step{broken, good}, create(client.TaskRequest{}), 1, "EOF"},
		"create with a key":                       {[]step{busy, good}, create(keyed), 2, ""},
		"create whose answer was lost":            {[]step{busy, conflict, good}, create(keyed), 3, ""},
		"create that was turned away before":      {[]step{{503, `{"error":{"code":"BACKPRESSURE","message":"m"}}`, nil}, conflict, good}, create(keyed), 2, "CONFLICT"},
		"create that is a duplicate":              {[]step{conflict, good}, create(keyed), 1, "CONFLICT"},
		"enqueue whose answer was lost":           {[]step{busy, conflict, enqueued}, enqueue, 3, ""},
		"enqueue that is a duplicate":             {[]step{conflict, enqueued}, enqueue, 1, "CONFLICT"},
		"cancel whose answer was lost":            {[]step{busy, {400, `{"error":{"code":"BAD_REQUEST","message":"ended"}}`, nil}, {200, strings.Replace(goldenTask(t), "steps_in_process", "cancelled", 1), nil}}, cancel, 3, ""},
		"cancel of a task that ended differently": {[]step{busy, {400, `{"error":{"code":"BAD_REQUEST","message":"ended"}}`, nil}, good}, cancel, 3, "ended"},
		"health is not retried":                   {[]step{busy, good}, func(c *client.Client) error { _, err := c.Ready(context.Background()); return err }, 1, "SERVICE_UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, calls, _ := script(t, c.steps...)
			err := c.call(api)
			if c.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.fails)
			}
			require.Equal(t, c.calls, calls.Load())
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	busy := step{503, "", []string{"Retry-After", "1"}}
	c, _, _ := script(t, busy, step{200, goldenTask(t), nil})
	begin := time.Now()
	_, err := c.Task(t.Context(), id, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), time.Second)

	// If the deadline comes first, waiting is useless.
	c, calls, _ := script(t, step{503, "", []string{"Retry-After", "60"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	begin = time.Now()
	_, err = c.Task(ctx, id, 0)
	require.ErrorContains(t, err, "503")
	require.Less(t, time.Since(begin), 5*time.Second)
	require.EqualValues(t, 1, calls.Load())
}

// A creation that no server received may be retried.
func TestCreateIsRepeatedWhenNothingWasSent(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	var dials atomic.Int32
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	c := client.New(client.Config{BaseURL: "http://" + address, MaxRetries: 2, HTTP: &http.Client{Transport: transport}})
	_, err = c.CreateTask(t.Context(), client.TaskRequest{})
	require.ErrorContains(t, err, "refused")
	require.EqualValues(t, 3, dials.Load())
}

// A conflict is the client's own task only if an earlier attempt may have arrived.
func TestAConflictAfterAnAttemptThatWasNotSent(t *testing.T) {
	t.Parallel()
	theirs := goldenTask(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(theirs))
			return
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"error":{"code":"CONFLICT","message":"m","task_uuid":"` + id + `"}}`))
	}))
	defer server.Close()
	var dials atomic.Int32
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused")}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	c := client.New(client.Config{BaseURL: server.URL, MaxRetries: 2, HTTP: &http.Client{Transport: transport}})
	_, err := c.CreateTask(t.Context(), client.TaskRequest{IdempotencyKey: "k"})
	require.True(t, client.IsConflict(err), err)
	require.EqualValues(t, 2, dials.Load())
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	c := client.New(client.Config{BaseURL: server.URL, Timeout: 10 * time.Millisecond, MaxRetries: -1, HTTP: server.Client()})
	_, err := c.Task(t.Context(), id, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.New(client.Config{BaseURL: server.URL, HTTP: server.Client()}).Task(ctx, id, 0)
	require.ErrorIs(t, err, context.Canceled)
}

func TestBadBaseURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "localhost:8080", "ftp://x", "http://", "http://%zz", "http://u:hidden@\x7f/"} {
		_, err := client.New(client.Config{BaseURL: base}).Health(t.Context())
		require.ErrorContains(t, err, "base URL", base)
		require.NotContains(t, err.Error(), "hidden")
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	whole := time.Date(2026, 3, 21, 10, 0, 0, 0, time.FixedZone("", 3600))
	zoned, err := json.Marshal(client.Time{Time: whole})
	require.NoError(t, err)
	require.Equal(t, `"2026-03-21T09:00:00.000000Z"`, string(zoned))
	naive, err := json.Marshal(client.NaiveTime{Time: whole.Add(1500 * time.Microsecond)})
	require.NoError(t, err)
	require.Equal(t, `"2026-03-21T09:00:00.0015"`, string(naive))
	for text, zone := range map[string]bool{"2026-03-21T09:00:00Z": true, "2026-03-21t09:00:00z": true, "2026-03-21T10:00:00+01:00": true,
		"2026-03-21T09:00:00": false, "2026-03-21T09:00:00.000": false} {
		var z client.Time
		var n client.NaiveTime
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, "%q", text), &n))
		require.True(t, n.Equal(whole), text)
		if err := json.Unmarshal(fmt.Appendf(nil, "%q", text), &z); !zone {
			require.ErrorContains(t, err, "want RFC 3339 with a zone", text)
			continue
		}
		require.True(t, z.Equal(whole), text)
	}
	for _, raw := range []string{`7`, `"x"`, `""`, `{}`} {
		require.Error(t, json.Unmarshal([]byte(raw), new(client.Time)), raw)
		require.Error(t, json.Unmarshal([]byte(raw), new(client.NaiveTime)), raw)
	}
	require.NoError(t, json.Unmarshal([]byte("null"), new(client.Time)))
}
