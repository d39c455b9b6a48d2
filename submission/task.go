package submission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Created is a task that exists now.
type Created struct {
	UUID          uuid.UUID
	RequestedAt   time.Time // by the database's clock
	CorrelationID uuid.UUID // the request's, or else the task's own id
	Plan          *store.Plan
}

// Plans knows the current plan of a template version; store.ErrNotFound where
// there is none. *store.Store and store.PlansOnTx do.
type Plans interface {
	PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error)
}

// Prepare makes a task of a request. The error is an *InvalidError or
// *UnknownTemplateError when the sender is to blame, else that of the look for
// the template.
func Prepare(ctx context.Context, plans Plans, r *Request) (store.NewTask, error) {
	if err := r.Check(); err != nil {
		return store.NewTask{}, err
	}
	plan, err := Template(ctx, plans, r)
	if err != nil {
		return store.NewTask{}, err
	}
	return Task(r, plan)
}

// Template returns the plan that a request names.
func Template(ctx context.Context, plans Plans, r *Request) (*store.Plan, error) {
	plan, err := plans.PlanNamed(ctx, r.Namespace, r.Name, r.Version)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &UnknownTemplateError{r.Namespace, r.Name, r.Version}
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// Task makes a task of a request that has been checked and the plan it names.
func Task(r *Request, plan *store.Plan) (store.NewTask, error) {
	if err := checkSchema(r.Context, plan); err != nil {
		return store.NewTask{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewTask{}, fmt.Errorf("make a task id: %w", err)
	}
	t := store.NewTask{
		UUID: id, Plan: plan, Context: r.Context, CorrelationID: id, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags,
		IdempotencyKey: r.IdempotencyKey, StartIn: r.StartIn, DeadlineIn: r.DeadlineIn,
		DependsOn: r.DependsOn, Lenient: r.OnDependencyFailure == DependencyIgnored,
	}
	if r.Priority != nil {
		t.Priority = *r.Priority
	}
	if r.CorrelationID != nil {
		t.CorrelationID = *r.CorrelationID
	}
	var identity workflow.Identity
	if r.IdempotencyKey != "" {
		identity = workflow.KeyIdentity(r.Namespace, r.Name, r.IdempotencyKey)
	} else if identity, err = workflow.ContextIdentity(r.Namespace, r.Name, r.Context); err != nil {
		return store.NewTask{}, &InvalidError{Problems: []string{err.Error()}}
	}
	t.Identity = &identity
	return t, nil
}

// checkSchema holds a context against the input schema of a plan. The error is an
// *InvalidError.
func checkSchema(context json.RawMessage, plan *store.Plan) error {
	violations := plan.InputSchema.Validate(context)
	if len(violations) == 0 {
		return nil
	}
	invalid := &InvalidError{}
	for _, v := range violations {
		invalid.Problems = append(invalid.Problems, fmt.Sprintf("context%s: %s", v.Path, v.Message))
	}
	return invalid
}

// Answer says what became of a task that was brought to the database. The error
// is a *DuplicateError, or *BusyError.
func Answer(task *store.NewTask, row store.CreatedTask) (Created, error) {
	switch {
	case row.Busy:
		return Created{}, &BusyError{}
	case row.Duplicate:
		duplicate := &DuplicateError{}
		if task.IdempotencyKey != "" {
			duplicate.Existing = row.UUID
		}
		return Created{}, duplicate
	}
	return Created{UUID: row.UUID, RequestedAt: row.RequestedAt, CorrelationID: task.CorrelationID, Plan: task.Plan}, nil
}

// Into creates the task of a request within a transaction that its caller ends,
// see store.CreateTasksIn. The error is an *InvalidError, *UnknownTemplateError
// or *DuplicateError when the sender is to blame; the transaction goes on after
// each of these as if nothing had been asked.
func Into(ctx context.Context, tx store.Tx, plans Plans, how store.Announce, r *Request) (Created, error) {
	task, err := Prepare(ctx, plans, r)
	if err != nil {
		return Created{}, err
	}
	rows, err := store.CreateTasksIn(ctx, tx, how, task)
	if err != nil {
		return Created{}, err
	}
	return Answer(&task, rows[0])
}
