package client

import "encoding/json"

// TaskRequest is the body of POST /v1/tasks. Name, Namespace, Version and
// Context are required and must not be empty; Initiator, SourceSystem and
// Reason are required and may be.
type TaskRequest struct {
	Name         string          `json:"name" doc:"Name of the template" maxLength:"64"`
	Namespace    string          `json:"namespace" doc:"Namespace of the template" maxLength:"64"`
	Version      string          `json:"version,omitempty" doc:"Version of the template; the highest that is not deprecated when absent" maxLength:"50"`
	Context      json.RawMessage `json:"context" doc:"Input of the task; a JSON object"`
	Initiator    string          `json:"initiator" maxLength:"255"`
	SourceSystem string          `json:"source_system" maxLength:"255"`
	Reason       string          `json:"reason" maxLength:"500"`
	Tags         []string        `json:"tags,omitempty" maxItems:"64"`
	// Priority is -100 to 100, the highest first; nil means the template's, or 0.
	Priority *int `json:"priority,omitempty" doc:"-100 to 100, the highest first; the template's, or 0, when absent"`
	// PriorityLevel says the same as 1 to 10 with 1 first: level n is the priority
	// (5 - n) * 20. Give one of them.
	PriorityLevel       *int    `json:"priority_level,omitempty" minimum:"1" maximum:"10" doc:"In place of priority: 1, which goes first, to 10. Level n is the priority (5 - n) * 20"`
	CorrelationID       *string `json:"correlation_id,omitempty" doc:"UUID; made by the server when absent"`
	ParentCorrelationID *string `json:"parent_correlation_id,omitempty" doc:"UUID"`
	// IdempotencyKey makes repeated requests create one task; a repetition is
	// answered with 409 and the UUID of the task that exists, or as
	// ConflictPolicy says.
	IdempotencyKey string `json:"idempotency_key,omitempty" maxLength:"255" doc:"Makes repeated requests create one task, whatever their contexts"`
	// ConflictPolicy is ConflictFail or ConflictUseExisting; empty: the first.
	ConflictPolicy string `json:"conflict_policy,omitempty" enum:"fail,use_existing" doc:"What to do where a task with the idempotency key exists: answer 409 (fail), or 200 with that task"`
	// StartAt and DelaySeconds put off the first steps; give one of them. An
	// instant that has passed, by the database's clock, is now.
	StartAt      *Time    `json:"start_at,omitempty" format:"date-time" doc:"Do not start before this instant"`
	DelaySeconds *float64 `json:"delay_seconds,omitempty" doc:"Do not start before so many seconds have passed"`
	// Deadline is until when the task should have begun; one that still waits
	// then is cancelled, and somebody is asked to look at it.
	Deadline *Time `json:"deadline,omitempty" format:"date-time" doc:"Cancel the task if it has not begun by this instant"`
	// DependsOn are tasks that have to end before this one begins. Where one of
	// them fails this one is cancelled, unless OnDependencyFailure is "continue".
	DependsOn           []string `json:"depends_on,omitempty" maxItems:"100" doc:"UUIDs of tasks that have to end before this one begins"`
	OnDependencyFailure string   `json:"on_dependency_failure,omitempty" enum:"fail,continue" doc:"What becomes of the task when one of them fails; fail, it is cancelled, when absent"`
	// MaxAttempts is how often each retryable step may be executed, the first
	// time included; nil: as the template says, or once more than there are
	// RetryDelays.
	MaxAttempts *int `json:"max_attempts,omitempty" minimum:"1" maximum:"32767" doc:"Executions of each retryable step; the template's, or one more than retry_delays, when absent"`
	// RetryDelays are the delays before the executions after the first, such as
	// 10s, 5m or 2d, exactly and in place of the template's backoff. The last one
	// is reused.
	RetryDelays []string `json:"retry_delays,omitempty" maxItems:"32" doc:"Exact delays before each execution after the first, such as 10s, 5m or 2d, at most 30d; in place of the template's backoff"`
}

// The values of [TaskRequest.ConflictPolicy].
const (
	ConflictFail        = "fail"
	ConflictUseExisting = "use_existing"
)

// MaxBatchTasks is how many tasks a [TaskBatchRequest] may have.
const MaxBatchTasks = 10_000

// TaskBatchRequest is the body of POST /v1/tasks/batch.
type TaskBatchRequest struct {
	Tasks []TaskRequest `json:"tasks" minItems:"1" maxItems:"10000" doc:"Created each for itself: what is wrong with one costs no other"`
}

