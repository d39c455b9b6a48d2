package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) task() command {
	return command{
		use: "task", aliases: []string{"tasks"}, short: "Create, list, inspect, watch, repair and cancel tasks",
		commands: []command{
			a.taskCreate(), a.taskImport(), a.taskList(),
			{use: "get TASK", short: "Show a task and its results", run: a.found(taskOf)},
			a.taskFind(),
			{use: "steps TASK", lists: true, short: "List the steps of a task", run: ask(a, stepsOf, listing(a, stepFacts))},
			{use: "step TASK STEP", short: "Show one step with its result or error; STEP is a UUID or a name",
				run: ask(a, ofPair((*api).Step), a.showStep)},
			{use: "step-audit TASK STEP", lists: true, short: "List the reported executions of a step, newest first",
				run: ask(a, ofPair((*api).StepAudit), a.showAudit)},
			{use: "graph TASK", short: "List all steps of a task with what they depend on, and the tasks that they are",
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.TaskGraph, error) {
					return c.TaskGraph(ctx, args[0])
				}, a.showGraph)},
			a.taskWatch(),
			{use: "timeline TASK", short: "Draw when each attempt waited, ran and was applied",
				run: a.taskTimeline},
			a.taskLogs(), a.taskVisualize(), a.taskBatches(), a.taskChain(),
			{use: "verify TASK", short: "Check the records of a task for contradictions", run: a.taskVerify},
			a.taskCancel(), a.resetStep(), a.resolveStep(), a.completeStep(), a.taskRunAgain(),
			a.taskAction(command{use: "release-lease TASK STEP", short: "Revoke the lease of a running step, as if its worker were lost"},
				client.ActionReleaseLease),
			a.taskAction(command{use: "resolve TASK", short: "End a task as resolved by hand"}, client.ActionResolve),
			a.taskAction(command{use: "fail TASK", short: "End a task as failed; its steps can be reset"}, client.ActionFail),
			a.taskReplay(), a.taskReprioritise(), a.taskBulk(), a.sendEvent(),
		},
	}
}

func (a *app) taskList() command {
	var states []string
	o, most := client.TaskListOptions{Page: 1}, 20
	return command{
		use: "list", lists: true, short: "List tasks, newest first",
		flags: all(
			a.namespace(&o.Namespace, "only of this namespace"),
			a.templateFlag(&o.Name, "only of this template"),
			opt(&o.NameContains, "name-contains", "only of templates with this in their names"),
			opt(&o.Version, "version", "only of this version of it"),
			opt(&states, "status,s", "only in these states; may be repeated", withCommas, among(taskStateWords()...)),
			opt(&o.Tags, "tag", "only with this tag; repeated: with all of them"),
			opt(&o.CorrelationID, "correlation-id", "only of this correlation id", aUUID),
			createdFlags(&o.CreatedAfter, &o.CreatedBefore),
			opt(&o.Initiator, "initiator", "only of this initiator"),
			opt(&o.SourceSystem, "source-system", "only from this source system"),
			limit(&most, maxListed, "how many", hinting("see more with --cursor")),
			opt(&o.Page, "page", "which page, from 1", atLeastOne),
			opt(&o.Cursor, "cursor", "instead of a page: newest, or what the list before ended with"),
		),
		either: [][2]string{{"page", "cursor"}},
		run: ask(a, func(ctx context.Context, c *api, _ []string) (*client.TaskList, error) {
			o.Status = strings.Join(states, ",")
			return listTasks(ctx, c, o, most)
		}, func(list *client.TaskList) {
			listing(a, a.taskFacts)(list.Tasks)
			if p := list.Pagination; p.HasNext || p.HasPrevious {
				a.printf("\npage %d of %d, %s\n", p.Page, p.TotalPages, counted(p.TotalCount, "task"))
			}
			if list.NextCursor != "" {
				a.printf("\nmore with --cursor %s\n", list.NextCursor)
			}
		}),
	}
}

