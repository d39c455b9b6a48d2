package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/workflow"
)

// errGivenUp says that an execution did not fail and is not reported: the worker is
// shutting down, or has left the step to another worker.
var errGivenUp = errors.New("the execution was given up")

// execute runs one step to its end in this goroutine.
func (e *engine) execute(x *execution) (json.RawMessage, error) {
	defer x.ctx.end(context.Canceled) // releases derived contexts
	if x.job == nil {
		if err := e.awaitJob(x); err != nil {
			return nil, unlessShutdown(&x.ctx, err)
		}
	}
	if x.ctx.Err() != nil {
		return nil, unlessShutdown(&x.ctx, x.ctx.why())
	}
	handler, err := e.chain.resolve(x.job.step.Handler)
	if err != nil {
		if e.leave(x, err) {
			err = fmt.Errorf("%w: %w", errGivenUp, err)
		}
		return nil, err
	}
	x.context.init(&x.ctx, &x.claim, x.job.plan, e.board, &e.shared, e.log, &x.progress)
	x.context.saver, x.context.run = e.saver, x
	x.context.mayIsolate(e.cfg.Isolation, e.metrics)
	result, next, err := e.call(x, handler)
	if next != nil {
		err = e.continueWith(x, next)
	}
	if x.tx != nil {
		return e.conclude(x, result, err)
	}
	if y := yielded(err); y != nil {
		return nil, e.yielding(x, y)
	}
	if err != nil {
		return nil, e.verdict(x, err)
	}
	return result, nil
}

// leftFor is how long a worker does not claim a callable for which it found no handler.
const leftFor = 10 * time.Second

// leave hands back a step for which the accepting resolver found no handler, if another
// worker offers its callable: no attempt is used, and this worker does not claim the
// callable for a while.
func (e *engine) leave(x *execution, why error) bool {
	callable := e.callableOf(x)
	others, err := e.board.OthersOffer(&x.ctx, x.worker, callable, e.cfg.Lease)
	if err != nil || !others {
		return false
	}
	e.queues.leave(callable, time.Now().Add(leftFor))
	e.beat() // so that others do not rely on this worker
	if err := e.handBack(&x.ctx, []*execution{x}); err != nil {
		e.log.Debug("a step was not left to others", zap.Error(err))
		return false
	}
	e.log.Warn("left a step to other workers: its handler was not found in this worker", zap.Stringer("task_uuid", x.key.TaskUUID),
		zap.Int("step_no", x.key.Step), zap.Duration("for", leftFor), zap.Error(why))
	return true
}

// callableOf returns the callable of an execution; 0 if its plan cannot be read any more.
func (e *engine) callableOf(x *execution) int32 {
	plan, err := e.board.PlanByID(&x.ctx, x.claim.PlanID) // in the cache: its job is known
	if err != nil {
		return 0
	}
	return plan.Callables[x.claim.PlanStep()]
}

// yielding turns a yield into a checkpoint to continue from, or into a failure if the
// checkpoint cannot be stored.
func (e *engine) yielding(x *execution, y *yieldError) error {
	point, err := y.encode(x.key, e.cfg.Checkpoint)
	if err != nil {
		e.saver.refused(err)
		return Permanent(err)
	}
	point.Isolated = x.context.isolating.encoded()
	return &savePoint{point}
}

