package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// A row carries trace, span and flags, and behind them the tracestate of the sender, if it has
// one that is no longer than receivers of W3C trace context must pass on.
const (
	rowBytes = 16 + 8 + 1
	maxState = 512
)

// Row is what the row of a task carries that is requested within ctx; nil unless the trace
// of ctx is sampled.
func Row(ctx context.Context) []byte { return encode(trace.SpanContextFromContext(ctx)) }

func encode(c trace.SpanContext) []byte {
	if !c.IsValid() || !c.IsSampled() {
		return nil
	}
	id, span := c.TraceID(), c.SpanID()
	state := c.TraceState().String()
	if len(state) > maxState {
		state = ""
	}
	row := append(append(append(make([]byte, 0, rowBytes+len(state)), id[:]...), span[:]...), byte(c.TraceFlags()))
	return append(row, state...)
}

// requester is the span that requested the task of a row; not valid without one.
func requester(row []byte) trace.SpanContext {
	if len(row) < rowBytes {
		return trace.SpanContext{}
	}
	state, _ := trace.ParseTraceState(string(row[rowBytes:])) // what cannot be read is not passed on
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(row[:16]), SpanID: trace.SpanID(row[16:24]), TraceFlags: trace.TraceFlags(row[24]), TraceState: state, Remote: true,
	})
}

// TraceID is the id of the trace of a row; "" without one.
func TraceID(row []byte) string { return hex.EncodeToString(row[:min(len(row), 16)]) }

// Within is the row of a task that another task with this row makes: its parent is the span
// of that task. nil makes nil.
func Within(row []byte, task uuid.UUID) []byte {
	if len(row) < rowBytes {
		return nil
	}
	return encode(taskSpan(row, task))
}

// taskSpan and attemptSpan are the spans of a task and of an attempt of one of its steps,
// which may not exist yet.
func taskSpan(row []byte, task uuid.UUID) trace.SpanContext {
	return requester(row).WithSpanID(spanID(task, -1, 0))
}

func attemptSpan(row []byte, task uuid.UUID, step, attempt int) trace.SpanContext {
	return requester(row).WithSpanID(spanID(task, step, attempt))
}

// spanID is a digest of what a span is of: the same in all daemons and versions.
func spanID(task uuid.UUID, step, attempt int) (id trace.SpanID) {
	var b [32]byte
	copy(b[:], task[:])
	binary.BigEndian.PutUint64(b[16:], uint64(step))    // #nosec G115 -- any bits will do
	binary.BigEndian.PutUint64(b[24:], uint64(attempt)) // #nosec G115 -- as above
	// Zero is no id.
	binary.BigEndian.PutUint64(id[:], max(xxhash.Sum64(b[:]), 1))
	return id
}

type idKey struct{}

// withSpanID gives the next span that is started within ctx its id.
func withSpanID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, idKey{}, id)
}

// SpanID is the id that a span which is started within ctx must have; ok is false where any
// will do.
func SpanID(ctx context.Context) (id trace.SpanID, ok bool) {
	id, ok = ctx.Value(idKey{}).(trace.SpanID)
	return id, ok
}

type alwaysKey struct{}

// Always reports whether a span without a parent that is started within ctx must be
// recorded, whatever the share of traces that are.
func Always(ctx context.Context) bool { return ctx.Value(alwaysKey{}) != nil }

var w3c propagation.TraceContext

// Inject adds the trace of ctx to the headers of a request.
func Inject(ctx context.Context, h http.Header) { w3c.Inject(ctx, propagation.HeaderCarrier(h)) }

// Traceparent is the trace of ctx as its two headers have it; empty without one.
func Traceparent(ctx context.Context) (parent, state string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return "", ""
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier["traceparent"], carrier["tracestate"]
}

// requestedAt is when a task was requested: its UUID has that.
func requestedAt(task uuid.UUID) time.Time {
	if task.Version() != 7 {
		return time.Now()
	}
	return time.Unix(task.Time().UnixTime())
}
