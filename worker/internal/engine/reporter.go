package engine

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// reporter delivers the reports of executions; the answer is whether one was accepted.
type reporter struct {
	delivery[*Execution, bool]
	bytes *semaphore.Weighted // room for large outcomes
}

func newReporter(e *Engine) *reporter {
	r := &reporter{delivery: delivery[*Execution, bool]{e: e, what: "outcomes"}}
	r.size, r.send, r.content, r.dropped = reportSize, r.report, r.replace, r.drop
	if e.cfg.Settler != nil {
		r.first = e.settle
	}
	r.bytes = semaphore.NewWeighted(maxPendingBytes)
	// Claiming stops at MaxPending; the steps claimed by then may still end.
	r.open("worker-report", "reports", e.cfg.Report.MaxPending+2*(e.cfg.MaxConcurrent+e.cfg.Prefetch), besideSilent, r.answered)
	r.batch.SmallFirst(reportSize, largeReport, maxReportBytes)
	return r
}

const (
	// largeReport is from how many bytes on an outcome waits behind smaller ones.
	largeReport = 64 << 10
	// maxPendingBytes bounds the large outcomes that wait to be reported: beyond it handlers wait.
	maxPendingBytes = 32 << 20
)

// submit waits for room, also for the bytes of a large outcome.
func (r *reporter) submit(x, next *Execution) {
	if size := reportSize(x); size >= largeReport {
		size = min(size, maxPendingBytes)
		if !r.bytes.TryAcquire(int64(size)) {
			r.e.slots.waits(next, true)
			if r.bytes.Acquire(r.e.base, int64(size)) != nil { // the worker ends
				size = 0
			}
			r.e.slots.waits(next, false)
		}
		x.reporting = size
	}
	r.delivery.submit(x, next)
}

// leave gives back the room of an outcome.
func (r *reporter) leave(x *Execution) {
	if x.reporting > 0 {
		r.bytes.Release(int64(x.reporting))
		x.reporting = 0
	}
}

func reportSize(x *Execution) int {
	r := &x.Report
	return len(r.Result) + len(r.Error) + len(r.Metadata) + len(r.Isolated) + len(r.Events)
}

// answered handles the answers of reports that shared a flush.
func (r *reporter) answered(list []command.Answer[*Execution, bool]) {
	ended := make([]*Execution, 0, len(list))
	for _, a := range list {
		switch {
		case a.Err != nil:
			r.again(a.Item, a.Err)
			continue
		case a.Result:
			a.Item.Step.Ended(true)
		default:
			r.e.stale(a.Item, a.Item.Report.Success)
		}
		r.leave(a.Item)
		ended = append(ended, a.Item)
	}
	r.e.follow(r.e.slots.done(ended...))
}

// stale counts and logs a rejected outcome.
func (e *Engine) stale(x *Execution, success bool) {
	e.count.stale.Add(1)
	e.metrics.StaleResults.Inc()
	x.Step.Ended(false)
	e.log.Warn("the outcome of a step came too late and was rejected: the claim is lost", zap.Inline(x), zap.Bool("success", success))
}

// drop gives up an outcome that the database rejects as the worker stops.
func (r *reporter) drop(x *Execution, why error) {
	r.e.log.Error("stopping: the outcome of a step is lost, because the database rejects it; the step runs again where it may",
		zap.Inline(x), zap.Bool("success", x.Report.Success), zap.Error(why))
	x.Step.Ended(false)
	r.leave(x)
	r.e.follow(r.e.slots.done(x))
}

// replace reports, in place of an outcome whose content the database rejects, this rejection, once.
func (r *reporter) replace(ctx context.Context, p *parcel[*Execution, bool]) bool {
	x := p.item
	if x.replaced {
		return false
	}
	x.replaced = true
	f := FailureOf(refusal(p.err))
	x.Report = x.failed(&f)
	x.prepare(nil, &f, true)
	var answers []bool
	if answers, p.err = r.retry(ctx, []*Execution{x}); p.err == nil {
		p.answer = answers[0]
	}
	return p.err == nil
}

// report sends one statement, and signals that there is something to apply.
func (r *reporter) report(ctx context.Context, items []*Execution) ([]bool, error) {
	reports, batch := make([]store.Report, len(items)), r.e.cfg.Tracer.Batch()
	for i, x := range items {
		reports[i] = x.Report
		batch.Add(x.Claim.Trace, x.Key.TaskUUID)
	}
	begin := time.Now()
	accepted, err := r.e.board.Report(ctx, reports)
	r.e.cfg.Tracer.Done(&batch, "report", err)
	if took := time.Since(begin); took >= r.e.cfg.Report.SlowAfter {
		r.e.log.Warn("reporting outcomes was slow", zap.Int64("duration_ms", took.Milliseconds()), zap.Int("outcomes", len(reports)), zap.Error(err))
	}
	if slices.Contains(accepted, true) {
		r.e.signal(signal.Signal{Topic: signal.TopicOrchestration})
	}
	return accepted, err
}

