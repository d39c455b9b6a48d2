package rest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/priorities"
)

// stepAction converts an action on a step for the engine; the caller sets the step.
func stepAction(r *request[client.StepAction]) (a orchestration.Action, err error) {
	if r.need("action_type"); r.missing != nil {
		return a, r.err()
	}
	b := &r.body
	a.Reason = r.required("reason", b.Reason, orchestration.MaxReasonLength)
	who := func(name, value string) { a.Actor = r.acting(name, value) }
	switch b.ActionType {
	case client.ActionReset:
		a.Kind = orchestration.ActionResetForRetry
		who("reset_by", b.ResetBy)
	case client.StepResolveManually:
		a.Kind = orchestration.ActionResolveManually
		who("resolved_by", b.ResolvedBy)
	case client.ActionComplete:
		a.Kind = orchestration.ActionCompleteManually
		who("completed_by", b.CompletedBy)
		r.completion(b.CompletionData, &a)
	default:
		return a, unprocessable(fmt.Sprintf("invalid action_type %q: want one of (reset_for_retry, resolve_manually, complete_manually)",
			clip(b.ActionType, 64)))
	}
	return a, r.err()
}

func (c *checked) completion(d *client.CompletionData, a *orchestration.Action) {
	switch {
	case d == nil:
		c.missing = append(c.missing, "completion_data")
	case len(d.Result) == 0:
		c.missing = append(c.missing, "completion_data.result")
	default:
		a.Result = c.result("completion_data.result", d.Result)
		a.Metadata = c.value("completion_data.metadata", d.Metadata)
	}
}

// result returns a storable result; null is one too.
func (c *checked) result(name string, raw json.RawMessage) json.RawMessage {
	if absent(raw) {
		return json.RawMessage("null")
	}
	return c.value(name, raw)
}

// editing are the actions that may change the context of the task, or give the
// new one another.
var editing = []string{client.ActionReplay, client.ActionRunAgain, client.ActionReset}

// edit reads the change of the context; nil: none.
func (c *checked) edit(b *client.TaskAction) *orchestration.ContextEdit {
	c.only("context", len(b.Context) > 0, b.Action, editing...)
	c.only("context_patch", len(b.ContextPatch) > 0, b.Action, editing...)
	e := &orchestration.ContextEdit{Context: c.object("context", b.Context), Patch: c.object("context_patch", b.ContextPatch)}
	switch {
	case e.Context == nil && e.Patch == nil:
		return nil
	case e.Context != nil && e.Patch != nil:
		c.add("give context or context_patch, not both")
	}
	return e
}

// engineKinds are the actions of the engine; replay and dead_letter are not among its
// kinds.
var engineKinds = map[string]orchestration.ActionKind{
	client.ActionCancel: orchestration.ActionCancel, client.ActionFail: orchestration.ActionFail,
	client.ActionResolve: orchestration.ActionResolveManually, client.ActionReset: orchestration.ActionResetForRetry,
	client.ActionComplete: orchestration.ActionCompleteManually, client.ActionRunAgain: orchestration.ActionRunAgain,
	client.ActionReprioritise: orchestration.ActionReprioritise, client.ActionReleaseLease: orchestration.ActionReleaseLease,
}

// onSteps are the actions that need a step; resolve may have one.
var onSteps = []string{client.ActionReset, client.ActionComplete, client.ActionRunAgain, client.ActionReleaseLease}

// actionOnTask converts an action for the engine; dry: it is not carried out. A replay or a
// dead letter has no kind.
func actionOnTask(r *request[client.TaskAction], dry bool) (a orchestration.Action, err error) {
	if r.need("action"); r.missing != nil {
		return a, r.err()
	}
	b := &r.body
	kind, ofEngine := engineKinds[b.Action]
	if !ofEngine && b.Action != client.ActionReplay && b.Action != client.ActionDeadLetter {
		return a, unknownAction(b.Action, client.ActionReplay, client.ActionDeadLetter)
	}
	a = orchestration.Action{Kind: kind, Priority: b.Priority}
	a.Reason, a.Actor = r.whyUnless(dry, b.Reason, b.Actor)
	r.operands(b.Action, "step_uuid", r.has("step_uuid"), b.Priority, b.Result)
	a.Edit = r.edit(b)
	if r.has("step_uuid") {
		if a.Step, err = optionalUUID("step_uuid", &b.StepUUID); err != nil {
			return a, err
		}
	}
	if len(b.Result) > 0 {
		a.Result = r.result("result", b.Result)
	}
	return a, r.err()
}

