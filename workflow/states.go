package workflow

import (
	"fmt"
)

// TaskState is the externally visible state of a task. The numbers are
// those of the wire protocol and of the database; they never change meaning.
type TaskState int16

// The twelve task states. The last four are terminal.
const (
	TaskPending TaskState = iota + 1
	TaskInitializing
	TaskEnqueuingSteps
	TaskStepsInProcess
	TaskEvaluatingResults
	TaskWaitingForDependencies
	TaskWaitingForRetry
	TaskBlockedByFailures
	TaskComplete
	TaskError
	TaskCancelled
	TaskResolvedManually
)

var taskStateNames = [...]string{
	TaskPending:                "pending",
	TaskInitializing:           "initializing",
	TaskEnqueuingSteps:         "enqueuing_steps",
	TaskStepsInProcess:         "steps_in_process",
	TaskEvaluatingResults:      "evaluating_results",
	TaskWaitingForDependencies: "waiting_for_dependencies",
	TaskWaitingForRetry:        "waiting_for_retry",
	TaskBlockedByFailures:      "blocked_by_failures",
	TaskComplete:               "complete",
	TaskError:                  "error",
	TaskCancelled:              "cancelled",
	TaskResolvedManually:       "resolved_manually",
}

// TaskStates lists every task state in numeric order.
func TaskStates() []TaskState { return states[TaskState](len(taskStateNames)) }

// String is the snake_case name used on the wire.
func (s TaskState) String() string { return nameOf(taskStateNames[:], int(s), "task state") }

// Terminal reports whether the task no longer changes by itself.
func (s TaskState) Terminal() bool { return s >= TaskComplete && s <= TaskResolvedManually }

// ParseTaskState reads a wire name; the legacy text "in_progress" means
// steps_in_process.
func ParseTaskState(name string) (TaskState, bool) {
	if name == "in_progress" {
		return TaskStepsInProcess, true
	}
	i, ok := indexOf(taskStateNames[:], name)
	return TaskState(i), ok
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

var stepStateNames = [...]string{
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
func StepStates() []StepState { return states[StepState](len(stepStateNames)) }

// String is the snake_case name used on the wire.
func (s StepState) String() string { return nameOf(stepStateNames[:], int(s), "step state") }

// Terminal reports whether the step has ended (an error can still be reset).
func (s StepState) Terminal() bool { return s >= StepComplete && s <= StepResolvedManually }

func states[S ~int16](n int) []S {
	all := make([]S, 0, n-1)
	for i := 1; i < n; i++ {
		all = append(all, S(i))
	}
	return all
}

func nameOf(names []string, i int, what string) string {
	if i <= 0 || i >= len(names) {
		return fmt.Sprintf("unknown %s %d", what, i)
	}
	return names[i]
}

func indexOf(names []string, name string) (int, bool) {
	for i := 1; i < len(names); i++ {
		if names[i] == name {
			return i, true
		}
	}
	return 0, false
}

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

var deadLetterNames = [...]string{
	DeadLetterStaleness: "staleness_timeout", DeadLetterExhausted: "max_retries_exceeded",
	DeadLetterCycle: "dependency_cycle_detected", DeadLetterWorkerUnavailable: "worker_unavailable",
	DeadLetterManual: "manual_dlq",
}

// DeadLetterReasons lists all reasons.
func DeadLetterReasons() []DeadLetterReason {
	return []DeadLetterReason{DeadLetterStaleness, DeadLetterExhausted, DeadLetterCycle, DeadLetterWorkerUnavailable, DeadLetterManual}
}

// String is the snake_case name used in JSON and metrics.
func (r DeadLetterReason) String() string { return nameOf(deadLetterNames[:], int(r), "reason") }
