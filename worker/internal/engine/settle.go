package engine

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/store"
)

// Settler decides what follows from successes; *settle.Settler is one.
type Settler interface {
	// Settle is never called concurrently by one worker.
	Settle(ctx context.Context, taker store.ClaimRequest, list []settle.Success) (settle.Result, error)
}

// settle settles successes and takes the steps that follow. It returns what is still to
// be reported.
func (e *Engine) settle(ctx context.Context, all []*parcel[*Execution, bool]) (left []*parcel[*Execution, bool]) {
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
func (e *Engine) offer(want int) offer {
	if !e.looks() || e.cfg.Report.Breaker.Wait() > 0 {
		want = 0
	}
	before := e.unknown.begin()
	return offer{e.claimRequest(e.slots.promise(want)), before}
}

// taken ends an offer: claimed are the steps that were claimed for it, lost says that the
// answer was lost.
func (e *Engine) taken(ctx context.Context, o offer, claimed []store.Claimed, leaseEnd time.Time, lost bool) {
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
