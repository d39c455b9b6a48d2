package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

// editFlags say how the input of a task is to be changed by an action, and
// whether the action is only to be looked at.
type editFlags struct {
	input, patch string
	dry          bool
}

func (e *editFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&e.input, "input", "i", "", "another input as a JSON object, @file, or - for stdin")
	cmd.Flags().StringVar(&e.patch, "patch", "", "changes of the input, a JSON merge patch, @file, or - for stdin")
	cmd.Flags().BoolVar(&e.dry, "dry-run", false, "only tell what would change")
}

// any reports whether one of the flags was given.
func (e *editFlags) any() bool { return *e != editFlags{} }

// act carries an action out with the edit, or tells what it would do.
func (e *editFlags) act(ctx context.Context, a *app, c *client.Client, task string, t client.TaskAction) (err error) {
	if e.input != "" && e.patch != "" {
		return usagef("give --input or --patch, not both")
	}
	if e.input != "" {
		if t.Context, err = a.readObject(e.input); err != nil {
			return err
		}
	}
	if e.patch != "" {
		if t.ContextPatch, err = a.readObject(e.patch); err != nil {
			return err
		}
	}
	if !e.dry {
		return a.actOnTask(ctx, c, task, t)
	}
	p, err := c.PreviewAction(ctx, task, t)
	if err != nil {
		return notAllowed(err)
	}
	return a.emit(p, func() { a.showPreview(p) })
}

func (a *app) showPreview(p *client.ActionPreview) {
	if len(p.Steps) > 0 {
		t := a.newTable("STEP", "IS", "WOULD BE")
		for _, s := range p.Steps {
			t.row(s.Name, stateCell(s.From), stateCell(s.To))
		}
		t.write(a.stdout)
		a.printf("\n")
	}
	if len(p.ContextChanges) > 0 {
		a.showContextChanges(p.ContextChanges, p.MoreContextChanges)
		a.printf("\n")
	}
	if p.EndsAs != "" {
		a.printf("The task would end as %s.\n", p.EndsAs)
	}
	a.printf("Nothing was changed.\n")
}

func (a *app) showContextChanges(changes []client.ContextChange, more bool) {
	t := a.newTable("INPUT AT", "BEFORE", "AFTER")
	value := func(v json.RawMessage) any {
		if v == nil {
			return nil
		}
		return clip(string(v), 60)
	}
	for _, c := range changes {
		t.row(c.Path, value(c.Before), value(c.After))
	}
	t.write(a.stdout)
	if more {
		a.printf("… and more; -o json has the whole input\n")
	}
}

func newTaskRunAgainCommand(a *app) *cobra.Command {
	var e editFlags
	cmd := a.stepActionCommand("run-again", client.ActionRunAgain, "Run a step that has ended once more, and all that depends on it", e.act)
	e.flags(cmd)
	cmd.Long = `Runs a step that has ended once more from the beginning, and all that depends on
it. With --input or --patch the input of the task is changed first: every step
that begins from now on gets it, one that runs keeps what it was given. The
history keeps the input as it was; the identity of the task stays that of its
creation.`
	cmd.Example = `  tasker-ctl task run-again 019d… charge --patch '{"currency": "EUR"}' -r 'ticket 7' --dry-run
  tasker-ctl task run-again 019d… charge --patch '{"currency": "EUR"}' -r 'ticket 7'`
	return cmd
}

// withEdits lets reset-step change the input of the task as well.
func withEdits(a *app, cmd *cobra.Command) *cobra.Command {
	var e editFlags
	e.flags(cmd)
	plain := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !e.any() {
			return plain(cmd, args)
		}
		return a.withStep(cmd.Context(), args, func(c *client.Client, task, step string) error {
			return e.act(cmd.Context(), a, c, task, client.TaskAction{Action: client.ActionReset, StepUUID: step,
				Reason: cmd.Flag("reason").Value.String(), Actor: cmd.Flag("reset-by").Value.String()})
		})
	}
	return cmd
}
