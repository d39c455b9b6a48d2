package otlp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/tracing"
)

func sender(t *testing.T, endpoint string) *Sender {
	t.Helper()
	s, err := New(Config{Collector: Collector{Endpoint: endpoint, Timeout: time.Second, Interval: time.Hour, Logger: zap.NewNop()}, Ratio: 1, Batch: 2, Queue: 4,
		Dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped"})})
	require.NoError(t, err)
	return s
}

func (s *Sender) spans(n int) {
	for i := range n {
		_, span := s.provider.Tracer("test").Start(context.Background(), strconv.Itoa(i))
		span.End()
	}
}

// TestAFullQueueDropsSpans: no span waits for room.
func TestAFullQueueDropsSpans(t *testing.T) {
	t.Parallel()
	s := sender(t, "http://127.0.0.1:1")
	s.spans(10) // it is not started
	require.InDelta(t, 6, testutil.ToFloat64(s.cfg.Dropped), 0)
}

// TestTheEndSendsWhatWaits sends in batches within the stop.
func TestTheEndSendsWhatWaits(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			requests.Add(1)
		}
	}))
	defer collector.Close()
	s := sender(t, collector.URL)
	require.NoError(t, s.Start(t.Context()))
	s.spans(3)
	require.NoError(t, s.Stop(t.Context()))
	require.EqualValues(t, 2, requests.Load(), "of two spans and of one")
	require.Zero(t, testutil.ToFloat64(s.cfg.Dropped))
}

// TestSpansThatAreRefusedAreCounted: a collector that does not take them is no reason to wait.
func TestSpansThatAreRefusedAreCounted(t *testing.T) {
	t.Parallel()
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer collector.Close()
	s := sender(t, collector.URL)
	require.NoError(t, s.Start(t.Context()))
	s.spans(1)
	require.NoError(t, s.Stop(t.Context()))
	require.InDelta(t, 1, testutil.ToFloat64(s.cfg.Dropped), 0)
}

// TestARetryLinksToTheLostAttempt, which another daemon has made known.
func TestARetryLinksToTheLostAttempt(t *testing.T) {
	t.Parallel()
	of := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	a := tracing.Attempt{Row: tracing.Row(trace.ContextWithSpanContext(t.Context(), of)), Task: uuid.New(), Attempt: 1, Name: "n"}
	orchestrator, worker := sender(t, "http://127.0.0.1:1"), sender(t, "http://127.0.0.1:1")
	orchestrator.Tracer().Lost(a)
	a.Attempt = 2
	_, span := worker.Tracer().Run(a)
	tracing.Ran(span, "")
	lost, retry := <-orchestrator.queue, <-worker.queue
	require.Equal(t, lost.SpanContext().SpanID(), retry.Links()[0].SpanContext.SpanID())
	require.Equal(t, lost.Parent().SpanID(), retry.Parent().SpanID())
}

// TestTheSampleRatio: 0 samples no trace that begins here, and the traces of senders that
// do.
func TestTheSampleRatio(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Collector: Collector{Endpoint: "https://collector/otlp"}, Ratio: 0, Queue: 1})
	require.NoError(t, err)
	_, span := s.Tracer().Serve(context.Background(), http.Header{}, http.MethodPost)
	require.False(t, span.SpanContext().IsSampled())
	parent := "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"
	_, span = s.Tracer().Serve(context.Background(), http.Header{"Traceparent": {parent}}, http.MethodPost)
	require.True(t, span.SpanContext().IsSampled())
	require.Equal(t, trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, span.SpanContext().TraceID())
}

func TestHeadersAndEndpoints(t *testing.T) {
	t.Parallel()
	headers, err := (&Collector{Headers: "a=b%20c, d=e"}).headers()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b c", "d": "e"}, headers)
	_, err = New(Config{Collector: Collector{Key: "tracing", Endpoint: "http://collector", Headers: "hidden"}})
	require.EqualError(t, err, "invalid tracing.headers: want name=value pairs between commas, with percent-encoded values")
	_, err = New(Config{Collector: Collector{Key: "tracing", Endpoint: "collector:4318"}})
	require.EqualError(t, err, "invalid tracing.endpoint: want a URL with http or https")
	_, err = NewPusher(Push{Collector: Collector{Key: "metrics", Endpoint: "collector:4318", Headers: "hidden"}})
	require.ErrorContains(t, err, "invalid metrics.endpoint")
	require.ErrorContains(t, err, "invalid metrics.headers")
	for endpoint, want := range map[string]string{"http://c:4318": "http://c:4318/v1/metrics", "https://c/": "https://c/v1/metrics", "http://c/otlp/m": "http://c/otlp/m"} {
		address, err := (&Collector{Endpoint: endpoint}).address("/v1/metrics")
		require.NoError(t, err)
		require.Equal(t, want, address)
	}
}
