package client

import (
	"context"
	"encoding/json"
)

// TaskSummary shows a task, its template and the state of its steps in one answer, as
// graphs of a task need them.
type TaskSummary struct {
	Task     TaskSummaryMetadata `json:"task"`
	Template TaskSummaryTemplate `json:"template"`
	// Steps are those that exist, in the order of their numbers.
	Steps []StepSummary `json:"steps"`
	DLQ   DLQSummary    `json:"dlq"`
	Links TaskLinks     `json:"links"`
}

// TaskSummaryMetadata is a task without its context and its steps.
type TaskSummaryMetadata struct {
	TaskUUID             string  `json:"task_uuid"`
	Name                 string  `json:"name"`
	Namespace            string  `json:"namespace"`
	Version              string  `json:"version"`
	Status               string  `json:"status" doc:"One of the twelve task states"`
	CreatedAt            Time    `json:"created_at" format:"date-time"`
	UpdatedAt            Time    `json:"updated_at" format:"date-time"`
	CompletedAt          *Time   `json:"completed_at" format:"date-time"`
	Initiator            string  `json:"initiator"`
	SourceSystem         string  `json:"source_system"`
	Reason               string  `json:"reason"`
	CorrelationID        string  `json:"correlation_id"`
	TotalSteps           int64   `json:"total_steps"`
	PendingSteps         int64   `json:"pending_steps"`
	InProgressSteps      int64   `json:"in_progress_steps"`
	CompletedSteps       int64   `json:"completed_steps"`
	FailedSteps          int64   `json:"failed_steps"`
	CompletionPercentage float64 `json:"completion_percentage"`
	HealthStatus         string  `json:"health_status"`
	ExecutionStatus      string  `json:"execution_status"`
	RecommendedAction    *string `json:"recommended_action"`
}

// TaskSummaryTemplate has every step that the template declares, whether it exists yet
// or not.
type TaskSummaryTemplate struct {
	Steps []TemplateStepSummary `json:"steps"`
}

// TemplateStepSummary is a step of a template.
type TemplateStepSummary struct {
	Name         string   `json:"name"`
	StepType     string   `json:"step_type" doc:"standard, decision, deferred_convergence, batchable, batch_worker, …"`
	Handler      string   `json:"handler" doc:"What the step calls; unknown for a step that the engine runs"`
	Dependencies []string `json:"dependencies"`
	Retryable    bool     `json:"retryable"`
	MaxAttempts  int      `json:"max_attempts"`
}

// StepSummary is the state of a step.
type StepSummary struct {
	StepUUID              string            `json:"step_uuid"`
	Name                  string            `json:"name"`
	CurrentState          string            `json:"current_state" doc:"One of the ten step states"`
	CreatedAt             *Time             `json:"created_at" format:"date-time"`
	CompletedAt           *Time             `json:"completed_at" format:"date-time"`
	LastAttemptedAt       *Time             `json:"last_attempted_at" format:"date-time"`
	Attempts              int               `json:"attempts"`
	MaxAttempts           int               `json:"max_attempts"`
	DependenciesSatisfied bool              `json:"dependencies_satisfied"`
	RetryEligible         bool              `json:"retry_eligible"`
	Error                 *StepErrorSummary `json:"error"`
}

// StepErrorSummary is the kind of the newest failure of a step that has not completed
// since.
type StepErrorSummary struct {
	ErrorType  *string `json:"error_type"`
	Retryable  bool    `json:"retryable"`
	StatusCode *int    `json:"status_code" doc:"status_code of the failure's context, if that is a status of HTTP"`
}

// DLQSummary says whether a task has a pending entry in the dead-letter queue.
type DLQSummary struct {
	InDLQ            bool    `json:"in_dlq"`
	DLQReason        *string `json:"dlq_reason" doc:"staleness_timeout, max_retries_exceeded, dependency_cycle_detected, worker_unavailable or manual_dlq"`
	ResolutionStatus *string `json:"resolution_status" doc:"pending, or null"`
}

// TaskLinks are paths of the API about a task.
type TaskLinks struct {
	Task  string `json:"task"`
	Steps string `json:"steps"`
	DLQ   string `json:"dlq"`
}

// TaskContext is what the steps of a task work with.
type TaskContext struct {
	// Inputs is the context of the task.
	Inputs json.RawMessage `json:"inputs"`
	// Outputs are the results of completed steps by name.
	Outputs map[string]json.RawMessage `json:"outputs"`
	// Merged are the inputs with the outputs under the names of their steps. An output
	// replaces an input of the same name.
	Merged map[string]json.RawMessage `json:"merged"`
}

// TaskSummary returns a task with its template and its steps in short.
func (c *Client) TaskSummary(ctx context.Context, task string) (*TaskSummary, error) {
	return get[TaskSummary](ctx, c, nil, "v1", "tasks", task, "summary")
}

// TaskContext returns the context of a task and the results of its completed steps.
func (c *Client) TaskContext(ctx context.Context, task string) (*TaskContext, error) {
	return get[TaskContext](ctx, c, nil, "v1", "tasks", task, "context")
}
