package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/tracing"
)

// transaction is the transaction of an execution. It belongs to the handler's goroutine.
type transaction struct {
	work    *store.Work
	unwatch func() bool   // stops watching the context; false: it has ended
	watched chan struct{} // closed when the watch has finished
	created []*store.Plan // of the tasks created in it
}

// commitPatience bounds the report and the commit of a transaction. Heartbeats extend the
// lease during this time.
const commitPatience = 30 * time.Second

// InTx reports whether the handler works in a transaction.
func (x *Execution) InTx() bool { return x.tx != nil }

// Begin begins the transaction of an execution, once. While the database is unavailable,
// or no connection is free, it waits: until the handler's time limit passes, the claim is
// lost or the worker ends.
func (x *Execution) Begin(o store.TxOptions) (store.Tx, error) {
	return x.engine.begin(&x.Ctx, x, o)
}

// begin is Begin with the context that bounds the wait.
func (e *Engine) begin(ctx context.Context, x *Execution, o store.TxOptions) (store.Tx, error) {
	if x.tx != nil {
		return nil, Permanent(Errorf(TypeTransaction, "the step has a transaction already"))
	}
	if err := store.CheckWorkTx(o); err != nil {
		return nil, Permanent(Errorf(TypeTransaction, "%w", err))
	}
	pool, err := e.txPool.open()
	if err != nil {
		x.noDatabase.Store(errors.Is(err, errNoDatabase))
		return nil, Errorf(TypeTransaction, "%w", err)
	}
	x.queued.Store(true)
	begin := time.Now()
	defer func() { e.metrics.TransactionWait.Observe(time.Since(begin).Seconds()) }()
	options := store.WorkOptions{Tx: o, Claim: x.Key, Limit: x.job.limit, Lease: e.cfg.Lease}
	for n := 0; ; n++ {
		work, err := pool.Begin(ctx, options)
		switch {
		case err == nil:
			x.queued.Store(false)
			x.tx = e.cutLate(x, work)
			return work.Tx(), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, store.ErrClaimLost):
			e.lose(e.slots.lose([]int64{x.Key.Token}), "its transaction found the claim lost")
			return nil, ErrLeaseLost
		case !errors.Is(err, store.ErrUnavailable):
			return nil, inTxFailed(err, "no transaction could be begun for the handler")
		}
		if cause := pause(ctx, n, 0); cause != nil {
			return nil, cause
		}
	}
}

