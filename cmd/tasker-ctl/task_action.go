package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

// defaultActor is who acts when nobody is named.
const defaultActor = "cli-operator"

// whyFlags say who acts and what for.
type whyFlags struct{ reason, actor string }

// flags adds -r and -b; actorFlag is the long name of the latter, and need says
// that a reason must be given.
func (w *whyFlags) flags(cmd *cobra.Command, actorFlag string, need bool) {
	usage := "why; kept in the history"
	if need {
		usage += " (required)"
	}
	cmd.Flags().StringVarP(&w.reason, "reason", "r", "", usage)
	cmd.Flags().StringVarP(&w.actor, actorFlag, "b", defaultActor, "who acts")
	if need {
		required(cmd, "reason")
	}
}

// notAllowed gives the refusal of a task or step in the wrong state its exit
// code: what is wrong with the command line was found before it was sent.
func notAllowed(err error) error {
	var told *client.Error
	if errors.As(err, &told) && told.Status == http.StatusBadRequest {
		return coded{err, exitConflict}
	}
	return err
}

func newTaskCancelCommand(a *app) *cobra.Command {
	var why whyFlags
	cmd := a.taskCommand("cancel", "Cancel a task that has not ended", func(a *app, ctx context.Context, c *client.Client, id string) error {
		task, err := c.CancelTaskWhy(ctx, id, client.Why{Reason: why.reason, Actor: why.actor})
		if err != nil {
			return notAllowed(err)
		}
		return a.emit(task, func() { a.printf("task %s: %s\n", task.TaskUUID, task.Status) })
	})
	why.flags(cmd, "actor", false)
	return cmd
}

// actionCommand is a command that acts on a task; more may add to the action
// and its flags.
func (a *app) actionCommand(name, action, short string, more ...func(cmd *cobra.Command, t *client.TaskAction) func() error) *cobra.Command {
	var why whyFlags
	t := &client.TaskAction{Action: action}
	var checks []func() error
	cmd := a.taskCommand(name, short, func(a *app, ctx context.Context, c *client.Client, id string) error {
		t.Reason, t.Actor = why.reason, why.actor
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		return a.actOnTask(ctx, c, id, *t)
	})
	why.flags(cmd, "actor", true)
	for _, m := range more {
		checks = append(checks, m(cmd, t))
	}
	return cmd
}

func (a *app) actOnTask(ctx context.Context, c *client.Client, id string, t client.TaskAction) error {
	task, err := c.ActOnTask(ctx, id, t)
	if err != nil {
		return notAllowed(err)
	}
	return a.emit(task, func() {
		if task.TaskUUID != id {
			a.printf("created task %s (%s)\n", task.TaskUUID, task.Status)
			return
		}
		a.printf("task %s: %s\n", task.TaskUUID, task.Status)
	})
}

func newTaskReprioritiseCommand(a *app) *cobra.Command {
	cmd := a.actionCommand("reprioritise", client.ActionReprioritise, "Change the priority of a task that has not ended",
		func(cmd *cobra.Command, t *client.TaskAction) func() error {
			var priority int
			cmd.Flags().IntVarP(&priority, "priority", "p", 0, "the new one, -100 to 100; higher goes first (required)")
			required(cmd, "priority")
			return func() error { t.Priority = &priority; return checkPriority(priority) }
		})
	cmd.Aliases = []string{"reprioritize"}
	return cmd
}

func checkPriority(priority int) error {
	if priority < workflow.MinPriority || priority > workflow.MaxPriority {
		return usagef("--priority must be between %d and %d", workflow.MinPriority, workflow.MaxPriority)
	}
	return nil
}

func newTaskReplayCommand(a *app) *cobra.Command {
	var why whyFlags
	var e editFlags
	cmd := a.taskCommand("replay", "Create a task that does the same again", func(a *app, ctx context.Context, c *client.Client, id string) error {
		return e.act(ctx, a, c, id, client.TaskAction{Action: client.ActionReplay, Reason: why.reason, Actor: why.actor})
	})
	why.flags(cmd, "actor", true)
	e.flags(cmd)
	cmd.Long = `Creates a task with the template, the input and the tags of an old one. Its parent
correlation id is the correlation id of the old one. A pending entry of the old
task in the dead-letter queue is closed; replayed twice, it is a conflict.`
	return cmd
}

