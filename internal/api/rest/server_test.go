package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

var _ lifecycle.Service = (*rest.Server)(nil)

func record(h *house, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.server.Handler().ServeHTTP(w, r)
	return w
}

// started runs the server and returns its base URL.
func (h *house) started() string {
	h.t.Helper()
	require.NoError(h.t, h.server.Start(context.Background()))
	h.t.Cleanup(func() { _ = h.server.Stop(context.Background()) })
	return "http://" + h.server.Addr().String()
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/nothing").refused(t, 404, "NOT_FOUND")
	h.get("/v1/handlers").refused(t, 404, "NOT_FOUND")
	h.get("/metrics").refused(t, 404, "NOT_FOUND")
	r := h.do(http.MethodPatch, "/v1/tasks", "{}")
	r.refused(t, 405, "METHOD_NOT_ALLOWED")
	require.Contains(t, r.Header.Get("Allow"), "POST")
	h.do(http.MethodDelete, "/health", "").refused(t, 405, "METHOD_NOT_ALLOWED")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "tasker_example_total", Help: "An example."})
	registry.MustRegister(counter)
	counter.Inc()
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.Metrics = registry })
	r := h.get("/metrics")
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Contains(t, r.Header.Get("Content-Type"), "text/plain; version=0.0.4")
	require.Contains(t, string(r.body), "tasker_example_total 1")
}

// With MetricAliases /metrics has the names of other products as well, and else only
// /actuator/prometheus.
func TestMetricAliases(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := telemetry.NewMetrics(registry)
	m.TasksCreated.WithLabelValues("shop").Inc()
	for aliases, paths := range map[bool]map[string]bool{false: {"/metrics": false, "/actuator/prometheus": true}, true: {"/metrics": true, "/actuator/prometheus": true}} {
		h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.Metrics, c.MetricAliases = registry, aliases })
		for path, has := range paths {
			for _, accept := range []string{"", "application/openmetrics-text; version=1.0.0"} {
				r := h.do(http.MethodGet, path, "", "Accept", accept)
				require.Equal(t, http.StatusOK, r.StatusCode)
				require.Equal(t, 1, strings.Count(string(r.body), "tasker_tasks_created_total{namespace=\"shop\"} 1"), path)
				require.Equal(t, has, strings.Contains(string(r.body), "tasker_tasks_requests_total{namespace=\"shop\"} 1"), path)
			}
		}
	}
}

// A program that tries / first learns where what is; a browser is led to the page.
func TestTheEntranceForPrograms(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for accept, json := range map[string]bool{"application/json": true, "application/problem+json, application/json;q=0.9": true,
		"": false, "*/*": false, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": false, "text/html, application/json": false} {
		r := h.do(http.MethodGet, "/", "", "Accept", accept)
		require.Equal(t, "Accept", r.Header.Get("Vary"), accept)
		if !json {
			require.Equal(t, http.StatusFound, r.StatusCode, accept)
			require.Equal(t, "/api-docs/ui", r.Header.Get("Location"))
			continue
		}
		require.Equal(t, http.StatusOK, r.StatusCode, accept)
		require.Equal(t, "application/json", r.Header.Get("Content-Type"))
		var at map[string]string
		r.into(t, &at)
		require.Equal(t, "1.2.3", at["version"])
		for _, name := range []string{"documentation", "openapi", "health"} {
			require.Equal(t, http.StatusOK, h.get(at[name]).StatusCode, name)
		}
	}
}

