package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/store"
)

// transaction is the transaction of an execution. It belongs to the handler's goroutine.
type transaction struct {
	work    *store.Work
	unwatch func() bool   // stops watching the context; false: it has ended
	watched chan struct{} // closed when the watch has finished
	created []string      // namespaces of the tasks created in it
	next    *NextTask     // created with the report; nil: none
}

// commitPatience bounds the report and the commit of a transaction. Heartbeats extend the
// lease during this time.
const commitPatience = 30 * time.Second

// begin begins the transaction of an execution, once. While the database is unavailable,
// or no connection is free, it waits: until the handler's time limit passes, the claim is
// lost or the worker ends.
func (e *engine) begin(x *execution, o store.TxOptions) (store.Tx, error) {
	return e.beginUnder(&x.ctx, x, o)
}

// beginUnder is begin with the context that bounds the wait.
func (e *engine) beginUnder(ctx context.Context, x *execution, o store.TxOptions) (store.Tx, error) {
	if x.tx != nil {
		return nil, Permanent(typed(TypeTransaction, "the step has a transaction already"))
	}
	if err := store.CheckWorkTx(o); err != nil {
		return nil, Permanent(typed(TypeTransaction, "%w", err))
	}
	pool, err := e.txPool.open()
	if err != nil {
		return nil, typed(TypeTransaction, "%w", err)
	}
	x.queued.Store(true)
	begin := time.Now()
	defer func() { e.metrics.TransactionWait.Observe(time.Since(begin).Seconds()) }()
	options := store.WorkOptions{Tx: o, Claim: x.key, Limit: x.job.limit, Lease: e.cfg.Lease}
	for n := 0; ; n++ {
		work, err := pool.Begin(ctx, options)
		switch {
		case err == nil:
			x.queued.Store(false)
			x.tx = e.watch(x, work)
			return work.Tx(), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, store.ErrClaimLost):
			e.lose(e.slots.lose([]int64{x.key.Token}), "its transaction found the claim lost")
			return nil, ErrLeaseLost
		case !errors.Is(err, store.ErrUnavailable):
			return nil, inTxFailed(err, "no transaction could be begun for the handler")
		}
		if cause := pause(ctx, n, 0); cause != nil {
			return nil, cause
		}
	}
}

// watch closes the connection of a transaction that cannot be committed any more: the
// time limit has passed, or the claim is lost. Otherwise a handler that ignores the end
// of its context would hold row locks that the next attempt needs. During a shutdown a
// handler may still succeed.
func (e *engine) watch(x *execution, work *store.Work) *transaction {
	t := &transaction{work: work, watched: make(chan struct{})}
	t.unwatch = context.AfterFunc(&x.ctx, func() {
		defer close(t.watched)
		err := lifecycle.Guard(func() error {
			if why := x.ctx.why(); errors.Is(why, ErrTimeout) || errors.Is(why, ErrLeaseLost) {
				work.Cut()
			}
			return nil
		})
		if err != nil {
			e.log.Error("a transaction was not cut off", zap.Error(err), lifecycle.StackField(err))
		}
	})
	return t
}

// stopWatching returns when the watch has ended.
func (t *transaction) stopWatching() {
	if !t.unwatch() {
		<-t.watched
	}
}

// abandon rolls back an open transaction.
func (e *engine) abandon(x *execution) {
	if x.tx == nil {
		return
	}
	x.tx.stopWatching()
	x.tx.work.Rollback()
}

// errTooLate says that the end of the execution has already been reported.
var errTooLate = errors.New("the handler ended after its time")

// conclude ends the transaction of a handler that has ended. It rolls back a failure,
// which is reported like all failures. For a success it first acquires the right to
// report, so that a time limit that passes during the commit does not become a failure of
// the step being committed.
func (e *engine) conclude(x *execution, end ending) ending {
	switch {
	case end.kind != endSuccess:
		e.abandon(x)
	case !e.slots.winReport(x, endSuccess):
		e.abandon(x)
		end = ending{kind: endGivenUp, err: errTooLate}
	default:
		end = e.commit(x, end.result)
	}
	e.metrics.Transactions.WithLabelValues(end.kind.ofTransaction()).Inc()
	return end
}

