package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// runner is what the executions of a worker have in common.
type runner struct {
	cfg        *Config
	chain      *chain
	board      results
	shared     sharedResults
	mismatches mismatches
	publishing *publishing
}

// step is a StepContext as the engine sees it: its engine.Step.
type step StepContext

// newExecution makes the context of an execution, which holds all of it.
func (r *runner) newExecution() *engine.Execution {
	c := &StepContext{run: r}
	c.x.Step = (*step)(c)
	return &c.x
}

// Run implements engine.Step: it finds the handler and turns what it returns into the
// ending. When the time limit passes, the failure is reported at once; the permit comes
// back when the handler returns.
func (s *step) Run() engine.Ending {
	c := (*StepContext)(s)
	plan, planned := c.x.Plan()
	handler, err := c.run.chain.resolve(plan.Template.Namespace, planned.Handler)
	if err != nil {
		if c.x.Leave(err) {
			return engine.Ending{Kind: engine.GivenUp, Err: err}
		}
		return engine.Failing(err)
	}
	c.Context, c.plan, c.step, c.x.Called = &c.x.Ctx, plan, planned, true
	c.mayIsolate()
	return c.call(handler)
}

func (c *StepContext) call(handler HandlerFunc) (end engine.Ending) {
	defer func() {
		if r := recover(); r != nil {
			err := &lifecycle.PanicError{Value: r, Stack: debug.Stack()}
			c.Logger().Error("handler panicked", zap.Error(err), lifecycle.StackField(err))
			end = engine.Failing(engine.Errorf(engine.TypePanic, "the handler panicked: %v", r))
		}
	}()
	value, err := handler(c)
	if y := yielded(err); y != nil {
		return c.yield(y)
	}
	if back := (*handBackError)(nil); errors.As(err, &back) && c.x.HandBack() {
		return engine.Ending{Kind: engine.GivenUp, Err: err}
	}
	if lost := (*lostError)(nil); errors.As(err, &lost) && c.x.Lose(lost.seen, lost.maxLosses) {
		return engine.Ending{Kind: engine.GivenUp, Err: err}
	}
	end.Kind = engine.Success
	if n := continued(err); n != nil {
		value, err, end.Next = n.result, nil, c.nextRequest(n.next)
	}
	if err == nil {
		end.Result, err = c.result(value)
	}
	if err != nil {
		return c.x.Judge(err)
	}
	if end.Events, err = c.own.made(); err != nil {
		return c.x.Judge(err)
	}
	if beside := c.beside.Load(); beside != nil {
		end.Metadata = *beside
	}
	end.Isolated, end.Items = c.isolating.encoded()
	return end
}

// result encodes and checks what the handler has returned.
func (c *StepContext) result(value any) (json.RawMessage, error) {
	doc, err := encodeResult(value, c.run.cfg.MaxResultBytes)
	if err != nil {
		return nil, err
	}
	if err := workflow.CheckResult(c.step.Kind, doc); err != nil {
		return nil, Permanent(engine.Errorf(engine.TypeInvalidOutcome, "%w", err))
	}
	if err := c.checkSchema(doc); err != nil {
		return nil, err
	}
	return doc, c.unheeded()
}

// yield turns a yield into a checkpoint to continue from, or into a failure if the
// checkpoint cannot be stored.
func (c *StepContext) yield(y *yieldError) engine.Ending {
	if c.x.InTx() {
		return c.x.Judge(errNoCheckpoint)
	}
	if own, err := c.own.made(); err != nil || len(own) > 0 {
		return c.x.Judge(cmp.Or(err, errPublishedEarly))
	}
	point, err := c.encode(y)
	if err != nil {
		return c.x.Judge(err)
	}
	return engine.Ending{Kind: engine.Yielded, Point: point, Err: y}
}

// Prepare implements engine.Step.
func (s *step) Prepare(own []store.MadeEvent, f *engine.Failure, plain bool) {
	s.run.publishing.prepare((*StepContext)(s), own, f, plain)
}

// Ended implements engine.Step.
func (s *step) Ended(accepted bool) {
	if accepted {
		s.run.publishing.accepted((*StepContext)(s))
	}
	if tell := s.recorded.Load(); tell != nil { // the handler may still run
		(*tell)(accepted && !s.x.Late)
	}
}
