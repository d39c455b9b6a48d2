package otlp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/tracing"
)

// Collector is what spans or metrics are sent to.
type Collector struct {
	Key      string // the table of its keys, for errors
	Endpoint string // with the path, if it is not that of OTLP
	Headers  string // name=value pairs between commas; values are percent-encoded, as in the variables of OpenTelemetry
	Timeout  time.Duration
	Interval time.Duration

	Service, Version, Environment string

	OnRestart func(loop string)
	Logger    *zap.Logger
}

// Config describes a [Sender].
type Config struct {
	Collector
	Ratio   float64 // of traces that begin here
	Batch   int     // spans of one request
	Queue   int     // spans that wait
	Dropped prometheus.Counter
}

// address is the endpoint with a path.
func (c *Collector) address(path string) (string, error) {
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return "", fmt.Errorf("invalid %s.endpoint: want a URL with http or https", c.Key)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = path
	}
	return endpoint.String(), nil
}

// attributes name the daemon.
func (c *Collector) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("service.name", c.Service), attribute.String("service.version", c.Version),
		attribute.String("deployment.environment.name", c.Environment)}
}

func (c *Collector) headers() (map[string]string, error) {
	text := c.Headers
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, fmt.Errorf("invalid %s.headers: want name=value pairs between commas, with percent-encoded values", c.Key)
		}
		headers[name] = value
	}
	return headers, nil
}

// Sender sends spans. It is a lifecycle.Service.
type Sender struct {
	cfg      Config
	provider *sdk.TracerProvider
	exporter sdk.SpanExporter
	queue    chan sdk.ReadOnlySpan
	loop     *lifecycle.Loop
}

// New returns a Sender that does nothing before its start.
func New(cfg Config) (*Sender, error) {
	address, err := cfg.address("/v1/traces")
	if err != nil {
		return nil, err
	}
	headers, err := cfg.headers()
	if err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg, queue: make(chan sdk.ReadOnlySpan, cfg.Queue), exporter: otlptracehttp.NewUnstarted(
		otlptracehttp.WithEndpointURL(address), otlptracehttp.WithHeaders(headers), otlptracehttp.WithTimeout(cfg.Timeout))}
	s.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(s.processor()), sdk.WithIDGenerator(ids{}),
		sdk.WithSampler(sdk.ParentBased(sampler{sdk.TraceIDRatioBased(cfg.Ratio)})),
		sdk.WithResource(resource.NewSchemaless(cfg.attributes()...)))
	s.loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "spans", Run: s.run, Logger: cfg.Logger, OnRestart: cfg.OnRestart})
	return s, nil
}

// Tracer makes the spans that are sent.
func (s *Sender) Tracer() *tracing.Tracer {
	return tracing.New(s.provider.Tracer("github.com/tasker-go/tasker"))
}

// Name implements lifecycle.Service.
func (s *Sender) Name() string { return s.loop.Name() }

// Start implements lifecycle.Service. The collector need not answer.
func (s *Sender) Start(ctx context.Context) error { return s.loop.Start(ctx) }

// Stop implements lifecycle.Service: it sends what waits, within ctx.
func (s *Sender) Stop(ctx context.Context) error {
	if err := s.loop.Stop(ctx); err != nil {
		return err
	}
	for batch := s.take(nil); len(batch) > 0; batch = s.take(nil) {
		s.send(ctx, batch)
	}
	if err := s.exporter.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop to send spans: %w", err)
	}
	return nil
}

func (s *Sender) run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	var batch []sdk.ReadOnlySpan
	for {
		select {
		case <-ctx.Done():
			for _, span := range batch { // there is room, or they are dropped
				s.add(span)
			}
			return nil
		case span := <-s.queue:
			if batch = append(batch, span); len(batch) < s.cfg.Batch {
				continue
			}
		case <-tick.C:
			batch = s.take(batch)
		}
		if len(batch) > 0 {
			s.send(context.WithoutCancel(ctx), batch) // one under way when the daemon stops ends by its own bound
			batch = nil
		}
	}
}

// take adds spans that wait to a batch.
func (s *Sender) take(batch []sdk.ReadOnlySpan) []sdk.ReadOnlySpan {
	for len(batch) < s.cfg.Batch {
		select {
		case span := <-s.queue:
			batch = append(batch, span)
		default:
			return batch
		}
	}
	return batch
}

func (s *Sender) send(ctx context.Context, batch []sdk.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.exporter.ExportSpans(ctx, batch); err != nil {
		s.cfg.Dropped.Add(float64(len(batch)))
		s.cfg.Logger.Warn("spans were not sent", zap.Int("count", len(batch)), zap.Error(err))
	}
}

// add queues a span, or drops it.
func (s *Sender) add(span sdk.ReadOnlySpan) {
	select {
	case s.queue <- span:
	default:
		s.cfg.Dropped.Inc()
	}
}

// processor queues the spans that have ended.
type processor struct{ sender *Sender }

func (s *Sender) processor() sdk.SpanProcessor { return processor{s} }

func (processor) OnStart(context.Context, sdk.ReadWriteSpan) {}

func (p processor) OnEnd(span sdk.ReadOnlySpan) {
	if span.SpanContext().IsSampled() {
		p.sender.add(span)
	}
}

// Shutdown and ForceFlush are the sender's own business.
func (processor) Shutdown(context.Context) error   { return nil }
func (processor) ForceFlush(context.Context) error { return nil }

// sampler samples traces without a parent.
type sampler struct{ sdk.Sampler }

func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if tracing.Always(p.ParentContext) {
		return sdk.AlwaysSample().ShouldSample(p)
	}
	return s.Sampler.ShouldSample(p)
}

// ids gives spans the ids that they must have, or random ones.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64())    // #nosec G404 -- an id, no secret
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // #nosec G404 -- as above
	return id, ids{}.NewSpanID(ctx, id)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if id, ok := tracing.SpanID(ctx); ok {
		return id
	}
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) // #nosec G404 -- as above
	return id
}
