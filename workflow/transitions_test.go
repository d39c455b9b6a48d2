package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A taskTransition is one edge of the task machine.
type taskTransition struct {
	From  TaskState
	Event string
	To    TaskState
}

// taskTransitions is the task machine as data. Advance may pass several edges in one
// transaction; only observable states are recorded, but every recorded change is a path of
// these edges.
func taskTransitions() []taskTransition {
	t := []taskTransition{
		{TaskPending, "start", taskInitializing},
		{taskInitializing, "ready_steps_found", taskEnqueuingSteps},
		{taskInitializing, "no_steps_found", TaskComplete},
		{taskInitializing, "no_dependencies_ready", TaskWaitingForDependencies},
		{taskEnqueuingSteps, "steps_enqueued", TaskStepsInProcess},
		{taskEnqueuingSteps, "enqueue_failed", TaskError},
		{TaskStepsInProcess, "all_steps_completed", taskEvaluatingResults},
		{TaskStepsInProcess, "step_completed", taskEvaluatingResults},
		{TaskStepsInProcess, "step_failed", TaskWaitingForRetry},
		{taskEvaluatingResults, "all_steps_successful", TaskComplete},
		{taskEvaluatingResults, "ready_steps_found", taskEnqueuingSteps},
		{taskEvaluatingResults, "no_dependencies_ready", TaskWaitingForDependencies},
		{taskEvaluatingResults, "permanent_failure", TaskBlockedByFailures},
		{TaskWaitingForDependencies, "dependencies_ready", taskEvaluatingResults},
		{TaskWaitingForRetry, "retry_ready", taskEnqueuingSteps},
		{TaskBlockedByFailures, "give_up", TaskError},
		{TaskBlockedByFailures, "manual_resolution", TaskResolvedManually},
		{TaskBlockedByFailures, "step_resolved", taskEvaluatingResults},
		{TaskError, "reset", TaskPending},
		{TaskComplete, "run_again", TaskPending},
		{TaskCancelled, "run_again", TaskPending},
		{TaskResolvedManually, "run_again", TaskPending},
		{TaskStepsInProcess, "fail", TaskError}, // nothing has moved for too long
		{TaskWaitingForDependencies, "fail", TaskError},
		{TaskWaitingForRetry, "fail", TaskError},
		{TaskPending, "fail", TaskError},
	}
	for _, from := range TaskStates() {
		if from.Terminal() {
			continue
		}
		t = append(t, taskTransition{from, "cancel", TaskCancelled})
		if from != TaskBlockedByFailures {
			t = append(t, taskTransition{from, "resolve", TaskResolvedManually})
		}
	}
	return t
}

// taskPath reports whether a task can move from one state to another along taskTransitions
// without passing a terminal state.
func taskPath(from, to TaskState) bool {
	edges := taskTransitions()
	seen := map[TaskState]bool{from: true}
	queue := []TaskState{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range edges {
			if e.From != at || seen[e.To] {
				continue
			}
			if e.To == to {
				return true
			}
			seen[e.To] = true
			if !e.To.Terminal() {
				queue = append(queue, e.To)
			}
		}
	}
	return false
}

func TestTransitionTable(t *testing.T) {
	for _, e := range taskTransitions() {
		if e.From.Terminal() {
			require.Contains(t, []string{"reset", "run_again"}, e.Event, "an ended task moves by an operator's hand alone")
		}
	}
	require.True(t, taskPath(TaskPending, TaskComplete))
	for _, s := range TaskStates() {
		if s != TaskPending {
			require.True(t, taskPath(TaskPending, s), "%s can be reached", s)
		}
	}
}
