package worker

import (
	"encoding/json"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/store"
)

// ending is how an execution ended. It is made once, at the edge of the handler (run.go,
// transaction.go) or when the time limit has passed, and everything follows from it: who
// may report the execution (slots.end) and how its end gets into the database (record).
type ending struct {
	kind    endingKind
	result  json.RawMessage   // of endSuccess
	failure *failure          // of endFailure
	point   *store.Checkpoint // of endYield
	err     error             // why it is no success; for the log
}

// endingKind tells what is to be recorded.
type endingKind uint8

const (
	// endSuccess and endFailure are reported by the first that acquires the right to
	// report: the handler's goroutine or the watch over time limits.
	endSuccess endingKind = iota + 1
	endFailure
	// endComposed is one of both whose report is ready to be sent.
	endComposed
	// endYield: another execution continues from the checkpoint once it is saved.
	endYield
	// endGivenUp is not recorded: the worker ends, has left the step to another worker,
	// or something else has ended the execution before.
	endGivenUp

	// endCommitted: the report was committed with the transaction of the handler.
	endCommitted
	// endStale: the report was rejected by the fence, and the transaction rolled back.
	endStale
	// endUnknown: the worker ends before the fate of the transaction is known.
	endUnknown
)

// failing makes the ending of an execution that failed with err.
func failing(err error) ending {
	f := failureOf(err)
	return ending{kind: endFailure, failure: &f, err: err}
}

// finish frees the permit of an execution that has ended and records its end if nothing
// else has. next continues with the permit.
func (e *engine) finish(x *execution, end ending) (next *execution) {
	if (end.kind == endSuccess || end.kind == endFailure) && e.publishing.asks(x) && e.slots.winReport(x, end.kind) {
		// The permit is kept during this: slow publishers slow down their own steps.
		end = e.compose(x, end)
	}
	after := e.slots.end(x, end.kind)
	if after.look && end.kind == endYield && e.looks() {
		e.slots.letOthersFirst()
	}
	e.follow(after)
	if x.context.Context != nil { // the handler was called
		x.job.took.Observe(after.took.Seconds())
	}
	if x.mine {
		e.record(x, end)
	} else {
		e.log.Debug("the end of a step is not reported", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(end.err))
	}
	return after.next
}

// record gets the end of an execution into the database. The caller has the right to
// report it.
func (e *engine) record(x *execution, end ending) {
	switch end.kind {
	case endSuccess, endFailure:
		e.compose(x, end)
		e.reporter.submit(x)
	case endComposed:
		e.reporter.submit(x)
	case endYield:
		e.saver.yields(x, end.point)
	default:
		e.concluded(x, end)
	}
}

// compose makes the report of an execution, with the events of its step. The caller has
// the right to report.
func (e *engine) compose(x *execution, end ending) ending {
	if f := end.failure; f != nil {
		e.count.failed.Add(1)
		e.log.Warn("step failed", append(x.fields(), zap.String("error_type", f.Type), zap.String("error_code", f.Code),
			zap.Bool("retryable", f.Retryable), zap.String("error", f.Message))...)
		x.report = reportFailure(x.key, *f)
	} else {
		e.count.succeeded.Add(1)
		x.report = x.success(end.result)
		e.countIsolated(x)
	}
	e.publishing.prepare(x, end.failure, false)
	return ending{kind: endComposed, err: end.err}
}

// fields identify an execution in the log. The caller has the right to report.
func (x *execution) fields() []zap.Field {
	list := []zap.Field{zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Int("attempt", x.claim.Attempt),
		zap.Stringer("correlation_id", x.claim.CorrelationID)}
	if x.job == nil {
		return list // the template could not be read
	}
	t, step := x.job.plan.Template, x.job.step.Name
	if x.claim.Batch != nil {
		step = x.claim.Batch.Name
	}
	return append(list, zap.String("namespace", t.Namespace), zap.String("template", t.Name), zap.String("step", step))
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
		if e.publishing.asks(x) { // publishers may be slow
			e.group.Go(func() { e.endLate(x) })
		} else {
			e.endLate(x)
		}
	}
}

// endLate reports that an execution has timed out. A claim whose end cannot be reported
// is dropped, or its lease would never end.
func (e *engine) endLate(x *execution) {
	if !e.survived(func() { e.record(x, failing(timedOut(x))) }) {
		e.follow(e.slots.done(x))
	}
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
