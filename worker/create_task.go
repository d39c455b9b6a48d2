package worker

import (
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/store"
)

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
func (c *StepContext) CreateTask(tx store.Tx, r TaskRequest) (CreatedTask, error) {
	if r.ParentCorrelationID == nil {
		id := c.CorrelationID()
		r.ParentCorrelationID = &id
	}
	return c.x.CreateTask(c, tx, &r)
}

// announcement is how transactions that the engine does not commit signal the tasks
// created in them.
func (w *Worker) announcement() store.Announce {
	switch {
	case w.inWAL():
		return store.AnnounceWAL
	case w.sourceName() == notify.Name:
		return store.AnnounceNotify
	}
	return store.AnnounceNothing
}
