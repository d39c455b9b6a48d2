package tracing

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes the spans of a daemon. It is safe for concurrent use.
type Tracer struct{ spans trace.Tracer }

// New returns a Tracer that starts its spans with spans, which must heed [SpanID] and
// [Always].
func New(spans trace.Tracer) *Tracer { return &Tracer{spans: spans} }

// Serve begins the span of a request of REST or gRPC, within the trace that its headers
// name.
func (t *Tracer) Serve(ctx context.Context, h http.Header, method string) (context.Context, trace.Span) {
	ctx, span := t.spans.Start(w3c.Extract(ctx, propagation.HeaderCarrier(h)), method, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method)))
	return ctx, span
}

// Served ends the span of a request, with the pattern of its route and the status of its answer.
func Served(span trace.Span, route string, status int) {
	if span.IsRecording() {
		if route != "" {
			span.SetName(route)
		}
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
	}
	span.End()
}

// Attempt is an execution of a step.
type Attempt struct {
	Row           []byte // of its task
	Task          uuid.UUID
	Step, Attempt int
	// Name is namespace/task/step, for people.
	Name string
	// Waited is how long the step was in line.
	Waited time.Duration
}

// Run begins the span of an attempt, whose parent is that of its task; a retry links to the
// attempt before. ctx carries it into the handler. Where tracing is off here, ctx carries
// the span that requested the task, so that the trace goes on.
func (t *Tracer) Run(a Attempt) (ctx context.Context, span trace.Span) {
	if t == nil {
		ctx = trace.ContextWithRemoteSpanContext(context.Background(), requester(a.Row))
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx = trace.ContextWithRemoteSpanContext(context.Background(), taskSpan(a.Row, a.Task))
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("tasker.task_uuid", a.Task.String()), attribute.Int("tasker.attempt", a.Attempt),
		attribute.Float64("tasker.wait_seconds", a.Waited.Seconds()))}
	if a.Attempt > 1 {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: attemptSpan(a.Row, a.Task, a.Step, a.Attempt-1)}))
	}
	started, span := t.spans.Start(withSpanID(ctx, attemptSpan(a.Row, a.Task, a.Step, a.Attempt).SpanID()), a.Name, options...)
	// Without the id of this one, which is not that of its children.
	return trace.ContextWithSpan(context.Background(), trace.SpanFromContext(started)), span
}

// Ran ends the span of an attempt; failure is "" for a success.
func Ran(span trace.Span, failure string) {
	if failure != "" {
		span.SetStatus(codes.Error, failure)
	}
	span.End()
}

// Lost emits the span of an attempt whose lease ran out. Its worker emits none, and only
// this end of it is known.
func (t *Tracer) Lost(a Attempt) {
	if t == nil {
		return
	}
	span := t.at(a.Row, a.Task, attemptSpan(a.Row, a.Task, a.Step, a.Attempt).SpanID(), a.Name, attribute.Int("tasker.attempt", a.Attempt))
	span.SetStatus(codes.Error, "lease lost")
	span.End()
}

// Decided emits the span of an outcome that was followed: one, however many steps it has
// created.
func (t *Tracer) Decided(a Attempt, steps, batches int) {
	if t == nil {
		return
	}
	t.at(a.Row, a.Task, spanID(a.Task, a.Step, -1), a.Name+" decided", attribute.Int("tasker.steps_created", steps),
		attribute.Int("tasker.batches_created", batches)).End()
}

// at begins the span of a moment of a task.
func (t *Tracer) at(row []byte, task uuid.UUID, id trace.SpanID, name string, more ...attribute.KeyValue) trace.Span {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), taskSpan(row, task))
	_, span := t.spans.Start(withSpanID(ctx, id), name, trace.WithAttributes(append(more, attribute.String("tasker.task_uuid", task.String()))...))
	return span
}

// Ended emits the span of a task that has ended: from its request to now, within the span
// that requested it. Its caller has ended it, so there is one.
func (t *Tracer) Ended(row []byte, task uuid.UUID, name, state string, failed bool) {
	if t == nil || len(row) < rowBytes {
		return
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), requester(row))
	_, span := t.spans.Start(withSpanID(ctx, taskSpan(row, task).SpanID()), name, trace.WithTimestamp(requestedAt(task)),
		trace.WithAttributes(attribute.String("tasker.task_uuid", task.String()), attribute.String("tasker.task_state", state)))
	if failed {
		span.SetStatus(codes.Error, state)
	}
	span.End()
}

// maxLinks bounds the links of the span of a batch.
const maxLinks = 32

// Batch is work on many tasks at once. Its span is in a trace of its own with links to the
// tasks, as it belongs to none of them.
type Batch struct {
	begin time.Time
	links []trace.Link
	items int
}

// Batch begins a batch.
func (t *Tracer) Batch() Batch {
	if t == nil {
		return Batch{}
	}
	return Batch{begin: time.Now()}
}

// Add adds a task of the batch, with its row.
func (b *Batch) Add(row []byte, task uuid.UUID) {
	if b.begin.IsZero() {
		return
	}
	if b.items++; len(row) >= rowBytes && len(b.links) < maxLinks {
		b.links = append(b.links, trace.Link{SpanContext: taskSpan(row, task)})
	}
}

// Done emits the span of a batch in which there is a task with a trace.
func (t *Tracer) Done(b *Batch, name string, err error) {
	if t == nil || len(b.links) == 0 {
		return
	}
	_, span := t.spans.Start(context.WithValue(context.Background(), alwaysKey{}, true), name, trace.WithTimestamp(b.begin),
		trace.WithLinks(b.links...), trace.WithAttributes(attribute.Int("tasker.batch_size", b.items)))
	if err != nil {
		span.SetStatus(codes.Error, name)
	}
	span.End()
}
