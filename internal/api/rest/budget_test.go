package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// TestBodiesShareABudget: a body without room gets Retry-After, small ones always have
// room, and shares are released.
func TestBodiesShareABudget(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics(prometheus.NewRegistry())
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.BodyBudget, c.Telemetry = 100_000, m })
	h.started()
	large := strings.Replace(goodBody, `"context":{`, `"context":{"x":"`+strings.Repeat("a", 60_000)+`",`, 1) + "}"
	require.Greater(t, len(large), 60_000, "the body has a context")
	slow, err := net.Dial("tcp", h.server.Addr().String())
	require.NoError(t, err)
	defer func() { _ = slow.Close() }()
	_, err = fmt.Fprintf(slow, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(large), large[:10])
	require.NoError(t, err)
	held := func() float64 { return testutil.ToFloat64(m.WebBudgetHeld.WithLabelValues("bodies")) }
	require.Eventually(t, func() bool { return held() > 0 }, 30*time.Second, time.Millisecond)
	require.InDelta(t, 100_000, testutil.ToFloat64(m.WebBudget.WithLabelValues("bodies")), 0)

	r := h.do(http.MethodPost, "/v1/tasks", large)
	r.refused(t, http.StatusServiceUnavailable, "BACKPRESSURE")
	require.Equal(t, "2", r.Header.Get("Retry-After"))
	require.InDelta(t, 1, testutil.ToFloat64(m.WebBudgetRefused.WithLabelValues("bodies")), 0)
	require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", goodBody+"}").StatusCode, "a small body needs no share")

	_, err = io.WriteString(slow, large[10:])
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Eventually(t, func() bool { return held() == 0 }, 30*time.Second, time.Millisecond)
	require.Equal(t, http.StatusOK, h.do(http.MethodPost, "/v1/tasks", large).StatusCode)
	require.Zero(t, held())
}

// TestARefusedBodyIsReadToItsEnd: a client that gets Retry-After while it still sends
// receives its answer, and keeps its connection.
func TestARefusedBodyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics(prometheus.NewRegistry())
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.BodyBudget, c.Telemetry = 1<<20, m })
	h.started()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", h.server.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	begin := func(conn net.Conn, length int) {
		_, err := fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", length)
		require.NoError(t, err)
	}
	begin(dial(), 700_000) // and sends nothing more
	held := func() bool { return testutil.ToFloat64(m.WebBudgetHeld.WithLabelValues("bodies")) > 0 }
	require.Eventually(t, held, 30*time.Second, time.Millisecond)

	late, sent := dial(), strings.Repeat(" ", 600_000)
	begin(late, 1+len(sent))
	refused := func() bool { return testutil.ToFloat64(m.WebBudgetRefused.WithLabelValues("bodies")) > 0 }
	require.Eventually(t, refused, 30*time.Second, time.Millisecond)
	_, err := io.WriteString(late, sent)
	require.NoError(t, err)
	answers := bufio.NewReader(late)
	answer, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.False(t, answer.Close)

	_, err = io.WriteString(late, "GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	answer, err = http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// TestAnswersShareABudget: data read for an answer must fit.
func TestAnswersShareABudget(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics(prometheus.NewRegistry())
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { c.AnswerBudget, c.Telemetry = 1<<20, m })
	h.store.task.Context = []byte(`{"x":"` + strings.Repeat("a", 1<<20) + `"}`)
	h.get("/v1/tasks?include=context").refused(t, http.StatusBadRequest, "BAD_REQUEST")
	var list client.TaskList
	h.get("/v1/tasks").into(t, &list)
	require.JSONEq(t, "null", string(list.Tasks[0].Context))
	var task client.Task
	h.get("/v1/tasks/"+taskID.String()).into(t, &task)
	require.Len(t, task.Context, len(h.store.task.Context), "a single task of any length is shown")
	require.Zero(t, testutil.ToFloat64(m.WebBudgetHeld.WithLabelValues("answers")))

	h.store.task.Context = []byte(`{"x":1}`)
	h.get("/v1/tasks?include=context").into(t, &list)
	require.JSONEq(t, `{"x":1}`, string(list.Tasks[0].Context))
	h.get("/v1/tasks?include=steps").refused(t, http.StatusBadRequest, "BAD_REQUEST")
}
