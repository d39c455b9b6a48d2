// Package execution derives the condition of a task from the counts of its steps: the one-word
// answers of the API, and the state to show for a live task.
//
// What may not enter: the rules that move tasks, which are workflow's.
package execution

import "github.com/tasker-go/tasker/workflow"

// Counts counts the steps of a task by visible state.
type Counts struct {
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

// Derive applies the precedence of the execution status: a permanent failure first,
// then claimable steps that no worker can run, claimable steps, running steps, completed
// steps.
func Derive(c Counts) Execution {
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

// VisibleState is the state to show for a live task: the stored state is written with a
// decision, so a later claim or due retry shows only on the board.
func VisibleState(stored workflow.TaskState, c Counts) workflow.TaskState {
	switch {
	case stored == workflow.TaskPending && c.InProgress > 0:
		return workflow.TaskStepsInProcess
	case stored == workflow.TaskWaitingForRetry && (c.InProgress > 0 || c.Ready > 0):
		return workflow.TaskStepsInProcess
	default:
		return stored
	}
}
