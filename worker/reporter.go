package worker

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// reporter delivers the reports of executions; the answer is whether one was accepted.
type reporter struct {
	delivery[*execution, bool]
}

func newReporter(e *engine) *reporter {
	r := &reporter{delivery[*execution, bool]{e: e, what: "outcomes"}}
	r.size, r.send, r.alone = reportSize, r.report, r.replace
	if e.cfg.Settler != nil {
		r.first = e.settle
	}
	// Claiming stops at MaxPending; the steps claimed by then may still end.
	r.open("worker-report", e.cfg.Report.MaxPending+2*(e.cfg.MaxConcurrent+e.cfg.Prefetch), r.answered)
	return r
}

func reportSize(x *execution) int {
	r := &x.report
	return len(r.Result) + len(r.Error) + len(r.Isolated) + len(r.Events)
}

// answered handles the answers of reports that shared a flush.
func (r *reporter) answered(list []command.Answer[*execution, bool]) {
	ended := make([]*execution, 0, len(list))
	for _, a := range list {
		switch {
		case a.Err != nil:
			r.submit(a.Item)
			continue
		case a.Result:
			r.e.publishing.accepted(a.Item)
		default:
			r.e.stale(a.Item, a.Item.report.Success)
		}
		ended = append(ended, a.Item)
	}
	r.e.follow(r.e.slots.done(ended...))
}

// stale counts and logs a rejected outcome.
func (e *engine) stale(x *execution, success bool) {
	e.count.stale.Add(1)
	e.metrics.StaleResults.Inc()
	e.log.Warn("the outcome of a step came too late and was rejected: the claim is lost", zap.Stringer("task_uuid", x.key.TaskUUID),
		zap.Int("step_no", x.key.Step), zap.Int("attempt", x.claim.Attempt), zap.Bool("success", success))
}

// replace reports, in place of an outcome that the database rejects, this rejection.
func (r *reporter) replace(ctx context.Context, p *parcel[*execution, bool]) {
	x := p.item
	r.e.log.Error("the database rejects the outcome of a step", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step), zap.Error(p.err))
	f := failureOf(refusal(p.err))
	x.report = reportFailure(x.key, f)
	r.e.publishing.prepare(x, &f, true)
	var answers []bool
	if answers, p.err = r.retry(ctx, []*execution{x}); p.err == nil {
		p.answer = answers[0]
	}
}

// report sends one statement, and signals that there is something to apply.
func (r *reporter) report(ctx context.Context, items []*execution) ([]bool, error) {
	reports := make([]store.Report, len(items))
	for i, x := range items {
		reports[i] = x.report
	}
	begin := time.Now()
	accepted, err := r.e.board.Report(ctx, reports)
	if took := time.Since(begin); took >= r.e.cfg.Report.SlowAfter {
		r.e.log.Warn("reporting outcomes was slow", zap.Duration("took", took), zap.Int("outcomes", len(reports)), zap.Error(err))
	}
	if slices.Contains(accepted, true) && !r.e.board.SendsSignals() {
		r.e.publisher.Publish(signal.Signal{Topic: signal.TopicOrchestration})
	}
	return accepted, err
}