// cutLate closes the connection of a transaction that cannot be committed any more: the
// time limit has passed, or the claim is lost. Otherwise a handler that ignores the end
// of its context would hold row locks that the next attempt needs. During a shutdown a
// handler may still succeed.
func (e *Engine) cutLate(x *Execution, work *store.Work) *transaction {
	t := &transaction{work: work, watched: make(chan struct{})}
	t.unwatch = context.AfterFunc(&x.Ctx, func() {
		defer close(t.watched)
		err := lifecycle.Guard(func() error {
			if why := x.Why(); errors.Is(why, ErrTimeout) || errors.Is(why, ErrLeaseLost) {
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
func (e *Engine) abandon(x *Execution) {
	if x.tx == nil {
		return
	}
	x.tx.stopWatching()
	x.tx.work.Rollback()
}

// errTooLate says that the end of the execution has already been reported.
var errTooLate = errors.New("the handler ended after its time")

// conclude ends the transaction of a handler that has ended. It rolls back a failure,
// which is reported like all failures, unless the database had no room. For a success it first acquires the right to
// report, so that a time limit that passes during the commit does not become a failure of
// the step being committed.
func (e *Engine) conclude(x *Execution, end Ending) Ending {
	switch {
	case end.Kind == Failed && notTaken(end.Err) && e.slots.winReport(x, Failed):
		e.abandon(x)
		end = e.undone(x, end.Err)
	case end.Kind != Success:
		e.abandon(x)
	case !e.slots.winReport(x, Success):
		e.abandon(x)
		end = Ending{Kind: GivenUp, Err: errTooLate}
	default:
		end = e.commit(x, end)
	}
	e.metrics.Transactions.WithLabelValues(end.Kind.ofTransaction()).Inc()
	return end
}

// commit reports the success of an execution in its transaction and commits.
func (e *Engine) commit(x *Execution, end Ending) Ending {
	work := x.tx.work
	defer work.Rollback() // if not committed
	x.tx.stopWatching()
	switch why := x.Why(); {
	case errors.Is(why, ErrLeaseLost): // and its connection closed
		end.Kind = outdated
		return end
	case errors.Is(why, ErrTimeout):
		return Failing(timedOut(x))
	}
	ctx, cancel := context.WithTimeout(e.base, commitPatience)
	defer cancel()
	if end.Next != nil {
		if err := e.createNext(ctx, x, *end.Next); err != nil {
			return e.undone(x, err)
		}
	}
	x.Report = x.success(end)
	x.prepare(end.Events, nil, false)
	accepted, err := work.Report(ctx, x.Report)
	switch {
	case err != nil:
		return e.undone(x, notReported(err))
	case !accepted:
		end.Kind = outdated
		return end
	}
	work.Announce(store.ReportSignals()...)
	err = work.Commit(ctx)
	switch {
	case err == nil:
		end.Kind = committed
		return end
	case errors.Is(err, store.ErrCommitUnknown):
		return e.findOut(x, end, err)
	}
	return e.undone(x, inTxFailed(err, "the transaction of the handler was not committed"))
}

// notTaken reports whether a transaction failed because the database had no room (SQLSTATE class 53), or the next task
// could not be created: neither is by what the handler did. A connection that is lost may be.
func notTaken(err error) bool {
	marked, _ := Marked(err)
	return !marked && (strings.HasPrefix(sqlState(err), "53") || errors.Is(err, errNextAway))
}

// errNextAway: the database was not available for the next task of a step, or a quota has no place for it yet.
var errNextAway = errors.New("the next task cannot be created yet")

// maxSpared is how often in a row, at a worker, a step is spared the attempt of a transaction.
const maxSpared = 10

// undone is the ending of an execution, with the right to report, whose transaction failed with err. Where the
// database did not take it, the step runs again after a growing time and without using an attempt; not if it
// may not be executed twice, not if this happens to it again and again while other steps are claimed, and at most ten
// times.
func (e *Engine) undone(x *Execution, err error) Ending {
	if !notTaken(err) || x.Claim.Attempt <= 1 && x.onlyAttempt() {
		return Failing(err)
	}
	x.tx.work.Rollback() // it locks the row of the step
	if e.rejected.claims.Tries(x.Key.TaskUUID) >= maxSpared || e.rejected.claims.Reject(x.Key.TaskUUID, err, zap.Inline(x)) {
		return Failing(err)
	}
	for n := 0; ; n++ {
		signals, failure := e.board.HandBack(e.base, []store.ClaimKey{x.Key})
		switch {
		case failure == nil:
			e.signal(signals...)
			return Ending{Kind: spared, Err: err}
		case !errors.Is(failure, store.ErrUnavailable):
			return Failing(err)
		}
		if stop := pause(e.handlersCtx, n, e.cfg.Report.Breaker.Wait()); stop != nil {
			return Ending{Kind: undecided, Err: fmt.Errorf("%w: %w", stop, err)}
		}
	}
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
func (e *Engine) findOut(x *Execution, end Ending, why error) Ending {
	e.metrics.CommitsUnknown.Inc()
	e.log.Warn("the commit of a handler's transaction was not answered; querying its outcome",
		zap.Inline(x), zap.Error(why))
	pool, err := e.txPool.open()
	if err != nil {
		end.Kind, end.Err = undecided, err
		return end
	}
	for n := 0; ; n++ {
		fate, err := pool.Fate(e.base, x.Key)
		switch {
		case err != nil:
			e.log.Debug("the outcome of the commit is not known yet", zap.Stringer("task_uuid", x.Key.TaskUUID), zap.Error(err))
		case fate == store.FateReported:
			end.Kind = committed
			return end
		case fate == store.FateHeld:
			return e.undone(x, inTxFailed(why, "the connection of the transaction was lost, and the server has rolled it back"))
		case fate == store.FateLost:
			end.Kind = outdated
			return end
		}
		if stop := pause(e.handlersCtx, n, e.cfg.Report.Breaker.Wait()); stop != nil {
			end.Kind, end.Err = undecided, fmt.Errorf("%w: %w", stop, why)
			return end
		}
	}
}

// concluded ends an execution whose report was a part of its transaction.
func (e *Engine) concluded(x *Execution, end Ending) {
	switch end.Kind {
	case committed:
		e.succeeded(x, end)
		x.Step.Ended(true)
		for _, plan := range x.tx.created {
			settle.CountCreated(e.metrics, plan, 1)
		}
		e.signal(x.tx.work.Signals()...)
	case outdated:
		e.count.succeeded.Add(1)
		e.stale(x, true)
	case spared:
		e.log.Warn("a step runs again without using an attempt: the database did not take the transaction of its handler",
			zap.Inline(x), zap.Error(end.Err))
	default:
		e.log.Error("stopping: the outcome of a step's transaction is not known; if it was rolled back, the step is claimable after its lease",
			zap.Inline(x), zap.Error(end.Err))
	}
	e.follow(e.slots.done(x))
}

// notReported is the failure of a step whose result could not be written in its
// transaction.
func notReported(err error) error {
	switch {
	case store.OfContent(err):
		return refusal(err)
	case errors.Is(err, store.ErrWorkEnded):
		return Permanent(inTxFailed(err, "the end of the step could not be written into the transaction of the handler"))
	}
	return inTxFailed(err, "the end of the step could not be written into the transaction of the handler")
}

// refusal is the failure of a step whose result the database does not store.
func refusal(err error) error {
	return Permanent(Errorf(TypeResultNotStored, "the database refuses to store the handler's outcome (SQLSTATE %s)", sqlState(err)))
}

// inTxFailed is a failure of the transaction itself, after which the step may run again.
func inTxFailed(err error, what string) error {
	if conflict(err) {
		return serialization(err)
	}
	failed := Errorf(TypeTransaction, "%s: %w", what, err)
	if code := sqlState(err); code != "" {
		return WithCode(failed, code)
	}
	return failed
}

// serialization gives a handler's error the type of a transaction that the server rolled
// back because of a conflict. The handler's own mark takes precedence.
func serialization(err error) error {
	if marked, _ := Marked(err); marked || !conflict(err) {
		return err
	}
	return WithCode(WithType(err, TypeSerialization), sqlState(err))
}

// conflict reports whether the server rolled back a transaction because of a conflict.
func conflict(err error) bool {
	code := sqlState(err)
	return code == "40001" || code == "40P01"
}

// ofTransaction returns the label outcome of the metric Transactions.
func (k Kind) ofTransaction() string {
	switch k {
	case committed:
		return "committed"
	case outdated:
		return "refused"
	case undecided:
		return "unknown"
	}
	return "rolled_back"
}

// txPool provides the transactions of handlers. The pool is opened when the first one
// begins: most workers need none. It is safe for concurrent use.
type txPool struct {
	options store.WorkPoolOptions
	store   *store.Store // nil over a board in memory

	mu     sync.Mutex
	pool   *store.WorkPool
	closed bool
}

// check checks that the pool, if it is the program's, leads to the database of a worker.
func (t *txPool) check(ctx context.Context, worker uuid.UUID) error {
	if t.options.Pool == nil {
		return nil
	}
	pool, err := t.open()
	if err != nil {
		return err
	}
	return pool.Check(ctx, worker)
}

func (t *txPool) open() (*store.WorkPool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.pool != nil:
		return t.pool, nil
	case t.closed:
		return nil, errors.New("the worker has been stopped")
	case t.store == nil:
		return nil, errNoDatabase
	}
	pool, err := t.store.OpenWorkPool(t.options)
	t.pool = pool
	return pool, err
}

// close closes the pool, unless it is the program's.
func (t *txPool) close(ctx context.Context) error {
	t.mu.Lock()
	pool := t.pool
	t.closed = true
	t.mu.Unlock()
	if pool == nil {
		return nil
	}
	return pool.Close(ctx)
}

func (t *txPool) stat() store.PoolStat {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool == nil {
		return store.PoolStat{Max: t.options.MaxConns}
	}
	return t.pool.Stat()
}

// Tasks that handlers create: in a transaction, or with the end of their step.

// CreateTask creates a task in a transaction, the handler's or another one to the
// engine's database.
func (x *Execution) CreateTask(ctx context.Context, tx store.Tx, r *submission.Request) (submission.Created, error) {
	cfg, own := &x.engine.cfg, x.tx != nil && x.tx.work.Within(tx)
	if cfg.Store == nil {
		x.noDatabase.Store(true)
		return submission.Created{}, fmt.Errorf("create a task: %w", errNoDatabase)
	}
	how := cfg.Announce
	if own {
		how = store.AnnounceNothing
	}
	if err := x.engine.reach(x, r); err != nil {
		return submission.Created{}, err
	}
	created, signals, err := submission.Into(ctx, tx, cfg.Store, how, r)
	if err == nil && own && !created.Existing {
		x.tx.work.Announce(signals...)
		if tx == x.tx.work.Tx() { // the outcome of a savepoint is not known here
			x.tx.created = append(x.tx.created, created.Plan)
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
	if err := e.reach(x, &r); err != nil {
		return notContinued(err)
	}
	task, err := submission.Prepare(ctx, e.cfg.Store, &r)
	if err != nil {
		return notContinued(err)
	}
	task.Trace = tracing.Row(&x.Ctx)
	if alike {
		task.Identity = nil // or a task could not continue with its own context
	}
	task.Quota = store.QuotaNextTasks
	created, err := x.tx.work.Continue(ctx, store.Continuation{Claim: x.Key, StepName: x.StepName(), Actor: e.cfg.WorkerID, Next: task})
	if err != nil {
		return notContinued(submission.Refusal(err))
	}
	if !created.Duplicate {
		x.tx.created = append(x.tx.created, task.Plan)
	}
	return nil
}

// reach refuses a task in a namespace that the namespace of the execution may not use, by the rule
// that orchestrators have published, and bounds what the task may depend on.
func (e *Engine) reach(x *Execution, r *submission.Request) error {
	reach, from := e.reaching.By(e.cfg.Store.AgreedRules()), x.job.plan.Template.Namespace
	if reach == nil {
		return nil
	}
	r.Reach(func(namespace string) bool { return reach.May(from, namespace) })
	if err := reach.Check(from, r.Namespace); err != nil {
		return &submission.InvalidError{Problems: []string{err.Error()}}
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
	case errors.Is(err, store.ErrQuota):
		return fmt.Errorf("%w: %w", errNextAway, Errorf(TypeNextTaskRefused, "the next task was rejected: %w", err))
	case store.OfContent(err):
		return Permanent(WithCode(Errorf(TypeNextTaskRefused, "the database refuses to store the next task (SQLSTATE %s)", sqlState(err)), sqlState(err)))
	}
	failed := inTxFailed(err, "the next task could not be created with the end of the step")
	if errors.Is(err, store.ErrUnavailable) && sqlState(err) == "" {
		return fmt.Errorf("%w: %w", errNextAway, failed)
	}
	return failed
}
