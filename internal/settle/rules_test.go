package settle

import (
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/workflow"
)

func TestDecisionsThatAreNotCounted(t *testing.T) {
	t.Parallel()
	for _, uncounted := range []bool{false, true} {
		m := telemetry.NewMetrics(prometheus.NewRegistry())
		r := Recorder{Metrics: m, Log: zap.NewNop(), Decisions: Decisions{Uncounted: uncounted}}
		r.decided(&store.Change{}, &workflow.Decided{Created: []int{1, 2}, Batches: 2}, "n")
		require.Equal(t, !uncounted, testutil.CollectAndCount(m.StepsCreated)+testutil.CollectAndCount(m.BatchesCreated) == 2)
	}
}

// TestSpansOfADecision: lost attempts, outcomes that were followed, and the end; nothing of a
// task without a trace.
func TestSpansOfADecision(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	r := Recorder{Metrics: telemetry.Discard(), Log: zap.NewNop(), Tracer: tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)).Tracer("test"))}
	plan := &workflow.Plan{Template: &workflow.Template{Namespace: "shop", Name: "order"}, Steps: []workflow.PlanStep{
		{StepTemplate: &workflow.StepTemplate{Name: "pay"}}, {StepTemplate: &workflow.StepTemplate{Name: "split"}}}}
	row := tracing.Row(trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})))
	change := func(row []byte) store.Change {
		return store.Change{Progress: &workflow.Progress{}, Effects: &workflow.Effects{State: workflow.TaskComplete, Finished: true, Decided: []workflow.Decided{{Step: 1, Created: []int{0}, Batches: 500}}},
			Task: &store.TakenTask{UUID: uuid.New(), Plan: &store.Plan{Plan: plan}, Trace: row, Reported: []store.TakenStep{
				{Step: 0, Attempt: 1, Outcome: workflow.OutcomeLeaseLost}, {Step: 1, Attempt: 1, Outcome: workflow.OutcomeSuccess}}}}
	}
	r.Record([]store.Change{change(row), change(nil)}, store.Committed{})
	var names []string
	for _, span := range recorder.Ended() {
		names = append(names, span.Name())
		require.Equal(t, trace.TraceID{1}, span.SpanContext().TraceID())
	}
	require.Equal(t, []string{"shop/order/pay", "shop/order/split decided", "shop/order"}, names)
}

// TestRulesOfOthersAreNotGuessedAt: a worker does not decide by a document that it
// does not understand in full.
func TestRulesOfOthersAreNotGuessedAt(t *testing.T) {
	t.Parallel()
	creation := workflow.Creation{MaxDecisionSteps: 3, MaxDecisionDepth: 2, MaxBatches: 7, RefuseBatches: true, MaxParallelBatches: 4}
	decisions := Decisions{WarnSteps: 5, Log: true}
	document, err := Publish(creation, decisions, &auth.Reach{})
	require.NoError(t, err)
	var a agreed
	log := zap.NewNop()
	require.Equal(t, &Rules{rulesVersion, creation, decisions, nil}, a.read(string(document), log))
	require.Nil(t, a.read("", log), "no rules, or they differ")
	require.Nil(t, a.read(`{"version": 1, "max_decision_steps": 3, "max_of_what_comes": 4}`, log))
	require.Nil(t, a.read(`{"version": 2}`, log))
	require.Nil(t, a.read(`null`, log))
	require.NotNil(t, a.read(`{"version": 1}`, log))
}

// TestTheRuleOfOtherNamespacesStays: while no orchestrator says another one.
func TestTheRuleOfOtherNamespacesStays(t *testing.T) {
	t.Parallel()
	var r Reaching
	require.Nil(t, r.By(""))
	want := &auth.Reach{Walled: true, Grants: map[string][]string{"shop": {"bank"}}}
	walled, err := Publish(workflow.Creation{}, Decisions{}, want)
	require.NoError(t, err)
	require.Equal(t, want, r.By(string(walled)))
	require.Equal(t, want, r.By(""), "none is alive, or theirs differ")
	require.Equal(t, want, r.By("no JSON"))
	open, err := Publish(workflow.Creation{}, Decisions{}, nil)
	require.NoError(t, err)
	require.Nil(t, r.By(string(open)))
}
