package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// summaryRoutes show a task as a whole: in short, and what its steps work with.
type summaryRoutes struct{ *taskRoutes }

func (s *summaryRoutes) add() {
	op := operation{tag: tasksTag}
	add(s.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/summary", "get-task-summary", "Show a task, its template and its steps in short"), s.summary)
	add(s.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/context", "get-task-context", "Show the context of a task and the results of its steps"), s.context)
}

func (s *summaryRoutes) summary(ctx context.Context, in *taskInput) (*client.TaskSummary, error) {
	task, err := s.readTask(ctx, in.UUID)
	if err != nil {
		return nil, err
	}
	shown := taskOf(task, true)
	if err := s.addUnserved(ctx, task, shown); err != nil {
		return nil, err
	}
	w := summaryOf(task, shown)
	if w.DLQ, err = s.pendingLetter(ctx, in.UUID); err != nil {
		return nil, err
	}
	return w, nil
}

func (s *summaryRoutes) pendingLetter(ctx context.Context, task uuid.UUID) (w client.DLQSummary, err error) {
	pending, err := s.store.PendingReason(ctx, task)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return w, nil
	case err != nil:
		return w, err
	}
	reason, resolution := snake(nameOf(letterReasons, pending)), snake(client.ResolutionPending)
	return client.DLQSummary{InDLQ: true, DLQReason: &reason, ResolutionStatus: &resolution}, nil
}

// summaryOf is a task in short, without its dead letter.
func summaryOf(t *store.Task, task *client.Task) *client.TaskSummary {
	path := "/v1/tasks/" + task.TaskUUID
	w := &client.TaskSummary{
		Task: client.TaskSummaryMetadata{
			TaskUUID: task.TaskUUID, Name: task.Name, Namespace: task.Namespace, Version: task.Version, Status: task.Status,
			CreatedAt: task.CreatedAt, UpdatedAt: task.UpdatedAt, CompletedAt: task.CompletedAt,
			Initiator: task.Initiator, SourceSystem: task.SourceSystem, Reason: task.Reason, CorrelationID: task.CorrelationID,
			TotalSteps: task.TotalSteps, PendingSteps: task.PendingSteps, InProgressSteps: task.InProgressSteps,
			CompletedSteps: task.CompletedSteps, FailedSteps: task.FailedSteps, CompletionPercentage: task.CompletionPercentage,
			HealthStatus: task.HealthStatus, ExecutionStatus: task.ExecutionStatus, RecommendedAction: &task.RecommendedAction,
		},
		Template: client.TaskSummaryTemplate{Steps: make([]client.TemplateStepSummary, len(t.Plan.Steps))},
		Steps:    make([]client.StepSummary, len(t.Steps)),
		Links:    client.TaskLinks{Task: path, Steps: path + "/workflow_steps", DLQ: "/v1/dlq"},
	}
	for i, s := range t.Plan.Steps {
		w.Template.Steps[i] = templateStepOf(s.StepTemplate)
	}
	for i := range t.Steps {
		w.Steps[i] = stepSummaryOf(t, &t.Steps[i])
	}
	return w
}

func templateStepOf(s *workflow.StepTemplate) client.TemplateStepSummary {
	return client.TemplateStepSummary{Name: s.Name, StepType: s.Kind.String(), Handler: cmp.Or(s.Handler.Callable, "unknown"), // the engine runs it
		Dependencies: append([]string{}, s.Dependencies...), Retryable: s.Retry.Retryable, MaxAttempts: s.Retry.MaxAttempts}
}

func stepSummaryOf(t *store.Task, s *store.Step) client.StepSummary {
	policy := retryPolicy(t, s)
	w := client.StepSummary{
		StepUUID: s.UUID.String(), Name: s.Name, CurrentState: s.State.String(),
		CreatedAt: instant(&s.CreatedAt), CompletedAt: instant(s.CompletedAt), LastAttemptedAt: instant(s.LastAttemptAt),
		Attempts: s.Attempts, MaxAttempts: policy.MaxAttempts,
		DependenciesSatisfied: s.ParentsDone >= s.Parents, RetryEligible: retryEligible(policy, s),
	}
	if r := resultOf(t, s); r != nil && r.Error != nil {
		w.Error = &client.StepErrorSummary{ErrorType: optional(r.Error.ErrorType), Retryable: r.Error.Retryable,
			StatusCode: statusCode(r.Error.Context)}
	}
	return w
}

// statusCode is the status of HTTP that a handler has put into the context of a failure;
// nil without one.
func statusCode(of map[string]any) *int {
	text, _ := of["status_code"].(json.Number)
	n, err := text.Float64() // 404.0 is one too
	code := int(n)
	if err != nil || float64(code) != n || code < 100 || code > 599 {
		return nil
	}
	return &code
}

func (s *summaryRoutes) context(ctx context.Context, in *taskInput) (*client.TaskContext, error) {
	task, err := s.store.Task(ctx, in.UUID)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	if err := answers(ctx, 2*lengthOfTask(task)); err != nil { // everything is in the answer twice
		return nil, err
	}
	return contextOf(task)
}

// contextOf is what the steps of a task work with.
func contextOf(t *store.Task) (*client.TaskContext, error) {
	w := &client.TaskContext{Inputs: rawOr(t.Context, "{}"), Outputs: map[string]json.RawMessage{}, Merged: map[string]json.RawMessage{}}
	if err := json.Unmarshal(w.Inputs, &w.Merged); err != nil {
		return nil, fmt.Errorf("read the context of task %s: %w", t.UUID, err)
	}
	for i := range t.Steps {
		if s := &t.Steps[i]; s.State == workflow.StepComplete {
			w.Outputs[s.Name] = rawOr(s.Result, "null")
			w.Merged[s.Name] = w.Outputs[s.Name]
		}
	}
	return w, nil
}
