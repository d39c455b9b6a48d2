package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Push describes a [Pusher].
type Push struct {
	Collector
	Metrics prometheus.Gatherer
	Failed  prometheus.Counter
}

// Pusher sends the metrics of a daemon as they are exposed, every interval and at the end. It is
// a lifecycle.Service. The values are cumulative, so a push that fails loses none.
type Pusher struct {
	*lifecycle.Loop
	cfg     Push
	address string
	headers map[string]string
	began   time.Time
}

// NewPusher returns a Pusher that does nothing before its start.
func NewPusher(cfg Push) (*Pusher, error) {
	p := &Pusher{cfg: cfg, began: time.Now()}
	var err, wrong error
	p.address, err = cfg.address("/v1/metrics")
	p.headers, wrong = cfg.headers()
	p.Loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "metrics_push", Run: p.run, Logger: cfg.Logger, OnRestart: cfg.OnRestart})
	return p, errors.Join(err, wrong)
}

// Stop implements lifecycle.Service: it sends the last values, within ctx.
func (p *Pusher) Stop(ctx context.Context) error {
	if err := p.Loop.Stop(ctx); err != nil {
		return err
	}
	p.push(ctx)
	return nil
}

func (p *Pusher) run(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.push(context.WithoutCancel(ctx)) // one under way when the daemon stops ends by its own bound
		}
	}
}

// push sends once. The collector may be away for long: the counter tells, and the log.
func (p *Pusher) push(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	if err := p.send(ctx); err != nil {
		p.cfg.Failed.Inc()
		p.cfg.Logger.Warn("metrics were not sent", zap.Error(err))
	}
}

func (p *Pusher) send(ctx context.Context) error {
	families, err := p.cfg.Metrics.Gather()
	if len(families) == 0 {
		return err
	} // else what could be gathered is sent, as it is to those who scrape
	body, err := proto.Marshal(p.request(families))
	if err != nil {
		return fmt.Errorf("encode the metrics: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send the metrics: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range p.headers {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("send the metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()                      // its end does not matter
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection is used again
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("send the metrics: the collector answers %s", res.Status)
	}
	return nil
}

func (p *Pusher) request(families []*dto.MetricFamily) *collector.ExportMetricsServiceRequest {
	of := &resource.Resource{}
	for _, a := range p.cfg.attributes() {
		of.Attributes = append(of.Attributes, keyValue(string(a.Key), a.Value.AsString()))
	}
	scope := &otlp.ScopeMetrics{Scope: &common.InstrumentationScope{Name: "github.com/tasker-go/tasker"}}
	at := span{uint64(p.began.UnixNano()), uint64(time.Now().UnixNano())} // #nosec G115 -- times of today
	for _, f := range families {
		scope.Metrics = append(scope.Metrics, at.metric(f))
	}
	return &collector.ExportMetricsServiceRequest{ResourceMetrics: []*otlp.ResourceMetrics{{Resource: of, ScopeMetrics: []*otlp.ScopeMetrics{scope}}}}
}

func keyValue(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

// span is the time of cumulative values.
type span struct{ from, to uint64 }

// metric is a family with its name and labels as they are exposed.
func (at span) metric(f *dto.MetricFamily) *otlp.Metric {
	m := &otlp.Metric{Name: f.GetName(), Description: f.GetHelp()}
	const cumulative = otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		m.Data = &otlp.Metric_Sum{Sum: &otlp.Sum{IsMonotonic: true, AggregationTemporality: cumulative, DataPoints: at.numbers(f)}}
	case dto.MetricType_HISTOGRAM:
		h := &otlp.Histogram{AggregationTemporality: cumulative}
		for _, s := range f.GetMetric() {
			h.DataPoints = append(h.DataPoints, at.histogram(s))
		}
		m.Data = &otlp.Metric_Histogram{Histogram: h}
	case dto.MetricType_SUMMARY: // of the Go runtime
		y := &otlp.Summary{}
		for _, s := range f.GetMetric() {
			y.DataPoints = append(y.DataPoints, at.summary(s))
		}
		m.Data = &otlp.Metric_Summary{Summary: y}
	default:
		m.Data = &otlp.Metric_Gauge{Gauge: &otlp.Gauge{DataPoints: at.numbers(f)}}
	}
	return m
}

func labels(s *dto.Metric) (list []*common.KeyValue) {
	for _, l := range s.GetLabel() {
		list = append(list, keyValue(l.GetName(), l.GetValue()))
	}
	return list
}

// numbers are the series of counters and gauges.
func (at span) numbers(f *dto.MetricFamily) (points []*otlp.NumberDataPoint) {
	for _, s := range f.GetMetric() {
		value := s.GetCounter().GetValue() + s.GetGauge().GetValue() // it is one of them
		points = append(points, &otlp.NumberDataPoint{Attributes: labels(s), StartTimeUnixNano: at.from, TimeUnixNano: at.to,
			Value: &otlp.NumberDataPoint_AsDouble{AsDouble: value}})
	}
	return points
}

// histogram has counts of single buckets in place of cumulative ones, and that beyond the last
// bound.
func (at span) histogram(s *dto.Metric) *otlp.HistogramDataPoint {
	h := s.GetHistogram()
	p := &otlp.HistogramDataPoint{Attributes: labels(s), StartTimeUnixNano: at.from, TimeUnixNano: at.to, Count: h.GetSampleCount(), Sum: h.SampleSum}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		p.ExplicitBounds, p.BucketCounts = append(p.ExplicitBounds, b.GetUpperBound()), append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-below)
	return p
}

func (at span) summary(s *dto.Metric) *otlp.SummaryDataPoint {
	p := &otlp.SummaryDataPoint{Attributes: labels(s), StartTimeUnixNano: at.from, TimeUnixNano: at.to, Count: s.GetSummary().GetSampleCount(), Sum: s.GetSummary().GetSampleSum()}
	for _, q := range s.GetSummary().GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &otlp.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}
