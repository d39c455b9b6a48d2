package tracing_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tasker-go/tasker/internal/tracing"
)

var sampled = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})

func within(c trace.SpanContext) context.Context {
	return trace.ContextWithSpanContext(context.Background(), c)
}

func TestRowsOfSampledTracesOnly(t *testing.T) {
	t.Parallel()
	require.Nil(t, tracing.Row(context.Background()))
	require.Nil(t, tracing.Row(within(sampled.WithTraceFlags(0))))
	row := tracing.Row(within(sampled))
	require.Len(t, row, 25)
	task := uuid.MustParse("0198c0de-0000-7000-8000-000000000001")
	child := tracing.Within(row, task)
	require.Equal(t, row[:16], child[:16])
	require.NotEqual(t, row[16:24], child[16:24])
	require.Equal(t, child, tracing.Within(row, task), "the same everywhere")
	require.Nil(t, tracing.Within(nil, task))
	require.Nil(t, tracing.Within(row[:24], task), "none of ours")
	require.Equal(t, "01000000000000000000000000000000", tracing.TraceID(row))
	require.Empty(t, tracing.TraceID(nil))
}

// TestTracestate goes with the trace, to handlers and to the tasks of tasks.
func TestTracestate(t *testing.T) {
	t.Parallel()
	state, err := trace.ParseTraceState("vendor=a:1,other=b")
	require.NoError(t, err)
	row := tracing.Row(within(sampled.WithTraceState(state)))
	ctx, _ := (*tracing.Tracer)(nil).Run(tracing.Attempt{Row: tracing.Within(row, uuid.New()), Task: uuid.New(), Attempt: 1})
	headers := http.Header{}
	tracing.Inject(ctx, headers)
	require.Equal(t, state.String(), headers.Get("Tracestate"))
	_, carried := tracing.Traceparent(ctx)
	require.Equal(t, state.String(), carried)
	require.Equal(t, row[:16], tracing.Row(ctx)[:16])

	long, err := trace.ParseTraceState("a=" + strings.Repeat("b", 250) + ",c=" + strings.Repeat("d", 250) + ",e=" + strings.Repeat("f", 250))
	require.NoError(t, err)
	require.Len(t, tracing.Row(within(sampled.WithTraceState(long))), 25, "beyond what must be passed on")
	ctx, _ = (*tracing.Tracer)(nil).Run(tracing.Attempt{Row: append(tracing.Row(within(sampled)), '!'), Task: uuid.New(), Attempt: 1})
	require.Equal(t, sampled.TraceID(), trace.SpanContextFromContext(ctx).TraceID(), "what cannot be read is left out")
}

// TestMomentsOfATask: a lost attempt has the id that a retry links to; a decision one span.
func TestMomentsOfATask(t *testing.T) {
	t.Parallel()
	tracer, recorder := recording()
	a := tracing.Attempt{Row: tracing.Row(within(sampled)), Task: uuid.New(), Step: 2, Attempt: 1, Name: "shop/order/pay"}
	tracer.Lost(a)
	tracer.Decided(a, 2, 1000)
	a.Attempt = 2
	_, retry := tracer.Run(a)
	tracing.Ran(retry, "")
	spans := recorder.Ended()
	require.Len(t, spans, 3)
	require.Equal(t, codes.Error, spans[0].Status().Code)
	require.Equal(t, "shop/order/pay decided", spans[1].Name())
	require.Equal(t, spans[0].Parent().SpanID(), spans[1].Parent().SpanID(), "the task")
	require.Equal(t, spans[0].Parent().SpanID(), spans[2].Parent().SpanID())
	require.EqualValues(t, 1000, spans[1].Attributes()[1].Value.AsInt64())
	require.Len(t, spans[2].Links(), 1)
}

// TestOffCostsNothing: the calls on the way of a task whose trace is not sampled, of a
// daemon that makes no spans.
func TestOffCostsNothing(t *testing.T) {
	var off *tracing.Tracer
	ctx, task := context.Background(), uuid.New()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		batch := off.Batch()
		for range 10 {
			batch.Add(tracing.Row(ctx), task)
		}
		off.Done(&batch, "settle", nil)
		off.Ended(nil, task, "task", "complete", false)
		if parent, _ := tracing.Traceparent(ctx); parent != "" || tracing.Within(nil, task) != nil {
			t.Error("there is no trace")
		}
	}))
}

// TestTracesGoOnWhereTracingIsOff: a handler continues the trace of a request although its
// worker makes no spans.
func TestTracesGoOnWhereTracingIsOff(t *testing.T) {
	t.Parallel()
	ctx, span := (*tracing.Tracer)(nil).Run(tracing.Attempt{Row: tracing.Row(within(sampled)), Task: uuid.New(), Attempt: 1})
	tracing.Ran(span, "")
	require.False(t, span.IsRecording())
	require.Equal(t, tracing.Row(within(sampled)), tracing.Row(ctx))
	headers := http.Header{}
	tracing.Inject(ctx, headers)
	parent, _ := tracing.Traceparent(ctx)
	require.Equal(t, parent, headers.Get("Traceparent"))
	require.NotEmpty(t, headers.Get("Traceparent"))
}

func recording() (*tracing.Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)).Tracer("test")), recorder
}

func TestOneSpanPerBatch(t *testing.T) {
	t.Parallel()
	tracer, recorder := recording()
	row := tracing.Row(within(sampled))
	batch := tracer.Batch()
	for range 100 {
		batch.Add(row, uuid.New())
	}
	tracer.Done(&batch, "settle", errors.New("lost"))
	untraced := tracer.Batch()
	untraced.Add(nil, uuid.New())
	tracer.Done(&untraced, "settle", nil)

	spans := recorder.Ended()
	require.Len(t, spans, 1, "none for a batch without a trace")
	require.Len(t, spans[0].Links(), 32)
	require.Equal(t, codes.Error, spans[0].Status().Code)
	require.NotEqual(t, sampled.TraceID(), spans[0].SpanContext().TraceID())
	require.EqualValues(t, 100, spans[0].Attributes()[0].Value.AsInt64())
}

func TestTheSpanOfATaskBeginsWithItsRequest(t *testing.T) {
	t.Parallel()
	tracer, recorder := recording()
	task, err := uuid.NewV7()
	require.NoError(t, err)
	tracer.Ended(tracing.Row(within(sampled)), task, "shop/order", "error", true)
	spans := recorder.Ended()
	require.Len(t, spans, 1)
	require.Equal(t, sampled.SpanID(), spans[0].Parent().SpanID())
	require.Equal(t, codes.Error, spans[0].Status().Code)
	require.WithinDuration(t, time.Now(), spans[0].StartTime(), time.Minute)
	require.False(t, spans[0].StartTime().After(spans[0].EndTime()))
}
