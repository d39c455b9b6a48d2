package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wording"
)

func stepsOf(ctx context.Context, c *api, args []string) ([]client.Step, error) {
	steps, err := c.Steps(ctx, args[0])
	if err == nil && len(steps) == 0 { // the same answer for a task that does not exist
		_, err = c.Task(ctx, args[0], 0)
	}
	return steps, err
}

// stepDuration is how long the attempt took that completed the step.
func stepDuration(s *client.Step) string {
	if s.CompletedAt == nil || s.LastAttemptedAt == nil {
		return ""
	}
	return seconds(s.CompletedAt.Sub(s.LastAttemptedAt.Time))
}

func (a *app) showAudit(rows []client.StepAudit) {
	listing(a, func(r *client.StepAudit) facts {
		return facts{{"RECORDED", r.RecordedAt}, {"SUCCESS", r.Success}, {"FROM", r.FromState},
			{"TO", r.ToState}, {"MS", r.ExecutionTimeMS}, {"WORKER", r.WorkerUUID}}
	})(rows)
}

// findStep finds a step of the task before it by its name, or by the beginning of its
// UUID; a whole one is taken as it is.
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
	if digits := prefixDigits(step); len(digits) >= leastDigits {
		ids := namesOf(t.Steps, func(s *client.StepReadiness) string { return s.WorkflowStepUUID })
		if slices.ContainsFunc(ids, func(id string) bool { return beginsWith(id, digits) }) {
			return uniqueOf("step", digits, "", ids)
		}
	}
	return "", hinted{
		&client.Error{Status: 404, Code: "NOT_FOUND", Message: fmt.Sprintf("task %s has no step %q", task, step)},
		"see tasker-ctl task steps " + task,
	}
}

// stepArgument is a step of the task before it.
var stepArgument = argument{find: findStep, offer: offers(taskBegun,
	func(t *client.Task) []client.StepReadiness { return t.Steps },
	func(s *client.StepReadiness) string { return s.Name })}

// taskBegun is taskOf for an argument that has not been looked for.
func taskBegun(ctx context.Context, c *api, args []string) (*client.Task, error) {
	id, err := uuidOrPrefix("task", args[0])
	if err == nil {
		id, err = findTask(ctx, c, nil, id)
	}
	if err != nil {
		return nil, err
	}
	return c.Task(ctx, id, 0)
}

func stepFacts(s *client.Step) facts {
	known := facts{
		{"step", s.StepUUID},
		{"STEP", s.Name},
		{"name", s.Name},
		{"task", s.TaskUUID},
		{"State", stateCell(s.CurrentState)},
		{"Attempts", share(s.Attempts, s.MaxAttempts)},
		{"PARENTS", share(s.CompletedParents, s.TotalParents)},
		{"parents", fmt.Sprintf("%d of %d satisfied", s.CompletedParents, s.TotalParents)},
		{"Ready", s.ReadyForExecution},
		{"retry eligible", s.RetryEligible},
		{"created", s.CreatedAt},
		{"last attempt", s.LastAttemptedAt},
		{"last failure", s.LastFailureAt},
		{"DURATION", stepDuration(s)},
		{"Next retry", s.NextRetryAt},
		{"completed", s.CompletedAt},
		{"UUID", s.StepUUID},
	}
	if c := s.Checkpoint; c != nil {
		known = append(known, facts{{"checkpoint", string(c.Cursor)}, {"items processed", c.ItemsProcessed}, {"saved", c.Timestamp},
			{"saved before", fmt.Sprintf("%d times", len(c.History))}}...)
	}
	if p := s.Progress; p != nil {
		known = append(known, facts{{"progress", fmt.Sprintf("%.0f %%  %s", 100*p.Fraction, p.Message)}, {"progress at", p.At}}...)
	}
	if r := stepResult(s); r != nil {
		if r.Error != nil {
			known = append(known, fact{"error", cell{prefixed(r.Error.ErrorType, ": ") + r.Error.Message, red}})
		}
		if custom := r.Metadata.Custom; custom["manually_completed"] == true {
			known = append(known, facts{{"completed by", custom["completed_by"]}, {"reason", custom["completion_reason"]}}...)
		}
	}
	return known
}

func (a *app) showStep(s *client.Step) {
	a.show(stepFacts(s))
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
			t.row(steps[i].Name, cell{wording.Clip(oneLine("error: "+r.Error.Message), resultWidth), red})
		default:
			t.row(steps[i].Name, wording.Clip(oneLine(string(r.Result)), resultWidth))
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

// graphFacts are what a list shows of the steps of a graph.
func graphFacts(s *client.GraphStep) facts {
	progress := ""
	if p := s.Progress; p != nil {
		progress = fmt.Sprintf("%.0f %%", 100*p.Fraction)
	}
	depends := ""
	for i, no := range s.DependsOn {
		if i == 10 {
			depends += fmt.Sprintf(" and %d more", len(s.DependsOn)-i)
			break
		}
		depends += prefixed(fmt.Sprint(no), " ")
	}
	return facts{
		{"NO", s.No},
		{"STEP", s.Name},
		{"TYPE", s.Type},
		{"STATE", stateCell(s.State)},
		{"ATTEMPTS", share(s.Attempts, s.MaxAttempts)},
		{"PROGRESS", progress},
		{"STARTED", s.StartedAt},
		{"ENDED", s.EndedAt},
		{"DEPENDS ON", strings.TrimSpace(depends)},
		{"ERROR", s.Error},
	}
}

// showGraph lists the steps of a task and the tasks that they are.
func (a *app) showGraph(g *client.TaskGraph) {
	a.printf("%s  %s/%s:%s  %s\n\n", g.TaskUUID, oneLine(g.Namespace), oneLine(g.Name), oneLine(g.Version), g.Status)
	listing(a, graphFacts)(g.Steps)
	for i := range g.Children {
		c := &g.Children[i]
		a.printf("\nstep %d is the task %s  %s/%s  %s", c.StepNo, c.TaskUUID, oneLine(c.Namespace), oneLine(c.Name), c.Status)
	}
	if len(g.Children) > 0 {
		a.printf("\n")
	}
}
