package rest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/workflow"
)

// stepActionBody decodes a client.StepAction.
type stepActionBody struct {
	ActionType     *string `json:"action_type"`
	Reason         *string `json:"reason"`
	ResetBy        *string `json:"reset_by"`
	ResolvedBy     *string `json:"resolved_by"`
	CompletedBy    *string `json:"completed_by"`
	CompletionData *struct {
		Result   json.RawMessage `json:"result"`
		Metadata json.RawMessage `json:"metadata"`
	} `json:"completion_data"`
}

// action converts the body for the engine; the caller sets its step.
func (b *stepActionBody) action() (orchestration.Action, error) {
	if b.ActionType == nil {
		return orchestration.Action{}, unprocessable("missing field: action_type")
	}
	a := orchestration.Action{}
	var c checked
	a.Reason = c.required("reason", b.Reason, orchestration.MaxReasonLength)
	who := func(name string, value *string) { a.Actor = c.required(name, value, orchestration.MaxTextLength) }
	switch *b.ActionType {
	case client.StepResetForRetry:
		a.Kind = orchestration.ActionResetForRetry
		who("reset_by", b.ResetBy)
	case client.StepResolveManually:
		a.Kind = orchestration.ActionResolveManually
		who("resolved_by", b.ResolvedBy)
	case client.StepCompleteManually:
		a.Kind = orchestration.ActionCompleteManually
		who("completed_by", b.CompletedBy)
		b.completion(&c, &a)
	default:
		return a, unprocessable(fmt.Sprintf("invalid action_type %q: want one of (reset_for_retry, resolve_manually, complete_manually)",
			clip(*b.ActionType, 64)))
	}
	return a, c.err()
}

func (b *stepActionBody) completion(c *checked, a *orchestration.Action) {
	switch d := b.CompletionData; {
	case d == nil:
		c.missing = append(c.missing, "completion_data")
	case len(d.Result) == 0:
		c.missing = append(c.missing, "completion_data.result")
	default:
		a.Result = resultOr(c, "completion_data.result", d.Result)
		a.Metadata = c.value("completion_data.metadata", d.Metadata)
	}
}

// resultOr checks a result; null is one too.
func resultOr(c *checked, name string, raw json.RawMessage) json.RawMessage {
	if absent(raw) {
		return json.RawMessage("null")
	}
	return c.value(name, raw)
}

// taskActionBody decodes a client.TaskAction.
type taskActionBody struct {
	Action       *string         `json:"action"`
	StepUUID     *string         `json:"step_uuid"`
	Reason       *string         `json:"reason"`
	Actor        *string         `json:"actor"`
	Priority     *int            `json:"priority"`
	Result       json.RawMessage `json:"result"`
	Context      json.RawMessage `json:"context"`
	ContextPatch json.RawMessage `json:"context_patch"`
}

// editing are the actions that may change the context of the task, or give the
// new one another.
var editing = []string{client.ActionReplay, client.ActionRunAgain, client.ActionReset}

