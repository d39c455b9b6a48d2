package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// Stop stops the worker in order: it claims no more; hands back what has not begun; waits
// for handlers; reports their outcomes; releases the remaining leases, so that other
// workers need not wait for their end. Handlers have until shortly before the deadline of
// ctx (ShutdownTimeout without one); then their contexts end with ErrShutdown. Releasing
// the claims gets at least a second, however little time there is.
//
// A second call during the first forces it: it stops waiting for handlers. The error says
// what could not be ended or handed over.
func (w *Worker) Stop(ctx context.Context) error { return w.stop(ctx, true) }

func (w *Worker) stop(ctx context.Context, force bool) error {
	w.mu.Lock()
	switch w.state {
	case stateIdle:
		w.state = stateStopped
		close(w.stopped)
		w.mu.Unlock()
		return nil
	case stateStarting:
		w.mu.Unlock()
		return errors.New("stop the worker: it is still starting; end the context of Start")
	case stateDraining:
		if force {
			w.forceLocked()
		}
		w.mu.Unlock()
		return w.awaitStopped(ctx)
	case stateStopped:
		defer w.mu.Unlock()
		return w.stopErr
	}
	w.state = stateDraining
	p := w.parts
	w.mu.Unlock()

	err := w.drain(ctx, p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.stopErr = stateStopped, err
	close(w.stopped)
	return err
}

func (w *Worker) forceLocked() {
	select {
	case <-w.force:
	default:
		close(w.force)
	}
}

func (w *Worker) awaitStopped(ctx context.Context) error {
	select {
	case <-w.stopped:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.stopErr
	case <-ctx.Done():
		return fmt.Errorf("stop the worker: %w", ctx.Err())
	}
}

const (
	// releaseTime is the least time for handing back, releasing and signing off.
	releaseTime = time.Second
	// handlerGrace bounds the wait for handlers whose contexts have ended.
	handlerGrace = 2500 * time.Millisecond
)

// margin is the part of the stop time that remains for reporting, releasing and signing
// off when the handlers' contexts end.
func margin(left time.Duration) time.Duration {
	return min(max(left/5, 100*time.Millisecond), 2*handlerGrace, max(left, 0))
}

// drain lists the stages of Stop.
func (w *Worker) drain(ctx context.Context, p *parts) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.cfg.ShutdownTimeout)
		defer cancel()
	}
	p.heartbeat.beatSoon() // reports the state to the fleet
	failed := w.stopClaiming(ctx, p)
	failed = append(failed, w.awaitHandlers(ctx, p))
	failed = append(failed, p.engine.awaitAnswers(ctx))
	failed = append(failed, p.engine.publishing.stop(ctx))
	left := p.engine.slots.usage().running
	failed = append(failed, w.releaseAll(ctx, p))
	if left == 0 {
		p.engine.group.Wait()
	}
	err := errors.Join(failed...)
	w.cfg.Logger.Info("worker stopped", zap.Int("handlers_left", left), zap.Error(err))
	if err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	return nil
}

// final is the remaining stop time, at least a second.
func final(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithTimeout(context.WithoutCancel(ctx), max(time.Until(deadline), releaseTime))
}

// releaseAll gives back every remaining claim, signs off and closes.
func (w *Worker) releaseAll(ctx context.Context, p *parts) error {
	ctx, cancel := final(ctx)
	defer cancel()
	// A heartbeat from here on could extend a lease after its release.
	err := errors.Join(p.beats.Stop(ctx), p.watch.Stop(ctx))
	err = errors.Join(err, p.handOver(ctx, w.cfg.Logger), p.board.Stopped(ctx, w.ID()))
	p.close(ctx, w.cfg.Logger)
	return err
}

// awaitHandlers waits for the handlers while there is time, then ends the contexts of the
// others. It does not wait for zombies: their steps are decided. Steps that yield in the
// meantime are handed back.
func (w *Worker) awaitHandlers(ctx context.Context, p *parts) error {
	e := p.engine
	deadline, _ := ctx.Deadline()
	patient, cancel := context.WithDeadline(ctx, deadline.Add(-margin(time.Until(deadline))))
	defer cancel()
	defer w.untilForced(cancel, e)()
	u := e.slots.usage()
	w.cfg.Logger.Info("stopping: waiting for handlers", zap.Int("running", u.running), zap.Int("reporting", u.reporting))
	for e.slots.waitFor(patient, func(u usage) bool { return u.waiting > 0 || u.running == u.zombies }) == nil {
		if yielded := e.slots.drain(); len(yielded) > 0 {
			if err := p.handBack(patient, yielded); err != nil {
				w.cfg.Logger.Warn("stopping: steps that have yielded are handed back later", zap.Error(err))
			}
			continue
		}
		if e.slots.usage().running == 0 {
			return nil
		}
		break
	}
	return e.cancelHandlers(ctx, min(time.Until(deadline)/2, handlerGrace))
}

