// Package decision makes the results of decision steps: the steps to create next.
//
//	return decision.Create("manager_approval", "finance_review").With("threshold", 5000), nil
//
// A decision should depend only on the task's context and earlier results, so that a
// repetition decides the same. What may not enter: anything but results.
package decision

import (
	"encoding/json"
	"maps"

	"github.com/tasker-go/tasker/workflow"
)

// Outcome is the result of a decision step. Its zero value is None.
type Outcome struct {
	steps  []string
	fields map[string]any
}

// Create creates steps that depend on the decision. A name that the template does not
// define there is a permanent failure.
func Create(steps ...string) Outcome { return Outcome{steps: steps} }

// Next creates one step, the next: for a workflow that handlers lead from step to step.
func Next(step string) Outcome { return Create(step) }

// None creates no step: a join behind the branches continues with the decision alone.
func None() Outcome { return Outcome{} }

// With adds a field to the result, such as why the decision was made.
func (o Outcome) With(key string, value any) Outcome {
	o.fields = maps.Clone(o.fields)
	if o.fields == nil {
		o.fields = map[string]any{}
	}
	o.fields[key] = value
	return o
}

// MarshalJSON implements json.Marshaler.
func (o Outcome) MarshalJSON() ([]byte, error) {
	outcome := map[string]any{"type": "no_branches"}
	if len(o.steps) > 0 {
		outcome = map[string]any{"type": "create_steps", "step_names": o.steps}
	}
	return json.Marshal(o.With(workflow.DecisionOutcomeKey, outcome).fields)
}