// edit reads the change of the context; nil: none.
func (b *taskActionBody) edit(c *checked) *orchestration.ContextEdit {
	c.only("context", len(b.Context) > 0, *b.Action, editing...)
	c.only("context_patch", len(b.ContextPatch) > 0, *b.Action, editing...)
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

// action converts the body for the engine. A replay or a dead letter has no kind.
func (b *taskActionBody) action() (orchestration.Action, error) {
	if b.Action == nil {
		return orchestration.Action{}, unprocessable("missing field: action")
	}
	kind, ofEngine := engineKinds[*b.Action]
	if !ofEngine && *b.Action != client.ActionReplay && *b.Action != client.ActionDeadLetter {
		return orchestration.Action{}, unknownAction(*b.Action, client.ActionReplay, client.ActionDeadLetter)
	}
	a := orchestration.Action{Kind: kind, Priority: b.Priority}
	var c checked
	a.Reason, a.Actor = c.why(b.Reason, b.Actor)
	checkOperands(&c, *b.Action, "step_uuid", b.StepUUID != nil, b.Priority, b.Result)
	a.Edit = b.edit(&c)
	if b.StepUUID != nil {
		id, err := uuid.Parse(*b.StepUUID)
		if err != nil {
			return a, unprocessable("step_uuid must be a UUID")
		}
		a.Step = &id
	}
	if len(b.Result) > 0 {
		a.Result = resultOr(&c, "result", b.Result)
	}
	return a, c.err()
}

// checkOperands checks that an action has the fields that it needs and no others.
func checkOperands(c *checked, action, stepField string, step bool, priority *int, result json.RawMessage) {
	c.only(stepField, step, action, append([]string{client.ActionResolve}, onSteps...)...)
	c.only("priority", priority != nil, action, client.ActionReprioritise)
	c.only("result", len(result) > 0, action, client.ActionComplete)
	if slices.Contains(onSteps, action) && !step {
		c.missing = append(c.missing, stepField)
	}
	if action == client.ActionReprioritise {
		if priority == nil {
			c.missing = append(c.missing, "priority")
		}
		c.within("priority", priority, workflow.MinPriority, workflow.MaxPriority, 0)
	}
	if action == client.ActionComplete && len(result) == 0 {
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

// bulkBody decodes a client.BulkAction.
type bulkBody struct {
	Filter   json.RawMessage `json:"filter"`
	Action   *string         `json:"action"`
	Reason   *string         `json:"reason"`
	Actor    *string         `json:"actor"`
	Priority *int            `json:"priority"`
	Result   json.RawMessage `json:"result"`
	DryRun   *bool           `json:"dry_run"`
	Limit    *int            `json:"limit"`
}

// bulk converts the body for the engine.
func (b *bulkBody) bulk() (orchestration.Bulk, error) {
	bulk := orchestration.Bulk{DryRun: b.DryRun == nil || *b.DryRun}
	if b.Action == nil {
		return bulk, unprocessable("missing field: action")
	}
	kind, known := engineKinds[*b.Action]
	if !known {
		if *b.Action == client.ActionReplay {
			return bulk, badRequest("many tasks are replayed with POST /v1/dlq/replay")
		}
		return bulk, unknownAction(*b.Action)
	}
	if absent(b.Filter) {
		return bulk, unprocessable("missing field: filter")
	}
	filter, err := readBulkFilter(b.Filter)
	if err != nil {
		return bulk, err
	}
	var c checked
	bulk.Action = orchestration.Action{Kind: kind, Priority: b.Priority, StepName: c.text("filter.step_name", filter.StepName, orchestration.MaxTextLength)}
	bulk.Action.Reason, bulk.Action.Actor = c.why(b.Reason, b.Actor)
	checkOperands(&c, *b.Action, "filter.step_name", filter.StepName != "", b.Priority, b.Result)
	if len(b.Result) > 0 {
		bulk.Action.Result = resultOr(&c, "result", b.Result)
	}
	bulk.Limit = c.within("limit", b.Limit, 1, client.MaxBulkLimit, client.DefaultBulkLimit)
	bulk.Select = bulkFilterOf(&c, filter)
	return bulk, c.err()
}

func readBulkFilter(raw json.RawMessage) (f client.BulkFilter, err error) {
	if err := knownKeys("filter", raw, "namespace", "name", "version", "states", "tag", "created_before", "created_after", "step_name"); err != nil {
		return f, err
	}
	return f, decode(raw, &f)
}

// bulkFilterOf checks a filter. An empty one is rejected: it would select everything.
func bulkFilterOf(c *checked, f client.BulkFilter) orchestration.TaskSelection {
	w := orchestration.TaskSelection{
		Namespace: c.text("filter.namespace", f.Namespace, orchestration.MaxNameLength),
		Name:      c.text("filter.name", f.Name, orchestration.MaxNameLength),
		Version:   c.text("filter.version", f.Version, orchestration.MaxVersionLength),
		Tag:       c.text("filter.tag", f.Tag, orchestration.MaxTagLength),
		States:    statesOf(c, f.States),
	}
	if f.CreatedBefore != nil {
		w.CreatedBefore = &f.CreatedBefore.Time
	}
	if f.CreatedAfter != nil {
		w.CreatedAfter = &f.CreatedAfter.Time
	}
	if w.Namespace == "" && w.Name == "" && w.Version == "" && w.Tag == "" && len(f.States) == 0 && w.CreatedBefore == nil && w.CreatedAfter == nil {
		c.add("filter must have a condition: namespace, name, version, states, tag, created_before or created_after")
	}
	return w
}