func TestDocs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, operated(&fakeOperator{}))
	r := h.get("/api-docs/openapi.json")
	require.Equal(t, http.StatusOK, r.StatusCode)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal(r.body, &doc))
	require.Equal(t, "3.1.0", doc.OpenAPI)
	for path, methods := range map[string]string{
		"/v1/tasks": "get post", "/v1/tasks/batch": "post", "/v1/tasks/by-key": "get", "/v1/tasks/{uuid}": "get delete", "/v1/tasks/{uuid}/timeline": "get", "/v1/tasks/{uuid}/logs": "get", "/v1/tasks/{uuid}/graph": "get", "/v1/tasks/{uuid}/logs/stream": "get", "/v1/tasks/{uuid}/verify": "get",
		"/v1/tasks/{uuid}/workflow_steps": "get", "/v1/tasks/{uuid}/workflow_steps/{step_uuid}": "get patch",
		"/v1/tasks/actions": "post", "/v1/tasks/{uuid}/actions": "post",
		"/v1/dlq": "get", "/v1/dlq/task/{task_uuid}": "get", "/v1/dlq/entry/{dlq_entry_uuid}": "patch", "/v1/dlq/stats": "get",
		"/v1/dlq/investigation-queue": "get", "/v1/dlq/staleness": "get", "/v1/dlq/entries": "post", "/v1/dlq/replay": "post", "/v1/dlq/purge": "post",
		"/v1/namespaces": "get", "/v1/namespaces/{name}/pause": "put delete", "/v1/policies": "get", "/v1/submission-limits": "get", "/v1/namespaces/{namespace}/submissions/{template}": "put delete", "/v1/namespaces/{namespace}/policies/{callable}": "put delete", "/v1/workers": "get", "/v1/sweeps": "get", "/v1/sweeps/{name}/run": "post",
		"/v1/task-types": "get", "/v1/task-types/{name}": "get put delete", "/v1/enqueue": "post", "/v1/enqueue/{uuid}": "get",
		"/v1/events": "get", "/v1/events/stream": "get", "/v1/transitions/stream": "get", "/v1/event-consumers": "get post", "/v1/event-consumers/{name}": "get delete",
		"/v1/event-consumers/{name}/claim": "post", "/v1/event-consumers/{name}/ack": "post", "/v1/event-consumers/{name}/reset": "post",
		"/v1/admin/breakers": "get", "/v1/admin/breakers/{name}": "put",
		"/v1/tasks/{uuid}/workflow_steps/{step_uuid}/audit": "get", "/v1/templates": "get",
		"/v1/templates/{namespace}/{name}/{version}": "get", "/v1/templates/{namespace}/{name}/{version}/deprecation": "put delete", "/v1/admin/fleet": "get", "/v1/admin/deployment-mode": "get put",
		"/health": "get", "/health/live": "get", "/health/ready": "get", "/health/accepting": "get", "/health/detailed": "get",
	} {
		for _, method := range strings.Fields(methods) {
			require.Contains(t, doc.Paths[path], method, path)
		}
	}
	require.Len(t, doc.Paths, 95)

	page := h.get("/api-docs/ui")
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, string(page.body), "openapi.json")
	require.NotContains(t, string(page.body), "https://", "the page loads nothing from other hosts")
	require.NotContains(t, string(page.body), "/*script*/")
}

func TestPanic(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.onCreate = func(context.Context) error { panic("secret state") }
	r := h.do(http.MethodPost, "/v1/tasks", goodBody+"}", "X-Request-Id", "mine")
	e := r.refused(t, 500, "INTERNAL_ERROR")
	require.Equal(t, r.Header.Get("X-Request-Id"), e.RequestID)
	require.NotContains(t, string(r.body), "secret")
	require.NotContains(t, string(r.body), "goroutine")
	logged := h.logs.FilterMessage("a request's handler panicked").All()
	require.Len(t, logged, 1)
	require.Equal(t, e.RequestID, logged[0].ContextMap()["request_id"])
	require.Contains(t, logged[0].ContextMap(), "stack")
}

func TestRequestsAreLogged(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.get("/v1/templates?namespace=x")
	h.engine.createErr = errors.New("odd")
	h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
	lines := h.logs.FilterMessage("request").All()
	require.Len(t, lines, 2)
	require.Equal(t, zap.DebugLevel, lines[0].Level)
	require.Equal(t, "GET /v1/templates", lines[0].ContextMap()["route"])
	require.Equal(t, zap.WarnLevel, lines[1].Level)
	require.EqualValues(t, 500, lines[1].ContextMap()["status"])
}

