package engine

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
	delivery[*Execution, bool]
}

func newReporter(e *Engine) *reporter {
	r := &reporter{delivery[*Execution, bool]{e: e, what: "outcomes"}}
	r.size, r.send, r.alone = reportSize, r.report, r.replace
	if e.cfg.Settler != nil {
		r.first = e.settle
	}
	// Claiming stops at MaxPending; the steps claimed by then may still end.
	r.open("worker-report", e.cfg.Report.MaxPending+2*(e.cfg.MaxConcurrent+e.cfg.Prefetch), r.answered)
	return r
}

func reportSize(x *Execution) int {
	r := &x.Report
	return len(r.Result) + len(r.Error) + len(r.Isolated) + len(r.Events)
}

// answered handles the answers of reports that shared a flush.
func (r *reporter) answered(list []command.Answer[*Execution, bool]) {
	ended := make([]*Execution, 0, len(list))
	for _, a := range list {
		switch {
		case a.Err != nil:
			r.submit(a.Item)
			continue
		case a.Result:
			a.Item.Step.Accepted()
		default:
			r.e.stale(a.Item, a.Item.Report.Success)
		}
		ended = append(ended, a.Item)
	}
	r.e.follow(r.e.slots.done(ended...))
}

// stale counts and logs a rejected outcome.
func (e *Engine) stale(x *Execution, success bool) {
	e.count.stale.Add(1)
	e.metrics.StaleResults.Inc()
	e.log.Warn("the outcome of a step came too late and was rejected: the claim is lost", zap.Stringer("task_uuid", x.Key.TaskUUID),
		zap.Int("step_no", x.Key.Step), zap.Int("attempt", x.Claim.Attempt), zap.Bool("success", success))
}

// replace reports, in place of an outcome that the database rejects, this rejection.
func (r *reporter) replace(ctx context.Context, p *parcel[*Execution, bool]) {
	x := p.item
	r.e.log.Error("the database rejects the outcome of a step", zap.Stringer("task_uuid", x.Key.TaskUUID), zap.Int("step_no", x.Key.Step), zap.Error(p.err))
	f := FailureOf(refusal(p.err))
	x.Report = x.failed(&f)
	x.prepare(&f, true)
	var answers []bool
	if answers, p.err = r.retry(ctx, []*Execution{x}); p.err == nil {
		p.answer = answers[0]
	}
}

// report sends one statement, and signals that there is something to apply.
func (r *reporter) report(ctx context.Context, items []*Execution) ([]bool, error) {
	reports := make([]store.Report, len(items))
	for i, x := range items {
		reports[i] = x.Report
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
