package engine

import (
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
)

// Ending is how an execution ended. It is made once, at the edge of the handler (Step.Run)
// or when the time limit has passed, and everything follows from it: who may report the
// execution (slots.end) and how its end gets into the database (record). The holder of the
// right to report owns it; until it is recorded only its kind changes, unless recording
// it fails.
type Ending struct {
	Kind     Kind
	Result   json.RawMessage     // of Success
	Metadata json.RawMessage     // of Success: beside the result, an object; nil: none
	Isolated json.RawMessage     // of Success: the items that its batch has isolated; nil: none
	Items    int                 // in Isolated
	Events   []store.MadeEvent   // of Success: those that the handler has published itself
	Next     *submission.Request // of Success: the task to create with it; nil: none
	Failure  *Failure            // of Failed
	Point    *store.Checkpoint   // of Yielded
	Err      error               // why it is no success; for the log
}

// Kind says how an ending is recorded.
type Kind uint8

const (
	// Success is reported by the first that acquires the right to report: the handler's
	// goroutine or the watch over time limits.
	Success Kind = iota + 1
	// Failed is reported like Success.
	Failed
	// composed is one of both whose report is ready to be sent.
	composed
	// Yielded means that another execution continues from the checkpoint once it is saved.
	Yielded
	// GivenUp is not recorded: the worker ends, has left the step to another worker,
	// or something else has ended the execution before.
	GivenUp

	// committed: the report was committed with the transaction of the handler.
	committed
	// outdated: the report was rejected by the fence, and the transaction rolled back.
	outdated
	// undecided: the worker ends before the outcome of the transaction is known.
	undecided
	// spared: the transaction was rolled back because the database had no room or went away, and the
	// step runs again without using an attempt.
	spared
)

// Failing makes the ending of an execution that failed with err.
func Failing(err error) Ending {
	f := FailureOf(err)
	return Ending{Kind: Failed, Failure: &f, Err: err}
}

// Judge turns an error into the ending of an execution, considering how its context ended.
func (x *Execution) Judge(err error) Ending {
	if x.tx != nil {
		err = serialization(err)
	}
	_, permanent := Marked(err)
	why := x.Why()
	switch {
	case permanent:
	case errors.Is(why, ErrTimeout):
		err = timedOut(x)
	case errors.Is(why, ErrShutdown):
		return Ending{Kind: GivenUp, Err: err}
	}
	return Failing(err)
}

func timedOut(x *Execution) error {
	if x.queued.Load() {
		return Errorf(TypeTimeout, "the handler got no connection for its transaction within %v (worker.transactions.max_connections)", x.job.limit)
	}
	return Errorf(TypeTimeout, "the handler did not end within %v", x.job.limit)
}

// finish frees the permit of an execution that has ended and records its end if nothing
// else has. next continues with the permit.
func (e *Engine) finish(x *Execution, end Ending) (next *Execution) {
	if (end.Kind == Success || end.Kind == Failed) && x.asks() && e.slots.winReport(x, end.Kind) {
		// The permit is kept during this: slow publishers slow down their own steps.
		e.compose(x, end)
		end.Kind = composed
	}
	succeeded := end.Kind == Success || end.Kind == composed && end.Failure == nil
	if end.Kind != Yielded {
		x.endLog()
	}
	after := e.slots.end(x, end.Kind)
	if after.look && end.Kind == Yielded && e.cfg.Looks() {
		e.slots.letOthersFirst()
	}
	e.follow(after)
	if x.Called {
		telemetry.Observe(x.job.took, after.took.Seconds(), tracing.TraceID(x.Claim.Trace))
		if succeeded {
			e.sample(x, after.took)
		}
	}
	if x.mine {
		e.record(x, end, after.next)
	} else {
		e.log.Debug("the end of a step is not reported", zap.Inline(x), zap.Error(end.Err))
	}
	return after.next
}

// record writes the end of an execution to the database. The caller has the right to
// report it. next, nil without one, has its permit and begins afterwards.
func (e *Engine) record(x *Execution, end Ending, next *Execution) {
	switch end.Kind {
	case Success, Failed:
		e.compose(x, end)
		e.reporter.submit(x, next)
	case composed:
		e.reporter.submit(x, next)
	case Yielded:
		e.saver.yields(x, end.Point, next)
	default:
		e.concluded(x, end)
	}
}

// compose makes the report of an execution, with the events of its step. The caller has
// the right to report.
func (e *Engine) compose(x *Execution, end Ending) {
	if f := end.Failure; f != nil {
		e.count.failed.Add(1)
		e.log.Warn("step failed", zap.Inline(x), zap.String("error_type", f.Type), zap.String("error_code", f.Code),
			zap.Bool("retryable", f.Retryable), zap.String("error", f.Message))
		x.Report = x.failed(f)
	} else {
		e.succeeded(x, end)
		x.Report = x.success(end)
	}
	x.prepare(end.Events, end.Failure, false)
}

// prepare adds the events of the step to the report; own are the handler's.
func (x *Execution) prepare(own []store.MadeEvent, f *Failure, plain bool) {
	if x.job != nil && len(x.job.step.Events)+len(own) > 0 {
		x.Step.Prepare(own, f, plain)
	}
}

// asks reports whether publishers make events of the end of an execution, which may take
// long.
func (x *Execution) asks() bool { return x.job != nil && x.job.publishers }

// succeeded counts a success.
func (e *Engine) succeeded(x *Execution, end Ending) {
	e.count.succeeded.Add(1)
	if end.Items > 0 {
		e.metrics.ItemsIsolated.WithLabelValues(e.metrics.Named("namespace", x.job.plan.Template.Namespace)).Add(float64(end.Items))
	}
}

func (x *Execution) success(end Ending) store.Report {
	return store.Report{ClaimKey: x.Key, Success: true, Result: end.Result, Metadata: end.Metadata, Isolated: end.Isolated, RetryAfter: NoDelay}
}

func (x *Execution) failed(f *Failure) store.Report {
	return store.Report{ClaimKey: x.Key, Error: f.encode(), Retryable: f.Retryable, RetryAfter: f.After}
}

// deadlinesLoop is the name of the watch over time limits in logs and metrics.
const deadlinesLoop = "worker-deadlines"

// endOverdue reports the steps that timed out. It runs in a timer's goroutine, where a
// panic would end the process.
func (e *Engine) endOverdue() {
	var late []*Execution
	if !e.survived(func() { late = e.slots.overdue(time.Now()) }) {
		e.slots.watchAgain()
	}
	for _, x := range late {
		if x.asks() { // publishers may be slow
			e.group.Go(func() { e.endLate(x) })
		} else {
			e.endLate(x)
		}
	}
}

// endLate reports that an execution has timed out. A claim whose end cannot be reported
// is dropped, or its lease would never end.
func (e *Engine) endLate(x *Execution) {
	x.Late = true
	if !e.survived(func() { e.record(x, Failing(timedOut(x)), nil) }) {
		e.follow(e.slots.done(x))
	}
}

// survived calls f and reports whether it returned; a panic is logged and counted.
func (e *Engine) survived(f func()) bool {
	err := lifecycle.Guard(func() error { f(); return nil })
	if err == nil {
		return true
	}
	e.metrics.Restarted(deadlinesLoop)
	_ = lifecycle.Guard(func() error { // it may be the log that panics
		e.log.Error("the watch over time limits panicked and goes on", zap.String("loop", deadlinesLoop), zap.Error(err), lifecycle.StackField(err))
		return nil
	})
	return false
}
