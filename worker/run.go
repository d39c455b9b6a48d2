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

// errGivenUp says that an execution did not fail, and its end is not reported: the
// worker is shutting down, or has left the step to another one.
var errGivenUp = errors.New("the execution was given up")

// execute runs one step to its end in this goroutine.
func (e *engine) execute(x *execution) (json.RawMessage, error) {
	defer x.life.end(context.Canceled) // lets go of whatever was derived from it
	if x.job == nil {
		if err := e.awaitJob(x); err != nil {
			return nil, unlessShutdown(&x.life, err)
		}
	}
	if x.life.Err() != nil {
		return nil, unlessShutdown(&x.life, x.life.why())
	}
	handler, err := e.chain.resolve(x.job.step.Handler)
	if err != nil {
		if e.leave(x, err) {
			err = fmt.Errorf("%w: %w", errGivenUp, err)
		}
		return nil, err
	}
	x.context.init(&x.life, &x.claim, x.job.plan, e.board, &e.shared, e.log, &x.progress)
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

// leftFor is for how long a worker does not claim what it could not find a handler for.
const leftFor = 10 * time.Second

// leave hands a step back for which a resolver that wanted it has no handler after all, where
// another worker offers what it calls: no attempt is used up, and this worker claims
// nothing of that kind for a while.
func (e *engine) leave(x *execution, why error) bool {
	callable := e.callableOf(x)
	others, err := e.board.OthersOffer(&x.life, x.worker, callable, e.cfg.Lease)
	if err != nil || !others {
		return false
	}
	e.queues.leave(callable, time.Now().Add(leftFor))
	e.beat() // the others are not to take this one for able
	if err := e.handBack(&x.life, []*execution{x}); err != nil {
		e.log.Debug("a step was not left to others", zap.Error(err))
		return false
	}
	e.log.Warn("left a step to other workers: its handler was not found here", zap.Stringer("task_uuid", x.key.TaskUUID),
		zap.Int("step_no", x.key.Step), zap.Duration("for", leftFor), zap.Error(why))
	return true
}

// callableOf is what an execution calls; 0 where its plan is not to be had any more.
func (e *engine) callableOf(x *execution) int32 {
	plan, err := e.board.PlanByID(&x.life, x.claim.PlanID) // in the cache: its job is known
	if err != nil {
		return 0
	}
	return plan.Callables[x.claim.PlanStep()]
}

// yielding is what a yield comes to: a place to go on from, or a failure where
// its checkpoint cannot be kept.
func (e *engine) yielding(x *execution, y *yieldError) error {
	point, err := y.encode(x.key, e.cfg.Checkpoint)
	if err != nil {
		e.saver.refused(err)
		return Permanent(err)
	}
	point.Isolated = x.context.isolating.encoded()
	return &savePoint{point}
}

// call calls the handler. When its time limit passes, the failure is reported
// at once, whatever it does; its permit comes back when it has really ended.
// next is the task that the handler names as what comes next; nil: none.
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

// endOverdue reports what has run out of time. It has a goroutine of a timer,
// where a panic would end the process.
func (e *engine) endOverdue() {
	var late []*execution
	if !e.survived(func() { late = e.slots.overdue(time.Now()) }) {
		e.slots.watchAgain()
	}
	for _, x := range late {
		// A claim whose end cannot be told must not be kept: its lease would
		// never end.
		if !e.survived(func() { e.endLate(x) }) && e.slots.done(x) {
			e.wake()
		}
	}
}

// endLate reports that an execution has run out of time. Where publishers have a
// say in what is told of it the watch does not wait for them.
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

// survived calls f and reports whether it came back; a panic is logged and
// counted.
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

// verdict is what an error comes to in the light of how the context ended.
func (e *engine) verdict(x *execution, err error) error {
	var panicked *lifecycle.PanicError
	var marked *verdictError
	switch {
	case errors.As(err, &panicked):
		x.context.Logger().Error("handler panicked", zap.Error(err), lifecycle.StackField(err))
		return typed(TypePanic, "the handler panicked: %v", panicked.Value)
	case errors.As(err, &marked) && !marked.retryable:
		return err
	case errors.Is(x.life.why(), ErrTimeout):
		return timedOut(x)
	}
	return unlessShutdown(&x.life, err)
}

func unlessShutdown(l *life, err error) error {
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

// finish gives the permit back, then has the outcome reported where it is the
// first to say how the execution ended. next is what goes on with the permit.
func (e *engine) finish(x *execution, result json.RawMessage, err error) (next *execution) {
	how := endedWell
	var point *savePoint
	switch {
	case errors.As(err, &point):
		how = endedByYield
	case x.tx.settled():
		how = endedInTx
	case errors.Is(err, errGivenUp):
		how = endedByStop
	case err != nil:
		how = endedBadly
	}
	ours := false
	if (how == endedWell || how == endedBadly) && e.publishing.asks(x) {
		// The permit is kept meanwhile: slow publishers slow their own steps down.
		if ours = e.slots.settle(x, err == nil); ours {
			e.reporter.compose(x, result, err)
		}
		how = endedSettled
	}
	after := e.slots.end(x, how)
	if after.look {
		if point != nil && e.looks() {
			e.slots.letOthersFirst()
		}
		e.wake()
	}
	if after.tell {
		e.group.Go(e.announce)
	}
	if x.context.Context != nil { // the handler was called
		x.job.took.Observe(after.took.Seconds())
	}
	switch {
	case how == endedInTx:
		e.endedInTx(x, err)
	case ours:
		e.reporter.bring(&x.outcome)
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
