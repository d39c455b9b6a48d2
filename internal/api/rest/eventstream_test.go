package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// listen opens a stream; lines are the received ones, until leave is called.
func listen(t *testing.T, base, query, lastEventID string) (lines func() string, leave func(), status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/events/stream?"+query, http.NoBody)
	require.NoError(t, err)
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	transport := &http.Transport{}
	resp, err := (&http.Client{Transport: transport}).Do(req) //nolint:bodyclose // leave does
	require.NoError(t, err)
	scanner := bufio.NewScanner(resp.Body)
	return func() string {
			for scanner.Scan() {
				if line := scanner.Text(); strings.HasPrefix(line, "id: ") || strings.HasPrefix(line, "event: ") {
					return line
				}
			}
			return "the end"
		}, func() {
			cancel()
			_ = resp.Body.Close()
			transport.CloseIdleConnections()
		}, resp.StatusCode
}

// TestStreamsGoOnWhereTheyWereLeft: the next stream begins after the last seen id, and
// events that do not match are skipped.
func TestStreamsGoOnWhereTheyWereLeft(t *testing.T) {
	t.Parallel()
	base, _, e := operatedAt(t)
	emit(t, e, "shapes", "pay.a", "order.a", "pay.b")
	lines, leave, status := listen(t, base, "after=0&name=pay.*&namespace=shapes", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []string{"id: 0", "id: 1", "event: pay.a", "id: 3", "event: pay.b"}, []string{lines(), lines(), lines(), lines(), lines()})
	emit(t, e, "shapes", "pay.c")
	require.Equal(t, []string{"id: 4", "event: pay.c"}, []string{lines(), lines()}, "no signal was sent")
	leave()
	emit(t, e, "shapes", "pay.d", "pay.e")
	lines, leave, _ = listen(t, base, "after=0&name=pay.*", "4")
	require.Equal(t, []string{"id: 4", "id: 5", "event: pay.d", "id: 6", "event: pay.e"}, []string{lines(), lines(), lines(), lines(), lines()})
	leave()

	// One that begins now, and is cut off before the first event, misses none.
	lines, leave, _ = listen(t, base, "", "")
	id, found := strings.CutPrefix(lines(), "id: ")
	require.True(t, found)
	leave()
	emit(t, e, "shapes", "pay.f")
	lines, leave, _ = listen(t, base, "", id)
	require.Equal(t, []string{"id: 6", "id: 7", "event: pay.f"}, []string{lines(), lines(), lines()})
	leave()
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	open := func() float64 { return testutil.ToFloat64(m.EventStreams.WithLabelValues("events")) }
	base, _, _ := operatedAt(t, func(o *rest.Orchestrator) { o.Metrics = m })
	_, first, status := listen(t, base, "", "")
	require.Equal(t, http.StatusOK, status)
	_, second, status := listen(t, base, "", "")
	require.Equal(t, http.StatusOK, status)
	_, third, status := listen(t, base, "", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.InDelta(t, 1, testutil.ToFloat64(m.EventStreamsRefused), 0)
	require.InDelta(t, 2, open(), 0)
	third()
	first()
	require.Eventually(t, func() bool {
		_, leave, status := listen(t, base, "", "")
		leave()
		return status == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond, "a place is free again")
	second()
	require.Eventually(t, func() bool { // earlier streams may still be open
		_, bad, status := listen(t, base, "after=x", "")
		bad()
		return status == http.StatusBadRequest
	}, 30*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		return open() == 0 && testutil.ToFloat64(m.EventStreamsEnded.WithLabelValues("events", "left")) >= 2
	}, 30*time.Second, 20*time.Millisecond)
}

// TestTheClientFollowsEvents: from the beginning, or from now on.
func TestTheClientFollowsEvents(t *testing.T) {
	t.Parallel()
	base, transport, e := operatedAt(t)
	c := client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}})
	emit(t, e, "shapes", "a.a", "a.b")
	done := errors.New("enough")
	var seen []string
	note := func(e client.Event) error {
		if seen = append(seen, e.Name); len(seen) == 2 {
			return done
		}
		return nil
	}
	require.ErrorIs(t, c.StreamEvents(t.Context(), client.EventListOptions{}, note), done)
	require.Equal(t, []string{"a.a", "a.b"}, seen)
	seen = nil
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	now, err := c.Events(ctx, client.EventListOptions{FromNow: true})
	require.NoError(t, err)
	go func() { ended <- c.StreamEvents(ctx, client.EventListOptions{After: now.Next}, note) }()
	emit(t, e, "shapes", "a.c", "a.d")
	require.ErrorIs(t, <-ended, done)
	require.Equal(t, []string{"a.c", "a.d"}, seen)
	require.True(t, client.IsNotFound(client.New(client.Config{BaseURL: base + "/nowhere"}).StreamEvents(ctx, client.EventListOptions{}, note)))
}

// TestMetricsOfEvents has the names of Tasker's protocol.
func TestMetricsOfEvents(t *testing.T) {
	t.Parallel()
	h := newWorkerHouse(t, newFakeStatus(), newFakeStore())
	r := h.get("/metrics/events")
	require.Equal(t, http.StatusOK, r.StatusCode)
	var got map[string]any
	r.into(t, &got)
	require.NotEmpty(t, got["captured_at"])
	delete(got, "captured_at")
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, `{"router": {"total_routed": 7, "durable_routed": 2, "fast_routed": 4, "broadcast_routed": 1, "fast_delivery_errors": 3, "routing_errors": 5},
		"in_process_bus": {"total_events_dispatched": 5, "rust_handler_dispatches": 9, "ffi_channel_dispatches": 0, "rust_handler_errors": 1, "ffi_channel_drops": 2,
			"rust_subscriber_patterns": 3, "rust_handler_count": 2, "ffi_subscriber_count": 0}, "worker_id": "worker-1"}`, string(text))
}
