package store

import "github.com/tasker-go/tasker/workflow"

// letterColumns are tasks that get a dead-letter entry, and those whose entry is closed
// automatically.
type letterColumns struct {
	tasks   uuids
	states  []int16
	reasons []int16
	details []string
	steps   []*int16
	closed  closedColumns
}

type closedColumns struct {
	tasks       uuids
	resolutions []int16
	notes       []string
}

// add records what a change means for the dead letter of its task.
func (l *letterColumns) add(c *Change) {
	t, e := c.Task, c.Effects
	if d := e.DeadLetter; d != nil {
		state := workflow.VisibleTaskState(t.State, workflow.StepCounts{InProgress: len(t.Reported)})
		l.tasks, l.states = append(l.tasks, t.UUID), append(l.states, int16(state))
		l.reasons, l.details = append(l.reasons, int16(d.Reason)), append(l.details, d.Detail)
		var step *int16
		if d.Step >= 0 {
			no := int16(d.Step) // #nosec G115 -- at most workflow.MaxStepNumber
			step = &no
		}
		l.steps = append(l.steps, step)
		return
	}
	if !t.DeadLetter || !e.Finished || e.State == workflow.TaskError {
		return
	}
	resolution := ResolutionManuallyResolved
	if e.State == workflow.TaskCancelled {
		resolution = ResolutionCancelled
	}
	l.closed.tasks = append(l.closed.tasks, t.UUID)
	l.closed.resolutions = append(l.closed.resolutions, int16(resolution))
	l.closed.notes = append(l.closed.notes, "closed by itself: the task ended as "+e.State.String())
}
