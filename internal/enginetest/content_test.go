package enginetest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// costly is a schema of 0.4 kB that each level of a value multiplies the work of by ten, and costlyValue
// a value of 50 bytes for it. Templates with it can only have been registered by an older version.
var (
	costly      = json.RawMessage(`{"type":"object","anyOf":[` + strings.Repeat(`{"properties":{"a":{"$ref":"#"}}},`, 9) + `{"properties":{"a":{"$ref":"#"}}}]}`)
	costlyValue = strings.Repeat(`{"a":`, 8) + "1" + strings.Repeat("}", 8)
)

const contentTemplates = `
name: quick
namespace_name: content
version: 1.0.0
steps: [{name: s, handler: {callable: echo}}]
---
name: input
namespace_name: content
version: 1.0.0
input_schema: {type: object}
steps: [{name: s, handler: {callable: echo}}]
---
name: parent
namespace_name: content
version: 1.0.0
steps:
  - {name: sub, type: task, task: {name: input, version: 1.0.0}}
---
name: result
namespace_name: content
version: 1.0.0
steps: [{name: s, handler: {callable: echo}, result_schema: {type: object}}]
---
name: event
namespace_name: content
version: 1.0.0
steps: [{name: s, handler: {callable: echo}, publishes_events: [{name: a.b, schema: {type: object}}]}]
`

// registerCostly registers templates as if the costly schema had not been refused.
func registerCostly(w *worker.Worker) error {
	for _, text := range strings.Split(contentTemplates, "\n---\n") {
		tmpl, _, err := template.Parse("content.yaml", []byte(text))
		if err != nil {
			return err
		}
		switch tmpl.Name {
		case "input":
			tmpl.InputSchema = costly
		case "result":
			tmpl.Steps[0].ResultSchema = costly
		case "event":
			tmpl.Steps[0].PublishesEvents[0].Schema = costly
		}
		if err := w.RegisterTemplate(tmpl); err != nil {
			return err
		}
	}
	return w.Register("echo", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) { return ctx.Input(), nil }))
}

// TestDocumentsAreCheckedWithinABudget on all ways on which one is checked against a schema.
func TestDocumentsAreCheckedWithinABudget(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, len(costly), 600)
	require.LessOrEqual(t, len(costlyValue), 50)
	metrics := telemetry.Discard()
	e := enginetest.Start(t, registerCostly, func(o *orchestration.Config, w *worker.Config) {
		o.Metrics, w.Metrics = metrics, metrics
		o.SchemaChecks.MaxSteps, w.SchemaChecks.MaxSteps, w.ResultSchema = 100_000, 100_000, "enforce" // more than a check has that is made at once
	})
	o, ctx := e.Orchestrator, t.Context()
	request := func(name string) orchestration.Request {
		return orchestration.Request{Namespace: "content", Name: name, Version: "1.0.0", Context: json.RawMessage(costlyValue), Initiator: "test"}
	}
	refused := func(err error) {
		t.Helper()
		var invalid *submission.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Contains(t, err.Error(), "takes more than 100000 steps")
	}
	schedule := store.Schedule{Namespace: "content", Name: "s", Template: "input", Version: "1.0.0", Cron: "@every 1h", Context: json.RawMessage(`{}`)}

	_, err := o.Create(ctx, request("input"))
	refused(err)

	for _, r := range o.CreateMany(ctx, []orchestration.Request{request("input"), request("quick")}) {
		if r.Err == nil {
			require.Equal(t, workflow.TaskComplete, e.Await(r.UUID).State, "the other one of the batch")
			continue
		}
		refused(r.Err)
	}

	made, err := o.CreateSchedule(ctx, schedule, ana)
	require.NoError(t, err)
	schedule.Name, schedule.Context = "refused", json.RawMessage(costlyValue)
	_, err = o.CreateSchedule(ctx, schedule, ana)
	refused(err)
	e.DB.Exec(t, `update tasker.schedules set context = $1, next_run_at = now() where schedule_uuid = $2`, costlyValue, made.UUID)
	e.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
	require.Eventually(t, func() bool {
		return e.DB.QueryInt(t, `select count(*) from tasker.schedules where last_error like '%takes more than 100000 steps%' and next_run_at > now()`) == 1
	}, patience, time.Millisecond, "its run fails, and it goes on")

	parents := make([]uuid.UUID, 20)
	for i := range parents {
		parent := request("parent")
		parent.IdempotencyKey = fmt.Sprint(i)
		created, err := o.Create(ctx, parent)
		require.NoError(t, err)
		parents[i] = created.UUID
	}
	require.Equal(t, workflow.TaskComplete, e.Run("content", "parent", `{}`).State, "a small context does not wait for the others")
	for _, id := range parents {
		task := e.Await(id)
		require.Equal(t, workflow.TaskError, task.State)
		require.Contains(t, string(task.Steps[0].Error), "takes more than 100000 steps")
		require.Equal(t, 1, task.Steps[0].Attempts, "nothing is tried for ever")
	}

	task := e.Run("content", "result", costlyValue)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, string(task.Steps[0].Error), "takes more than 100000 steps")

	require.Equal(t, workflow.TaskComplete, e.Run("content", "event", costlyValue).State)
	require.InDelta(t, 1, testutil.ToFloat64(metrics.DomainEventsFailed.WithLabelValues("a.b", "content", "schema")), 0)

	small := request("input")
	small.Context = json.RawMessage(`{}`)
	created, err := o.Create(ctx, small)
	require.NoError(t, err)
	e.Await(created.UUID)
	_, err = o.Replay(ctx, created.UUID, orchestration.Replay{Actor: "ana", Reason: "why", Edit: &orchestration.ContextEdit{Context: json.RawMessage(costlyValue)}})
	refused(err)
	require.Positive(t, testutil.ToFloat64(metrics.SchemaChecksGivenUp.WithLabelValues("steps")))

	again := e.AnotherOrchestrator(func(c *orchestration.Config) { c.SchemaChecks.MaxTime = time.Nanosecond })
	_, err = again.Create(ctx, request("input"))
	require.Error(t, err)
	require.NotErrorAs(t, err, new(*submission.InvalidError), "a check that takes too long says nothing of the context")
}