// commit reports the success of an execution in its transaction and commits.
func (e *engine) commit(x *execution, result json.RawMessage) ending {
	work := x.tx.work
	defer work.Rollback() // if not committed
	x.tx.stopWatching()
	switch why := x.ctx.why(); {
	case errors.Is(why, ErrLeaseLost): // and its connection closed
		return ending{kind: endStale}
	case errors.Is(why, ErrTimeout):
		return failing(timedOut(x))
	}
	ctx, cancel := context.WithTimeout(e.base, commitPatience)
	defer cancel()
	if x.tx.next != nil {
		if err := e.createNext(ctx, x, x.tx.next); err != nil {
			return failing(err)
		}
	}
	x.report = x.success(result)
	e.publishing.prepare(x, nil, false)
	accepted, err := work.Report(ctx, x.report)
	switch {
	case err != nil:
		return failing(notReported(err))
	case !accepted:
		return ending{kind: endStale}
	}
	work.Announce(store.ReportSignals()...)
	err = work.Commit(ctx)
	switch {
	case err == nil:
		return ending{kind: endCommitted}
	case errors.Is(err, store.ErrCommitUnknown):
		return e.findOut(x, err)
	}
	return failing(inTxFailed(err, "the transaction of the handler was not committed"))
}

// findOut queries the outcome of a commit whose answer was lost, until the database
// knows. Nothing is reported in the meantime: it could be a failure of a success. The
// fence would reject that, but the report would wait for the transaction, with all
// reports of its batch. Nor is the step begun again here: while the transaction may still
// be committed, it locks the row of the step, so that its lease cannot be considered over
// either. The server ends such a transaction by its own clock (see store.Work), so there
// will be an answer.
//
// A worker that must stop earlier gives up; the row is authoritative, and if the claim
// still holds, the end of its lease makes the step claimable.
func (e *engine) findOut(x *execution, why error) ending {
	e.metrics.CommitsUnknown.Inc()
	e.log.Warn("the commit of a handler's transaction was not answered; querying its outcome",
		zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(why))
	pool, err := e.txPool.open()
	if err != nil {
		return ending{kind: endUnknown, err: err}
	}
	for n := 0; ; n++ {
		fate, err := pool.Fate(e.base, x.key)
		switch {
		case err != nil:
			e.log.Debug("the outcome of the commit is not known yet", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Error(err))
		case fate == store.FateReported:
			return ending{kind: endCommitted}
		case fate == store.FateHeld:
			return failing(inTxFailed(why, "the connection of the transaction was lost, and the server has rolled it back"))
		case fate == store.FateLost:
			return ending{kind: endStale}
		}
		if stop := pause(e.handlersCtx, n, e.cfg.Report.Breaker.Wait()); stop != nil {
			return ending{kind: endUnknown, err: fmt.Errorf("%w: %w", stop, why)}
		}
	}
}

// concluded ends an execution whose report was a part of its transaction.
func (e *engine) concluded(x *execution, end ending) {
	switch end.kind {
	case endCommitted:
		e.count.succeeded.Add(1)
		e.countIsolated(x)
		e.publishing.accepted(x)
		for _, namespace := range x.tx.created {
			e.metrics.TasksCreated.WithLabelValues(namespace).Inc()
		}
		if !e.board.SendsSignals() {
			e.publisher.Publish(x.tx.work.Signals()...)
		}
	case endStale:
		e.count.succeeded.Add(1)
		e.stale(x, true)
	default:
		e.log.Error("stopping: the outcome of a step's transaction is not known; if it was rolled back, the step is claimable after its lease",
			zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(end.err))
	}
	e.follow(e.slots.done(x))
}

// notReported is the failure of a step whose result could not be written in its
// transaction.
func notReported(err error) error {
	switch {
	case refused(err):
		return refusal(err)
	case errors.Is(err, store.ErrWorkEnded):
		return Permanent(inTxFailed(err, "the end of the step could not be written into the transaction of the handler"))
	}
	return inTxFailed(err, "the end of the step could not be written into the transaction of the handler")
}

// refusal is the failure of a step whose result the database does not store.
func refusal(err error) error {
	return Permanent(typed(TypeResultNotStored, "the database refuses to store the handler's outcome (SQLSTATE %s)", sqlState(err)))
}

// inTxFailed is a failure of the transaction itself, after which the step may run again.
func inTxFailed(err error, what string) error {
	if conflict(err) {
		return serialization(err)
	}
	failed := typed(TypeTransaction, "%s: %w", what, err)
	if code := sqlState(err); code != "" {
		return WithCode(failed, code)
	}
	return failed
}

// serialization gives a handler's error the type of a transaction that the server rolled
// back because of a conflict. The handler's own mark takes precedence.
func serialization(err error) error {
	var marked *verdictError
	if !conflict(err) || errors.As(err, &marked) {
		return err
	}
	return WithCode(&typedError{kind: TypeSerialization, err: err}, sqlState(err))
}

// conflict reports whether the server rolled back a transaction because of a conflict.
func conflict(err error) bool {
	code := sqlState(err)
	return code == "40001" || code == "40P01"
}

// ofTransaction returns the label outcome of the metric Transactions.
func (k endingKind) ofTransaction() string {
	switch k {
	case endCommitted:
		return "committed"
	case endStale:
		return "refused"
	case endUnknown:
		return "unknown"
	}
	return "rolled_back"
}
