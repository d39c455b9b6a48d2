package worker

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// NextTask is the task that continues the handler's task, see Continue. Empty fields are
// taken from the handler's task: the namespace, the name with the version, the context,
// the priority, the correlation id, the parent correlation id, the initiator, the source
// system and the tags. A template of another name without a version gets the highest
// version that is not deprecated.
//
// Without an idempotency key the next task is never a duplicate, so a task may be
// continued by one with the same context.
type NextTask = TaskRequest

// Continue is what a handler returns to end its step with a result and to create the next
// task:
//
//	return worker.Continue(result, worker.NextTask{Name: "collect", Version: "1.0.0", StartIn: time.Hour})
//
// The end of the step and the new task are committed together: in the transaction of the
// handler if it has one, else in one that the engine begins. So each execution whose
// success was accepted has one next task, wherever a process dies; a result that comes
// too late creates nothing. Both tasks refer to each other.
//
// An existing task with the request's idempotency key is the next task, unchanged. A
// rejected request (a context that does not fit its template, an unregistered template)
// is a permanent failure of type NextTaskRefused.
//
// Continue works in every type of step; the continued task proceeds with its remaining
// steps, and its outcome does not matter. Back-pressure does not apply.
func Continue[Out any](result Out, next NextTask) (Out, error) {
	return result, &continueError{result, next}
}

// continueError is a handler's result with its next task.
type continueError struct {
	result any
	next   NextTask
}

func (e *continueError) Error() string {
	return fmt.Sprintf("the handler continues with the task %s", e.next.Name)
}

// continued returns the next task; nil if the error is a failure. A mark around it makes
// it a failure, as around a yield.
func continued(err error) *continueError {
	var c *continueError
	var y *yieldError
	if marked, _ := engine.Marked(err); marked || !errors.As(err, &c) || errors.As(err, &y) {
		return nil
	}
	return c
}

// Continued returns the next task from the error that a handler returned: for tests of
// handlers and for functions around them. ok is false if the error is a failure or nil.
func Continued(err error) (next NextTask, ok bool) {
	c := continued(err)
	if c == nil {
		return next, false
	}
	return c.next, true
}

// nextRequest fills in the fields that the handler left empty.
func (c *StepContext) nextRequest(r NextTask) *TaskRequest {
	r.Namespace, r.Name = cmp.Or(r.Namespace, c.Namespace()), cmp.Or(r.Name, c.TaskName())
	if r.Name == c.TaskName() && r.Namespace == c.Namespace() {
		r.Version = cmp.Or(r.Version, c.Version())
	}
	if r.Context == nil {
		r.Context = c.Input()
	}
	r.Priority, r.CorrelationID = cmp.Or(r.Priority, new(c.Priority())), cmp.Or(r.CorrelationID, new(c.CorrelationID()))
	r.ParentCorrelationID, r.Checks = cmp.Or(r.ParentCorrelationID, c.x.Claim.ParentCorrelationID), c.run.cfg.checker
	return &r
}

// Tasks that handlers create, see StepContext.CreateTask. They follow the rules of the
// API, which package submission holds.
type (
	// TaskRequest asks for a task.
	TaskRequest = submission.Request
	// CreatedTask is a task that exists once its transaction is committed.
	CreatedTask = submission.Created
	// InvalidTaskError says what is wrong with a request.
	InvalidTaskError = submission.InvalidError
	// DuplicateTaskError says that a task with the same identity exists.
	DuplicateTaskError = submission.DuplicateError
	// UnknownTemplateError says that no such template version is registered.
	UnknownTemplateError = submission.UnknownTemplateError
)

// CreateTask creates a task in a transaction: the handler's, a savepoint in it, or
// another one of the handler to the engine's database. The task exists if that is
// committed.
//
// The rules are those of POST /v1/tasks. A request without a parent correlation id gets
// the correlation id of the handler's task. If the request is invalid, the error is an
// *InvalidTaskError, *UnknownTemplateError or *DuplicateTaskError, and the transaction
// can continue. After an error of the database it can only be rolled back.
//
// The identity of the task stays locked until the commit, so create late; see
// store.CreateTasksIn. Back-pressure does not apply.
//
// In the handler's transaction the engine signals the task after the commit. In another
// one, whose end the engine does not see, the signal is part of the transaction.
func (c *StepContext) CreateTask(tx Tx, r TaskRequest) (CreatedTask, error) {
	r.ParentCorrelationID, r.Checks = cmp.Or(r.ParentCorrelationID, new(c.CorrelationID())), c.run.cfg.checker
	return c.x.CreateTask(c, tx, &r)
}

// announcement is how transactions that the engine does not commit signal the tasks
// created in them.
func (w *Worker) announcement() store.Announce {
	switch inWAL, notifies := w.over(wal.Name, relay.Name), w.over(notify.Name); {
	case inWAL && notifies:
		return store.AnnounceBoth
	case inWAL:
		return store.AnnounceWAL
	case notifies:
		return store.AnnounceNotify
	}
	return store.AnnounceNothing
}
