package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// creatingYAML are tasks whose steps create others.
var creatingYAML = []string{`
name: choice
namespace_name: test
version: 1.0.0
steps:
  - {name: look, handler: {callable: plain}}
  - {name: route, type: decision, dependencies: [look], handler: {callable: route}}
  - {name: small, dependencies: [route], handler: {callable: plain}}
  - {name: left, dependencies: [route], handler: {callable: plain}}
  - {name: right, dependencies: [route], handler: {callable: plain}}
  - {name: done, type: deferred, dependencies: [small, left, right], handler: {callable: plain}}
`, `
name: parts
namespace_name: test
version: 1.0.0
steps:
  - {name: look, handler: {callable: plain}}
  - {name: split, type: batchable, dependencies: [look], handler: {callable: split}}
  - name: part
    type: batch_worker
    dependencies: [split]
    handler: {callable: plain}
    batch_config: {batch_size: 10, parallelism: 2, cursor_field: id, worker_template: part, failure_strategy: fail_fast}
  - {name: sum, type: deferred_convergence, dependencies: [part], handler: {callable: plain}}
`}

// registerCreating registers handlers that create the steps named in the context.
func registerCreating(w *worker.Worker) error {
	if err := enginetest.RegisterTemplates(w, creatingYAML...); err != nil {
		return err
	}
	asked := worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
		var context struct {
			Outcome json.RawMessage `json:"outcome"`
		}
		err := json.Unmarshal(c.Input(), &context)
		return context.Outcome, err
	})
	return errors.Join(w.Register("route", asked), w.Register("split", asked),
		w.Register("plain", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
}

const (
	asksSmall = `"outcome": {"decision_point_outcome": {"type": "create_steps", "step_names": ["small"]}}`
	asksBoth  = `"outcome": {"decision_point_outcome": {"type": "create_steps", "step_names": ["left", "right"]}}`
	asksNone  = `"outcome": {"decision_point_outcome": {"type": "no_branches"}}`
	asksFour  = `"outcome": {"batch_processing_outcome": {"type": "create_batches", "worker_template_name": "part", "worker_count": 4, "total_items": 4, "cursor_configs": [
		{"batch_id": "1", "start_cursor": 0, "end_cursor": 1, "batch_size": 1}, {"batch_id": "2", "start_cursor": 1, "end_cursor": 2, "batch_size": 1},
		{"batch_id": "3", "start_cursor": 2, "end_cursor": 3, "batch_size": 1}, {"batch_id": "4", "start_cursor": 3, "end_cursor": 4, "batch_size": 1}]}}`
)

// creating is an engine whose tasks create steps.
type creating struct {
	*enginetest.Engine
	t       *testing.T
	metrics *telemetry.Metrics
	runs    int
}

func startCreating(t *testing.T) *creating {
	t.Helper()
	c := &creating{t: t, metrics: telemetry.Discard()}
	c.Engine = enginetest.Start(t, registerCreating, func(o *orchestration.Config, w *worker.Config) {
		w.Metrics, w.HeartbeatInterval = c.metrics, 100*time.Millisecond
		o.Rules.Creation, o.HeartbeatInterval = workflow.Creation{MaxDecisionSteps: 2, MaxBatches: 4}, 500*time.Millisecond
	})
	return c
}

// agree waits until the worker has rules common to all orchestrators, or knows that there
// are none.
func (c *creating) agree(want bool) {
	c.t.Helper()
	pgtest.Eventually(c.t, patience, func() (bool, string) {
		return (c.Store.AgreedRules() != "") == want, fmt.Sprintf("agreed are %q", c.Store.AgreedRules())
	})
}

func (c *creating) settled() int {
	return int(testutil.ToFloat64(c.metrics.StepsSettled.WithLabelValues(settle.Lone)) + testutil.ToFloat64(c.metrics.StepsSettled.WithLabelValues(settle.Taken)))
}

// run requires that a task completes, with so many steps settled by the worker.
func (c *creating) run(name, input string, settled int) {
	c.t.Helper()
	before := c.settled()
	c.runs++
	task := c.Run("test", name, fmt.Sprintf(`{"run": %d, %s}`, c.runs, input))
	require.Equal(c.t, workflow.TaskComplete, task.State)
	pgtest.Eventually(c.t, patience, func() (bool, string) {
		return c.settled() >= before+settled, fmt.Sprintf("%s: %d of %d steps are settled", name, c.settled()-before, settled)
	})
	require.Equal(c.t, before+settled, c.settled(), name)
}

// TestWorkersDecideByAgreedRules: steps that create others are settled like others if the
// live orchestrators have the same rules.
func TestWorkersDecideByAgreedRules(t *testing.T) {
	t.Parallel()
	c := startCreating(t)
	c.agree(true)
	c.run("choice", asksSmall, 4)
	c.run("choice", asksNone, 3)
	c.run("choice", asksBoth, 5)
	c.run("parts", asksFour, 7)
	require.InDelta(t, 2+1+3+1, testutil.ToFloat64(c.metrics.StepsCreated.WithLabelValues("test")), 0.1, "the deciding worker counts")

	other := c.AnotherOrchestrator(func(o *orchestration.Config) { o.Rules.Creation.MaxDecisionSteps = 3 })
	c.agree(false)
	c.run("choice", asksSmall, 3)
	c.run("parts", asksFour, 1)
	require.NoError(t, other.Stop(t.Context()))
	c.agree(true)
	c.run("choice", asksBoth, 5)
}

// TestWorkersLeaveWhatTheRulesForbid: how a step fails is for an orchestrator to
// decide.
func TestWorkersLeaveWhatTheRulesForbid(t *testing.T) {
	t.Parallel()
	c := startCreating(t)
	c.agree(true)
	for name, outcome := range map[string]string{
		"names 3 steps":          `{"decision_point_outcome": {"type": "create_steps", "step_names": ["left", "right", "small"]}}`,
		"does not depend on the": `{"decision_point_outcome": {"type": "create_steps", "step_names": ["look"]}}`,
		"decision_point_outcome": `{"other": 1}`,
		"no step \"elsewhere\"":  `{"decision_point_outcome": {"type": "create_steps", "step_names": ["elsewhere"]}}`,
	} {
		task := c.Run("test", "choice", `{"outcome": `+outcome+`}`)
		require.Equal(t, workflow.TaskError, task.State)
		require.Contains(t, string(task.Steps[1].Error)+*task.Steps[1].Reason, name)
	}
}
