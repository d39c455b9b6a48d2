package worker

import (
	"encoding/json"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/worker/internal/failure"
	"github.com/tasker-go/tasker/workflow"
)

// runner is what the steps of a worker have in common.
type runner struct {
	cfg        *Config
	chain      *chain
	board      results
	shared     sharedResults
	publishing *publishing
	log        *zap.Logger
	metrics    *telemetry.Metrics
}

// step is an execution with what its handler sees; it implements engine.Step.
type step struct {
	engine.Execution
	runner    *runner
	context   StepContext
	published []publishable // to route after the report was accepted
}

func (r *runner) newStep() *engine.Execution {
	s := &step{runner: r}
	s.Step = s
	return &s.Execution
}

// Run implements engine.Step: it finds the handler and turns what it returns into the
// ending. When the time limit passes, the failure is reported at once; the permit comes
// back when the handler returns.
func (s *step) Run() engine.Ending {
	plan, planned := s.Plan()
	handler, err := s.runner.chain.resolve(planned.Handler)
	if err != nil {
		if s.Leave(err) {
			return engine.Ending{Kind: engine.GivenUp, Err: err}
		}
		return engine.Failing(err)
	}
	s.context.init(&s.Ctx, &s.Claim, plan, s.runner.board, &s.runner.shared, s.runner.log, &s.Progress)
	s.context.run = s
	s.context.mayIsolate(s.runner.cfg.Isolation, s.runner.metrics)
	return s.call(handler)
}

func (s *step) call(handler HandlerFunc) (end engine.Ending) {
	defer func() {
		if r := recover(); r != nil {
			err := &lifecycle.PanicError{Value: r, Stack: debug.Stack()}
			s.context.Logger().Error("handler panicked", zap.Error(err), lifecycle.StackField(err))
			end = engine.Failing(typed(TypePanic, "the handler panicked: %v", r))
		}
	}()
	value, err := handler(&s.context)
	if y := yielded(err); y != nil {
		return s.yield(y)
	}
	end.Kind = engine.Success
	if c := continued(err); c != nil {
		next := s.context.nextRequest(&c.next)
		value, err, end.Next = c.result, nil, &next
	}
	if err == nil {
		end.Result, err = s.result(value)
	}
	if err != nil {
		return s.Judge(err)
	}
	return end
}

// result encodes and checks what the handler has returned.
func (s *step) result(value any) (json.RawMessage, error) {
	result, err := encodeResult(value, s.runner.cfg.MaxResultBytes)
	if err != nil {
		return nil, err
	}
	if err := workflow.CheckResult(s.context.step.Kind, result); err != nil {
		return nil, Permanent(typed(TypeInvalidOutcome, "%w", err))
	}
	return result, s.context.unheeded()
}

// yield turns a yield into a checkpoint to continue from, or into a failure if the
// checkpoint cannot be stored.
func (s *step) yield(y *yieldError) engine.Ending {
	if s.InTx() {
		return s.Judge(errNoCheckpoint)
	}
	point, err := s.encode(y)
	if err != nil {
		return s.Judge(err)
	}
	return engine.Ending{Kind: engine.Yielded, Point: point, Err: y}
}

// Called implements engine.Step.
func (s *step) Called() bool { return s.context.Context != nil }

// Saved implements engine.Step.
func (s *step) Saved() bool { return s.context.keeps() }

// Isolated implements engine.Step.
func (s *step) Isolated() json.RawMessage { return s.context.isolating.encoded() }

// Asks implements engine.Step.
func (s *step) Asks() bool { return s.runner.publishing.asks(s) }

// Prepare implements engine.Step.
func (s *step) Prepare(f *failure.Failure, plain bool) { s.runner.publishing.prepare(s, f, plain) }

// Accepted implements engine.Step.
func (s *step) Accepted() { s.runner.publishing.accepted(s) }