// untilForced calls cancel when Stop is called again. The returned function ends that and
// must be called.
func (w *Worker) untilForced(cancel context.CancelFunc, e *engine) (done func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	e.group.Go(func() {
		defer close(ended)
		select {
		case <-w.force:
			cancel()
		case <-quit:
		}
	})
	return func() {
		close(quit)
		<-ended
	}
}

// stopClaiming hands back what has not begun and stops the looks.
func (w *Worker) stopClaiming(ctx context.Context, p *parts) (failed []error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/3) // a claim may hang
	defer cancel()
	w.cfg.Logger.Info("stopping: claiming has ended")
	failed = append(failed, p.handBack(ctx, p.engine.slots.drain()))
	failed = append(failed, p.system.Stop(ctx))
	// A look under way may have claimed some more.
	return append(failed, p.handBack(ctx, p.engine.slots.drain()))
}

// handBack calls the engine's and logs the result.
func (p *parts) handBack(ctx context.Context, unstarted []*execution) error {
	if len(unstarted) == 0 {
		return nil
	}
	if err := p.engine.handBack(ctx, unstarted); err != nil {
		return err
	}
	p.engine.log.Info("stopping: handed back steps that had not begun or gave up", zap.Int("steps", len(unstarted)))
	return nil
}

// handBack makes claims claimable by other workers and signals them. A failed hand-back
// is repeated once at the end.
func (e *engine) handBack(ctx context.Context, list []*execution) error {
	keys := e.slots.hand(list)
	signals, err := e.board.HandBack(ctx, keys)
	e.slots.handed(list, err == nil)
	if err != nil {
		return fmt.Errorf("hand back %d steps: %w", len(keys), err)
	}
	e.publisher.Publish(signals...)
	return nil
}

// cancelHandlers ends the contexts of the handlers and waits a moment.
func (e *engine) cancelHandlers(ctx context.Context, moment time.Duration) error {
	e.slots.cancelAll(ErrShutdown)
	e.endHandlers(ErrShutdown)
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	if e.slots.waitFor(ctx, func(u usage) bool { return u.running == 0 }) == nil {
		return nil
	}
	for _, s := range e.slots.steps(20) {
		e.log.Error("stopping: a handler ignores the end of its context", zap.Stringer("task_uuid", s.TaskUUID),
			zap.String("step", s.Name), zap.Duration("for", s.Running))
	}
	return fmt.Errorf("%d handlers still run", e.slots.usage().running)
}

// awaitAnswers waits for the checkpoints and reports under way and stops sending. Each
// gets a part of the time; the rest is for the leases.
func (e *engine) awaitAnswers(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	err := e.saver.stop(ctx, time.Until(deadline)/3, func(u usage) int { return u.yielding })
	return errors.Join(err, e.reporter.stop(ctx, time.Until(deadline)*3/4, func(u usage) int { return u.reporting }))
}

// handOver gives back every remaining claim.
func (p *parts) handOver(ctx context.Context, log *zap.Logger) error {
	again, returned, rest := p.engine.slots.remains()
	for _, x := range returned {
		// A step that may not be repeated is left to the rules: its handler may have had
		// an effect.
		if p.engine.repeatable(ctx, x) {
			again = append(again, x)
		} else {
			rest = append(rest, x)
		}
	}
	err := p.handBack(ctx, again)
	if len(rest) == 0 {
		return err
	}
	log.Warn("stopping: releasing the leases of steps that did not end", zap.Int("steps", len(rest)))
	if released := p.board.ReleaseLeases(ctx, keysOf(rest)); released != nil {
		return errors.Join(err, fmt.Errorf("release %d leases: %w", len(rest), released))
	}
	if !p.board.SendsSignals() {
		p.publisher.Publish(signal.Signal{Topic: signal.TopicDue})
	}
	return err
}

// repeatable reports whether the template allows a step to run more than once.
func (e *engine) repeatable(ctx context.Context, x *execution) bool {
	plan, err := e.board.PlanByID(ctx, x.claim.PlanID) // in the cache: the step has run
	return err == nil && usable(plan.Plan, x.claim.PlanStep()) && plan.Steps[x.claim.PlanStep()].Retry.Retryable
}

// close closes the parts, however far Start came.
func (p *parts) close(ctx context.Context, log *zap.Logger) {
	note := func(what string, err error) {
		if err != nil {
			log.Warn("not closed cleanly", zap.String("part", what), zap.Error(err))
		}
	}
	if p.system != nil {
		note("event system", p.system.Stop(ctx))
		note("heartbeat", p.beats.Stop(ctx))
		note("namespaces", p.watch.Stop(ctx))
		note("checkpoints", p.engine.saver.batch.Stop(ctx))
		note("reports", p.engine.reporter.batch.Stop(ctx))
		p.engine.close()
	}
	if p.txPool != nil {
		note("transactions of handlers", p.txPool.close(ctx))
	}
	if p.sender != nil {
		note("signals", p.sender.Stop(ctx))
	}
	if p.store != nil {
		p.store.Close()
	}
}

func keysOf(list []*execution) []store.ClaimKey {
	keys := make([]store.ClaimKey, len(list))
	for i, x := range list {
		keys[i] = x.key
	}
	return keys
}
