package workflow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/schema"
)

func event(condition, mode string) *Event {
	return &Event{EventPublication: &EventPublication{Name: "a.b", Condition: condition, DeliveryMode: mode}}
}

func TestConditionsOfEvents(t *testing.T) {
	all := []AttemptOutcome{OutcomeSuccess, OutcomeFailed, OutcomeError, OutcomeLeaseLost, OutcomeCancelled}
	for condition, follows := range map[string][]AttemptOutcome{
		"success":           {OutcomeSuccess},
		"failure":           {OutcomeFailed, OutcomeError},
		"retryable_failure": {OutcomeFailed},
		"permanent_failure": {OutcomeError},
		"always":            {OutcomeSuccess, OutcomeFailed, OutcomeError},
		"unheard_of":        nil,
	} {
		var got []AttemptOutcome
		for _, o := range all {
			if event(condition, "durable").Follows(o) {
				got = append(got, o)
			}
		}
		require.Equal(t, follows, got, condition)
	}
}

func TestDeliveryModes(t *testing.T) {
	for mode, want := range map[string][2]bool{"durable": {true, false}, "fast": {false, true}, "broadcast": {true, true}} {
		e := event("success", mode)
		require.Equal(t, want, [2]bool{e.Durable(), e.Fast()}, mode)
	}
}

// TestTheOutcomeOfAReportIsKnownBefore: a worker makes an event for the outcome that the
// orchestrator will record.
func TestTheOutcomeOfAReportIsKnownBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(t, "max attempts")
		tmpl := &Template{Namespace: "n", Name: "t", Version: "1.0.0", Steps: []StepTemplate{{
			Name: "s", Handler: HandlerReference{Callable: "h"},
			Retry: RetryPolicy{Retryable: rapid.Bool().Draw(t, "retryable"), MaxAttempts: most}}}}
		plan, err := Compile(tmpl)
		require.NoError(t, err)
		progress, _, err := Advance(plan, TaskPending, NewProgress(plan), Rules{MaxCrashes: 3}, Created{})
		require.NoError(t, err)
		in := Reported{Step: 0, Attempt: rapid.IntRange(1, most).Draw(t, "attempt"), Success: rapid.Bool().Draw(t, "success"),
			Retryable: rapid.Bool().Draw(t, "told retryable"), RetryAfter: -1}
		_, effects, err := Advance(plan, TaskStepsInProcess, progress, Rules{MaxCrashes: 3}, in)
		require.NoError(t, err)
		got, reason := effects.OutcomeOf(0)
		require.Equal(t, got, plan.Steps[0].Outcome(in.Attempt, plan.Steps[0].Retry.MaxAttempts, in.Success, in.Retryable))
		require.Equal(t, got == OutcomeError, reason != "")
	})
}

func TestAnEventFollowsOnlyWhatWasDecided(t *testing.T) {
	o, reason := (&Effects{}).OutcomeOf(0)
	require.Zero(t, o)
	require.Empty(t, reason)
	require.False(t, event("always", "durable").Follows(o))
}

func TestPayloadsAreCheckedAgainstTheirSchema(t *testing.T) {
	tmpl := &Template{}
	require.NoError(t, json.Unmarshal([]byte(`{"name": "t", "namespace_name": "n", "version": "1.0.0", "steps": [{"name": "s", "type": "standard", "handler": {"callable": "h"},
		"publishes_events": [{"name": "a.b", "schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}},
			{"name": "a.c"}, {"name": "a.d", "schema": {"type": "nonsense"}}]}]}`), tmpl))
	plan, err := Compile(tmpl)
	require.NoError(t, err)
	events := plan.Steps[0].Events
	require.Len(t, events, 3)
	check := func(e Event, payload string) []schema.Violation {
		found, err := e.Check(t.Context(), nil, json.RawMessage(payload))
		require.NoError(t, err)
		return found
	}
	require.Empty(t, check(events[0], `{"id": "x"}`))
	require.NotEmpty(t, check(events[0], `{"id": 1}`))
	require.NotEmpty(t, check(events[0], `null`))
	require.Empty(t, check(events[1], `null`), "there is no schema")
	require.Empty(t, check(events[2], `null`), "a schema that cannot be used was warned of")
	require.Equal(t, "h", events[0].FiredBy(&tmpl.Steps[0]))
}