// TaskBatch is what became of the tasks of a batch.
type TaskBatch struct {
	Created int `json:"created"`
	Failed  int `json:"failed"`
	// Existing counts the tasks that existed already and whose requests asked for
	// no other.
	Existing int `json:"existing,omitempty"`
	// Results has one entry per task, in order.
	Results []TaskBatchResult `json:"results"`
}

// TaskBatchResult is what became of one task: the UUID of the task that was
// created, or the error with which a creation of it alone would have failed.
type TaskBatchResult struct {
	Index    int          `json:"index" doc:"Place of the task in the request, from 0"`
	TaskUUID string       `json:"task_uuid,omitempty" doc:"The task; absent when there is none"`
	Existing bool         `json:"existing,omitempty" doc:"The task existed already"`
	Error    *ErrorDetail `json:"error,omitempty" doc:"Why it was not created"`
}

// Task is a task as the API shows it.
type Task struct {
	TaskUUID            string          `json:"task_uuid"`
	Name                string          `json:"name"`
	Namespace           string          `json:"namespace"`
	Version             string          `json:"version"`
	Status              string          `json:"status" doc:"One of the twelve task states"`
	CreatedAt           Time            `json:"created_at" format:"date-time"`
	UpdatedAt           Time            `json:"updated_at" format:"date-time"`
	CompletedAt         *Time           `json:"completed_at" format:"date-time"`
	Context             json.RawMessage `json:"context" doc:"Null in lists that were not asked for contexts"`
	Initiator           string          `json:"initiator"`
	SourceSystem        string          `json:"source_system"`
	Reason              string          `json:"reason"`
	Priority            *int            `json:"priority"`
	PriorityLevel       int             `json:"priority_level,omitempty" doc:"The level that the priority reaches: 1, which goes first, to 10"`
	Tags                []string        `json:"tags"`
	CorrelationID       string          `json:"correlation_id"`
	ParentCorrelationID *string         `json:"parent_correlation_id"`
	ParentTaskUUID      *string         `json:"parent_task_uuid,omitempty" doc:"The task of which this one is a step"`
	ParentStepUUID      *string         `json:"parent_step_uuid,omitempty" doc:"The step that it is"`
	DependsOn           []string        `json:"depends_on,omitempty" doc:"The tasks that had to end before it"`
	TotalSteps          int64           `json:"total_steps"`
	PendingSteps        int64           `json:"pending_steps"`
	InProgressSteps     int64           `json:"in_progress_steps"`
	CompletedSteps      int64           `json:"completed_steps"`
	FailedSteps         int64           `json:"failed_steps"`
	ReadySteps          int64           `json:"ready_steps"`
	ExecutionStatus     string          `json:"execution_status"`
	RecommendedAction   string          `json:"recommended_action"`
	// CompletionPercentage is 0 to 100.
	CompletionPercentage float64 `json:"completion_percentage"`
	HealthStatus         string  `json:"health_status"`
	// StartAt, MaxAttempts and RetryDelays are what the request asked for, absent
	// where it did not. A start that had passed is absent as well.
	StartAt     *Time    `json:"start_at,omitempty" format:"date-time"`
	MaxAttempts int      `json:"max_attempts,omitempty"`
	RetryDelays []string `json:"retry_delays,omitempty"`
	// Steps is empty in lists.
	Steps []StepReadiness `json:"steps"`
	// ContinuesTaskUUID is the task whose handler has named this one as what
	// comes next; absent where none has.
	ContinuesTaskUUID string `json:"continues_task_uuid,omitempty" doc:"The task that this one continues"`
	// ContinuedBy are the tasks that handlers of this one have named, the oldest
	// first, at most 100; absent in lists.
	ContinuedBy []string `json:"continued_by,omitempty" doc:"The tasks that continue this one" maxItems:"100"`
	// Results are what completed steps have brought, by name, and Errors what
	// went wrong in those that have failed and have no result; both only where
	// they were asked for with IncludeResults or IncludeAllResults.
	Results map[string]json.RawMessage `json:"results,omitempty" doc:"Results of completed steps by name, where include asks for them"`
	Errors  map[string]StepError       `json:"errors,omitempty" doc:"What went wrong, by the name of the step, where include asks for results"`
}

// What the answers about tasks include where it is asked for.
const (
	IncludeResults    = "results"     // of the steps behind which there is none
	IncludeAllResults = "all_results" // of all steps
	IncludeContext    = "context"     // of the tasks of a list
)

