package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

const (
	// maxReportBytes bounds the results in one statement; a larger result goes alone.
	maxReportBytes = 8 << 20
	// reportPatience bounds one flush; outcomes without an answer by then are enqueued
	// again.
	reportPatience = time.Minute
)

// outcome is a report under way to the database. It is a part of its execution; the
// holder of the right to report fills it in.
type outcome struct {
	x      *execution
	report store.Report
}

func (x *execution) reported(r store.Report) *outcome {
	x.outcome = outcome{x, r}
	return &x.outcome
}

// reporter sends outcomes in batches that form by themselves. While the database is
// unavailable they are retried, in order, until they are accepted or rejected; none is
// dropped. The slots bound their number, so adding one never waits for room.
type reporter struct {
	e         *engine
	publisher signal.Publisher
	batch     *command.Batcher[*outcome, bool]
}

func newReporter(e *engine, publisher signal.Publisher) *reporter {
	r := &reporter{e: e, publisher: publisher}
	flush := r.flush
	if e.cfg.Settler != nil {
		flush = r.settleFirst
	}
	r.batch = command.NewAsyncBatcher(command.BatcherConfig{
		Name:     "worker-report",
		MaxBatch: e.cfg.Report.MaxBatch,
		// Claiming stops at MaxPending; the steps claimed by then may still end.
		MaxPending:   e.cfg.Report.MaxPending + 2*(e.cfg.MaxConcurrent+e.cfg.Prefetch),
		FlushTimeout: reportPatience,
		Logger:       e.log,
		Metrics:      e.metrics,
	}, flush, r.answered)
	return r
}

func (r *reporter) succeeded(x *execution, result json.RawMessage) {
	r.compose(x, result, nil)
	r.submit(&x.outcome)
}

func (r *reporter) failed(x *execution, err error) {
	r.compose(x, nil, err)
	r.submit(&x.outcome)
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

// compose makes the report of an execution, with the events of its step. The caller has
// the right to report.
func (r *reporter) compose(x *execution, result json.RawMessage, err error) {
	if err == nil {
		r.e.count.succeeded.Add(1)
		x.reported(x.success(result))
		r.e.countIsolated(x)
		r.e.publishing.prepare(x, nil, false)
		return
	}
	f := failureOf(err)
	r.e.count.failed.Add(1)
	r.e.log.Warn("step failed", append(x.fields(), zap.String("error_type", f.Type), zap.String("error_code", f.Code),
		zap.Bool("retryable", f.Retryable), zap.String("error", f.Message))...)
	x.reported(reportFailure(x.key, f))
	r.e.publishing.prepare(x, &f, false)
}

func (r *reporter) submit(o *outcome) {
	if err := r.batch.Add(r.e.base, o); err != nil {
		// Only after Stop; the lease of the claim is released.
		r.e.log.Error("outcome of a step not reported", zap.Stringer("task_uuid", o.x.key.TaskUUID), zap.Int("step_no", o.x.key.Step), zap.Error(err))
	}
}

// answered handles the answers of outcomes that shared a flush.
func (r *reporter) answered(list []command.Answer[*outcome, bool]) {
	settled := make([]*execution, 0, len(list))
	for _, a := range list {
		if a.Err != nil {
			r.submit(a.Item)
			continue
		}
		if a.Result {
			r.e.publishing.accepted(a.Item.x)
		} else {
			r.stale(a.Item)
		}
		settled = append(settled, a.Item.x)
	}
	if r.e.slots.done(settled...) {
		r.e.wake()
	}
}

func (r *reporter) stale(o *outcome) {
	r.e.count.stale.Add(1)
	r.e.metrics.StaleResults.Inc()
	r.e.log.Warn("the outcome of a step came too late and was rejected: the claim is lost",
		zap.Stringer("task_uuid", o.x.key.TaskUUID), zap.Int("step_no", o.x.key.Step),
		zap.Int("attempt", o.x.claim.Attempt), zap.Bool("success", o.report.Success))
}

// flush reports a batch, in parts that fit into a statement.
func (r *reporter) flush(ctx context.Context, items []*outcome) ([]bool, error) {
	accepted, errs := make([]bool, len(items)), make([]error, len(items))
	for from := 0; from < len(items); {
		to := from + fitting(items[from:], func(o *outcome) int {
			return len(o.report.Result) + len(o.report.Error) + len(o.report.Isolated) + len(o.report.Events)
		})
		inHalves(items[from:to], accepted[from:to], errs[from:to],
			func(items []*outcome) ([]bool, error) { return r.deliver(ctx, items) },
			func(o *outcome, err error) (bool, error) { return r.replace(ctx, o, err) })
		from = to
	}
	for _, a := range accepted {
		if a && !r.e.board.SendsSignals() {
			r.publisher.Publish(signal.Signal{Topic: signal.TopicOrchestration})
			break
		}
	}
	return accepted, batchError(errs)
}

// replace reports, in place of an outcome that the database rejected, this rejection.
func (r *reporter) replace(ctx context.Context, o *outcome, why error) (bool, error) {
	r.e.log.Error("the database rejects the outcome of a step", zap.Stringer("task_uuid", o.x.key.TaskUUID), zap.Int("step_no", o.x.key.Step), zap.Error(why))
	f := failureOf(refusal(why))
	o.report = reportFailure(o.x.key, f)
	r.e.publishing.prepare(o.x, &f, true)
	answers, err := r.deliver(ctx, []*outcome{o})
	if err != nil {
		return false, err
	}
	return answers[0], nil
}

// deliver retries one statement until it gets an answer, the database rejects its
// content, or ctx ends.
func (r *reporter) deliver(ctx context.Context, items []*outcome) ([]bool, error) {
	reports := make([]store.Report, len(items))
	for i, o := range items {
		reports[i] = o.report
	}
	return retryUntilAnswered(ctx, r.e, "reports", len(items), func(ctx context.Context) ([]bool, error) {
		begin := time.Now()
		answers, err := r.e.board.Report(ctx, reports)
		if took := time.Since(begin); took >= r.e.cfg.Report.SlowAfter {
			r.e.log.Warn("reporting outcomes was slow", zap.Duration("took", took), zap.Int("outcomes", len(reports)), zap.Error(err))
		}
		return answers, err
	})
}

// refused reports whether an error is about the content of the statement, so that a retry
// cannot help: data exceptions, violated constraints, limits.
func refused(err error) bool {
	code := sqlState(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// sqlState returns the SQLSTATE of an error from the server, or "".
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
