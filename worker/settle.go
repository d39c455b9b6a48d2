package worker

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// settler decides what follows from successes; *settle.Settler is one.
type settler interface {
	// Settle is never called concurrently by one worker.
	Settle(ctx context.Context, taker store.ClaimRequest, list []settle.Success) (settle.Result, error)
}

// settleFirst is flush of a worker that settles: it settles what it can and reports the
// rest.
func (r *reporter) settleFirst(ctx context.Context, items []*outcome) ([]bool, error) {
	accepted := r.e.settle(ctx, items)
	left, places := make([]*outcome, 0, len(items)), make([]int, 0, len(items))
	for i, o := range items {
		if !accepted[i] {
			left, places = append(left, o), append(places, i)
		}
	}
	if len(left) == 0 {
		return accepted, nil
	}
	answers, err := r.flush(ctx, left)
	for i, at := range places {
		accepted[at] = i < len(answers) && answers[i]
	}
	var some *command.BatchError
	if !errors.As(err, &some) {
		return accepted, err
	}
	errs := make([]error, len(items))
	for i, at := range places {
		errs[at] = some.Errs[i]
	}
	return accepted, &command.BatchError{Errs: errs}
}

// settle settles successes and takes the steps that follow. It reports which were
// accepted.
func (e *engine) settle(ctx context.Context, items []*outcome) (accepted []bool) {
	accepted = make([]bool, len(items))
	list, places := make([]settle.Success, 0, len(items)), make([]int, 0, len(items))
	size, follow := 0, 0 // as many steps at most
	for i, o := range items {
		if o.report.Success && size < maxReportBytes {
			follow += len(o.x.job.step.Children)
			size += len(o.report.Result) + len(o.report.Isolated) + len(o.report.Events)
			list = append(list, settle.Success{Claim: &o.x.claim, Report: o.report, Saved: o.x.context.keeps()})
			places = append(places, i)
		}
	}
	if len(list) == 0 {
		return accepted
	}
	// As with a claim, the leases of the steps that follow must not end during the call.
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Lease/2)
	defer cancel()
	before := e.unknown.begin()
	defer e.unknown.end()
	begin := time.Now()
	room := e.promise(follow)
	request := e.claimRequest(room)
	result, err := e.cfg.Settler.Settle(ctx, request, list)
	if e.slots.keep(room) {
		e.wake()
	}
	if err != nil {
		say := e.log.Warn
		if store.LockTimeout(err) { // a frozen session may hold a task; orchestrators log its end
			say = e.log.Debug
		}
		say("successes were not settled and are reported", zap.Int("steps", len(list)), zap.Error(err))
	}
	if result.Unknown {
		e.unknown.lose(request.Worker, before)
		e.wake()
	}
	for i, ok := range result.Accepted {
		accepted[places[i]] = ok
	}
	if len(result.Next) > 0 {
		e.take(ctx, request.Worker, result.Next, begin.Add(result.Lease))
	}
	return accepted
}

// promise is the slots', 0 if the worker must not look for work.
func (e *engine) promise(want int) int {
	if !e.looks() || e.cfg.Report.Breaker.Wait() > 0 {
		return 0
	}
	return e.slots.promise(want)
}

// Offer returns what the worker would claim now of tasks about to be created in its
// process, for up to want steps; it implements orchestration.Taker. It is safe for
// concurrent use.
func (w *Worker) Offer(want int) (store.ClaimRequest, func(claimed []store.Claimed, lost bool)) {
	w.mu.Lock()
	p := w.parts
	w.mu.Unlock()
	room := 0
	if p != nil && p.engine.cfg.Settler != nil {
		room = p.engine.promise(want)
	}
	if room == 0 {
		return store.ClaimRequest{}, func([]store.Claimed, bool) {}
	}
	e := p.engine
	before := e.unknown.begin()
	leaseEnd := time.Now().Add(e.cfg.Lease)
	request := e.claimRequest(room)
	return request, func(claimed []store.Claimed, lost bool) {
		defer e.unknown.end()
		if e.slots.keep(room) {
			e.wake()
		}
		if lost {
			e.unknown.lose(request.Worker, before)
		}
		if len(claimed) > 0 {
			e.take(e.base, request.Worker, claimed, leaseEnd)
		}
	}
}

// promise reserves permits for up to want steps that are claimed on creation, and returns
// their number. Such steps bypass the steps that wait on the board, so there must be
// none: the latest look found less than it asked for, and no other is due.
func (s *slots) promise(want int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dry || s.owed || len(s.waiting)+s.yielding+len(s.yielded) > 0 || s.draining || s.reporting >= s.maxPending {
		return 0
	}
	room := min(want, max(s.limit-len(s.running)-s.promised, 0))
	s.promised += room
	return room
}

// looked records whether a look has left nothing visible on the board. It reports whether
// the look before had left nothing either: then the found steps are new since, or were
// missed.
func (s *slots) looked(dry bool) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.dry = s.dry, dry
	return before
}

// keep ends a promise: the steps claimed for it are about to be added. look means the
// same as for ended.
func (s *slots) keep(room int) (look bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promised -= room
	return s.payLocked()
}

// Hear receives signals that a daemon of the same process sends, ahead of their way
// through the database. It never blocks, and does nothing while the worker does not run
// or only polls.
func (w *Worker) Hear(signals ...signal.Signal) {
	w.mu.Lock()
	p := w.parts
	w.mu.Unlock()
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
