package orchestration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/command"
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

// Create validates a request and creates its task. Requests that come while
// another transaction is under way share the next one. The error is an
// *InvalidError, *UnknownTemplateError or *DuplicateError when the sender is
// to blame; it wraps store.ErrUnavailable when the database is away.
func (o *Orchestrator) Create(ctx context.Context, r Request) (Created, error) {
	task, err := o.prepare(ctx, &r)
	if err != nil {
		return Created{}, err
	}
	row, err := o.creates.Do(ctx, task)
	if err != nil {
		return Created{}, fmt.Errorf("create the task: %w", err)
	}
	created, err := answer(&task, row)
	if err == nil {
		o.metrics.TasksCreated.WithLabelValues(r.Namespace).Inc()
	}
	return created, err
}

// answer says what became of a task that was brought to the database.
func answer(task *store.NewTask, row store.CreatedTask) (Created, error) {
	if row.Duplicate {
		duplicate := &DuplicateError{}
		if task.IdempotencyKey != "" {
			duplicate.Existing = row.UUID
		}
		return Created{}, duplicate
	}
	return Created{UUID: row.UUID, RequestedAt: row.RequestedAt, CorrelationID: task.CorrelationID, Plan: task.Plan}, nil
}

// prepare makes a task of a request.
func (o *Orchestrator) prepare(ctx context.Context, r *Request) (store.NewTask, error) {
	if err := r.check(); err != nil {
		return store.NewTask{}, err
	}
	plan, err := o.template(ctx, r)
	if err != nil {
		return store.NewTask{}, err
	}
	return newTask(r, plan)
}

// template returns the plan that a request names.
func (o *Orchestrator) template(ctx context.Context, r *Request) (*store.Plan, error) {
	plan, err := o.store.PlanNamed(ctx, r.Namespace, r.Name, r.Version)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &UnknownTemplateError{r.Namespace, r.Name, r.Version}
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// newTask makes a task of a request that has been checked.
func newTask(r *Request, plan *store.Plan) (store.NewTask, error) {
	if violations := plan.InputSchema.Validate(r.Context); len(violations) > 0 {
		invalid := &InvalidError{}
		for _, v := range violations {
			invalid.Problems = append(invalid.Problems, fmt.Sprintf("context%s: %s", v.Path, v.Message))
		}
		return store.NewTask{}, invalid
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewTask{}, fmt.Errorf("make a task id: %w", err)
	}
	t := store.NewTask{
		UUID: id, Plan: plan, Context: r.Context, CorrelationID: id, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags,
		IdempotencyKey: r.IdempotencyKey, StartIn: r.StartIn, DeadlineIn: r.DeadlineIn,
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

// flushCreates writes one batch of tasks and sends their signals.
func (o *Orchestrator) flushCreates(ctx context.Context, tasks []store.NewTask) ([]store.CreatedTask, error) {
	created, err := o.create(ctx, tasks)
	if err == nil {
		o.stir()
		return created, nil
	}
	if len(tasks) == 1 || errors.Is(err, store.ErrUnavailable) {
		return nil, err
	}
	// One task that the database refuses must not cost the others theirs.
	return o.createHalves(ctx, tasks)
}

func (o *Orchestrator) createHalves(ctx context.Context, tasks []store.NewTask) ([]store.CreatedTask, error) {
	created := make([]store.CreatedTask, 0, len(tasks))
	errs := make([]error, 0, len(tasks))
	failed := false
	for _, half := range [][]store.NewTask{tasks[:len(tasks)/2], tasks[len(tasks)/2:]} {
		done, err := o.flushCreates(ctx, half)
		var each *command.BatchError
		switch {
		case err == nil:
			created, errs = append(created, done...), append(errs, make([]error, len(half))...)
		case errors.As(err, &each) && len(done) == len(half):
			created, errs, failed = append(created, done...), append(errs, each.Errs...), true
		default:
			created, failed = append(created, make([]store.CreatedTask, len(half))...), true
			for range half {
				errs = append(errs, err)
			}
		}
	}
	if !failed {
		return created, nil
	}
	return created, &command.BatchError{Errs: errs}
}
