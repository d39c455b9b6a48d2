package rest

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const stepsTag = "steps"

// stepRoutes show the steps of a task.
type stepRoutes struct{ *orchestratorAPI }

func (s *stepRoutes) add() {
	op := operation{tag: stepsTag}
	add(s.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/workflow_steps", "list-steps", "List the steps of a task"), s.list)
	add(s.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/workflow_steps/{step_uuid}", "get-step", "Show a step with its result"), s.get)
	add(s.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/workflow_steps/{step_uuid}/audit", "get-step-audit", "List the reported executions of a step, newest first"), s.audit)
}

// stepPath holds the path parameters of a step's routes. They have their own error text
// for an invalid UUID.
type stepPath struct {
	UUID     string `path:"uuid" format:"uuid"`
	StepUUID string `path:"step_uuid" format:"uuid"`
}

func taskOfSteps(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, badRequest("Invalid task UUID format")
	}
	return id, nil
}

func (p *stepPath) ids() (task, step uuid.UUID, err error) {
	if task, err = taskOfSteps(p.UUID); err != nil {
		return task, step, err
	}
	if step, err = uuid.Parse(p.StepUUID); err != nil {
		return task, step, badRequest("Invalid step UUID format")
	}
	return task, step, nil
}

func (s *stepRoutes) list(ctx context.Context, in *struct {
	UUID string `path:"uuid" format:"uuid"`
}) ([]client.Step, error) {
	id, err := taskOfSteps(in.UUID)
	if err != nil {
		return nil, err
	}
	task, err := s.store.Task(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return []client.Step{}, nil
	}
	if err != nil {
		return nil, err
	}
	steps := make([]client.Step, len(task.Steps))
	for i := range task.Steps {
		if steps[i], err = stepOf(task, &task.Steps[i]); err != nil {
			return nil, err
		}
	}
	return steps, nil // in the order of their numbers
}

func (s *stepRoutes) get(ctx context.Context, in *stepPath) (*client.Step, error) {
	taskID, stepID, err := in.ids()
	if err != nil {
		return nil, err
	}
	task, err := s.store.Task(ctx, taskID)
	if err != nil {
		return nil, err
	}
	step, err := stepIn(task, stepID)
	if err != nil {
		return nil, err
	}
	w, err := stepOf(task, step)
	if err == nil {
		w.Checkpoint, err = checkpointOf(step)
	}
	return &w, err
}

func stepIn(t *store.Task, id uuid.UUID) (*store.Step, error) {
	for i := range t.Steps {
		if t.Steps[i].UUID == id {
			return &t.Steps[i], nil
		}
	}
	return nil, notFound("Step does not belong to the specified task")
}

func (s *stepRoutes) audit(ctx context.Context, in *stepPath) ([]client.StepAudit, error) {
	taskID, stepID, err := in.ids()
	if err != nil {
		return nil, err
	}
	task, err := s.readTask(ctx, taskID)
	if err != nil {
		return nil, err
	}
	step, err := stepIn(task, stepID)
	if err != nil {
		return nil, err
	}
	attempts, err := s.store.Attempts(ctx, taskID, step.No)
	if err != nil {
		return nil, err
	}
	rows := []client.StepAudit{}
	for i := range attempts {
		if attempts[i].Reported < 0 {
			continue
		}
		row, err := auditOf(task, step, &attempts[i])
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b client.StepAudit) int {
		return cmp.Compare(b.RecordedAt.UnixMicro(), a.RecordedAt.UnixMicro())
	})
	return rows, nil
}

// auditOf is one reported execution. Its UUIDs are derived from the claim's token, so
// that they are stable.
func auditOf(t *store.Task, s *store.Step, a *store.StepAttempt) (client.StepAudit, error) {
	var token [9]byte
	binary.BigEndian.PutUint64(token[1:], uint64(a.Token)) // #nosec G115 -- any bits will do
	transition := uuid.NewSHA1(s.UUID, token[:])
	token[0] = 1
	then := stepAt(t, s, a)
	w := client.StepAudit{
		AuditUUID: uuid.NewSHA1(s.UUID, token[:]).String(), WorkflowStepUUID: s.UUID.String(), TransitionUUID: transition.String(),
		TaskUUID: t.UUID.String(), RecordedAt: client.Time{Time: *then.ReportedAt},
		CorrelationID: t.CorrelationID.String(), Success: then.State == workflow.StepComplete, StepName: s.Name,
		FromState: workflow.StepInProgress.String(), ToState: workflow.StepEnqueuedAsErrorForOrchestration.String(),
	}
	if w.Success {
		w.ToState = workflow.StepEnqueuedForOrchestration.String()
	}
	if a.Worker != nil {
		w.WorkerUUID = a.Worker.String()
	}
	result := resultOf(t, &then)
	if result == nil {
		return w, nil
	}
	if then.StartedAt != nil {
		w.ExecutionTimeMS = &result.Metadata.ExecutionTimeMS
	}
	var err error
	if w.Result, err = json.Marshal(result); err != nil {
		return w, fmt.Errorf("encode the result of step %s: %w", s.UUID, err)
	}
	return w, nil
}

// stepAt is the step when the execution had been reported.
func stepAt(t *store.Task, s *store.Step, a *store.StepAttempt) store.Step {
	moment := func(seconds float64) *time.Time {
		if seconds < 0 {
			return nil
		}
		at := t.RequestedAt.Add(time.Duration(math.Round(seconds*1e6)) * time.Microsecond)
		return &at
	}
	then := store.Step{No: s.No, UUID: s.UUID, Name: s.Name, WorkerUUID: a.Worker,
		StartedAt: moment(a.Claimed), ReportedAt: moment(a.Reported), Result: a.Result, Error: a.Error}
	switch {
	case a.Outcome == "success", a.Outcome == "cancelled" && a.Error == nil:
		then.State, then.CompletedAt = workflow.StepComplete, then.ReportedAt
	case a.Outcome == "failed":
		then.State, then.LastFailureAt = workflow.StepWaitingForRetry, then.ReportedAt
	default:
		then.State, then.LastFailureAt = workflow.StepError, then.ReportedAt
	}
	return then
}