// Terminal reports whether the task has ended.
func (t *Task) Terminal() bool {
	switch t.Status {
	case "complete", "error", "cancelled", "resolved_manually":
		return true
	}
	return false
}

// StepReadiness says where a step stands and whether it can run.
type StepReadiness struct {
	WorkflowStepUUID      string     `json:"workflow_step_uuid"`
	TaskUUID              string     `json:"task_uuid"`
	NamedStepUUID         string     `json:"named_step_uuid"`
	Name                  string     `json:"name"`
	CurrentState          string     `json:"current_state"`
	DependenciesSatisfied bool       `json:"dependencies_satisfied"`
	RetryEligible         bool       `json:"retry_eligible"`
	ReadyForExecution     bool       `json:"ready_for_execution"`
	LastFailureAt         *NaiveTime `json:"last_failure_at"`
	NextRetryAt           *NaiveTime `json:"next_retry_at"`
	TotalParents          int        `json:"total_parents"`
	CompletedParents      int        `json:"completed_parents"`
	Attempts              int        `json:"attempts"`
	MaxAttempts           int        `json:"max_attempts"`
	BackoffRequestSeconds *int       `json:"backoff_request_seconds"`
	LastAttemptedAt       *NaiveTime `json:"last_attempted_at"`
	// Waiting says what the step waits for; nil: it does not wait.
	Waiting *Waiting `json:"waiting,omitempty"`
}

// TaskList is one page of tasks, newest first.
type TaskList struct {
	Tasks      []Task     `json:"tasks"`
	Pagination Pagination `json:"pagination"`
}

// Pagination tells where a page stands. TotalCount is counted up to 100,000.
type Pagination struct {
	Page        int  `json:"page"`
	PerPage     int  `json:"per_page"`
	TotalCount  int  `json:"total_count"`
	TotalPages  int  `json:"total_pages"`
	HasNext     bool `json:"has_next"`
	HasPrevious bool `json:"has_previous"`
}

