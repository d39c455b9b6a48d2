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
	end     txEnd
	created []string  // namespaces of the tasks created in it
	next    *NextTask // created with the report; nil: none
}

// txEnd is how the end of a step with a transaction was reported.
type txEnd uint8

const (
	// txNotReported: it is reported like any other step.
	txNotReported txEnd = iota
	// txFailed: a failure, which only the caller may report.
	txFailed
	// txAccepted: it was committed with the transaction.
	txAccepted
	// txStale: rejected by the fence, and rolled back.
	txStale
	// txUnknown: the worker ends before the outcome of the commit is known.
	txUnknown
)

func (t *transaction) reported() bool { return t != nil && t.end != txNotReported }

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
func (e *engine) conclude(x *execution, result json.RawMessage, err error) (json.RawMessage, error) {
	if yielded(err) != nil {
		err = errNoCheckpoint
	}
	if err != nil {
		e.abandon(x)
		e.metrics.Transactions.WithLabelValues(txRolledBack).Inc()
		return nil, e.verdict(x, serialization(err))
	}
	if !e.slots.winReport(x, true) {
		e.abandon(x)
		e.metrics.Transactions.WithLabelValues(txRolledBack).Inc()
		return nil, errTooLate
	}
	x.tx.end = txFailed // unless changed below
	x.tx.end, err = e.commit(x, result)
	e.metrics.Transactions.WithLabelValues(x.tx.end.String()).Inc()
	return result, err
}

// commit reports the success of an execution in its transaction and commits. The error is
// the cause of a failure.
func (e *engine) commit(x *execution, result json.RawMessage) (txEnd, error) {
	work := x.tx.work
	defer work.Rollback() // if not committed
	x.tx.stopWatching()
	switch why := x.ctx.why(); {
	case errors.Is(why, ErrLeaseLost): // and its connection closed
		return txStale, nil
	case errors.Is(why, ErrTimeout):
		return txFailed, timedOut(x)
	}
	ctx, cancel := context.WithTimeout(e.base, commitPatience)
	defer cancel()
	if x.tx.next != nil {
		if err := e.createNext(ctx, x, x.tx.next); err != nil {
			return txFailed, err
		}
	}
	x.reported(x.success(result))
	e.publishing.prepare(x, nil, false)
	accepted, err := work.Report(ctx, x.outcome.report)
	switch {
	case err != nil:
		return txFailed, notReported(err)
	case !accepted:
		return txStale, nil
	}
	work.Announce(store.ReportSignals()...)
	err = work.Commit(ctx)
	switch {
	case err == nil:
		return txAccepted, nil
	case errors.Is(err, store.ErrCommitUnknown):
		return e.findOut(x, err)
	}
	return txFailed, inTxFailed(err, "the transaction of the handler was not committed")
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
func (e *engine) findOut(x *execution, why error) (txEnd, error) {
	e.metrics.CommitsUnknown.Inc()
	e.log.Warn("the commit of a handler's transaction was not answered; querying its outcome",
		zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(why))
	pool, err := e.txPool.open()
	if err != nil {
		return txUnknown, err
	}
	for n := 0; ; n++ {
		fate, err := pool.Fate(e.base, x.key)
		switch {
		case err != nil:
			e.log.Debug("the outcome of the commit is not known yet", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Error(err))
		case fate == store.FateReported:
			return txAccepted, nil
		case fate == store.FateHeld:
			return txFailed, inTxFailed(why, "the connection of the transaction was lost, and the server has rolled it back")
		case fate == store.FateLost:
			return txStale, nil
		}
		if stop := pause(e.handlersCtx, n, e.cfg.Report.Breaker.Wait()); stop != nil {
			return txUnknown, fmt.Errorf("%w: %w", stop, why)
		}
	}
}

// endedInTx handles the end of an execution that only the caller may report.
func (e *engine) endedInTx(x *execution, err error) {
	switch x.tx.end {
	case txFailed:
		e.reporter.failed(x, err)
		return
	case txAccepted:
		e.count.succeeded.Add(1)
		e.countIsolated(x)
		e.publishing.accepted(x)
		for _, namespace := range x.tx.created {
			e.metrics.TasksCreated.WithLabelValues(namespace).Inc()
		}
		if !e.board.SendsSignals() {
			e.publisher.Publish(x.tx.work.Signals()...)
		}
	case txStale:
		e.count.succeeded.Add(1)
		e.reporter.stale(x.reported(reportSuccess(x.key, nil)))
	default:
		e.log.Error("stopping: the outcome of a step's transaction is not known; if it was rolled back, the step is claimable after its lease",
			zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(err))
	}
	if e.slots.done(x) {
		e.wake()
	}
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

// The values of the label outcome of the metric Transactions.
const (
	txCommitted  = "committed"
	txRolledBack = "rolled_back"
	txRefused    = "refused"
)

// String returns the outcome label in metrics.
func (t txEnd) String() string {
	switch t {
	case txAccepted:
		return txCommitted
	case txStale:
		return txRefused
	case txUnknown:
		return "unknown"
	}
	return txRolledBack
}