// listTasks lists so many tasks: a page, or for more than that by cursors.
func listTasks(ctx context.Context, c *api, o client.TaskListOptions, most int) (*client.TaskList, error) {
	o.PerPage = min(most, tasksPerPage)
	switch {
	case most > tasksPerPage && o.Page > 1:
		return nil, usagef("give --page with a --limit up to %d; --cursor goes on after longer lists", tasksPerPage)
	case most > tasksPerPage && o.Cursor == "":
		o.Cursor = client.NewestTasks
	case o.Cursor == "":
		return c.Tasks(ctx, o)
	}
	o.Page = 0
	all := &client.TaskList{Tasks: []client.Task{}}
	for o.Cursor != "" && len(all.Tasks) < most {
		o.PerPage = min(most-len(all.Tasks), tasksPerPage)
		list, err := c.Tasks(ctx, o)
		if err != nil {
			return nil, err
		}
		all.Tasks = append(all.Tasks, list.Tasks...)
		o.Cursor, all.NextCursor = list.NextCursor, list.NextCursor
	}
	return all, nil
}

func (a *app) taskFind() command {
	var name, key string
	var wait time.Duration
	namespace := "default"
	return command{
		use: "find", short: "Show the task that has an idempotency key",
		long: `Shows the task that was created with an idempotency key, whatever its state. A key
belongs to a template of a namespace, whichever its version, and counts until its
lifetime is over (see the templates' key_lifetime).`,
		example: "  tasker-ctl task find -n payments --name process_refund --idempotency-key order-7",
		flags: all(
			a.namespace(&namespace, "namespace of the template"),
			a.templateFlag(&name, "name of the template", needed),
			keyFlag(&key, "the `key` that the task was created with", needed),
			waitFlag(&wait),
		),
		run: a.found(func(ctx context.Context, c *api, _ []string) (*client.Task, error) {
			return c.TaskByKey(ctx, namespace, name, key, wait)
		}),
	}
}

// waitFlag is --wait of commands that can wait for the end of a task.
func waitFlag(wait *time.Duration) flags {
	return opt(wait, "wait", "wait up to `duration` for the task to finish", notNegative)
}

func taskOf(ctx context.Context, c *api, args []string) (*client.Task, error) {
	return c.Task(ctx, args[0], 0)
}

// found makes a runner of a query for a task, which writes it, its results, and why it
// may make no progress.
func (a *app) found(q query[*client.Task]) runner {
	return func(ctx context.Context, c *api, args []string) error {
		task, err := q(ctx, c, args)
		if err != nil {
			return err
		}
		if err := a.emit(task, func() { a.showTask(task) }); err != nil {
			return err
		}
		a.showOutcome(ctx, c, task)
		if why := a.unserved(ctx, c, task); why != "" {
			a.warnf("%s", why)
		}
		return nil
	}
}

func (a *app) showTask(task *client.Task) {
	a.show(a.taskFacts(task))
	a.showReadiness(task.Steps)
}

func (a *app) taskFacts(task *client.Task) facts {
	recommended := task.RecommendedAction
	if recommended == "none" {
		recommended = ""
	}
	return facts{
		{"Task", task.TaskUUID},
		{"Template", templateName(task)},
		{"Status", stateCell(task.Status)},
		{"execution", task.ExecutionStatus},
		{"recommended?", recommended},
		{"health", stateCell(task.HealthStatus)},
		{"STEPS", share(task.CompletedSteps, task.TotalSteps)},
		{"steps", fmt.Sprintf("%d of %d complete (%.0f%%), %d in progress, %d ready, %d failed",
			task.CompletedSteps, task.TotalSteps, task.CompletionPercentage, task.InProgressSteps, task.ReadySteps, task.FailedSteps)},
		{"FAILED", task.FailedSteps},
		{"Priority", task.Priority},
		{"AGE", a.since(task.CreatedAt.Time)},
		{"tags", strings.Join(task.Tags, ", ")},
		{"initiator", task.Initiator},
		{"source", task.SourceSystem},
		{"reason", task.Reason},
		{"correlation", task.CorrelationID},
		{"parent", task.ParentCorrelationID},
		{"step of task?", task.ParentTaskUUID},
		{"depends on?", strings.Join(task.DependsOn, ", ")},
		{"continues?", task.ContinuesTaskUUID},
		{"continued by?", strings.Join(task.ContinuedBy, ", ")},
		{"created", task.CreatedAt},
		{"updated", task.UpdatedAt},
		{"completed", task.CompletedAt},
		{"context", wording.Clip(string(task.Context), 200)},
	}
}