// operands checks that an action has the fields that it needs and no others.
func (c *checked) operands(action, stepField string, step bool, priority *int, result json.RawMessage) {
	c.only(stepField, step, action, append([]string{client.ActionResolve}, onSteps...)...)
	c.only("priority", priority != nil, action, client.ActionReprioritise)
	c.only("result", len(result) > 0, action, client.ActionComplete)
	if slices.Contains(onSteps, action) && !step {
		c.missing = append(c.missing, stepField)
	}
	switch {
	case action == client.ActionReprioritise && priority == nil:
		c.missing = append(c.missing, "priority")
	case action == client.ActionReprioritise:
		c.bounded("priority", *priority, priorities.Min, priorities.Max)
	case action == client.ActionComplete && len(result) == 0:
		c.missing = append(c.missing, "result")
	}
}

func unknownAction(action string, more ...string) error {
	names := append([]string{}, more...)
	for name := range engineKinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return unprocessable(fmt.Sprintf("invalid action %q: want one of %s", clip(action, 64), strings.Join(names, ", ")))
}

// bulkAction converts an action on many tasks for the engine.
func bulkAction(r *request[client.BulkAction]) (bulk orchestration.Bulk, err error) {
	if r.need("action"); r.missing != nil {
		return bulk, r.err()
	}
	b, filter := &r.body, &r.body.Filter
	kind, known := engineKinds[b.Action]
	switch {
	case b.Action == client.ActionReplay:
		return bulk, badRequest("many tasks are replayed with POST /v1/dlq/replay")
	case !known:
		return bulk, unknownAction(b.Action)
	}
	if r.need("filter"); r.missing != nil {
		return bulk, r.err()
	}
	bulk.DryRun = b.DryRun == nil || *b.DryRun
	bulk.Action = orchestration.Action{Kind: kind, Priority: b.Priority, StepName: r.text("filter.step_name", filter.StepName, orchestration.MaxTextLength)}
	bulk.Action.Reason, bulk.Action.Actor = r.whyUnless(bulk.DryRun, b.Reason, b.Actor)
	r.operands(b.Action, "filter.step_name", filter.StepName != "", b.Priority, b.Result)
	if len(b.Result) > 0 {
		bulk.Action.Result = r.result("result", b.Result)
	}
	bulk.Limit = r.within("limit", b.Limit, 1, limits.MaxBulkLimit, limits.DefaultBulkLimit)
	bulk.Select = bulkFilterOf(&r.checked, filter)
	return bulk, r.err()
}

// bulkFilterOf checks a filter. An empty one is rejected: it would select everything.
func bulkFilterOf(c *checked, f *client.BulkFilter) orchestration.TaskSelection {
	w := orchestration.TaskSelection{
		Namespace: c.text("filter.namespace", f.Namespace, orchestration.MaxNameLength),
		Name:      c.text("filter.name", f.Name, orchestration.MaxNameLength),
		Version:   c.text("filter.version", f.Version, orchestration.MaxVersionLength),
		Tag:       c.text("filter.tag", f.Tag, orchestration.MaxTagLength),
		States:    statesOf(c, f.States), CreatedBefore: timeOf(f.CreatedBefore), CreatedAfter: timeOf(f.CreatedAfter),
	}
	if w.Namespace == "" && w.Name == "" && w.Version == "" && w.Tag == "" && len(f.States) == 0 && w.CreatedBefore == nil && w.CreatedAfter == nil {
		c.add("filter must have a condition: namespace, name, version, states, tag, created_before or created_after")
	}
	return w
}
