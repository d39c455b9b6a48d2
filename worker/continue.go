package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/store"
)

// NextTask is the task that continues the one of the handler, see Continue. What
// is left empty is taken from the handler's task: the namespace, the name with
// the version, the context, the priority, the correlation id, the parent
// correlation id, the initiator, the source system and the tags. A template of
// another name has the highest version that is not deprecated where none is given.
//
// Without an idempotency key the next task is never a duplicate, so a task may be
// continued by one with the same context.
type NextTask = TaskRequest

// Continue is what a handler returns to end its step with a result and to name
// the task that comes next:
//
//	return worker.Continue(result, worker.NextTask{Name: "collect", Version: "1.0.0", StartIn: time.Hour})
//
// The end of the step and the new task become true together, or neither does: in
// the transaction of the handler where it works in one, and else in one that the
// engine begins for it. So there is one next task for each execution whose
// success was accepted, wherever a process dies; a result that comes too late
// creates nothing. Both tasks show each other.
//
// A task that was created before under the idempotency key of the request is the
// next task, and stays as it is. A request that is refused (a context that does
// not fit its template, a template that is not registered) is a permanent
// failure of type TypeNextTaskRefused.
//
// It works in every kind of step; the task that is continued goes on with the
// steps it has left. What else it may come to is not waited for. Whether the queue
// is full (back-pressure) is not asked.
func Continue[Out any](result Out, next NextTask) (Out, error) {
	return result, &continueError{result, next}
}

// continueError is a result and what comes next, as a handler gives them.
type continueError struct {
	result any
	next   NextTask
}

func (e *continueError) Error() string {
	return fmt.Sprintf("the handler continues with the task %s", e.next.Name)
}

// continued returns what comes next; nil where the error is a failure. A mark
// around it makes it one, as around a yield.
func continued(err error) *continueError {
	var c *continueError
	var verdict *verdictError
	var y *yieldError
	if !errors.As(err, &c) || errors.As(err, &verdict) || errors.As(err, &y) {
		return nil
	}
	return c
}

// Continued returns the task that a handler has named as what comes next, from
// the error that it returned: for tests of handlers, and for functions around
// them. ok is false where the error is a failure, or none.
func Continued(err error) (next NextTask, ok bool) {
	c := continued(err)
	if c == nil {
		return next, false
	}
	return c.next, true
}

// continuePatience bounds the wait for a connection of a handler that has ended
// well although the worker is shutting down.
const continuePatience = 2 * time.Second

// continueWith has the next task created with the report, in a transaction that
// is begun for it where the handler has none.
func (e *engine) continueWith(x *execution, next *NextTask) error {
	if x.tx == nil {
		if err := e.beginToContinue(x); err != nil {
			return err
		}
	}
	x.tx.next = next
	return nil
}

func (e *engine) beginToContinue(x *execution) error {
	err := x.life.why()
	if err == nil {
		_, err = e.begin(x, store.TxOptions{})
	}
	if !errors.Is(err, ErrShutdown) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(e.base, continuePatience, ErrShutdown)
	defer cancel()
	_, err = e.beginUnder(ctx, x, store.TxOptions{})
	return err
}

// createNext creates the next task in the transaction of the execution.
func (e *engine) createNext(ctx context.Context, x *execution, next *NextTask) error {
	r := x.context.nextRequest(next)
	alike := r.IdempotencyKey == "" // as far as anybody knows
	if alike {
		r.IdempotencyKey = fmt.Sprintf("%s/%d", x.context.StepUUID(), x.key.Token) // tells of which execution it is
	}
	task, err := submission.Prepare(ctx, e.works.store, &r)
	if err != nil {
		return notContinued(err)
	}
	if alike {
		task.Identity = nil // or a task could not be continued with the context it has
	}
	created, err := x.tx.work.Continue(ctx, store.Continuation{Claim: x.key, StepName: x.context.StepName(), Actor: e.cfg.WorkerID, Next: task})
	if err != nil {
		return notContinued(submission.Refusal(err))
	}
	if !created.Duplicate {
		x.tx.created = append(x.tx.created, r.Namespace)
	}
	return nil
}

// nextRequest fills in what a handler has left to the engine.
func (c *StepContext) nextRequest(next *NextTask) TaskRequest {
	r := *next
	if r.Namespace == "" {
		r.Namespace = c.Namespace()
	}
	if r.Name == "" {
		r.Name = c.TaskName()
	}
	if r.Version == "" && r.Name == c.TaskName() && r.Namespace == c.Namespace() {
		r.Version = c.Version()
	}
	if r.Context == nil {
		r.Context = c.Input()
	}
	if r.Priority == nil {
		priority := c.Priority()
		r.Priority = &priority
	}
	if r.CorrelationID == nil {
		id := c.CorrelationID()
		r.CorrelationID = &id
	}
	if r.ParentCorrelationID == nil {
		r.ParentCorrelationID = c.claim.ParentCorrelationID
	}
	return r
}

// notContinued is the failure of a step whose next task was not created.
func notContinued(err error) error {
	var invalid *InvalidTaskError
	var unknown *UnknownTemplateError
	switch {
	case errors.As(err, &invalid), errors.As(err, &unknown), errors.Is(err, store.ErrContinuesItself):
		return Permanent(typed(TypeNextTaskRefused, "the next task was refused: %w", err))
	case errors.Is(err, store.ErrWorkEnded):
		return notReported(err)
	case refused(err):
		return Permanent(WithCode(typed(TypeNextTaskRefused, "the database refuses to store the next task (SQLSTATE %s)", sqlState(err)), sqlState(err)))
	}
	return inTxFailed(err, "the next task could not be created with the end of the step")
}
