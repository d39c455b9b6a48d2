package workflow

// compensating is the state, in messages, of a task that undoes completed steps.
const compensating = "compensating"

// reasonCompensating is the prefix of the reason of a task that undoes completed steps
// before it ends; the rest is why it ends.
const reasonCompensating = "compensating: "

// endAs ends the task, after completed steps have been undone where the template says how.
// A second failure during that ends it at once.
func (a *advancing) endAs(state TaskState) {
	if a.progress.Ending != 0 || a.nextUndo() < 0 {
		a.ended = state
		return
	}
	a.void = true
	a.progress.Ending = state
}

// nextUndo is the step that undoes the last completed step that is not undone: the reverse
// of the order of numbers, in which each step comes after its dependencies. Negative: none.
func (a *advancing) nextUndo() int {
	for no := len(a.plan.Steps) - 1; no >= 0; no-- {
		undo := a.plan.Steps[no].Undo
		if undo >= 0 && a.progress.Steps[no].Status == StatusComplete && a.progress.Steps[undo].Status == StatusNotCreated {
			return undo
		}
	}
	return -1
}

// compensate continues undoing completed steps, one after the other; false when there is
// nothing (more) to undo. A compensation that fails for good stops it: earlier steps are
// not undone past it.
func (a *advancing) compensate(in statusSet) bool {
	if a.progress.Ending == 0 {
		if !in.has(StatusError) || a.plan.Template.OnFailure == OnFailureBlock {
			return false
		}
		if a.nextUndo() < 0 {
			return false
		}
		a.progress.Ending, a.void = TaskError, true
		if a.reason == "" {
			a.reason = "step " + a.name(a.earlierFailure().Step) + ": failed"
		}
	}
	if a.undoFailed() {
		return false
	}
	undo := a.nextUndo()
	if undo < 0 {
		return false
	}
	a.progress.Steps[undo] = StepProgress{Status: StatusWaiting}
	a.put(undo, 0)
	if a.void { // its begin is recorded even where the state stays
		a.effects.Changes = append(a.effects.Changes, TaskChange{From: a.effects.State, To: TaskStepsInProcess, Reason: reasonCompensating + a.reason})
		a.effects.State = TaskStepsInProcess
	}
	a.change(TaskStepsInProcess, "")
	return true
}

// undoFailed reports whether a compensation has failed for good.
func (a *advancing) undoFailed() bool {
	for no := range a.plan.Steps {
		if a.plan.Steps[no].Kind == KindCompensation && a.progress.Steps[no].Status == StatusError {
			return true
		}
	}
	return false
}

// finishUndone ends a task once everything is undone or cannot be.
func (a *advancing) finishUndone() {
	if a.progress.Ending == TaskCancelled && !a.undoFailed() {
		if a.reason == "" {
			a.reason = "what the task did has been undone"
		}
		a.change(TaskCancelled, a.reason)
		return
	}
	a.blocked()
}

// undone reports whether a step can no longer be retried by itself, because the task undoes
// or has undone its steps.
func (a *advancing) undone(step *PlanStep) bool {
	return a.progress.Ending != 0 && step.Kind != KindCompensation
}

// standingOf is the state, for messages, that does not allow an action.
func (a *advancing) standingOf(s *StepProgress, step *PlanStep) string {
	if a.undone(step) {
		return compensating
	}
	return s.Status.String()
}
