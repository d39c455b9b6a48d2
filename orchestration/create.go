package orchestration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/store"
)

// Create validates a request and creates its task. Requests that arrive while
// a transaction is under way share the next one. The error is an *InvalidError,
// *UnknownTemplateError or *DuplicateError for a fault of the client, a *BusyError
// when another transaction with the same identity must end first; it wraps
// store.ErrUnavailable when the database is away.
func (o *Orchestrator) Create(ctx context.Context, r Request) (Created, error) {
	r.Schema = o.schema
	task, err := submission.Prepare(ctx, o.store, &r)
	if err != nil {
		return Created{}, err
	}
	return o.insert(ctx, &task, &r)
}

// insert writes the task of a request.
func (o *Orchestrator) insert(ctx context.Context, task *store.NewTask, r *Request) (Created, error) {
	row, err := o.creates.Do(ctx, *task)
	if err != nil {
		return Created{}, creationError(err)
	}
	created, err := submission.Answer(task, row, r.Conflict)
	if err == nil && !created.Existing {
		o.metrics.TasksCreated.WithLabelValues(r.Namespace).Inc()
	}
	return created, err
}

// creationError wraps the reason why a task could not be created.
func creationError(err error) error {
	return fmt.Errorf("create the task: %w", submission.Refusal(err))
}

// flushCreates writes one batch of tasks and sends their signals.
func (o *Orchestrator) flushCreates(ctx context.Context, tasks []store.NewTask) ([]store.CreatedTask, error) {
	created, err := o.create(ctx, tasks)
	if err == nil {
		o.scheduleLook()
		o.beginSoon(tasks)
		return created, nil
	}
	if len(tasks) == 1 || errors.Is(err, store.ErrUnavailable) {
		return nil, err
	}
	// A task that the database rejects must not fail the others of its batch.
	return o.createHalves(ctx, tasks)
}

// beginSoon starts a look at tasks that the engine begins itself.
func (o *Orchestrator) beginSoon(tasks []store.NewTask) {
	if slices.ContainsFunc(tasks, func(t store.NewTask) bool { return t.Plan.EngineFirst || len(t.DependsOn) > 0 }) {
		o.readiness.WakeIn(0)
	}
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
