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

// errGivenUp says that an execution ended because it was told to, not because
// it failed.
var errGivenUp = errors.New("the handler gave up because the worker is shutting down")

// execute runs one step to its end in this goroutine.
func (e *engine) execute(x *execution) (result json.RawMessage, err error) {
	ctx, cancel := context.WithCancelCause(e.base)
	defer cancel(nil)
	if !e.slots.begun(x, cancel) {
		return nil, ErrLeaseLost
	}
	plan, err := e.plan(ctx, x)
	if err != nil {
		return nil, unlessShutdown(ctx, err)
	}
	step := &plan.Steps[x.claim.Step]
	e.slots.describe(x, plan.Template.Namespace+"/"+plan.Template.Name+"/"+step.Name)
	handler, err := e.chain.resolve(step.Handler)
	if err != nil {
		return nil, err
	}
	limit := e.cfg.HandlerTimeout
	if step.TimeoutSeconds > 0 {
		limit = time.Duration(step.TimeoutSeconds) * time.Second
	}
	begin := time.Now()
	result, err = e.call(ctx, x, plan, handler, limit)
	e.metrics.StepDuration.WithLabelValues(plan.Template.Namespace).Observe(time.Since(begin).Seconds())
	return result, err
}

// plan returns the plan of a claim. While the database is away it asks again,
// until the claim is lost or the worker ends.
func (e *engine) plan(ctx context.Context, x *execution) (*store.Plan, error) {
	for n := 0; ; n++ {
		plan, err := e.board.PlanByID(ctx, x.claim.PlanID)
		switch {
		case err == nil && !usable(plan.Plan, x.claim.Step):
			return nil, typed(TypePlanUnreadable, "plan %d has no step %d", x.claim.PlanID, x.claim.Step)
		case err == nil:
			return plan, nil
		case !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil:
			return nil, typed(TypePlanUnreadable, "the plan of the step cannot be used: %w", err)
		}
		if err := pause(ctx, n); err != nil {
			return nil, err
		}
	}
}

// call calls the handler within its time limit. When that passes, the failure
// is reported at once, whatever the handler does; its permit comes back when
// it has really ended.
func (e *engine) call(ctx context.Context, x *execution, plan *store.Plan, handler HandlerFunc, limit time.Duration) (result json.RawMessage, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, limit, ErrTimeout)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrTimeout) && e.slots.abandon(x) {
			e.reporter.failed(x, timedOut(limit))
		}
	})()
	step := newStepContext(ctx, &x.claim, plan.Plan, e.board.StepResults, e.log, &x.progress)
	err = lifecycle.Guard(func() error {
		value, err := handler(step)
		if err != nil {
			return err
		}
		result, err = encodeResult(value, e.cfg.MaxResultBytes)
		return err
	})
	return result, e.verdict(ctx, step, err, limit)
}

// verdict is what an error comes to in the light of how the context ended.
func (e *engine) verdict(ctx context.Context, step *StepContext, err error, limit time.Duration) error {
	if err == nil {
		return nil
	}
	var panicked *lifecycle.PanicError
	var marked *verdictError
	switch {
	case errors.As(err, &panicked):
		step.Logger().Error("handler panicked", zap.Error(err), lifecycle.StackField(err))
		return typed(TypePanic, "the handler panicked: %v", panicked.Value)
	case errors.As(err, &marked) && !marked.retryable:
		return err
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return timedOut(limit)
	}
	return unlessShutdown(ctx, err)
}

func unlessShutdown(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrShutdown) {
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return err
}

func timedOut(limit time.Duration) error {
	return typed(TypeTimeout, "the handler did not end within %v", limit)
}

// finish gives the permit back, then has the outcome reported where it is the
// first to say how the execution ended. next is what goes on with the permit.
func (e *engine) finish(x *execution, result json.RawMessage, err error) (next *execution) {
	report := false
	if errors.Is(err, errGivenUp) {
		e.slots.giveUp(x)
	} else {
		report = e.slots.settle(x, err == nil)
	}
	next, look := e.slots.release(x)
	if look {
		e.wake()
	}
	switch {
	case !report:
		e.log.Debug("the end of a step is not reported", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step", x.key.Step), zap.Error(err))
	case err != nil:
		e.reporter.failed(x, err)
	default:
		e.reporter.succeeded(x, result)
	}
	return next
}
