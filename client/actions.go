package client

import "encoding/json"

// StepAction is the body of PATCH /v1/tasks/{uuid}/workflow_steps/{step_uuid}. Each
// action has its own field for the actor.
type StepAction struct {
	ActionType string `json:"action_type" doc:"reset_for_retry, resolve_manually or complete_manually" enum:"reset_for_retry,resolve_manually,complete_manually"`
	Reason     string `json:"reason" doc:"Kept in the history of the task" maxLength:"500"`
	// ResetBy, ResolvedBy and CompletedBy name the operator, 1 to 255
	// characters; the one of the action is required.
	ResetBy     string `json:"reset_by,omitempty" doc:"Actor; required for reset_for_retry" maxLength:"255"`
	ResolvedBy  string `json:"resolved_by,omitempty" doc:"Actor; required for resolve_manually" maxLength:"255"`
	CompletedBy string `json:"completed_by,omitempty" doc:"Actor; required for complete_manually" maxLength:"255"`
	// CompletionData is required for complete_manually.
	CompletionData *CompletionData `json:"completion_data,omitempty"`
}

// CompletionData is the outcome of a step completed by hand.
type CompletionData struct {
	// Result is the input of the following steps; any JSON within the bounds of a
	// context.
	Result json.RawMessage `json:"result" doc:"Input of the following steps"`
	// Metadata is stored with the result; any JSON within the same bounds.
	Metadata json.RawMessage `json:"metadata,omitempty" doc:"Kept beside the result"`
}

// The actions on a task, as [TaskAction] and [BulkAction] name them. ActionReset and
// ActionComplete are actions of [StepAction] too.
const (
	ActionCancel       = "cancel"
	ActionFail         = "fail"
	ActionResolve      = "resolve"
	ActionReset        = "reset_for_retry"   // of a step in error: pending again, with all its attempts
	ActionComplete     = "complete_manually" // of a step: complete, with a result set by hand
	ActionRunAgain     = "run_again"
	ActionReplay       = "replay"
	ActionReprioritise = "reprioritise"
	ActionReleaseLease = "release_lease"
	ActionDeadLetter   = "dead_letter"
)

// StepResolveManually is the action of [StepAction] that satisfies a step without a
// result; on a task it is ActionResolve.
const StepResolveManually = "resolve_manually"

// TaskAction is the body of POST /v1/tasks/{uuid}/actions.
type TaskAction struct {
	// Action is one of the constants above.
	Action string `json:"action" doc:"The action" enum:"cancel,fail,resolve,reset_for_retry,complete_manually,run_again,replay,reprioritise,release_lease,dead_letter"`
	// StepUUID selects a step: required for reset_for_retry, complete_manually,
	// run_again and release_lease, allowed for resolve.
	StepUUID string `json:"step_uuid,omitempty" doc:"The step, if the action is on one" format:"uuid"`
	Reason   string `json:"reason" doc:"Kept in the history of the task; not needed in a preview" maxLength:"500"`
	Actor    string `json:"actor" doc:"Who acts" maxLength:"255"`
	// Priority is -100 to 100; required for reprioritise, not allowed
	// elsewhere.
	Priority *int `json:"priority,omitempty" doc:"-100 to 100; for reprioritise"`
	// Result is required for complete_manually, not allowed elsewhere.
	Result json.RawMessage `json:"result,omitempty" doc:"Input of the following steps; for complete_manually"`
	// Context replaces the task's, ContextPatch changes it (JSON merge patch, RFC 7396);
	// at most one of them, for run_again, reset_for_retry and replay. A replay sets it in
	// the new task only.
	Context      json.RawMessage `json:"context,omitempty" doc:"Input in place of the task's; a JSON object; for run_again, reset_for_retry and replay"`
	ContextPatch json.RawMessage `json:"context_patch,omitempty" doc:"Changes of the input, a JSON merge patch (RFC 7396); for the same actions"`
}

