package daemon

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// sink is a collector of OTLP.
type sink struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	from  map[string]string // the resource of each span, by its id
}

// newSink answers requests that have the key.
func newSink(t *testing.T, key string) *sink {
	t.Helper()
	s := &sink{from: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != key || proto.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, of := range request.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				s.spans = append(s.spans, scope.GetSpans()...)
				for _, span := range scope.GetSpans() {
					s.from[string(span.GetSpanId())] = of.GetResource().String()
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// of returns the spans of a trace, or those of all others.
func (s *sink) of(id trace.TraceID, others bool) (spans []*otlp.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if bytes.Equal(span.GetTraceId(), id[:]) != others {
			spans = append(spans, span)
		}
	}
	return spans
}

// named returns the spans with a name and a parent, in the order of their starts.
func named(spans []*otlp.Span, name string, parent []byte) (found []*otlp.Span) {
	for _, span := range spans {
		if span.GetName() == name && bytes.Equal(span.GetParentSpanId(), parent) {
			found = append(found, span)
		}
	}
	slices.SortFunc(found, func(a, b *otlp.Span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) }) // #nosec G115 -- times of today
	return found
}

// traced are settings under which a sink gets the spans, soon.
func traced(s *sink, ratio float64) func(*config.Loaded) {
	return func(l *config.Loaded) {
		c := &l.Common.Telemetry.Tracing
		c.Enabled, c.Endpoint, c.Headers, c.SampleRatio, c.Interval = true, s.URL, "x-key=a%20b", ratio, 20*time.Millisecond
	}
}

const tracedDiamond = `{name: traced_diamond, namespace_name: none, version: 1.0.0, steps: [
  {name: start, handler: {callable: ok}},
  {name: left, dependencies: [start], handler: {callable: py_frail}, retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 50}},
  {name: right, dependencies: [start], handler: {callable: ok}},
  {name: end, dependencies: [left, right], handler: {callable: ok}}]}`

// TestTraceOfADiamond follows a trace from a client through both daemons into a handler in
// Python that fails once, and into the task that it creates.
func TestTraceOfADiamond(t *testing.T) {
	t.Parallel()
	python, s := inPython(t), newSink(t, "a b")
	p := newPair(t, "", traced(s, 0)) // the client decides
	python.program = "traced_worker"
	run := python.start(python.program, "http://"+p.worker.Addr().String()+","+p.rest)
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() })
	p.template("traced_child", "ok")
	c := client.New(client.Config{BaseURL: p.rest})
	_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Source: tracedDiamond, Reason: "test", Actor: "test"})
	require.NoError(t, err)

	state, err := trace.ParseTraceState("vendor=a:1")
	require.NoError(t, err)
	sent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled, TraceState: state})
	request := client.TaskRequest{Namespace: "none", Name: "traced_diamond", Context: json.RawMessage(`{"n": 1}`), Initiator: "test", SourceSystem: "test", Reason: "test"}
	task, err := c.CreateTask(trace.ContextWithSpanContext(p.ctx, sent), request)
	require.NoError(t, err)
	request.Context = json.RawMessage(`{"n": 2}`)
	unsampled, err := c.CreateTask(p.ctx, request)
	require.NoError(t, err)
	var left struct{ Traceparent, Tracestate, Child string }
	require.NoError(t, json.Unmarshal([]byte(p.results(t, task.TaskUUID)["left"]), &left), "%s", &out)
	p.ended(t, left.Child, "complete")
	var other struct{ Traceparent string }
	require.NoError(t, json.Unmarshal([]byte(p.results(t, unsampled.TaskUUID)["left"]), &other), "%s", &out)
	require.Empty(t, other.Traceparent, "no parent, and a share of 0")

	const requests, attempts, tasks = 2, 5 + 1, 2
	var spans []*otlp.Span
	id := sent.TraceID()
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		spans = s.of(id, false)
		return len(spans) >= requests+attempts+tasks, fmt.Sprint(spans)
	})
	one := func(name string, parent []byte) *otlp.Span {
		t.Helper()
		found := named(spans, name, parent)
		require.Len(t, found, 1, name)
		return found[0]
	}
	parent := sent.SpanID()
	served := one("POST /v1/tasks", parent[:])
	whole := one("none/traced_diamond", served.GetSpanId())
	frail := named(spans, "none/traced_diamond/left", whole.GetSpanId())
	require.Len(t, frail, 2, "two attempts")
	require.Equal(t, otlp.Status_STATUS_CODE_ERROR, frail[0].GetStatus().GetCode())
	require.Empty(t, frail[0].GetLinks())
	require.Len(t, frail[1].GetLinks(), 1)
	require.Equal(t, frail[0].GetSpanId(), frail[1].GetLinks()[0].GetSpanId(), "a retry links to the attempt before")
	for _, step := range []string{"start", "right", "end"} {
		require.Empty(t, one("none/traced_diamond/"+step, whole.GetSpanId()).GetLinks())
	}
	require.Equal(t, "00-"+id.String()+"-"+hex.EncodeToString(frail[1].GetSpanId())+"-01", left.Traceparent)
	require.Equal(t, state.String(), left.Tracestate)
	childServed := one("POST /v1/tasks", frail[1].GetSpanId())
	require.Equal(t, state.String(), childServed.GetTraceState(), "from the client, through rows and the handler in Python")
	child := one("none/traced_child", childServed.GetSpanId())
	one("none/traced_child/ok_step", child.GetSpanId())
	require.Len(t, spans, requests+attempts+tasks, "nothing else")
	require.Contains(t, s.from[string(served.GetSpanId())], "tasker-orchestrator")
	require.Contains(t, s.from[string(frail[1].GetSpanId())], "tasker-worker")

	// Batches have traces of their own, with links to the tasks.
	linked := map[string]bool{}
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		for _, batch := range s.of(id, true) {
			for _, link := range batch.GetLinks() {
				if bytes.Equal(link.GetTraceId(), id[:]) && bytes.Equal(link.GetSpanId(), whole.GetSpanId()) {
					linked[batch.GetName()] = true
				}
			}
		}
		return linked["claim"] && linked["settle"] && linked["report"] && linked["apply"], fmt.Sprint(linked)
	})
	for _, batch := range s.of(id, true) {
		require.NotEmpty(t, batch.GetLinks(), batch.GetName())
	}
}

