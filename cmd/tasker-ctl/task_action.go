package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/wording"
)

// notAllowed gives the refusal of a task or step in the wrong state its exit
// code: what is wrong with the command line was found before it was sent.
func notAllowed(err error) error {
	if answer, is := errors.AsType[*client.Error](err); is && answer.Status == http.StatusBadRequest {
		return coded{err, exitConflict}
	}
	return err
}

func (a *app) taskCancel() command {
	return change(a, command{use: "cancel TASK", short: "Cancel a task that has not ended", explain: notAllowed}, (*api).CancelTask, a.showStatus)
}

func (a *app) showStatus(task *client.Task) { a.printf("task %s: %s\n", task.TaskUUID, task.Status) }

// taskAction completes the description of a command that acts on a task, or on
// one step of it.
func (a *app) taskAction(d command, action string) command {
	return a.acting(d, &client.TaskAction{Action: action}, nil)
}

// acting completes the description of a command that carries out an action, on
// the step that is the second argument where there is one. With a dry flag it
// may only be looked at.
func (a *app) acting(d command, t *client.TaskAction, dry *bool) command {
	d.flags = append(why(&t.Reason, &t.Actor, needed), d.flags...)
	d.explain = notAllowed
	d.run = func(ctx context.Context, c *api, args []string) error {
		if len(args) == 2 {
			t.StepUUID = args[1]
		}
		if dry != nil && *dry {
			return ask(a, ofWith((*api).PreviewAction, t), a.showPreview)(ctx, c, args)
		}
		return ask(a, ofWith((*api).ActOnTask, t), func(task *client.Task) { a.showActedOn(args[0], task) })(ctx, c, args)
	}
	return d
}

func (a *app) showActedOn(id string, task *client.Task) {
	if task.TaskUUID != id {
		a.printf("created task %s (%s)\n", task.TaskUUID, task.Status)
		return
	}
	a.showStatus(task)
}

func (a *app) taskReprioritise() command {
	t := client.TaskAction{Action: client.ActionReprioritise}
	return a.acting(command{
		use: "reprioritise TASK", aliases: []string{"reprioritize"}, short: "Change the priority of a task that has not ended",
		flags: opt(&t.Priority, "priority", "the new one, -100 to 100; higher goes first", needed, aPriority, also("p")),
	}, &t, nil)
}

func (a *app) taskReplay() command {
	return a.editing(command{
		use: "replay TASK", short: "Create a task that repeats another one",
		long: `Creates a task with the template, the input and the tags of an old one. Its parent
correlation id is the correlation id of the old one. A pending entry of the old
task in the dead-letter queue is closed; replayed twice, it is a conflict.`,
	}, client.ActionReplay)
}

func (a *app) taskRunAgain() command {
	return a.editing(command{
		use: "run-again TASK STEP", short: "Run a step that has ended once more, and all that depends on it",
		long: `Runs a step that has ended once more from the beginning, and all that depends on
it. With --input or --patch the input of the task is changed first: every step
that starts from now on gets it, a running one keeps its old input. The history
keeps the input as it was; the identity of the task stays that of its creation.`,
		example: `  tasker-ctl task run-again 019d… charge --patch '{"currency": "EUR"}' -r 'ticket 7' --dry-run
  tasker-ctl task run-again 019d… charge --patch '{"currency": "EUR"}' -r 'ticket 7'`,
	}, client.ActionRunAgain)
}

// editing completes the description of a command whose action may change the
// input of the task.
func (a *app) editing(d command, action string) command {
	t := client.TaskAction{Action: action}
	var dry bool
	d.flags, d.either = edits(&t, &dry)
	return a.acting(d, &t, &dry)
}

// edits are the flags that change the input of a task, and those of them that
// exclude each other.
func edits(t *client.TaskAction, dry *bool) (flags, [][2]string) {
	return all(
		opt(&t.Context, "input,i", "another input as a JSON object, @file, or - for stdin", anObject),
		opt(&t.ContextPatch, "patch", "changes of the input, a JSON merge patch, @file, or - for stdin", anObject),
		opt(dry, dryRun, "only show what would change"),
	), [][2]string{{"input", "patch"}}
}

// stepResolution completes the description of a command that resets, resolves
// or completes a step; actor is the field that --actor fills in, which Tasker's tool calls actorFlag.
func (a *app) stepResolution(d command, s *client.StepAction, actorFlag string, actor *string) command {
	d.flags = all(opt(&s.Reason, "reason,r", "why; kept in the history", needed, unlessDry), actedBy(actor, also(actorFlag)), d.flags)
	d.explain = notAllowed
	d.run = ask(a, func(ctx context.Context, c *api, args []string) (*client.Step, error) {
		return c.ActOnStep(ctx, args[0], args[1], *s)
	}, func(step *client.Step) {
		a.printf("step %s: %s (%s: %s)\n", oneLine(step.Name), step.CurrentState, oneLine(*actor), oneLine(s.Reason))
	})
	return d
}

// resetStep may change the input of the task, and is an action on the task then.
func (a *app) resetStep() command {
	s := client.StepAction{ActionType: client.ActionReset}
	t := client.TaskAction{Action: client.ActionReset}
	var dry bool
	d := command{use: "reset-step TASK STEP", short: "Run a step in error again, with all its attempts"}
	edited := a.acting(d, &t, &dry)
	d.flags, d.either = edits(&t, &dry)
	d = a.stepResolution(d, &s, "reset-by", &s.ResetBy)
	reset := d.run
	d.run = func(ctx context.Context, c *api, args []string) error {
		if t.Context == nil && t.ContextPatch == nil && !dry {
			return reset(ctx, c, args)
		}
		t.Reason, t.Actor = s.Reason, s.ResetBy
		return edited.run(ctx, c, args)
	}
	return d
}

