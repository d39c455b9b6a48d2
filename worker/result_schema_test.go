package worker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/workflow"
)

const schemaYAML = `
name: invoice
namespace_name: invoices
version: 1.0.0
steps:
  - name: bill
    handler: {callable: bill}
    result_schema: {type: object, required: [total], properties: {total: {type: number}}}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 10}
  - name: send
    dependencies: [bill]
    handler: {callable: send}
`

// mismatch is the stored failure of the step bill.
const mismatch = `{"message":"the result of step \"bill\" does not fit its result_schema: \"/total\" must be a number, not a string",
	"error_type":"ResultMismatch","error_code":"RESULT_SCHEMA","retryable":false,
	"context":{"violations":[{"path":"/total","message":"must be a number, not a string"}]}}`

// returns is a handler with a result, as JSON.
func returns(doc string) HandlerFunc {
	return func(*StepContext) (any, error) { return json.RawMessage(doc), nil }
}

// TestResultSchemas: a result that does not fit is refused before anything follows from it,
// whether the worker or an orchestrator decides what that is.
func TestResultSchemas(t *testing.T) {
	t.Parallel()
	const good, bad = `{"total":5}`, `{"total":"five"}`
	for name, tt := range map[string]struct {
		policy, result string
		want           workflow.TaskState
		counted, lines int
		reports        bool
	}{
		"enforced":            {policy: schemaEnforce, result: bad, want: workflow.TaskError, counted: 1},
		"enforced in reports": {policy: schemaEnforce, result: bad, want: workflow.TaskError, counted: 1, reports: true},
		"fits":                {policy: schemaEnforce, result: good, want: workflow.TaskComplete},
		"warned":              {policy: schemaWarn, result: bad, want: workflow.TaskComplete, counted: 1, lines: 1},
		"by default":          {policy: "", result: bad, want: workflow.TaskComplete, counted: 1, lines: 1},
		"off":                 {policy: schemaOff, result: bad, want: workflow.TaskComplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, tmpl, metrics := newBench(t, "notify"), templateOf(t, schemaYAML), telemetry.Discard()
			seen, lines := observer.New(zapcore.WarnLevel)
			w := b.worker(t, Config{Events: quick(), ResultSchema: tt.policy, Metrics: metrics, Logger: zap.New(seen), Report: ReportConfig{Only: tt.reports}}, tmpl)
			require.NoError(t, w.Register("bill", returns(tt.result)))
			require.NoError(t, w.Register("send", says("sent")))
			start(t, w)
			ids := b.create(t, tmpl, 1)
			b.finish(t, ids, tt.want)
			task, err := b.Task(t.Context(), ids[0])
			require.NoError(t, err)
			require.Equal(t, 1, task.Steps[0].Attempts, "no other attempt would help")
			if tt.want == workflow.TaskError {
				require.JSONEq(t, mismatch, string(task.Steps[0].Error))
				require.Zero(t, task.Steps[1].Attempts)
			} else {
				require.JSONEq(t, tt.result, string(task.Steps[0].Result))
				require.Equal(t, workflow.StepComplete, task.Steps[1].State)
			}
			policy := tt.policy
			if policy == "" {
				policy = schemaWarn
			}
			require.InDelta(t, tt.counted, testutil.ToFloat64(metrics.ResultSchemaViolations.WithLabelValues("invoices", policy)), 0)
			warned := lines.FilterMessage("the result of a step does not fit its result_schema").All()
			require.Len(t, warned, tt.lines)
			for _, line := range warned {
				require.Equal(t, "/total", line.ContextMap()["path"])
				require.Equal(t, "bill", line.ContextMap()["step_name"])
			}
		})
	}
}

// TestAMismatchIsRolledBack: what a handler has written goes with its result.
func TestAMismatchIsRolledBack(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, schemaYAML)
	b.db.Exec(t, `create table books (step uuid primary key, attempt int not null)`)
	w := b.worker(t, Config{Events: quick(), ResultSchema: schemaEnforce}, tmpl)
	require.NoError(t, w.Register("bill", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
		return map[string]string{"total": "five"}, record(ctx, tx)
	})))
	require.NoError(t, w.Register("send", says("sent")))
	start(t, w)
	ids := b.create(t, tmpl, 1)
	b.finish(t, ids, workflow.TaskError)
	task, err := b.Task(t.Context(), ids[0])
	require.NoError(t, err)
	require.JSONEq(t, mismatch, string(task.Steps[0].Error))
	require.Zero(t, b.db.QueryInt(t, `select count(*) from books`))
}

// TestMismatchesAreLoggedOnceASecond: the metric counts the others.
func TestMismatchesAreLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	var m mismatches
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		after time.Duration
		due   bool
	}{{0, true}, {time.Millisecond, false}, {999 * time.Millisecond, false}, {time.Second, true}, {1500 * time.Millisecond, false}, {time.Hour, true}} {
		require.Equal(t, tt.due, m.due(begin.Add(tt.after)), tt.after)
	}
}

// TestCheckingWithoutASchemaCostsNothing: most steps have none.
func TestCheckingWithoutASchemaCostsNothing(t *testing.T) {
	r := &runner{cfg: &Config{ResultSchema: schemaEnforce}}
	c := &StepContext{run: r, step: &workflow.PlanStep{StepTemplate: &workflow.StepTemplate{Name: "plain"}}}
	doc := json.RawMessage(`{"total":5}`)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if c.checkSchema(doc) != nil {
			t.Error("refused")
		}
	}))
}
