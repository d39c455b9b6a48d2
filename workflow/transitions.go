package workflow

// A TaskTransition is one edge of the task machine.
type TaskTransition struct {
	From  TaskState
	Event string
	To    TaskState
}

// A StepTransition is one edge of the step machine.
type StepTransition struct {
	From  StepState
	Event string
	To    StepState
}

// TaskTransitions is the task machine as data. Advance may pass several edges in one
// transaction; only observable states are recorded, but every recorded change is a path of
// these edges.
func TaskTransitions() []TaskTransition {
	t := []TaskTransition{
		{TaskPending, "start", TaskInitializing},
		{TaskInitializing, "ready_steps_found", TaskEnqueuingSteps},
		{TaskInitializing, "no_steps_found", TaskComplete},
		{TaskInitializing, "no_dependencies_ready", TaskWaitingForDependencies},
		{TaskEnqueuingSteps, "steps_enqueued", TaskStepsInProcess},
		{TaskEnqueuingSteps, "enqueue_failed", TaskError},
		{TaskStepsInProcess, "all_steps_completed", TaskEvaluatingResults},
		{TaskStepsInProcess, "step_completed", TaskEvaluatingResults},
		{TaskStepsInProcess, "step_failed", TaskWaitingForRetry},
		{TaskEvaluatingResults, "all_steps_successful", TaskComplete},
		{TaskEvaluatingResults, "ready_steps_found", TaskEnqueuingSteps},
		{TaskEvaluatingResults, "no_dependencies_ready", TaskWaitingForDependencies},
		{TaskEvaluatingResults, "permanent_failure", TaskBlockedByFailures},
		{TaskWaitingForDependencies, "dependencies_ready", TaskEvaluatingResults},
		{TaskWaitingForRetry, "retry_ready", TaskEnqueuingSteps},
		{TaskBlockedByFailures, "give_up", TaskError},
		{TaskBlockedByFailures, "manual_resolution", TaskResolvedManually},
		{TaskBlockedByFailures, "step_resolved", TaskEvaluatingResults},
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
		t = append(t, TaskTransition{from, "cancel", TaskCancelled})
		if from != TaskBlockedByFailures {
			t = append(t, TaskTransition{from, "resolve", TaskResolvedManually})
		}
	}
	return t
}

// StepTransitions is the step machine as data.
func StepTransitions() []StepTransition {
	t := []StepTransition{
		{StepPending, "enqueue", StepEnqueued},
		{StepEnqueued, "start", StepInProgress},
		{StepInProgress, "report_success", StepEnqueuedForOrchestration},
		{StepInProgress, "report_failure", StepEnqueuedAsErrorForOrchestration},
		{StepInProgress, "lease_lost", StepEnqueuedAsErrorForOrchestration},
		{StepInProgress, "hand_back", StepEnqueued},
		{StepEnqueuedForOrchestration, "complete", StepComplete},
		{StepEnqueuedForOrchestration, "fail", StepError}, // the result itself is invalid: a malformed outcome
		{StepEnqueuedAsErrorForOrchestration, "wait_for_retry", StepWaitingForRetry},
		{StepEnqueuedAsErrorForOrchestration, "retry_now", StepEnqueued},
		{StepEnqueuedAsErrorForOrchestration, "fail", StepError},
		{StepWaitingForRetry, "retry", StepEnqueued},
		{StepPending, "fail", StepError},
		{StepEnqueued, "fail", StepError},
		{StepError, "reset", StepPending},
		{StepComplete, "run_again", StepPending},
		{StepResolvedManually, "run_again", StepPending},
		{StepError, "run_again", StepPending},
		{StepCancelled, "run_again", StepPending},
	}
	for _, from := range StepStates() {
		if from.Terminal() && from != StepError {
			continue
		}
		t = append(t,
			StepTransition{from, "cancel", StepCancelled},
			StepTransition{from, "resolve_manually", StepResolvedManually},
			StepTransition{from, "complete_manually", StepComplete})
	}
	return t
}

// TaskPath reports whether a task can move from one state to another along TaskTransitions
// without passing a terminal state.
func TaskPath(from, to TaskState) bool {
	edges := TaskTransitions()
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