func (a *app) resolveStep() command {
	s := client.StepAction{ActionType: client.StepResolveManually}
	d := command{use: "resolve-step TASK STEP", short: "Count a step as satisfied without a result"}
	return a.stepResolution(d, &s, "resolved-by", &s.ResolvedBy)
}

func (a *app) completeStep() command {
	data := client.CompletionData{}
	s := client.StepAction{ActionType: client.ActionComplete, CompletionData: &data}
	return a.stepResolution(command{
		use: "complete-step TASK STEP", short: "Complete a step with a result given by hand",
		example: "  tasker-ctl task complete-step 019d… charge --result '{\"paid\": true}' -r 'paid by hand, ticket 7'",
		flags: all(
			opt(&data.Result, "result", "what dependent steps receive, as JSON, @file, or - for stdin", needed),
			opt(&data.Metadata, "metadata", "kept beside the result, as JSON or @file"),
		),
	}, &s, "completed-by", &s.CompletedBy)
}

// showPreview tells what an action would do.
func (a *app) showPreview(p *client.ActionPreview) {
	if len(p.Steps) > 0 {
		listing(a, func(s *client.StepPreview) facts {
			return facts{{"STEP", s.Name}, {"IS", stateCell(s.From)}, {"WOULD BE", stateCell(s.To)}}
		})(p.Steps)
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
	value := func(v json.RawMessage) string { return wording.Clip(string(v), 60) }
	listing(a, func(c *client.ContextChange) facts {
		return facts{{"INPUT AT", c.Path}, {"BEFORE", value(c.Before)}, {"AFTER", value(c.After)}}
	})(changes)
	if more {
		a.printf("… and more; -o json has the whole input\n")
	}
}

// bulkActions are those that `task action` has, in the order of its help.
var bulkActions = []string{client.ActionCancel, client.ActionFail, client.ActionResolve, client.ActionReset, client.ActionComplete,
	client.ActionRunAgain, client.ActionReprioritise, client.ActionReleaseLease}

func parseAction(text string) (string, error) { return wordOf("action", text, bulkActions) }

func (a *app) taskBulk() command {
	var r really
	b := client.BulkAction{Limit: limits.DefaultBulkLimit, DryRun: &r.dryRun}
	f := &b.Filter
	return command{
		use: "action ACTION", short: "Act on all tasks that match a filter",
		long: `Acts on all tasks that match a filter, the oldest first. A task must match every
flag of the filter, and at least one must be given. Nothing is changed without
--yes; --dry-run shows which tasks match. Tasks whose state does not allow the
action are counted as skipped.

Actions: ` + strings.Join(bulkActions, ", ") + `.
Those on steps (reset_for_retry, complete_manually, run_again, release_lease, and
resolve of a step) need --step.`,
		example: "  tasker-ctl task action cancel -n payments --tag demo --dry-run\n" +
			"  tasker-ctl task action reset_for_retry --name refund -s error --step charge -r 'gateway is back' --yes",
		flags: all(
			a.namespace(&f.Namespace, "only of this namespace"),
			a.templateFlag(&f.Name, "only of this template"),
			opt(&f.Version, "version", "only of this version of it"),
			opt(&f.States, "status,s", "only in these states; may be repeated", withCommas, among(taskStateWords()...)),
			opt(&f.Tag, "tag", "only with this tag"),
			createdFlags(&f.CreatedAfter, &f.CreatedBefore),
			opt(&f.StepName, "step", "the step that the action is about"),
			opt(&b.Priority, "priority", "for reprioritise: -100 to 100", aPriority, also("p")),
			opt(&b.Result, "result", "for complete_manually: the result as JSON or @file"),
			limit(&b.Limit, limits.MaxBulkLimit, "how many tasks at most"),
			why(&b.Reason, &b.Actor, needed),
			r.flags(),
		),
		check: func(args []string) error {
			b.Action = args[0]
			if reflect.DeepEqual(*f, client.BulkFilter{StepName: f.StepName}) {
				return usagef("task action needs a filter: --namespace, --name, --version, --status, --tag, --since or --until")
			}
			return r.check("task action " + b.Action + " may change many tasks")
		},
		run: ask(a, with((*api).ActOnTasks, &b), a.showBulk),
	}
}

// showBulk reports the outcome for many tasks, or for one that was replayed.
func (a *app) showBulk(r *client.BulkResult) {
	if r.ReplayedAs != "" {
		a.printf("created task %s\n", r.ReplayedAs)
		return
	}
	for _, id := range r.Tasks {
		a.printf("%s\n", id)
	}
	if more := r.Matched - len(r.Tasks); more > 0 && len(r.Tasks) > 0 {
		a.printf("and %d more\n", more)
	}
	if r.DryRun {
		verb := "match"
		if r.Matched == 1 {
			verb = "matches"
		}
		a.printf("%s %s; nothing was changed\n", counted(r.Matched, "task"), verb)
		return
	}
	a.printf("changed %d of %s; %d skipped\n", r.Changed, counted(r.Matched, "task"), r.Skipped)
}