func TestServerLife(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	require.Nil(t, h.server.Addr())
	base := h.started()
	require.NoError(t, h.server.Start(t.Context()), "a second call changes nothing")
	task, err := client.New(client.Config{BaseURL: base}).Task(t.Context(), taskID.String(), 0)
	require.NoError(t, err)
	require.Equal(t, taskID.String(), task.TaskUUID)

	other := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.Address = h.server.Addr().String() })
	require.ErrorContains(t, other.server.Start(t.Context()), "another process uses this address")

	require.NoError(t, h.server.Stop(t.Context()))
	require.NoError(t, h.server.Stop(t.Context()))
	require.ErrorIs(t, h.server.Start(t.Context()), lifecycle.ErrStopped)
	_, err = client.New(client.Config{BaseURL: base, MaxRetries: -1}).Health(t.Context())
	require.Error(t, err)
	never := newHouse(t)
	require.NoError(t, never.server.Stop(t.Context()))
}

func TestStopAnswersThoseWhoWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	waiting := make(chan struct{})
	h.engine.wait = func(ctx context.Context) (bool, error) { close(waiting); <-ctx.Done(); return false, nil }
	base := h.started()
	type answer struct {
		task *client.Task
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		task, err := client.New(client.Config{BaseURL: base, MaxRetries: -1}).Task(context.Background(), taskID.String(), time.Minute)
		got <- answer{task, err}
	}()
	await(t, waiting)
	require.NoError(t, h.server.Stop(t.Context()))
	a := await(t, got)
	require.NoError(t, a.err)
	require.Equal(t, "steps_in_process", a.task.Status)
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	inside, release := make(chan struct{}), make(chan struct{})
	h.engine.onCreate = func(context.Context) error { close(inside); <-release; return nil }
	base := h.started()
	done := make(chan error, 1)
	go func() {
		resp, err := http.Post(base+"/v1/tasks", "application/json", strings.NewReader(goodBody+"}"))
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	await(t, inside)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, h.server.Stop(ctx), "aborted")
	require.Error(t, await(t, done))
	close(release)
}

// TestConnectionsWithoutARequestAreClosed: the next one on them would be refused.
func TestConnectionsWithoutARequestAreClosed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	base := h.started()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // it is closed
	_, err = fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	from := bufio.NewReader(conn)
	answer, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.False(t, answer.Close, "the connection is kept")
	h.server.CloseIdle()
	_, err = from.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, http.StatusOK, h.get("/health").StatusCode, "probes are answered")
}

// A waiting request must outlive the time that its body had.
func TestBodyDeadlineDoesNotEndTheWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.RequestTimeout = 100 * time.Millisecond })
	h.engine.wait = func(ctx context.Context) (bool, error) {
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("ended early: %w", ctx.Err())
		case <-time.After(300 * time.Millisecond): // takes time: it must exceed the time of the body
			return true, nil
		}
	}
	resp, err := http.Post(h.started()+"/v1/tasks?wait=10s", "application/json", strings.NewReader(goodBody+"}"))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", body)
}

func TestSlowBody(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.RequestTimeout = 50 * time.Millisecond })
	h.started()
	conn, err := net.Dial("tcp", h.server.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
}

// TestABodyThatIsAnnouncedTooLargeIsNotWaitedFor: its length is enough.
func TestABodyThatIsAnnouncedTooLargeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHouse(t, operated(&fakeOperator{}))
	h.started()
	for _, path := range []string{"/v1/tasks", "/v1/tasks/batch", "/v1/enqueue", "/v1/external-events"} {
		conn, err := net.Dial("tcp", h.server.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, path)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, path)
		require.NoError(t, conn.Close())
	}
}
