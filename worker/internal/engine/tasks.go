package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/store"
)

// Tasks that handlers create: in a transaction, or with the end of their step.

// CreateTask creates a task in a transaction, the handler's or another one to the
// engine's database.
func (x *Execution) CreateTask(ctx context.Context, tx store.Tx, r *submission.Request) (submission.Created, error) {
	pool, own := x.engine.txPool, x.tx != nil && x.tx.work.Within(tx)
	if pool.Store == nil {
		return submission.Created{}, errors.New("create a task: the worker has no database")
	}
	how := pool.Announce
	if own {
		how = store.AnnounceNothing
	}
	created, signals, err := submission.Into(ctx, tx, pool.Store, how, r)
	if err == nil && own && !created.Existing {
		x.tx.work.Announce(signals...)
		if tx == x.tx.work.Tx() { // the outcome of a savepoint is not known here
			x.tx.created = append(x.tx.created, r.Namespace)
		}
	}
	return created, err
}

// continuePatience bounds the wait for a connection for a handler that succeeded while
// the worker shuts down.
const continuePatience = 2 * time.Second

// beginToContinue begins a transaction for a handler that has none and names a next task.
func (e *Engine) beginToContinue(x *Execution) error {
	err := x.Why()
	if err == nil {
		_, err = x.Begin(store.TxOptions{})
	}
	if !errors.Is(err, ErrShutdown) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(e.base, continuePatience, ErrShutdown)
	defer cancel()
	_, err = e.begin(ctx, x, store.TxOptions{})
	return err
}

// createNext creates the next task in the transaction of the execution.
func (e *Engine) createNext(ctx context.Context, x *Execution, r submission.Request) error {
	alike := r.IdempotencyKey == "" // as far as the engine knows
	if alike {
		r.IdempotencyKey = fmt.Sprintf("%s/%d", x.Claim.StepUUID(), x.Key.Token) // identifies the execution
	}
	task, err := submission.Prepare(ctx, e.txPool.Store, &r)
	if err != nil {
		return notContinued(err)
	}
	if alike {
		task.Identity = nil // or a task could not continue with its own context
	}
	created, err := x.tx.work.Continue(ctx, store.Continuation{Claim: x.Key, StepName: x.StepName(), Actor: e.cfg.WorkerID, Next: task})
	if err != nil {
		return notContinued(submission.Refusal(err))
	}
	if !created.Duplicate {
		x.tx.created = append(x.tx.created, r.Namespace)
	}
	return nil
}

// notContinued is the failure of a step whose next task was not created.
func notContinued(err error) error {
	var invalid *submission.InvalidError
	var unknown *submission.UnknownTemplateError
	switch {
	case errors.As(err, &invalid), errors.As(err, &unknown), errors.Is(err, store.ErrContinuesItself):
		return Permanent(Errorf(TypeNextTaskRefused, "the next task was refused: %w", err))
	case errors.Is(err, store.ErrWorkEnded):
		return notReported(err)
	case Refused(err):
		return Permanent(WithCode(Errorf(TypeNextTaskRefused, "the database refuses to store the next task (SQLSTATE %s)", sqlState(err)), sqlState(err)))
	}
	return inTxFailed(err, "the next task could not be created with the end of the step")
}
