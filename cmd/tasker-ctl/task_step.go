package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
)

func stepsOf(ctx context.Context, c *api, args []string) ([]client.Step, error) {
	steps, err := c.Steps(ctx, args[0])
	if err == nil && len(steps) == 0 { // the same answer for a task that does not exist
		_, err = c.Task(ctx, args[0], 0)
	}
	return steps, err
}

func (a *app) showSteps(steps []client.Step) {
	listing(a, heads{"STEP", "STATE", "ATTEMPTS", "PARENTS", "READY", "DURATION", "NEXT RETRY", "UUID"}, func(s *client.Step) row {
		return row{s.Name, stateCell(s.CurrentState), share(s.Attempts, s.MaxAttempts), share(s.CompletedParents, s.TotalParents),
			s.ReadyForExecution, stepDuration(s), s.NextRetryAt, s.StepUUID}
	})(steps)
}

// stepDuration is how long the attempt took that completed the step.
func stepDuration(s *client.Step) string {
	if s.CompletedAt == nil || s.LastAttemptedAt == nil {
		return ""
	}
	return seconds(s.CompletedAt.Sub(s.LastAttemptedAt.Time))
}

func (a *app) showAudit(rows []client.StepAudit) {
	listing(a, heads{"RECORDED", "SUCCESS", "FROM", "TO", "MS", "WORKER"}, func(r *client.StepAudit) row {
		return row{r.RecordedAt, r.Success, r.FromState, r.ToState, r.ExecutionTimeMS, r.WorkerUUID}
	})(rows)
}

// findStep finds a step of the task before it by its name; a UUID is taken as it
// is.
func findStep(ctx context.Context, c *api, before []string, step string) (string, error) {
	if id, err := uuid.Parse(step); err == nil {
		return id.String(), nil
	}
	task := before[0]
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

// offerSteps lists the names of the steps of a task.
func offerSteps(ctx context.Context, c *api, before []string) ([]string, error) {
	task, err := c.Task(ctx, before[0], 0)
	if err != nil {
		return nil, err
	}
	return namesOf(task.Steps, func(s *client.StepReadiness) string { return s.Name }), nil
}

func (a *app) showStep(s *client.Step) {
	pairs := []pair{
		{"step", s.StepUUID},
		{"name", s.Name},
		{"task", s.TaskUUID},
		{"state", stateCell(s.CurrentState)},
		{"attempts", share(s.Attempts, s.MaxAttempts)},
		{"parents", fmt.Sprintf("%d of %d satisfied", s.CompletedParents, s.TotalParents)},
		{"ready", s.ReadyForExecution},
		{"retry eligible", s.RetryEligible},
		{"created", s.CreatedAt},
		{"last attempt", s.LastAttemptedAt},
		{"last failure", s.LastFailureAt},
		{"next retry", s.NextRetryAt},
		{"completed", s.CompletedAt},
	}
	if c := s.Checkpoint; c != nil {
		pairs = append(pairs, pair{"checkpoint", string(c.Cursor)}, pair{"items processed", c.ItemsProcessed}, pair{"saved", c.Timestamp},
			pair{"saved before", fmt.Sprintf("%d times", len(c.History))})
	}
	if r := stepResult(s); r != nil {
		if r.Error != nil {
			pairs = append(pairs, pair{"error", cell{prefixed(r.Error.ErrorType, ": ") + r.Error.Message, red}})
		}
		if r.Metadata.Custom["manually_completed"] == true {
			custom := r.Metadata.Custom
			pairs = append(pairs, pair{"completed by", custom["completed_by"]}, pair{"reason", custom["completion_reason"]})
		}
	}
	a.showPairs(pairs...)
	if c := s.Checkpoint; c != nil && len(c.AccumulatedResults) > 0 {
		a.printf("\naccumulated results:\n%s\n", indented(c.AccumulatedResults))
	}
	if shownJSON(s.Results) != "" {
		a.printf("\nresults:\n%s\n", indented(s.Results))
	}
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
	if shownJSON(s.Results) == "" || json.Unmarshal(s.Results, &r) != nil {
		return nil
	}
	return &r
}

const (
	// mostResults bounds how many results are listed under a task.
	mostResults = 50
	// resultWidth is how much of one is shown; task step shows all of it.
	resultWidth = 200
)

// showOutcome writes the results of the steps of a task that has ended. Results
// that cannot be read are a warning and no failure: the task itself is known.
func (a *app) showOutcome(ctx context.Context, c *api, task *client.Task) {
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

// unserved says why no live worker can run a step of a task that has not ended; ""
// where one can, or where the server does not say.
func (a *app) unserved(ctx context.Context, c *api, task *client.Task) string {
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