// TestMetricsArePushed beside /metrics: the same names, and the values of the work done.
func TestMetricsArePushed(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	latest := map[string]map[string]*metrics.Metric{} // by service
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectormetrics.ExportMetricsServiceRequest
		if err != nil || r.URL.Path != "/v1/metrics" || proto.Unmarshal(body, &request) != nil {
			return
		}
		of := request.GetResourceMetrics()[0]
		byName := map[string]*metrics.Metric{}
		for _, m := range of.GetScopeMetrics()[0].GetMetrics() {
			byName[m.GetName()] = m
		}
		mu.Lock()
		defer mu.Unlock()
		latest[of.GetResource().GetAttributes()[0].GetValue().GetStringValue()] = byName
	}))
	t.Cleanup(sink.Close)
	p := newPair(t, "", func(l *config.Loaded) {
		c := &l.Common.Telemetry.Metrics
		c.Enabled, c.Endpoint, c.Interval = true, sink.URL, 100*time.Millisecond
	})
	p.template("pushed", "ok")
	created, err := client.New(client.Config{BaseURL: p.rest}).CreateTask(p.ctx, client.TaskRequest{Namespace: "none", Name: "pushed", Context: json.RawMessage(`{"n": 1}`),
		Initiator: "test", SourceSystem: "test", Reason: "test"})
	require.NoError(t, err)
	p.ended(t, created.TaskUUID, "complete")
	value := func(service, name string) (sum float64) {
		for _, point := range latest[service][name].GetSum().GetDataPoints() {
			sum += point.GetAsDouble()
		}
		return sum
	}
	pgtest.Eventually(t, 20*time.Second, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		made, claimed := value("tasker-orchestrator", "tasker_tasks_created_total"), value("tasker-worker", "tasker_steps_claimed_total")
		return made == 1 && claimed == 1, fmt.Sprintf("%v created, %v claimed", made, claimed)
	})
	res, err := http.Get(p.rest + "/metrics")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }() // read to its end
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `tasker_tasks_created_total{namespace="none"} 1`)
	pgtest.Eventually(t, 20*time.Second, func() (pushed bool, missing string) { // some may be younger than the last push
		mu.Lock()
		defer mu.Unlock()
		pushed = true
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "# TYPE "); ok && latest["tasker-orchestrator"][strings.Fields(name)[0]] == nil {
				pushed, missing = false, line
			}
		}
		return pushed, missing
	})
}