// Step is a step with its result.
type Step struct {
	StepUUID    string `json:"step_uuid"`
	TaskUUID    string `json:"task_uuid"`
	Name        string `json:"name"`
	CreatedAt   Time   `json:"created_at" format:"date-time"`
	UpdatedAt   Time   `json:"updated_at" format:"date-time"`
	CompletedAt *Time  `json:"completed_at" format:"date-time"`
	// Results is the whole StepExecutionResult, null before the first one.
	Results               json.RawMessage `json:"results"`
	CurrentState          string          `json:"current_state" doc:"One of the ten step states"`
	DependenciesSatisfied bool            `json:"dependencies_satisfied"`
	RetryEligible         bool            `json:"retry_eligible"`
	ReadyForExecution     bool            `json:"ready_for_execution"`
	TotalParents          int             `json:"total_parents"`
	CompletedParents      int             `json:"completed_parents"`
	Attempts              int             `json:"attempts"`
	MaxAttempts           int             `json:"max_attempts"`
	LastFailureAt         *Time           `json:"last_failure_at" format:"date-time"`
	NextRetryAt           *Time           `json:"next_retry_at" format:"date-time"`
	LastAttemptedAt       *Time           `json:"last_attempted_at" format:"date-time"`
	// Waiting says what the step waits for; nil: it does not wait.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Checkpoint is the progress that the step, or its newest attempt, has
	// saved. It is absent where there is none, and in lists.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Checkpoint is the progress of a step, from which its next execution goes on.
type Checkpoint struct {
	Cursor             json.RawMessage    `json:"cursor"`
	ItemsProcessed     int64              `json:"items_processed"`
	Timestamp          Time               `json:"timestamp" format:"date-time"`
	AccumulatedResults json.RawMessage    `json:"accumulated_results,omitempty"`
	History            []CheckpointCursor `json:"history" doc:"Earlier cursors, oldest first; a bounded number"`
}

// CheckpointCursor is where a step was before its latest checkpoint.
type CheckpointCursor struct {
	Cursor    json.RawMessage `json:"cursor"`
	Timestamp Time            `json:"timestamp" format:"date-time"`
}

// StepResult is what Step.Results holds.
type StepResult struct {
	StepUUID string          `json:"step_uuid"`
	Success  bool            `json:"success"`
	Result   json.RawMessage `json:"result"`
	Metadata StepMetadata    `json:"metadata"`
	Status   string          `json:"status" doc:"completed, failed (will be tried again) or error"`
	Error    *StepError      `json:"error" doc:"Null for a success"`
	// OrchestrationMetadata is null: what a handler asks for is in the state of
	// the step (next_retry_at).
	OrchestrationMetadata json.RawMessage `json:"orchestration_metadata" doc:"Always null"`
}

// StepMetadata is about one execution of a step. What is not known is null.
type StepMetadata struct {
	ExecutionTimeMS int64          `json:"execution_time_ms"`
	HandlerVersion  *string        `json:"handler_version" doc:"Always null: templates have versions, handlers have none"`
	Retryable       bool           `json:"retryable"`
	CompletedAt     *Time          `json:"completed_at" format:"date-time"`
	WorkerID        *string        `json:"worker_id"`
	WorkerHostname  *string        `json:"worker_hostname" doc:"Always null: GET /v1/workers has the host of a worker"`
	StartedAt       *Time          `json:"started_at" format:"date-time"`
	Custom          map[string]any `json:"custom"`
	ErrorCode       *string        `json:"error_code"`
	ErrorType       *string        `json:"error_type"`
	Context         map[string]any `json:"context"`
}

// StepError is why an execution failed.
type StepError struct {
	Message    string         `json:"message"`
	ErrorType  string         `json:"error_type,omitempty"`
	Backtrace  []string       `json:"backtrace,omitempty"`
	Retryable  bool           `json:"retryable"`
	StatusCode *int           `json:"status_code,omitempty"`
	Context    map[string]any `json:"context,omitempty"`
}

// StepAudit is one reported execution of a step.
type StepAudit struct {
	AuditUUID        string          `json:"audit_uuid"`
	WorkflowStepUUID string          `json:"workflow_step_uuid"`
	TransitionUUID   string          `json:"transition_uuid"`
	TaskUUID         string          `json:"task_uuid"`
	RecordedAt       Time            `json:"recorded_at" format:"date-time"`
	WorkerUUID       string          `json:"worker_uuid,omitempty"`
	CorrelationID    string          `json:"correlation_id,omitempty"`
	Success          bool            `json:"success"`
	ExecutionTimeMS  *int64          `json:"execution_time_ms,omitempty"`
	Result           json.RawMessage `json:"result,omitempty"`
	StepName         string          `json:"step_name"`
	FromState        string          `json:"from_state,omitempty"`
	ToState          string          `json:"to_state"`
}

// Timeline is the history of a task. Seconds count from its request, by the
// database's clock.
type Timeline struct {
	TaskUUID string          `json:"task_uuid"`
	Start    Time            `json:"requested_at" format:"date-time"`
	Seconds  *float64        `json:"completed_seconds" doc:"Null while the task lives"`
	Events   []TimelineEvent `json:"events"`
	Attempts []StepAttempt   `json:"attempts"`
}

// TimelineEvent is a transition of the task.
type TimelineEvent struct {
	Seconds float64 `json:"seconds"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Actor   string  `json:"actor"`
	Reason  string  `json:"reason,omitempty"`
	// ContextEdited says that an operator has changed the input of the task here.
	// The changes are left out where the input is larger than 256 KiB.
	ContextEdited bool `json:"context_edited,omitempty" doc:"An operator has changed the input of the task; changes of a large one are left out"`
	// ContextChanges are up to MaxContextChanges places in which the input differs;
	// MoreContextChanges says that there are others.
	ContextChanges     []ContextChange `json:"context_changes,omitempty" doc:"In which places the input differs" maxItems:"100"`
	MoreContextChanges bool            `json:"more_context_changes,omitempty" doc:"There are more places than are listed"`
}

// StepAttempt is one execution of a step that has been decided on. Times are
// seconds; null means that it never came to that.
type StepAttempt struct {
	StepUUID string   `json:"step_uuid"`
	StepName string   `json:"step_name"`
	Attempt  int      `json:"attempt"`
	Enqueued *float64 `json:"enqueued_seconds"`
	Claimed  *float64 `json:"claimed_seconds"`
	Reported *float64 `json:"reported_seconds"`
	Applied  *float64 `json:"applied_seconds"`
	Outcome  string   `json:"outcome" doc:"success, failed, error, lease_lost or cancelled"`
}

// Verification is the outcome of an integrity check of a task's records.
type Verification struct {
	TaskUUID string   `json:"task_uuid"`
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
}