// acting carries an action on a task out.
type acting func(ctx context.Context, a *app, c *client.Client, task string, t client.TaskAction) error

func plainAct(ctx context.Context, a *app, c *client.Client, task string, t client.TaskAction) error {
	return a.actOnTask(ctx, c, task, t)
}

// stepActionCommand is a command that acts on one step through the actions of
// its task.
func (a *app) stepActionCommand(name, action, short string, act acting) *cobra.Command {
	var why whyFlags
	cmd := &cobra.Command{
		Use:   name + " TASK STEP",
		Short: short,
		Args:  arguments("TASK", "STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStep(cmd.Context(), args, func(c *client.Client, task, step string) error {
				return act(cmd.Context(), a, c, task, client.TaskAction{Action: action, StepUUID: step, Reason: why.reason, Actor: why.actor})
			})
		},
		ValidArgsFunction: a.completeSteps,
	}
	why.flags(cmd, "actor", true)
	return cmd
}

// resolutionCommand is a command that resets, resolves or completes a step;
// fill puts the actor and what else is needed into the request.
func (a *app) resolutionCommand(name, actorFlag, short string, fill func(s *client.StepAction, actor string) error) *cobra.Command {
	var why whyFlags
	cmd := &cobra.Command{
		Use:   name + " TASK STEP",
		Short: short,
		Args:  arguments("TASK", "STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := client.StepAction{Reason: why.reason}
			if err := fill(&s, why.actor); err != nil {
				return err
			}
			return a.withStep(cmd.Context(), args, func(c *client.Client, task, id string) error {
				step, err := c.ActOnStep(cmd.Context(), task, id, s)
				if err != nil {
					return notAllowed(err)
				}
				return a.emit(step, func() {
					a.printf("step %s: %s (%s: %s)\n", oneLine(step.Name), step.CurrentState, oneLine(why.actor), oneLine(why.reason))
				})
			})
		},
		ValidArgsFunction: a.completeSteps,
	}
	why.flags(cmd, actorFlag, true)
	return cmd
}

func newResetStepCommand(a *app) *cobra.Command {
	return a.resolutionCommand("reset-step", "reset-by", "Run a step in error again, with all its attempts",
		func(s *client.StepAction, actor string) error {
			s.ActionType, s.ResetBy = client.StepResetForRetry, actor
			return nil
		})
}

func newResolveStepCommand(a *app) *cobra.Command {
	return a.resolutionCommand("resolve-step", "resolved-by", "Count a step as satisfied without a result",
		func(s *client.StepAction, actor string) error {
			s.ActionType, s.ResolvedBy = client.StepResolveManually, actor
			return nil
		})
}

func newCompleteStepCommand(a *app) *cobra.Command {
	var result, metadata string
	cmd := a.resolutionCommand("complete-step", "completed-by", "Complete a step with a result given by hand",
		func(s *client.StepAction, actor string) (err error) {
			s.ActionType, s.CompletedBy, s.CompletionData = client.StepCompleteManually, actor, &client.CompletionData{}
			if s.CompletionData.Result, err = a.readJSON("--result", result); err != nil || metadata == "" {
				return err
			}
			s.CompletionData.Metadata, err = a.readJSON("--metadata", metadata)
			return err
		})
	cmd.Example = "  tasker-ctl task complete-step 019d… charge --result '{\"paid\": true}' -r 'paid by hand, ticket 7'"
	cmd.Flags().StringVar(&result, "result", "", "what the steps after it are given, as JSON, @file, or - for stdin (required)")
	cmd.Flags().StringVar(&metadata, "metadata", "", "kept beside the result, as JSON or @file")
	required(cmd, "result")
	return cmd
}

// readJSON reads any JSON from a flag's value.
func (a *app) readJSON(flag, value string) (json.RawMessage, error) {
	data, err := a.readInput(value, maxInput)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, usagef("%s is not JSON", flag)
	}
	return data, nil
}