// call calls the handler. When its time limit passes, the failure is reported at once;
// the permit comes back when the handler returns. next is the next task that the handler
// names; nil: none.
func (e *engine) call(x *execution, handler HandlerFunc) (result json.RawMessage, next *NextTask, err error) {
	defer func() {
		if r := recover(); r != nil {
			result, next, err = nil, nil, &lifecycle.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	value, err := handler(&x.context)
	if err != nil {
		c := continued(err)
		if c == nil {
			return nil, nil, err
		}
		value, next = c.result, &c.next
	}
	if result, err = encodeResult(value, e.cfg.MaxResultBytes); err != nil {
		return nil, nil, err
	}
	if err := workflow.CheckResult(x.job.step.Kind, result); err != nil {
		return nil, nil, Permanent(typed(TypeInvalidOutcome, "%w", err))
	}
	if err := x.context.unheeded(); err != nil {
		return nil, nil, err
	}
	return result, next, nil
}

// deadlinesLoop is the name of the watch over time limits in logs and metrics.
const deadlinesLoop = "worker-deadlines"

// endOverdue reports the steps that timed out. It runs in a timer's goroutine, where a
// panic would end the process.
func (e *engine) endOverdue() {
	var late []*execution
	if !e.survived(func() { late = e.slots.overdue(time.Now()) }) {
		e.slots.watchAgain()
	}
	for _, x := range late {
		// A claim whose end cannot be reported must be dropped, or its lease would never
		// end.
		if !e.survived(func() { e.endLate(x) }) && e.slots.done(x) {
			e.wake()
		}
	}
}

// endLate reports that an execution has timed out. It does not wait for publishers.
func (e *engine) endLate(x *execution) {
	if x.job == nil || len(x.job.step.Events) == 0 {
		e.reporter.failed(x, timedOut(x))
		return
	}
	e.group.Go(func() {
		if !e.survived(func() { e.reporter.failed(x, timedOut(x)) }) && e.slots.done(x) {
			e.wake()
		}
	})
}

// survived calls f and reports whether it returned; a panic is logged and counted.
func (e *engine) survived(f func()) bool {
	err := lifecycle.Guard(func() error { f(); return nil })
	if err == nil {
		return true
	}
	e.metrics.LoopRestarts.WithLabelValues(deadlinesLoop).Inc()
	_ = lifecycle.Guard(func() error { // it may be the log that panics
		e.log.Error("the watch over time limits panicked and goes on", zap.String("loop", deadlinesLoop), zap.Error(err), lifecycle.StackField(err))
		return nil
	})
	return false
}

// verdict turns an error into the outcome, considering how the context ended.
func (e *engine) verdict(x *execution, err error) error {
	var panicked *lifecycle.PanicError
	var marked *verdictError
	switch {
	case errors.As(err, &panicked):
		x.context.Logger().Error("handler panicked", zap.Error(err), lifecycle.StackField(err))
		return typed(TypePanic, "the handler panicked: %v", panicked.Value)
	case errors.As(err, &marked) && !marked.retryable:
		return err
	case errors.Is(x.ctx.why(), ErrTimeout):
		return timedOut(x)
	}
	return unlessShutdown(&x.ctx, err)
}

func unlessShutdown(l *lazyContext, err error) error {
	if errors.Is(l.why(), ErrShutdown) {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return err
}

func timedOut(x *execution) error {
	if x.queued.Load() {
		return typed(TypeTimeout, "the handler got no connection for its transaction within %v (worker.transactions.max_connections)", x.job.limit)
	}
	return typed(TypeTimeout, "the handler did not end within %v", x.job.limit)
}

// finish frees the permit and reports the outcome if it is the first to end the
// execution. next continues with the permit.
func (e *engine) finish(x *execution, result json.RawMessage, err error) (next *execution) {
	how := endedWell
	var point *savePoint
	switch {
	case errors.As(err, &point):
		how = endedByYield
	case x.tx.reported():
		how = endedInTx
	case errors.Is(err, errGivenUp):
		how = endedByStop
	case err != nil:
		how = endedBadly
	}
	ours := false
	if (how == endedWell || how == endedBadly) && e.publishing.asks(x) {
		// The permit is kept during this: slow publishers slow down their own steps.
		if ours = e.slots.winReport(x, err == nil); ours {
			e.reporter.compose(x, result, err)
		}
		how = endedReported
	}
	after := e.slots.end(x, how)
	if after.look {
		if point != nil && e.looks() {
			e.slots.letOthersFirst()
		}
		e.wake()
	}
	if after.announce {
		e.group.Go(e.announce)
	}
	if x.context.Context != nil { // the handler was called
		x.job.took.Observe(after.took.Seconds())
	}
	switch {
	case how == endedInTx:
		e.endedInTx(x, err)
	case ours:
		e.reporter.submit(&x.outcome)
	case !after.report:
		e.log.Debug("the end of a step is not reported", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(err))
	case point != nil:
		e.saver.yields(x, point)
	case err != nil:
		e.reporter.failed(x, err)
	default:
		e.reporter.succeeded(x, result)
	}
	return after.next
}
