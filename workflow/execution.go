package workflow

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

// ExecutionStatus is the one-word answer to "what is this task doing".
type ExecutionStatus string

// The values of ExecutionStatus in order of precedence.
const (
	ExecutionBlocked  ExecutionStatus = "blocked_by_failures"
	ExecutionUnserved ExecutionStatus = "waiting_for_worker"
	ExecutionReady    ExecutionStatus = "has_ready_steps"
	ExecutionRunning  ExecutionStatus = "processing"
	ExecutionComplete ExecutionStatus = "all_complete"
	ExecutionWaiting  ExecutionStatus = "waiting_for_dependencies"
)

// Execution is the derived condition of a task.
type Execution struct {
	Status            ExecutionStatus
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
		e.Status, e.RecommendedAction, e.Health = ExecutionBlocked, "handle_failures", "blocked"
	case c.Ready > 0 && c.Unserved == c.Ready && c.InProgress == 0:
		e.Status, e.RecommendedAction = ExecutionUnserved, "start_worker"
	case c.Ready > 0:
		e.Status, e.RecommendedAction = ExecutionReady, "execute_ready_steps"
	case c.InProgress > 0:
		e.Status, e.RecommendedAction = ExecutionRunning, "wait_for_completion"
	case c.Total > 0 && c.Complete == c.Total:
		e.Status, e.RecommendedAction = ExecutionComplete, "finalize_task"
	default:
		e.Status, e.RecommendedAction = ExecutionWaiting, "wait_for_dependencies"
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
