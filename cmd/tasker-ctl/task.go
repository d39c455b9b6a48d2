package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

func newTaskCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "task",
		Aliases: []string{"tasks"},
		Short:   "Create, list, inspect, watch, repair and cancel tasks",
	}
	cmd.AddCommand(
		suggestedFor(newTaskCreateCommand(a), "new", "add", "submit", "start"),
		newTaskImportCommand(a),
		newTaskListCommand(a),
		suggestedFor(a.taskCommand("get", "Show a task and its results", (*app).getTask), "show", "info", "describe", "inspect", "status"),
		newTaskFindCommand(a),
		a.taskCommand("steps", "List the steps of a task", (*app).listSteps),
		newTaskStepCommand(a),
		newTaskStepAuditCommand(a),
		newTaskWatchCommand(a),
		a.taskCommand("timeline", "Draw when each attempt waited, ran and was applied", (*app).timeline),
		newTaskBatchesCommand(a),
		newTaskChainCommand(a),
		a.taskCommand("verify", "Check the records of a task for contradictions", (*app).verifyTask),
		suggestedFor(newTaskCancelCommand(a), "delete", "stop", "abort", "kill", "rm"),
		withEdits(a, newResetStepCommand(a)),
		newResolveStepCommand(a),
		newCompleteStepCommand(a),
		newTaskRunAgainCommand(a),
		a.stepActionCommand("release-lease", client.ActionReleaseLease, "Take a running step from its worker, as if that were gone", plainAct),
		a.actionCommand("resolve", client.ActionResolve, "End a task as resolved by hand"),
		a.actionCommand("fail", client.ActionFail, "End a task as failed; its steps can be reset"),
		newTaskReplayCommand(a),
		newTaskReprioritiseCommand(a),
		newTaskBulkCommand(a),
		newSendEventCommand(a),
	)
	return cmd
}

// suggestedFor names a command to those who use words of other tools.
func suggestedFor(cmd *cobra.Command, words ...string) *cobra.Command {
	cmd.SuggestFor = words
	return cmd
}

