package worker

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/workflow"
)

// execute runs one step to its end in this goroutine.
func (e *engine) execute(x *execution) ending {
	defer x.ctx.end(context.Canceled) // releases derived contexts
	if x.job == nil {
		if err := e.awaitJob(x); err != nil {
			return e.judge(x, err)
		}
	}
	if why := x.ctx.why(); why != nil {
		return e.judge(x, why)
	}
	handler, err := e.chain.resolve(x.job.step.Handler)
	if err != nil {
		if e.leave(x, err) {
			return ending{kind: endGivenUp, err: err}
		}
		return failing(err)
	}
	x.context.init(&x.ctx, &x.claim, x.job.plan, e.board, &e.shared, e.log, &x.progress)
	x.context.saver, x.context.run = e.saver, x
	x.context.mayIsolate(e.cfg.Isolation, e.metrics)
	end := e.call(x, handler)
	if x.tx != nil {
		return e.conclude(x, end)
	}
	return end
}

// call calls the handler and turns what it returns into the ending. When its time limit
// passes, the failure is reported at once; the permit comes back when the handler
// returns.
func (e *engine) call(x *execution, handler HandlerFunc) (end ending) {
	defer func() {
		if r := recover(); r != nil {
			end = e.judge(x, &lifecycle.PanicError{Value: r, Stack: debug.Stack()})
		}
	}()
	value, err := handler(&x.context)
	if y := yielded(err); y != nil {
		return e.yielding(x, y)
	}
	next := continued(err)
	if next != nil {
		value, err = next.result, nil
	}
	var result json.RawMessage
	if err == nil {
		result, err = e.resultOf(x, value)
	}
	if err == nil && next != nil {
		err = e.continueWith(x, &next.next)
	}
	if err != nil {
		return e.judge(x, err)
	}
	return ending{kind: endSuccess, result: result}
}

// resultOf encodes and checks what the handler of an execution has returned.
func (e *engine) resultOf(x *execution, value any) (json.RawMessage, error) {
	result, err := encodeResult(value, e.cfg.MaxResultBytes)
	if err != nil {
		return nil, err
	}
	if err := workflow.CheckResult(x.job.step.Kind, result); err != nil {
		return nil, Permanent(typed(TypeInvalidOutcome, "%w", err))
	}
	return result, x.context.unheeded()
}

// yielding turns a yield into a checkpoint to continue from, or into a failure if the
// checkpoint cannot be stored.
func (e *engine) yielding(x *execution, y *yieldError) ending {
	if x.tx != nil {
		return e.judge(x, errNoCheckpoint)
	}
	point, err := y.encode(x.key, e.cfg.Checkpoint)
	if err != nil {
		e.saver.refused(err)
		return e.judge(x, Permanent(err))
	}
	point.Isolated = x.context.isolating.encoded()
	return ending{kind: endYield, point: &point, err: y}
}

// judge turns an error into the ending, considering how the context ended.
func (e *engine) judge(x *execution, err error) ending {
	if x.tx != nil {
		err = serialization(err)
	}
	var panicked *lifecycle.PanicError
	var marked *verdictError
	why := x.ctx.why()
	switch {
	case errors.As(err, &panicked):
		x.context.Logger().Error("handler panicked", zap.Error(err), lifecycle.StackField(err))
		return failing(typed(TypePanic, "the handler panicked: %v", panicked.Value))
	case errors.As(err, &marked) && !marked.retryable:
		return failing(err)
	case errors.Is(why, ErrTimeout):
		return failing(timedOut(x))
	case errors.Is(why, ErrShutdown):
		return ending{kind: endGivenUp, err: err}
	}
	return failing(err)
}

func timedOut(x *execution) error {
	if x.queued.Load() {
		return typed(TypeTimeout, "the handler got no connection for its transaction within %v (worker.transactions.max_connections)", x.job.limit)
	}
	return typed(TypeTimeout, "the handler did not end within %v", x.job.limit)
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
