package otlp

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// exposed are metrics of every kind.
func exposed() *prometheus.Registry {
	reg := prometheus.NewPedanticRegistry()
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "counted_total", Help: "Counted."}, []string{"a", "b"})
	counted.WithLabelValues("1", "2").Add(3)
	counted.WithLabelValues("1", "3").Add(0)
	level := prometheus.NewGauge(prometheus.GaugeOpts{Name: "level"})
	level.Set(-1.5)
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Buckets: []float64{.1, 1, 10}})
	for _, v := range []float64{.05, .1, .5, 5, 50, 50} {
		took.Observe(v)
	}
	paused := prometheus.NewSummary(prometheus.SummaryOpts{Name: "paused_seconds", Objectives: map[float64]float64{.5: .01}})
	paused.Observe(2)
	reg.MustRegister(counted, level, took, paused)
	return reg
}

// flat are the series of families, each with its kind, as a text.
func flat(families []*dto.MetricFamily) (series []string) {
	for _, f := range families {
		for _, s := range f.GetMetric() {
			text := fmt.Sprint(f.GetName(), " ", f.GetHelp())
			for _, l := range s.GetLabel() {
				text += fmt.Sprint(" ", l.GetName(), "=", l.GetValue())
			}
			switch {
			case s.GetCounter() != nil:
				text += fmt.Sprint(" counter ", s.GetCounter().GetValue())
			case s.GetGauge() != nil:
				text += fmt.Sprint(" gauge ", s.GetGauge().GetValue())
			case s.GetSummary() != nil:
				text += fmt.Sprint(" summary ", s.GetSummary().GetSampleCount(), s.GetSummary().GetSampleSum())
				for _, q := range s.GetSummary().GetQuantile() {
					text += fmt.Sprint(" ", q.GetQuantile(), ":", q.GetValue())
				}
			default:
				h := s.GetHistogram()
				text += fmt.Sprint(" histogram ", h.GetSampleCount(), h.GetSampleSum())
				for _, b := range h.GetBucket() {
					text += fmt.Sprint(" ", b.GetUpperBound(), ":", b.GetCumulativeCount())
				}
			}
			series = append(series, text)
		}
	}
	return series
}

func labelled(name, help string, attributes []*common.KeyValue) string {
	text := fmt.Sprint(name, " ", help)
	for _, a := range attributes {
		text += fmt.Sprint(" ", a.GetKey(), "=", a.GetValue().GetStringValue())
	}
	return text
}

// pushed is flat of what was sent.
func pushed(t *testing.T, metrics []*otlp.Metric) (series []string) {
	t.Helper()
	number := func(m *otlp.Metric, kind string, points []*otlp.NumberDataPoint) {
		for _, p := range points {
			series = append(series, fmt.Sprint(labelled(m.GetName(), m.GetDescription(), p.GetAttributes()), " ", kind, " ", p.GetAsDouble()))
		}
	}
	for _, m := range metrics {
		switch {
		case m.GetSum() != nil:
			assert.True(t, m.GetSum().GetIsMonotonic())
			assert.Equal(t, otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, m.GetSum().GetAggregationTemporality())
			number(m, "counter", m.GetSum().GetDataPoints())
		case m.GetGauge() != nil:
			number(m, "gauge", m.GetGauge().GetDataPoints())
		}
		for _, p := range m.GetSummary().GetDataPoints() {
			text := fmt.Sprint(labelled(m.GetName(), m.GetDescription(), p.GetAttributes()), " summary ", p.GetCount(), p.GetSum())
			for _, q := range p.GetQuantileValues() {
				text += fmt.Sprint(" ", q.GetQuantile(), ":", q.GetValue())
			}
			series = append(series, text)
		}
		for _, p := range m.GetHistogram().GetDataPoints() {
			text := fmt.Sprint(labelled(m.GetName(), m.GetDescription(), p.GetAttributes()), " histogram ", p.GetCount(), p.GetSum())
			sum := uint64(0)
			for i, bound := range p.GetExplicitBounds() {
				sum += p.GetBucketCounts()[i]
				text += fmt.Sprint(" ", bound, ":", sum)
			}
			assert.Equal(t, p.GetCount(), sum+p.GetBucketCounts()[len(p.GetExplicitBounds())], "the last has those beyond the bounds")
			series = append(series, text)
		}
	}
	return series
}

func pusher(t *testing.T, endpoint string, metrics prometheus.Gatherer) *Pusher {
	t.Helper()
	p, err := NewPusher(Push{Collector: Collector{Endpoint: endpoint, Headers: "x-key=a%20b", Timeout: time.Second, Interval: 10 * time.Millisecond, Service: "tasker-worker", Logger: zap.NewNop()},
		Metrics: metrics, Failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "failed"})})
	require.NoError(t, err)
	return p
}

// TestPushedMetricsAreThoseExposed: names, labels, kinds and values.
func TestPushedMetricsAreThoseExposed(t *testing.T) {
	t.Parallel()
	received := make(chan *collector.ExportMetricsServiceRequest, 100)
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := &collector.ExportMetricsServiceRequest{}
		if err != nil || r.URL.Path != "/v1/metrics" || r.Header.Get("X-Key") != "a b" || proto.Unmarshal(body, request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		received <- request
	}))
	defer sink.Close()
	metrics := exposed()
	p := pusher(t, sink.URL, metrics)
	require.NoError(t, p.Start(t.Context()))
	first := <-received
	require.NoError(t, p.Stop(t.Context()))
	of := first.GetResourceMetrics()[0]
	require.Equal(t, "tasker-worker", of.GetResource().GetAttributes()[0].GetValue().GetStringValue())
	families, err := metrics.Gather()
	require.NoError(t, err)
	want := flat(families)
	require.Len(t, want, 5)
	require.Equal(t, want, pushed(t, of.GetScopeMetrics()[0].GetMetrics()))
	require.Zero(t, testutil.ToFloat64(p.cfg.Failed))
}

// TestFailedPushesAreCounted, and the last values are sent at the stop.
func TestFailedPushesAreCounted(t *testing.T) {
	t.Parallel()
	p := pusher(t, "http://127.0.0.1:1", exposed())
	p.push(t.Context())
	require.InDelta(t, 1, testutil.ToFloat64(p.cfg.Failed), 0)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refusing.Close()
	p = pusher(t, refusing.URL, exposed())
	p.cfg.Interval = time.Hour
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.Stop(t.Context()))
	require.InDelta(t, 1, testutil.ToFloat64(p.cfg.Failed), 0)
}
