package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// The stages of the stop, in order: Drain, before and after the looks have ended;
// AwaitHandlers; AwaitAnswers; HandOver; Close. Their contexts have deadlines.

// handlerGrace bounds the wait for handlers whose contexts have ended.
const handlerGrace = 2500 * time.Millisecond

// margin is the part of the stop time that remains for reporting, releasing and signing
// off when the handlers' contexts end.
func margin(left time.Duration) time.Duration {
	return min(max(left/5, 100*time.Millisecond), 2*handlerGrace, max(left, 0))
}

// Drain begins no more handlers and hands back what has not begun.
func (e *Engine) Drain(ctx context.Context) error { return e.surrender(ctx, e.slots.drain()) }

// surrender hands back claims and logs the result.
func (e *Engine) surrender(ctx context.Context, list []*Execution) error {
	if len(list) == 0 {
		return nil
	}
	if err := e.handBack(ctx, list); err != nil {
		return err
	}
	e.log.Info("stopping: handed back steps that had not begun or gave up", zap.Int("steps", len(list)))
	return nil
}

// handBack makes claims claimable by other workers and signals them. A failed hand-back
// is repeated once at the end.
func (e *Engine) handBack(ctx context.Context, list []*Execution) error {
	return e.giveBack(list, func(keys []store.ClaimKey) ([]signal.Signal, error) { return e.board.HandBack(ctx, keys) })
}

// giveBack ends claims by a statement that makes their steps claimable again.
func (e *Engine) giveBack(list []*Execution, by func(keys []store.ClaimKey) ([]signal.Signal, error)) error {
	keys := e.slots.hand(list)
	signals, err := by(keys)
	e.slots.handed(list, err == nil)
	if err != nil {
		return fmt.Errorf("hand back %d steps: %w", len(keys), err)
	}
	if len(signals) > 0 { // a rehearsal has none, and no publisher
		e.publisher.Publish(signals...)
	}
	return nil
}

// AwaitHandlers waits for the handlers while there is time and forced lasts, then ends
// the contexts of the others. It does not wait for zombies: their steps are decided.
// Steps that yield in the meantime are handed back.
func (e *Engine) AwaitHandlers(ctx context.Context, forced context.Context) error {
	deadline, _ := ctx.Deadline()
	patient, cancel := context.WithDeadline(ctx, deadline.Add(-margin(time.Until(deadline))))
	defer cancel()
	defer context.AfterFunc(forced, cancel)()
	u := e.Usage()
	e.log.Info("stopping: waiting for handlers", zap.Int("running", u.Running), zap.Int("reporting", u.Reporting))
	for e.slots.waitFor(patient, func(u Usage) bool { return u.Waiting > 0 || u.Running == u.Zombies }) == nil {
		if yielded := e.slots.drain(); len(yielded) > 0 {
			if err := e.surrender(patient, yielded); err != nil {
				e.log.Warn("stopping: steps that have yielded are handed back later", zap.Error(err))
			}
			continue
		}
		if e.Usage().Running == 0 {
			return nil
		}
		break
	}
	return e.cancelHandlers(ctx, min(time.Until(deadline)/2, handlerGrace))
}

// cancelHandlers ends the contexts of the handlers and waits a moment.
func (e *Engine) cancelHandlers(ctx context.Context, moment time.Duration) error {
	e.slots.cancelAll(ErrShutdown)
	e.endHandlers(ErrShutdown)
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	if e.slots.waitFor(ctx, func(u Usage) bool { return u.Running == 0 }) == nil {
		return nil
	}
	for _, s := range e.Steps(20) {
		e.log.Error("stopping: a handler ignores the end of its context", zap.Stringer("task_uuid", s.TaskUUID),
			zap.String("step_name", s.Name), zap.Duration("for", s.Running))
	}
	return fmt.Errorf("%d handlers still run", e.Usage().Running)
}

// AwaitAnswers waits for the checkpoints and reports under way and stops sending. Each
// gets a part of the time; the rest is for the leases.
func (e *Engine) AwaitAnswers(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	err := e.saver.stop(ctx, time.Until(deadline)/3, func(u Usage) int { return u.Yielding })
	err = errors.Join(err, e.reporter.stop(ctx, time.Until(deadline)*3/4, func(u Usage) int { return u.Reporting }))
	if lost := e.logs.stop(ctx); lost != nil {
		e.log.Warn("stopping: lines of handlers are lost", zap.Error(lost))
	}
	return err
}

// HandOver gives back every remaining claim and signs off.
func (e *Engine) HandOver(ctx context.Context) error {
	// A heartbeat from here on could extend a lease after its release.
	return errors.Join(e.stopLoops(ctx), e.release(ctx), e.SignOff(ctx))
}

// SignOff tells the fleet that the worker has stopped.
func (e *Engine) SignOff(ctx context.Context) error {
	e.keepRates(ctx)
	return e.board.Stopped(ctx, e.id())
}

func (e *Engine) release(ctx context.Context) error {
	again, returned, rest := e.slots.remains()
	for _, x := range returned {
		// A step that may not be repeated is left to the rules: its handler may have had
		// an effect.
		if e.repeatable(ctx, x) {
			again = append(again, x)
		} else {
			rest = append(rest, x)
		}
	}
	err := e.surrender(ctx, again)
	if len(rest) == 0 {
		return err
	}
	e.log.Warn("stopping: releasing the leases of steps that did not end", zap.Int("steps", len(rest)))
	keys := make([]store.ClaimKey, len(rest))
	for i, x := range rest {
		keys[i] = x.Key
	}
	if released := e.board.ReleaseLeases(ctx, keys); released != nil {
		return errors.Join(err, fmt.Errorf("release %d leases: %w", len(rest), released))
	}
	e.signal(signal.Signal{Topic: signal.TopicDue})
	return err
}

// Wait returns when all goroutines of the engine have ended. A handler that ignores the
// end of its context keeps it waiting.
func (e *Engine) Wait() { e.group.Wait() }

// repeatable reports whether the template allows a step to run more than once.
func (e *Engine) repeatable(ctx context.Context, x *Execution) bool {
	plan, err := e.board.PlanByID(ctx, x.Claim.PlanID) // in the cache: the step has run
	return err == nil && usable(plan.Plan, x.Claim.PlanStep()) && plan.Steps[x.Claim.PlanStep()].Retry.Retryable
}
