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

// StepCounts counts the steps of a task by visible state.
type StepCounts struct {
	Total      int
	Pending    int // waiting for parents, or not claimed yet
	InProgress int // running, or reported and not applied yet
	Complete   int // complete and resolved_manually
	Failed     int // error: permanent only
	Ready      int // claimable now
	Unserved   int // of these, those that no live worker can run; 0 if unknown
	BackingOff int // waiting_for_retry
	Cancelled  int
}

// Execution is the derived condition of a task.
type Execution struct {
	Status            string // the one-word answer to "what is this task doing"
	RecommendedAction string
	Health            string  // healthy, recovering, blocked, unknown
	Percentage        float64 // completed steps, 0–100
}

// DeriveExecution applies the precedence of the execution status: a permanent failure first,
// then claimable steps that no worker can run, claimable steps, running steps, completed
// steps.
func DeriveExecution(c StepCounts) Execution {
	e := Execution{Health: "healthy"}
	if c.Total > 0 {
		e.Percentage = 100 * float64(c.Complete) / float64(c.Total)
	}
	switch {
	case c.Failed > 0:
		e.Status, e.RecommendedAction, e.Health = "blocked_by_failures", "handle_failures", "blocked"
	case c.Ready > 0 && c.Unserved == c.Ready && c.InProgress == 0:
		e.Status, e.RecommendedAction = "waiting_for_worker", "start_worker"
	case c.Ready > 0:
		e.Status, e.RecommendedAction = "has_ready_steps", "execute_ready_steps"
	case c.InProgress > 0:
		e.Status, e.RecommendedAction = "processing", "wait_for_completion"
	case c.Total > 0 && c.Complete == c.Total:
		e.Status, e.RecommendedAction = "all_complete", "finalize_task"
	default:
		e.Status, e.RecommendedAction = "waiting_for_dependencies", "wait_for_dependencies"
	}
	if c.BackingOff > 0 && c.Failed == 0 {
		e.Health = "recovering"
	}
	return e
}

// VisibleTaskState is the state to show for a live task: the stored state is written with a
// decision, so a later claim or due retry shows only on the board.
func VisibleTaskState(stored TaskState, c StepCounts) TaskState {
	switch {
	case stored == TaskPending && c.InProgress > 0:
		return TaskStepsInProcess
	case stored == TaskWaitingForRetry && (c.InProgress > 0 || c.Ready > 0):
		return TaskStepsInProcess
	default:
		return stored
	}
}

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
