package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func (a *app) listSteps(ctx context.Context, c *client.Client, task string) error {
	steps, err := c.Steps(ctx, task)
	if err != nil {
		return err
	}
	if len(steps) == 0 { // the same answer for a task that does not exist
		if _, err := c.Task(ctx, task, 0); err != nil {
			return err
		}
	}
	return a.emit(steps, func() {
		t := a.newTable("STEP", "STATE", "ATTEMPTS", "PARENTS", "READY", "DURATION", "NEXT RETRY", "UUID")
		for i := range steps {
			s := &steps[i]
			t.row(s.Name, stateCell(s.CurrentState), attempts(s.Attempts, s.MaxAttempts),
				fmt.Sprintf("%d/%d", s.CompletedParents, s.TotalParents), yesNo(s.ReadyForExecution),
				stepDuration(s), instant(s.NextRetryAt), s.StepUUID)
		}
		t.write(a.stdout)
	})
}

// stepDuration is how long the attempt took that completed the step.
func stepDuration(s *client.Step) any {
	if s.CompletedAt == nil || s.LastAttemptedAt == nil {
		return nil
	}
	return seconds(s.CompletedAt.Sub(s.LastAttemptedAt.Time))
}

func newTaskStepCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "step TASK STEP",
		Short: "Show one step with its result or error; STEP is a UUID or a name",
		Args:  arguments("TASK", "STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStep(cmd.Context(), args, func(c *client.Client, task, id string) error {
				step, err := c.Step(cmd.Context(), task, id)
				if err != nil {
					return err
				}
				return a.emit(step, func() { a.showStep(step) })
			})
		},
		ValidArgsFunction: a.completeSteps,
	}
}

func newTaskStepAuditCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "step-audit TASK STEP",
		Short: "List the reported executions of a step, newest first",
		Args:  arguments("TASK", "STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStep(cmd.Context(), args, func(c *client.Client, task, id string) error {
				rows, err := c.StepAudit(cmd.Context(), task, id)
				if err != nil {
					return err
				}
				return a.emit(rows, func() { a.showAudit(rows) })
			})
		},
		ValidArgsFunction: a.completeSteps,
	}
}

// withStep calls f with the UUIDs of the step that args name.
func (a *app) withStep(ctx context.Context, args []string, f func(c *client.Client, task, step string) error) error {
	return a.withTask(args[0], func(c *client.Client, task string) error {
		step, err := stepUUID(ctx, c, task, args[1])
		if err != nil {
			return err
		}
		return f(c, task, step)
	})
}

func (a *app) showAudit(rows []client.StepAudit) {
	t := a.newTable("RECORDED", "SUCCESS", "FROM", "TO", "MS", "WORKER")
	for i := range rows {
		r := &rows[i]
		took := any(nil)
		if r.ExecutionTimeMS != nil {
			took = *r.ExecutionTimeMS
		}
		t.row(instant(&r.RecordedAt), yesNo(r.Success), r.FromState, r.ToState, took, r.WorkerUUID)
	}
	t.write(a.stdout)
}

// stepUUID finds a step by its name; a UUID is taken as it is.
func stepUUID(ctx context.Context, c *client.Client, task, step string) (string, error) {
	if id, err := uuid.Parse(step); err == nil {
		return id.String(), nil
	}
	t, err := c.Task(ctx, task, 0)
	if err != nil {
		return "", err
	}
	for _, s := range t.Steps {
		if s.Name == step {
			return s.WorkflowStepUUID, nil
		}
	}
	return "", hinted{
		&client.Error{Status: 404, Code: "NOT_FOUND", Message: fmt.Sprintf("task %s has no step %q", task, step)},
		"see tasker-ctl task steps " + task,
	}
}

func (a *app) showStep(s *client.Step) {
	t := a.newPairs()
	t.row("step", s.StepUUID)
	t.row("name", s.Name)
	t.row("task", s.TaskUUID)
	t.row("state", stateCell(s.CurrentState))
	t.row("attempts", attempts(s.Attempts, s.MaxAttempts))
	t.row("parents", fmt.Sprintf("%d of %d satisfied", s.CompletedParents, s.TotalParents))
	t.row("ready", yesNo(s.ReadyForExecution))
	t.row("retry eligible", yesNo(s.RetryEligible))
	t.row("created", instant(&s.CreatedAt))
	t.row("last attempt", instant(s.LastAttemptedAt))
	t.row("last failure", instant(s.LastFailureAt))
	t.row("next retry", instant(s.NextRetryAt))
	t.row("completed", instant(s.CompletedAt))
	if c := s.Checkpoint; c != nil {
		t.row("checkpoint", string(c.Cursor))
		t.row("items processed", c.ItemsProcessed)
		t.row("saved", instant(&c.Timestamp))
		t.row("saved before", fmt.Sprintf("%d times", len(c.History)))
	}
	if r := stepResult(s); r != nil {
		if r.Error != nil {
			t.row("error", cell{prefixed(r.Error.ErrorType, ": ") + r.Error.Message, red})
		}
		if r.Metadata.Custom["manually_completed"] == true {
			t.row("completed by", r.Metadata.Custom["completed_by"])
			t.row("reason", r.Metadata.Custom["completion_reason"])
		}
	}
	t.write(a.stdout)
	if c := s.Checkpoint; c != nil && len(c.AccumulatedResults) > 0 {
		a.printf("\naccumulated results:\n%s\n", indented(c.AccumulatedResults))
	}
	if len(s.Results) == 0 || string(s.Results) == "null" {
		return
	}
	a.printf("\nresults:\n%s\n", indented(s.Results))
}

// shownJSON is JSON in a table; null is shown as nothing.
func shownJSON(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// indented lays JSON out for people.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// stepResult reads the result of a step, nil when there is none.
func stepResult(s *client.Step) *client.StepResult {
	var r client.StepResult
	if len(s.Results) == 0 || string(s.Results) == "null" || json.Unmarshal(s.Results, &r) != nil {
		return nil
	}
	return &r
}

// completeSteps offers the names of a task's steps for the second argument.
func (a *app) completeSteps(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	e, err := a.endpoint(orchestrator)
	if err != nil || len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	e.timeout, e.retries = completionTimeout, 0
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	task, err := a.clientOf(e).Task(ctx, args[0], 0)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, s := range task.Steps {
		words = append(words, s.Name)
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
