package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/signal/ends"
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
			w.force()
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

// releaseTime is the least time for handing back, releasing and signing off.
const releaseTime = time.Second

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
	p.engine.BeatSoon() // reports the state to the fleet
	err := errors.Join(w.stopClaiming(ctx, p), p.engine.AwaitHandlers(ctx, w.forced), p.engine.AwaitAnswers(ctx), p.publishing.stop(ctx))
	left := p.engine.Usage().Running
	deadline, _ := ctx.Deadline()
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Until(deadline), releaseTime))
	defer cancel()
	err = errors.Join(err, p.engine.HandOver(rest))
	p.close(rest, w.cfg.Logger)
	if left == 0 {
		p.engine.Wait()
	}
	w.cfg.Logger.Info("worker stopped", zap.Int("handlers_left", left), zap.Error(err))
	if err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	return nil
}

// stopClaiming hands back what has not begun and stops the looks.
func (w *Worker) stopClaiming(ctx context.Context, p *parts) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/3) // a claim may hang
	defer cancel()
	w.cfg.Logger.Info("stopping: claiming has ended")
	// A look under way may claim some more until the system has stopped.
	return errors.Join(p.engine.Drain(ctx), p.system.Stop(ctx), p.engine.Drain(ctx))
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
	}
	if p.engine != nil {
		note("engine", p.engine.Close(ctx))
	}
	for _, s := range p.senders {
		note("signals", s.Stop(ctx))
	}
	for _, t := range p.transports {
		if broker, ok := t.(ends.Broker); ok {
			note("broker", broker.Stop(ctx))
		}
	}
	if p.store != nil {
		p.store.Close()
	}
}
