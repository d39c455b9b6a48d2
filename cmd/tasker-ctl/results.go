package main

import (
	"context"

	"github.com/tasker-go/tasker/client"
)

const (
	// mostResults bounds how many results are listed under a task.
	mostResults = 50
	// resultWidth is how much of one is shown; task step shows all of it.
	resultWidth = 200
)

// showOutcome writes what the steps of a task that has ended have brought. The
// task itself is known, so results that cannot be read are told and no failure.
func (a *app) showOutcome(ctx context.Context, c *client.Client, task *client.Task) {
	if !task.Terminal() || a.global.output != formatTable {
		return
	}
	steps, err := c.Steps(ctx, task.TaskUUID)
	if err != nil {
		a.warnf("the results could not be read: %s", oneLine(err.Error()))
		return
	}
	t := a.newTable("STEP", "RESULT")
	more := 0
	for i := range steps {
		r := stepResult(&steps[i])
		switch {
		case r == nil:
		case len(t.rows) > mostResults:
			more++
		case r.Error != nil:
			t.row(steps[i].Name, cell{clip(oneLine("error: "+r.Error.Message), resultWidth), red})
		default:
			t.row(steps[i].Name, clip(oneLine(string(r.Result)), resultWidth))
		}
	}
	if len(t.rows) == 1 {
		return
	}
	a.printf("\n")
	t.write(a.stdout)
	if more > 0 {
		a.printf("and %s; see tasker-ctl task steps %s\n", counted(more, "more result"), task.TaskUUID)
	}
}

// unserved says which step of a task that has not ended no live worker can run; ""
// where there is none, or where that cannot be told.
func (a *app) unserved(ctx context.Context, c *client.Client, task *client.Task) string {
	if task.Terminal() {
		return ""
	}
	now, err := c.Task(ctx, task.TaskUUID, 0)
	if err != nil {
		a.logf(1, "whether workers can run the steps is not known: %v", err)
		return ""
	}
	for i := range now.Steps {
		if w := now.Steps[i].Waiting; w != nil && w.Kind == client.WaitingForWorker {
			return w.Reason
		}
	}
	return ""
}
