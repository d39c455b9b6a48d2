package workflow

import "fmt"

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

// Satisfies reports whether dependents may run.
func (s StepState) Satisfies() bool { return s == StepComplete || s == StepResolvedManually }

// ParseStepState reads a wire name.
func ParseStepState(name string) (StepState, bool) {
	i, ok := indexOf(stepStateNames[:], name)
	return StepState(i), ok
}

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