// ActionPreview is the effect that an action would have on a task now.
type ActionPreview struct {
	TaskUUID string `json:"task_uuid"`
	Action   string `json:"action"`
	// Steps are the changed ones, in the order of the workflow; none for a replay, which
	// does not change the task.
	Steps []StepPreview `json:"steps"`
	// EndsAs is the state in which the task would end; empty: it would not end.
	EndsAs string `json:"ends_as,omitempty" doc:"The state in which the task would end; absent when it would not"`
	// ContextBefore and ContextAfter are absent where the context stays.
	ContextBefore json.RawMessage `json:"context_before,omitempty" doc:"Absent where the input stays as it is"`
	ContextAfter  json.RawMessage `json:"context_after,omitempty"`
	// ContextChanges are up to 100 changed places of the input;
	// MoreContextChanges says that there are others.
	ContextChanges     []ContextChange `json:"context_changes,omitempty" doc:"In which places the input differs" maxItems:"100"`
	MoreContextChanges bool            `json:"more_context_changes,omitempty" doc:"There are more places than are listed"`
}

// StepPreview is the effect of an action on a step.
type StepPreview struct {
	StepUUID string `json:"step_uuid"`
	Name     string `json:"name"`
	From     string `json:"from" doc:"The state of the step; empty where it does not exist yet"`
	To       string `json:"to" doc:"The state that it would have; not_created where it would be forgotten until it is created again"`
}

// ContextChange is one place in which two contexts differ.
type ContextChange struct {
	Path   string          `json:"path" doc:"JSON pointer (RFC 6901)"`
	Before json.RawMessage `json:"before,omitempty" doc:"Absent where it was not there"`
	After  json.RawMessage `json:"after,omitempty" doc:"Absent where it is not there any more"`
}

// BulkAction is the body of POST /v1/tasks/actions: the same to many tasks.
type BulkAction struct {
	Filter BulkFilter `json:"filter" doc:"Which tasks; at least one condition"`
	Action string     `json:"action" doc:"The action" enum:"cancel,fail,resolve,reset_for_retry,complete_manually,run_again,reprioritise,release_lease"`
	Reason string     `json:"reason" doc:"Kept in the history of each task; not needed with dry_run" maxLength:"500"`
	Actor  string     `json:"actor" doc:"Who acts" maxLength:"255"`
	// Priority and Result are as in [TaskAction].
	Priority *int            `json:"priority,omitempty" doc:"-100 to 100; for reprioritise"`
	Result   json.RawMessage `json:"result,omitempty" doc:"Input of the following steps; for complete_manually"`
	// DryRun is true by default: only "dry_run": false changes anything.
	DryRun *bool `json:"dry_run,omitempty" doc:"Only preview; true when absent"`
	// Limit is 1 to 10,000; 0 means 1000.
	Limit int `json:"limit,omitempty" doc:"How many tasks at most, 1 to 10000; 1000 when absent"`
}

// BulkFilter selects tasks; a task must match everything that is set.
type BulkFilter struct {
	Namespace string `json:"namespace,omitempty" maxLength:"64"`
	Name      string `json:"name,omitempty" doc:"Name of the template" maxLength:"64"`
	Version   string `json:"version,omitempty" doc:"Version of the template" maxLength:"50"`
	// States are task states; none means that the state does not matter.
	States        []string `json:"states,omitempty" doc:"Task states; any of them" maxItems:"12"`
	Tag           string   `json:"tag,omitempty" maxLength:"128"`
	CreatedBefore *Time    `json:"created_before,omitempty" format:"date-time"`
	CreatedAfter  *Time    `json:"created_after,omitempty" format:"date-time"`
	// StepName is the step of the action, required and allowed as StepUUID in
	// [TaskAction]. It selects no tasks.
	StepName string `json:"step_name,omitempty" doc:"The step that the action is about" maxLength:"255"`
}

// BulkResult is the result of an action on many tasks.
type BulkResult struct {
	Matched int `json:"matched" doc:"Number found, up to the limit"`
	Changed int `json:"changed" doc:"How many were changed; in a dry run, would be tried"`
	Skipped int `json:"skipped" doc:"How many the action is not allowed for in their state"`
	// DryRun: nothing was changed.
	DryRun bool `json:"dry_run"`
	// Tasks names up to 100 of those found.
	Tasks []string `json:"tasks" maxItems:"100"`
	// ReplayedAs is the new task, where one entry of the dead-letter queue was
	// replayed.
	ReplayedAs string `json:"replayed_as,omitempty" doc:"The new task of a single replayed entry"`
}

// Why is the actor and the reason of an action. The server fills in empty fields.
type Why struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the history" maxLength:"500"`
	Actor  string `json:"actor,omitempty" doc:"Who acts" maxLength:"255"`
}
