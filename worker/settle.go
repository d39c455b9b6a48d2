package worker

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// settler decides what follows from successes; *settle.Settler is one.
type settler interface {
	// Settle is never called concurrently by one worker.
	Settle(ctx context.Context, taker store.ClaimRequest, list []settle.Success) (settle.Result, error)
}

// settle settles successes and takes the steps that follow. It returns what is still to
// be reported.
func (e *engine) settle(ctx context.Context, all []*parcel[*execution, bool]) (left []*parcel[*execution, bool]) {
	list, chosen := make([]settle.Success, 0, len(all)), make([]*parcel[*execution, bool], 0, len(all))
	size, follow := 0, 0 // as many steps at most
	for _, p := range all {
		if x := p.item; x.report.Success && size < maxReportBytes {
			follow += len(x.job.step.Children)
			size += reportSize(x)
			list = append(list, settle.Success{Claim: &x.claim, Report: x.report, Saved: x.context.keeps()})
			chosen = append(chosen, p)
		}
	}
	if len(list) == 0 {
		return all
	}
	for i, ok := range e.settleNow(ctx, list, follow) {
		chosen[i].answer = ok
	}
	return slices.DeleteFunc(all, func(p *parcel[*execution, bool]) bool { return p.answer })
}

// settleNow settles successes that at most follow steps follow from.
func (e *engine) settleNow(ctx context.Context, list []settle.Success, follow int) (accepted []bool) {
	// As with a claim, the leases of the steps that follow must not end during the call.
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Lease/2)
	defer cancel()
	o := e.offer(follow)
	begin := time.Now()
	result, err := e.cfg.Settler.Settle(ctx, o.request, list)
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
func (e *engine) offer(want int) offer {
	if !e.looks() || e.cfg.Report.Breaker.Wait() > 0 {
		want = 0
	}
	before := e.unknown.begin()
	return offer{e.claimRequest(e.slots.promise(want)), before}
}

// taken ends an offer: claimed are the steps that were claimed for it, lost says that the
// answer was lost.
func (e *engine) taken(ctx context.Context, o offer, claimed []store.Claimed, leaseEnd time.Time, lost bool) {
	defer e.unknown.end()
	e.follow(e.slots.keep(o.request.Limit))
	if lost {
		e.unknown.lose(o.request.Worker, o.before)
		e.wake()
	}
	if len(claimed) > 0 {
		e.take(ctx, o.request.Worker, claimed, leaseEnd)
	}
}

// Offer returns what the worker would claim now of tasks about to be created in its
// process, for up to want steps; it implements orchestration.Taker. It is safe for
// concurrent use.
func (w *Worker) Offer(want int) (store.ClaimRequest, func(claimed []store.Claimed, lost bool)) {
	p, _ := w.current()
	if p == nil || p.engine.cfg.Settler == nil {
		return store.ClaimRequest{}, func([]store.Claimed, bool) {}
	}
	e := p.engine
	leaseEnd := time.Now().Add(e.cfg.Lease)
	o := e.offer(want)
	if o.request.Limit == 0 {
		e.unknown.end()
		return store.ClaimRequest{}, func([]store.Claimed, bool) {}
	}
	return o.request, func(claimed []store.Claimed, lost bool) { e.taken(e.base, o, claimed, leaseEnd, lost) }
}

// Hear receives signals that a daemon of the same process sends, ahead of their way
// through the database. It never blocks, and does nothing while the worker does not run
// or only polls.
func (w *Worker) Hear(signals ...signal.Signal) {
	p, _ := w.current()
	if p == nil || !p.system.Mode().Listens() {
		return
	}
	topics := signal.NewTopicSet(p.queues.topics())
	for _, s := range signals {
		if topics.Has(s.Topic) {
			p.engine.receiveLanes(s)
			p.system.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
}
