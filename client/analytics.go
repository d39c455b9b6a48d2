package client

import "context"

// Performance summarises the tasks of the last hours: the newest 10,000 at most, in which
// case the period begins with the oldest of them. Servers compute it anew from time to
// time only.
type Performance struct {
	TotalTasks     int64 `json:"total_tasks"`
	ActiveTasks    int64 `json:"active_tasks"`
	CompletedTasks int64 `json:"completed_tasks"`
	FailedTasks    int64 `json:"failed_tasks"`
	// CompletionRate and ErrorRate are shares of all tasks in percent.
	CompletionRate             float64 `json:"completion_rate" doc:"Percent, 0 to 100"`
	ErrorRate                  float64 `json:"error_rate" doc:"Percent, 0 to 100"`
	AverageTaskDurationSeconds float64 `json:"average_task_duration_seconds"`
	AverageStepDurationSeconds float64 `json:"average_step_duration_seconds"`
	// TasksPerHour and StepsPerHour are counts of the whole period, as in Tasker.
	TasksPerHour int64 `json:"tasks_per_hour" doc:"Tasks of the whole period, whatever its length"`
	StepsPerHour int64 `json:"steps_per_hour" doc:"Completed steps of the whole period, whatever its length"`
	// SystemHealthScore is the share of complete tasks among those that are complete or
	// have failed; 1 without any.
	SystemHealthScore   float64 `json:"system_health_score" doc:"0 to 1"`
	AnalysisPeriodStart Time    `json:"analysis_period_start" format:"date-time"`
	CalculatedAt        Time    `json:"calculated_at" format:"date-time"`
}

// Bottlenecks are the slowest steps and templates of the last day, and what to do about
// them.
type Bottlenecks struct {
	SlowSteps           []SlowStep          `json:"slow_steps"`
	SlowTasks           []SlowTask          `json:"slow_tasks"`
	ResourceUtilization ResourceUtilization `json:"resource_utilization"`
	Recommendations     []string            `json:"recommendations"`
}

// SlowStep is a step of a template, the slowest first. Errors are failed executions.
type SlowStep struct {
	NamespaceName          string  `json:"namespace_name"`
	TaskName               string  `json:"task_name"`
	Version                string  `json:"version"`
	StepName               string  `json:"step_name"`
	AverageDurationSeconds float64 `json:"average_duration_seconds"`
	MaxDurationSeconds     float64 `json:"max_duration_seconds"`
	ExecutionCount         int64   `json:"execution_count"`
	ErrorCount             int64   `json:"error_count"`
	ErrorRate              float64 `json:"error_rate" doc:"0 to 1"`
	LastExecutedAt         *Time   `json:"last_executed_at" format:"date-time"`
}

// SlowTask is a template, the slowest first. Executions are ended tasks.
type SlowTask struct {
	NamespaceName          string  `json:"namespace_name"`
	TaskName               string  `json:"task_name"`
	Version                string  `json:"version"`
	AverageDurationSeconds float64 `json:"average_duration_seconds"`
	MaxDurationSeconds     float64 `json:"max_duration_seconds"`
	ExecutionCount         int64   `json:"execution_count"`
	AverageStepCount       float64 `json:"average_step_count" doc:"Completed steps"`
	ErrorCount             int64   `json:"error_count"`
	ErrorRate              float64 `json:"error_rate" doc:"0 to 1"`
	LastExecutedAt         *Time   `json:"last_executed_at" format:"date-time"`
}

// ResourceUtilization is how busy the server and the engine are.
type ResourceUtilization struct {
	DatabasePoolUtilization float64            `json:"database_pool_utilization" doc:"Connections in use, 0 to 1"`
	SystemHealth            SystemHealthCounts `json:"system_health"`
}

// SystemHealthCounts count tasks and steps by state: living ones, the newest first up to
// a bound, and those that have ended in the last day.
type SystemHealthCounts struct {
	PendingTasks                         int64 `json:"pending_tasks"`
	InitializingTasks                    int64 `json:"initializing_tasks"`
	EnqueuingStepsTasks                  int64 `json:"enqueuing_steps_tasks"`
	StepsInProcessTasks                  int64 `json:"steps_in_process_tasks"`
	EvaluatingResultsTasks               int64 `json:"evaluating_results_tasks"`
	WaitingForDependenciesTasks          int64 `json:"waiting_for_dependencies_tasks"`
	WaitingForRetryTasks                 int64 `json:"waiting_for_retry_tasks"`
	BlockedByFailuresTasks               int64 `json:"blocked_by_failures_tasks"`
	CompleteTasks                        int64 `json:"complete_tasks"`
	ErrorTasks                           int64 `json:"error_tasks"`
	CancelledTasks                       int64 `json:"cancelled_tasks"`
	ResolvedManuallyTasks                int64 `json:"resolved_manually_tasks"`
	TotalTasks                           int64 `json:"total_tasks"`
	PendingSteps                         int64 `json:"pending_steps"`
	EnqueuedSteps                        int64 `json:"enqueued_steps"`
	InProgressSteps                      int64 `json:"in_progress_steps"`
	EnqueuedForOrchestrationSteps        int64 `json:"enqueued_for_orchestration_steps"`
	EnqueuedAsErrorForOrchestrationSteps int64 `json:"enqueued_as_error_for_orchestration_steps"`
	WaitingForRetrySteps                 int64 `json:"waiting_for_retry_steps"`
	CompleteSteps                        int64 `json:"complete_steps"`
	ErrorSteps                           int64 `json:"error_steps"`
	CancelledSteps                       int64 `json:"cancelled_steps"`
	ResolvedManuallySteps                int64 `json:"resolved_manually_steps"`
	TotalSteps                           int64 `json:"total_steps"`
}

// Performance summarises the tasks of the last hours; 0 means 24.
func (c *Client) Performance(ctx context.Context, hours int) (*Performance, error) {
	return get[Performance](ctx, c, parameters{"hours": hours}, "v1", "analytics", "performance")
}

// Bottlenecks returns the slowest steps and templates that were executed so often, at most
// limit of each; 0 means 10 of those with 5 executions.
func (c *Client) Bottlenecks(ctx context.Context, limit, minExecutions int) (*Bottlenecks, error) {
	q := parameters{"limit": limit, "min_executions": minExecutions}
	return get[Bottlenecks](ctx, c, q, "v1", "analytics", "bottlenecks")
}
