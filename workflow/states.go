package workflow

import "github.com/tasker-go/tasker/internal/enum"

// TaskState is the externally visible state of a task. The numbers are
// those of the wire protocol and of the database; they never change meaning.
type TaskState int16

// The twelve task states. The last four are terminal.
const (
	TaskPending TaskState = iota + 1
	taskInitializing
	taskEnqueuingSteps
	TaskStepsInProcess
	taskEvaluatingResults
	TaskWaitingForDependencies
	TaskWaitingForRetry
	TaskBlockedByFailures
	TaskComplete
	TaskError
	TaskCancelled
	TaskResolvedManually
)

var taskStateNames = enum.Names[TaskState]{
	TaskPending:                "pending",
	taskInitializing:           "initializing",
	taskEnqueuingSteps:         "enqueuing_steps",
	TaskStepsInProcess:         "steps_in_process",
	taskEvaluatingResults:      "evaluating_results",
	TaskWaitingForDependencies: "waiting_for_dependencies",
	TaskWaitingForRetry:        "waiting_for_retry",
	TaskBlockedByFailures:      "blocked_by_failures",
	TaskComplete:               "complete",
	TaskError:                  "error",
	TaskCancelled:              "cancelled",
	TaskResolvedManually:       "resolved_manually",
}

// TaskStates lists every task state in numeric order.
func TaskStates() []TaskState { return taskStateNames.All() }

// String is the snake_case name used on the wire.
func (s TaskState) String() string { return taskStateNames.Name(s) }

// Terminal reports whether the task no longer changes by itself.
func (s TaskState) Terminal() bool { return s >= TaskComplete && s <= TaskResolvedManually }

// ParseTaskState reads a wire name; the legacy text "in_progress" means
// steps_in_process.
func ParseTaskState(name string) (TaskState, bool) {
	if name == "in_progress" {
		return TaskStepsInProcess, true
	}
	return taskStateNames.Parse(name)
}

// StepState is the externally visible state of a step.
type StepState int16

// The ten step states. Error is permanent failure only; a step that will run
// again is in StepWaitingForRetry.
const (
	StepPending StepState = iota + 1
	StepEnqueued
	StepInProgress
	StepEnqueuedForOrchestration
	StepEnqueuedAsErrorForOrchestration
	StepWaitingForRetry
	StepComplete
	StepError
	StepCancelled
	StepResolvedManually
)

var stepStateNames = enum.Names[StepState]{
	StepPending:                         "pending",
	StepEnqueued:                        "enqueued",
	StepInProgress:                      "in_progress",
	StepEnqueuedForOrchestration:        "enqueued_for_orchestration",
	StepEnqueuedAsErrorForOrchestration: "enqueued_as_error_for_orchestration",
	StepWaitingForRetry:                 "waiting_for_retry",
	StepComplete:                        "complete",
	StepError:                           "error",
	StepCancelled:                       "cancelled",
	StepResolvedManually:                "resolved_manually",
}

// StepStates lists every step state in numeric order.
func StepStates() []StepState { return stepStateNames.All() }

// String is the snake_case name used on the wire.
func (s StepState) String() string { return stepStateNames.Name(s) }

// DeadLetterReason is why a dead-letter entry was created. The numbers are stored.
type DeadLetterReason int16

// The reasons of the API; the detail of an entry says what exactly happened.
const (
	DeadLetterStaleness         DeadLetterReason = iota + 1 // it did not move, or passed its deadline
	DeadLetterExhausted                                     // a step failed for good
	DeadLetterCycle                                         // its steps wait for each other
	DeadLetterWorkerUnavailable                             // no worker ran a step to its end
	DeadLetterManual                                        // an operator created it
)

var deadLetterNames = enum.Names[DeadLetterReason]{
	DeadLetterStaleness: "staleness_timeout", DeadLetterExhausted: "max_retries_exceeded",
	DeadLetterCycle: "dependency_cycle_detected", DeadLetterWorkerUnavailable: "worker_unavailable",
	DeadLetterManual: "manual_dlq",
}

// DeadLetterReasons lists all reasons.
func DeadLetterReasons() []DeadLetterReason { return deadLetterNames.All() }

// String is the snake_case name used in JSON and metrics.
func (r DeadLetterReason) String() string { return deadLetterNames.Name(r) }