// taskCommand is a command whose only argument is a task.
func (a *app) taskCommand(name, short string, do func(*app, context.Context, *client.Client, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " UUID",
		Short: short,
		Args:  arguments("UUID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTask(args[0], func(c *client.Client, id string) error { return do(a, cmd.Context(), c, id) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// withTask checks a task's UUID, connects, and explains what goes wrong.
func (a *app) withTask(id string, do func(c *client.Client, id string) error) error {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return usagef("%q is not the UUID of a task", id)
	}
	c, err := a.client(orchestrator)
	if err != nil {
		return err
	}
	return unreachable(orchestrator, do(c, parsed.String()))
}

func newTaskListCommand(a *app) *cobra.Command {
	o := client.TaskListOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Status != "" {
				if _, ok := workflow.ParseTaskState(o.Status); !ok {
					return usagef("unknown status %q: it must be one of %s", o.Status, strings.Join(taskStateWords(), ", "))
				}
			}
			if o.PerPage < 1 || o.PerPage > 100 {
				return hinted{usagef("--limit must be between 1 and 100"), "see more with --page"}
			}
			if o.Page < 1 {
				return usagef("--page must be 1 or more")
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Tasks(cmd.Context(), o)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() { a.showTasks(list) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "", "only of this namespace")
	f.StringVarP(&o.Status, "status", "s", "", "only in this state")
	f.StringVar(&o.Initiator, "initiator", "", "only of this initiator")
	f.StringVar(&o.SourceSystem, "source-system", "", "only from this source system")
	f.IntVarP(&o.PerPage, "limit", "l", 20, "how many, up to 100")
	f.IntVar(&o.Page, "page", 1, "which page, from 1")
	completeFlag(cmd, "status", oneOfWords(taskStateWords()...))
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

func (a *app) showTasks(list *client.TaskList) {
	t := a.newTable("TASK", "TEMPLATE", "STATUS", "STEPS", "FAILED", "PRIORITY", "AGE")
	for i := range list.Tasks {
		task := &list.Tasks[i]
		t.row(task.TaskUUID, templateName(task), stateCell(task.Status),
			fmt.Sprintf("%d/%d", task.CompletedSteps, task.TotalSteps), task.FailedSteps,
			number(task.Priority), a.since(task.CreatedAt.Time))
	}
	t.write(a.stdout)
	if p := list.Pagination; p.HasNext || p.HasPrevious {
		a.printf("\npage %d of %d, %s\n", p.Page, p.TotalPages, counted(p.TotalCount, "task"))
	}
}

func (a *app) getTask(ctx context.Context, c *client.Client, id string) error {
	task, err := c.Task(ctx, id, 0)
	if err != nil {
		return err
	}
	return a.showFound(ctx, c, task)
}

// showFound writes a task, what it has brought, and why it may stand still.
func (a *app) showFound(ctx context.Context, c *client.Client, task *client.Task) error {
	if err := a.emit(task, func() { a.showWithSteps(task) }); err != nil {
		return err
	}
	a.showOutcome(ctx, c, task)
	if why := a.unserved(ctx, c, task); why != "" {
		a.warnf("%s", why)
	}
	return nil
}

func (a *app) showWithSteps(task *client.Task) {
	a.showTask(task)
	if len(task.Steps) > 0 {
		a.printf("\n")
		a.showReadiness(task.Steps)
	}
}

func (a *app) showTask(task *client.Task) {
	t := a.newPairs()
	t.row("task", task.TaskUUID)
	t.row("template", templateName(task))
	t.row("status", stateCell(task.Status))
	t.row("execution", task.ExecutionStatus)
	if task.RecommendedAction != "none" {
		t.row("recommended", task.RecommendedAction)
	}
	t.row("health", stateCell(task.HealthStatus))
	t.row("steps", fmt.Sprintf("%d of %d complete (%.0f%%), %d in progress, %d ready, %d failed",
		task.CompletedSteps, task.TotalSteps, task.CompletionPercentage, task.InProgressSteps, task.ReadySteps, task.FailedSteps))
	t.row("priority", number(task.Priority))
	t.row("tags", strings.Join(task.Tags, ", "))
	t.row("initiator", task.Initiator)
	t.row("source", task.SourceSystem)
	t.row("reason", task.Reason)
	t.row("correlation", task.CorrelationID)
	t.row("parent", text(task.ParentCorrelationID))
	if task.ParentTaskUUID != nil {
		t.row("step of task", *task.ParentTaskUUID)
	}
	if len(task.DependsOn) > 0 {
		t.row("depends on", strings.Join(task.DependsOn, ", "))
	}
	if task.ContinuesTaskUUID != "" {
		t.row("continues", task.ContinuesTaskUUID)
	}
	if len(task.ContinuedBy) > 0 {
		t.row("continued by", strings.Join(task.ContinuedBy, ", "))
	}
	t.row("created", instant(&task.CreatedAt))
	t.row("updated", instant(&task.UpdatedAt))
	t.row("completed", instant(task.CompletedAt))
	t.row("context", clip(string(task.Context), 200))
	t.write(a.stdout)
}

func (a *app) showReadiness(steps []client.StepReadiness) {
	t := a.newTable("STEP", "STATE", "ATTEMPTS", "PARENTS", "READY", "NEXT RETRY", "UUID")
	for _, s := range steps {
		var next *client.Time
		if s.NextRetryAt != nil {
			next = &client.Time{Time: s.NextRetryAt.Time}
		}
		t.row(s.Name, stateCell(s.CurrentState), attempts(s.Attempts, s.MaxAttempts),
			fmt.Sprintf("%d/%d", s.CompletedParents, s.TotalParents), yesNo(s.ReadyForExecution), instant(next), s.WorkflowStepUUID)
	}
	t.write(a.stdout)
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
		what += " (" + clip(oneLine(w.Prompt), 60) + ")"
	}
	if w.Until != nil {
		what += fmt.Sprintf(", until %v", instant(w.Until))
	}
	return what
}

func (a *app) verifyTask(ctx context.Context, c *client.Client, id string) error {
	v, err := c.VerifyTask(ctx, id)
	if err != nil {
		return err
	}
	if err := a.emit(v, func() {
		for _, p := range v.Problems {
			a.printf("%s\n", oneLine(p))
		}
		if v.OK {
			a.printf("task %s: the records agree\n", v.TaskUUID)
		}
	}); err != nil {
		return err
	}
	if !v.OK {
		return failure(fmt.Sprintf("task %s: %s", v.TaskUUID, counted(len(v.Problems), "contradiction")))
	}
	return nil
}

func templateName(t *client.Task) string { return t.Namespace + "/" + t.Name + ":" + t.Version }

func attempts(n, limit int) string { return fmt.Sprintf("%d/%d", n, limit) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func number(n *int) any {
	if n == nil {
		return nil
	}
	return *n
}

// instant is a time in UTC to the millisecond, nil without one.
func instant(t *client.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// since is the age of something; a clock that is behind the server's makes it
// no less than zero.
func (a *app) since(t time.Time) string { return seconds(max(a.now().Sub(t), 0)) }
