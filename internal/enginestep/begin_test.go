package enginestep_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// stepOf is a step of a template of its own, behind a step "before".
func stepOf(t *testing.T, yaml string) (*workflow.Template, *workflow.PlanStep) {
	t.Helper()
	tmpl, problems, err := template.Parse("t.yaml", []byte("name: t\nnamespace_name: n\nversion: 1.0.0\nsteps:\n  - {name: before, handler: {callable: x}}\n"+
		"  - {name: it, depends_on: [before], "+yaml+"}\n"))
	require.NoError(t, err)
	require.Empty(t, problems)
	plan, err := workflow.Compile(tmpl)
	require.NoError(t, err)
	return tmpl, &plan.Steps[1]
}

func TestReferences(t *testing.T) {
	t.Parallel()
	scope := &enginestep.Scope{Context: json.RawMessage(`{"a":{"b":[1,{"c":"d"}]},"n":12345678901234567890.5,"null":null,"s":"$.context.n"}`),
		Steps: map[string]json.RawMessage{"before": json.RawMessage(`{"x":[true]}`)}, Task: map[string]any{"uuid": "u", "priority": 3}}
	for reference, want := range map[string]string{
		"$.context.a.b.0":    `1`,
		"$.context.a.b.1.c":  `"d"`,
		"$.context.n":        `12345678901234567890.5`,
		"$.context.null":     `null`,
		"$.context.s":        `"$.context.n"`, // a reference is not checked further
		"$.steps.before":     `{"x":[true]}`,
		"$.steps.before.x.0": `true`,
		"$.task.priority":    `3`,
		"$$.context.n":       `"$.context.n"`,
		"$context":           `"$context"`,
	} {
		tmpl, step := stepOf(t, fmt.Sprintf(`type: task, task: {name: x, version: 1.0.0, context: {v: %q}}`, reference))
		b, err := enginestep.Begin(tmpl, step, scope, 0)
		require.NoError(t, err, reference)
		require.Equal(t, `{"v":`+want+`}`, string(b.Task.Context), reference)
	}
	for reference, why := range map[string]string{"$.context.a.x": `"context.a.x"`, "$.context.a.b.2": `"context.a.b.2"`, "$.context.n.x": `"context.n.x"`,
		"$.steps.before.y": `"steps.before.y"`, "$.context.a.b.-1": `"context.a.b.-1"`} {
		tmpl, step := stepOf(t, fmt.Sprintf(`type: task, task: {name: x, version: 1.0.0, context: {v: [{w: %q}]}}`, reference))
		_, err := enginestep.Begin(tmpl, step, scope, 0)
		require.ErrorContains(t, err, why, reference)
	}
	tmpl, step := stepOf(t, `type: task, task: {name: x, version: 1.0.0, context: {v: $.steps.before}}`)
	_, err := enginestep.Begin(tmpl, step, &enginestep.Scope{}, 0)
	require.ErrorContains(t, err, "has no result", "a parent that was resolved by hand has none")
}

func TestBeginnings(t *testing.T) {
	t.Parallel()
	scope := &enginestep.Scope{Context: json.RawMessage(`{"for":"2h","until":"2030-01-31T09:00:00+01:00","key":7,"empty":"","object":{},"bad":"a\nb"}`)}
	begin := func(yaml string) (enginestep.Beginning, error) {
		tmpl, step := stepOf(t, yaml)
		return enginestep.Begin(tmpl, step, scope, 9)
	}
	b, err := begin(`type: sleep, wait: {for: $.context.for}`)
	require.NoError(t, err)
	require.Equal(t, 2*time.Hour, b.For)
	b, err = begin(`type: sleep, wait: {until: $.context.until}`)
	require.NoError(t, err)
	require.True(t, b.Until.Equal(time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)))
	b, err = begin(`type: wait_for_event, wait: {event: paid, key: $.context.key, timeout: 1h}`)
	require.NoError(t, err)
	require.Equal(t, []any{"paid", "7", time.Hour}, []any{b.Event, b.Key, b.For})
	require.Nil(t, b.Due.Result)
	require.True(t, b.Due.Retryable)
	require.Contains(t, string(b.Due.Error), "the event paid did not come within 1h")
	b, err = begin(`type: wait_for_event, wait: {event: paid}`)
	require.NoError(t, err)
	require.Equal(t, enginestep.Beginning{Kind: workflow.KindWaitForEvent, Event: "paid"}, b, "it waits for ever")
	b, err = begin(`type: approval, wait: {timeout: 1h, on_timeout: continue}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"approved":false,"timed_out":true}`, string(b.Due.Result))
	b, err = begin(`type: task, task: {name: x, version: 1.0.0}`)
	require.NoError(t, err)
	require.Equal(t, enginestep.SubTask{Namespace: "n", Name: "x", Version: "1.0.0", Context: scope.Context, Priority: 9}, b.Task, "what is not said is that of the task")
	for yaml, why := range map[string]string{
		`type: sleep, wait: {for: $.context.key}`:                                     "wait.for",
		`type: sleep, wait: {for: $.context.object}`:                                  "an object, and a text is needed",
		`type: sleep, wait: {until: $.context.for}`:                                   "invalid time",
		`type: wait_for_event, wait: {event: paid, key: $.context.empty}`:             "is empty",
		`type: wait_for_event, wait: {event: paid, key: $.context.bad}`:               "control characters",
		`type: wait_for_event, wait: {event: paid, key: $.context.missing}`:           "there is no",
		`type: task, task: {name: x, version: 1.0.0, context: $.context.for}`:         "an object is needed, not a string",
		`type: task, task: {name: x, version: 1.0.0, context: {a: $.steps.before}}`:   "has no result",
		`type: wait_for_event, wait: {event: paid, key: $.steps.before.order.number}`: "has no result",
	} {
		_, err := begin(yaml)
		require.ErrorContains(t, err, why, yaml)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	_, strict := stepOf(t, `type: approval`)
	_, lenient := stepOf(t, `type: approval, wait: {on_rejection: continue}`)
	no := enginestep.Decision{Actor: "ana", Comment: "too dear", DecidedAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	end, err := enginestep.Decide(strict, no)
	require.NoError(t, err)
	require.Nil(t, end.Result)
	require.False(t, end.Retryable)
	require.Contains(t, string(end.Error), "rejected by ana: too dear")
	end, err = enginestep.Decide(lenient, no)
	require.NoError(t, err)
	require.JSONEq(t, `{"approved":false,"actor":"ana","comment":"too dear","decided_at":"2030-01-01T00:00:00Z"}`, string(end.Result))
	end, err = enginestep.Decide(strict, enginestep.Decision{Approved: true, Actor: "ana", Data: json.RawMessage(`[1]`), DecidedAt: no.DecidedAt})
	require.NoError(t, err)
	require.JSONEq(t, `{"approved":true,"actor":"ana","data":[1],"decided_at":"2030-01-01T00:00:00Z"}`, string(end.Result))
}

// Steps of the engine are compiled like all others, and their JSON form reads back
// unchanged.
func TestEngineStepsReadBack(t *testing.T) {
	t.Parallel()
	tmpl, step := stepOf(t, `type: task, task: {name: x, version: 1.0.0, context: {b: 1.0, a: $.context}}`)
	document, err := json.Marshal(tmpl)
	require.NoError(t, err)
	require.NotContains(t, strings.SplitN(string(document), `"it"`, 2)[1], "handler")
	again, problems, err := template.Parse("again.json", document)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, tmpl, again)
	require.Equal(t, workflow.RetryPolicy{MaxAttempts: 1, Backoff: workflow.BackoffExponential}, step.Retry)
}