func (a *app) showReadiness(steps []client.StepReadiness) {
	if len(steps) == 0 {
		return
	}
	a.printf("\n")
	listing(a, func(s *client.StepReadiness) facts {
		return facts{{"STEP", s.Name}, {"STATE", stateCell(s.CurrentState)},
			{"ATTEMPTS", share(s.Attempts, s.MaxAttempts)},
			{"PARENTS", share(s.CompletedParents, s.TotalParents)}, {"READY", s.ReadyForExecution},
			{"NEXT RETRY", s.NextRetryAt}, {"UUID", s.WorkflowStepUUID}}
	})(steps)
	for i := range steps {
		if w := steps[i].Waiting; w != nil {
			a.printf("%s waits for %s\n", steps[i].Name, waitText(w))
		}
	}
}

// waitText says what a step waits for.
func waitText(w *client.Waiting) string {
	what := map[string]string{"sleep": "its time", "wait_for_event": "the event " + w.Event, "approval": "a decision", "tasks": "the tasks that its task depends on",
		client.WaitingForWorker: "a worker: " + w.Reason}[w.Kind]
	if w.Key != "" {
		what += " with key " + w.Key
	}
	if w.TaskUUID != nil {
		what = "task " + *w.TaskUUID
	}
	if w.Prompt != "" {
		what += " (" + wording.Clip(oneLine(w.Prompt), 60) + ")"
	}
	return what + suffixed(", until ", instant(w.Until))
}

func (a *app) taskVerify(ctx context.Context, c *api, args []string) error {
	v, err := c.VerifyTask(ctx, args[0])
	if err != nil {
		return err
	}
	wrong := failure(fmt.Sprintf("task %s: %s", v.TaskUUID, counted(len(v.Problems), "contradiction")))
	return a.verdict(v, v.OK, wrong, func() {
		for _, p := range v.Problems {
			a.printf("%s\n", oneLine(p))
		}
		if v.OK {
			a.printf("task %s: the records agree\n", v.TaskUUID)
		}
	})
}

func (a *app) taskChain() command {
	n := limits.DefaultChainLimit
	return command{
		use: "chain TASK", lists: true, short: "Show the tasks that a task continues, and those that continue it",
		long: `Shows the tasks that a task continues, and those that continue it, the oldest
first. A handler names the next task when it ends its step. Tasks that retention
has deleted are missing.`,
		flags: limit(&n, limits.MaxChainLimit, "how many links in each direction"),
		run:   ask(a, ofWith((*api).Chain, &n), a.showChain),
	}
}

// showChain marks the task that was asked for.
func (a *app) showChain(chain *client.Chain) {
	if chain.MoreBefore {
		a.printf("… more before; see them with --limit\n")
	}
	listing(a, func(task *client.Task) facts {
		mark := " "
		if task.TaskUUID == chain.TaskUUID {
			mark = "▶"
		}
		return facts{{"", mark}, {"TASK", task.TaskUUID}, {"TEMPLATE", templateName(task)},
			{"STATUS", stateCell(task.Status)}, {"CREATED", task.CreatedAt},
			{"CONTINUES", task.ContinuesTaskUUID}}
	})(chain.Tasks)
	if chain.MoreAfter {
		a.printf("… more after; see them with --limit\n")
	}
}

func templateName(t *client.Task) string { return t.Namespace + "/" + t.Name + ":" + t.Version }

// share is a part of a number, such as attempts of those allowed.
func share[N int | int64](n, of N) string { return fmt.Sprintf("%d/%d", n, of) }

// instant is a time in UTC to the millisecond, empty without one.
func instant(t *client.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// since is the age of something; a clock that is behind the server's makes it
// no less than zero.
func (a *app) since(t time.Time) string { return seconds(max(a.now().Sub(t), 0)) }