// Settler decides what follows from successes; *settle.Settler is one.
type Settler interface {
	// Settle is never called concurrently by one worker.
	Settle(ctx context.Context, taker store.ClaimRequest, list []settle.Success) (settle.Result, error)
}

// besideSilent is after how long outcomes are reported beside a statement that has no answer yet.
const besideSilent = time.Second

// settle settles successes and takes the steps that follow. It returns what is still to
// be reported: all, while another call has no answer yet.
func (e *Engine) settle(ctx context.Context, all []*parcel[*Execution, bool]) (left []*parcel[*Execution, bool]) {
	if !e.settling.TryLock() {
		return all
	}
	defer e.settling.Unlock()
	list, chosen := make([]settle.Success, 0, len(all)), make([]*parcel[*Execution, bool], 0, len(all))
	size, follow := 0, 0 // as many steps at most
	for _, p := range all {
		if x := p.item; x.Report.Success && size < maxReportBytes {
			follow += len(x.job.step.Children)
			size += reportSize(x)
			list = append(list, settle.Success{Claim: &x.Claim, Report: x.Report, Saved: x.Claim.Checkpoint != nil || x.saved.Load()})
			chosen = append(chosen, p)
		}
	}
	if len(list) == 0 {
		return all
	}
	for i, ok := range e.settleNow(ctx, list, follow) {
		chosen[i].answer = ok
	}
	return slices.DeleteFunc(all, func(p *parcel[*Execution, bool]) bool { return p.answer })
}

// settleNow settles successes that at most follow steps follow from.
func (e *Engine) settleNow(ctx context.Context, list []settle.Success, follow int) (accepted []bool) {
	// As with a claim, the leases of the steps that follow must not end during the call.
	ctx, cancel := context.WithTimeout(ctx, min(e.cfg.Lease/2, statementPatience))
	defer cancel()
	o := e.offer(follow)
	begin, batch := time.Now(), e.cfg.Tracer.Batch()
	for i := range list {
		batch.Add(list[i].Claim.Trace, list[i].Claim.TaskUUID)
	}
	result, err := e.cfg.Settler.Settle(ctx, o.request, list)
	e.cfg.Tracer.Done(&batch, "settle", err)
	if err != nil {
		say := e.log.Warn
		if store.LockTimeout(err) { // a frozen session may hold a task; orchestrators log its end
			say = e.log.Debug
		}
		say("successes were not settled and are reported", zap.Int("steps", len(list)), zap.Error(err))
	}
	e.taken(ctx, o, result.Next, begin.Add(result.Lease), result.Unknown)
	return result.Accepted
}

// offer is what the worker would claim of steps that become ready while another statement
// runs. The caller must pass it to taken.
type offer struct {
	request store.ClaimRequest
	before  int64 // older than the tokens of the claims
}

// offer reserves permits for up to want steps, for none if the worker must not look for
// work.
func (e *Engine) offer(want int) offer {
	if !e.cfg.Looks() || e.cfg.Report.Breaker.Wait() > 0 {
		want = 0
	}
	before := e.unknown.begin()
	free, _, _ := e.queues.claimable()
	return offer{e.claimRequest(e.slots.promise(want), free), before}
}

// taken ends an offer: claimed are the steps that were claimed for it, lost says that the
// answer was lost.
func (e *Engine) taken(ctx context.Context, o offer, claimed []store.Claimed, leaseEnd time.Time, lost bool) {
	defer e.unknown.end()
	e.follow(e.slots.keep(o.request.Limit))
	if lost {
		e.unknown.lose(o.request.Worker, o.before)
		e.cfg.Wake()
	}
	if len(claimed) > 0 {
		e.take(ctx, o.request.Worker, claimed, leaseEnd)
	}
}

// Offer returns what the engine would claim now of tasks about to be created in its
// process, for up to want steps, and what must be called with the answer.
func (e *Engine) Offer(want int) (store.ClaimRequest, func(claimed []store.Claimed, lost bool)) {
	if e.cfg.Settler == nil {
		want = 0
	}
	leaseEnd := time.Now().Add(e.cfg.Lease)
	o := e.offer(want)
	if o.request.Limit > 0 {
		return o.request, func(claimed []store.Claimed, lost bool) { e.taken(e.base, o, claimed, leaseEnd, lost) }
	}
	e.unknown.end()
	return store.ClaimRequest{}, func([]store.Claimed, bool) {}
}
