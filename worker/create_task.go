package worker

import (
	"errors"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/store"
)

// Tasks that handlers create, see StepContext.CreateTask. What is right for the
// API is right for them: the rules stand in package submission.
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

// CreateTask creates a task within a transaction: that of the handler, a
// savepoint in it, or one of the handler's own to the engine's database. The
// task exists when that is committed, and never if it is not.
//
// The rules are those of POST /v1/tasks. A request without a parent correlation
// id gets the correlation id of the handler's task. The error is an
// *InvalidTaskError, *UnknownTemplateError or *DuplicateTaskError where the
// request is to blame, and then the transaction goes on as if nothing had been
// asked. After an error of the database it can only be rolled back.
//
// The identity of the task stays locked until the commit, so create late; see
// store.CreateTasksIn. Whether the queue is full (back-pressure) is not asked.
//
// In the handler's transaction, those who look for work are told after the
// commit. In another one, which the engine does not see end, a signal is a part
// of it.
func (c *StepContext) CreateTask(tx store.Tx, r TaskRequest) (CreatedTask, error) {
	if c.run == nil || c.run.engine.works.store == nil {
		return CreatedTask{}, errors.New("create a task: there is no engine around the handler")
	}
	if r.ParentCorrelationID == nil {
		id := c.CorrelationID()
		r.ParentCorrelationID = &id
	}
	e, own := c.run.engine, c.run.tx.within(tx)
	how := store.AnnounceNothing
	if !own {
		how = e.works.announce
	}
	created, signals, err := submission.Into(c, tx, e.works.store, how, &r)
	if err == nil && own && !created.Existing {
		c.run.tx.work.Announce(signals...)
		if tx == c.run.tx.work.Tx() { // what becomes of a savepoint is not known here
			c.run.tx.created = append(c.run.tx.created, r.Namespace)
		}
	}
	return created, err
}

// within reports whether tx is the handler's transaction or a savepoint in it.
func (t *transaction) within(tx store.Tx) bool { return t != nil && t.work.Within(tx) }

// announcement is how transactions that the engine does not commit tell of what
// was created in them.
func (w *Worker) announcement() store.Announce {
	switch {
	case w.inWAL():
		return store.AnnounceWAL
	case w.sourceName() == notify.Name:
		return store.AnnounceNotify
	}
	return store.AnnounceNothing
}
