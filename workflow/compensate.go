package workflow

// compensating names, in messages, a task that undoes what it did.
const compensating = "compensating"

// ReasonCompensating begins the reason of a task that undoes what it did before
// it ends; the rest is why it ends.
const ReasonCompensating = "compensating: "

// endAs ends the task, once what it did has been undone where the template says
// how. A second try to end it badly does so at once.
func (a *advancing) endAs(state TaskState) {
	if a.progress.Ending != 0 || a.nextUndo() < 0 {
		a.ended = state
		return
	}
	a.void = true
	a.progress.Ending = state
}

// nextUndo is the step that undoes the last of what was done and has not been
// undone: the reverse of the order of numbers, in which each step comes after
// what it depends on. Negative: there is none.
func (a *advancing) nextUndo() int {
	for no := len(a.plan.Steps) - 1; no >= 0; no-- {
		undo := a.plan.Steps[no].Undo
		if undo >= 0 && a.progress.Steps[no].Status == StatusComplete && a.progress.Steps[undo].Status == StatusNotCreated {
			return undo
		}
	}
	return -1
}

// compensate goes on with undoing what was done, one step after the other; false
// when there is nothing (more) to undo. One that fails for good stops it: what
// was done before is not undone past it.
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
	if a.void { // it begins; that is worth telling also where the state stays
		a.effects.Changes = append(a.effects.Changes, TaskChange{From: a.effects.State, To: TaskStepsInProcess, Reason: ReasonCompensating + a.reason})
		a.effects.State = TaskStepsInProcess
	}
	a.change(TaskStepsInProcess, "")
	return true
}

// undoFailed reports whether a step that undoes another one has failed for good.
func (a *advancing) undoFailed() bool {
	for no := range a.plan.Steps {
		if a.plan.Steps[no].Kind == KindCompensation && a.progress.Steps[no].Status == StatusError {
			return true
		}
	}
	return false
}

// finishUndone ends a task of which everything has been undone, or cannot be.
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

// undone reports whether a step cannot be set going by itself any more, because
// the task undoes or has undone what it did.
func (a *advancing) undone(step *PlanStep) bool {
	return a.progress.Ending != 0 && step.Kind != KindCompensation
}

// standingOf is the state that an action does not fit.
func (a *advancing) standingOf(s *StepProgress, step *PlanStep) string {
	if a.undone(step) {
		return compensating
	}
	return s.Status.String()
}
