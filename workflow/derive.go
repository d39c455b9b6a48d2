package workflow

// deriveState derives the state of the task and records observable changes.
func (a *advancing) deriveState() {
	const done statusSet = 1<<StatusNotCreated | 1<<StatusComplete | 1<<StatusResolved | 1<<StatusTolerated
	if len(a.progress.Groups) > 0 && a.moved && a.ended == 0 {
		a.advanceGroups()
	}
	in := a.progress.statuses()
	switch {
	case !a.moved:
	case a.ended != 0:
		a.change(a.ended, a.reason)
	case in&^done == 0 && a.progress.Ending == 0:
		a.change(TaskComplete, "")
	case in.has(StatusOnBoard):
		a.change(TaskStepsInProcess, "")
	case in.has(StatusScheduled):
		a.change(TaskWaitingForRetry, a.reason)
	case a.compensate(in):
	case a.progress.Ending != 0:
		a.finishUndone()
	case in.has(StatusError):
		a.blocked()
	default:
		a.change(TaskWaitingForDependencies, "")
	}
	a.effects.Finished = a.effects.State.Terminal()
}

// blocked records that nothing can move and a step has failed.
func (a *advancing) blocked() {
	if a.failed.Reason == 0 { // it failed earlier; another branch has ended now
		a.failed = a.earlierFailure()
		a.reason = "step " + a.name(a.failed.Step) + ": failed"
	}
	if a.effects.State != TaskBlockedByFailures {
		*a.letter = a.failed
		a.effects.DeadLetter = a.letter
	}
	a.change(TaskBlockedByFailures, a.reason)
	if a.plan.Template.OnFailure != OnFailureBlock {
		a.change(TaskError, a.reason)
	}
}

// DetailFailed is the detail of a dead letter for a step that failed earlier: the ledger has
// the cause.
const DetailFailed = "failed"

// earlierFailure is the first failed step.
func (a *advancing) earlierFailure() DeadLetter {
	for no := range a.progress.Steps {
		if a.progress.Steps[no].Status == StatusError {
			return DeadLetter{Reason: DeadLetterExhausted, Detail: DetailFailed, Step: no}
		}
	}
	return DeadLetter{Reason: DeadLetterExhausted, Detail: DetailFailed, Step: -1} // not reached: blocked found one
}

func deadLetterOf(reason string) DeadLetterReason {
	if reason == ReasonWorkerLost || reason == ReasonPoison {
		return DeadLetterWorkerUnavailable
	}
	return DeadLetterExhausted
}

func (a *advancing) change(to TaskState, reason string) {
	if a.effects.State == to {
		return
	}
	a.effects.Changes = append(a.effects.Changes, TaskChange{From: a.effects.State, To: to, Reason: reason})
	a.effects.State = to
}
