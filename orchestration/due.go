package orchestration

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// dueWork moves what has become due, begins the engine's own steps, ends leases
// that have run out and runs schedules.
type dueWork struct {
	o         *Orchestrator
	schedules dueSchedules
	waits     waits
	// scan keeps the horizon from being asked for too often while dead versions
	// lie in front of what is due. Only a dear one is waited with.
	scan scanBudget
	// behind: the look before left something, or saw nothing at all. Then how long
	// that has been due says nothing about signals and timers.
	behind bool
	// held is since when leases that have run out are left, see graceLeft.
	held time.Time
}

// dearHorizon is what asking for the horizon may take before it is rationed.
const dearHorizon = 5 * time.Millisecond

// Look asks for the horizon first: one cheap query tells whether there is
// anything to do at all and how long the timer may sleep.
// While the breaker for it is open, it waits: that is no failure of the look.
func (w *dueWork) Look(ctx context.Context, _ coordinator.Wake) (out coordinator.Outcome, err error) {
	guard := w.o.cfg.ReadinessBreaker
	if wait := guard.Wait(); wait > 0 {
		w.behind = true
		return coordinator.Outcome{NextDue: coordinator.NoDue, RetryIn: wait}, nil
	}
	err = guard.Do(ctx, func(ctx context.Context) (err error) {
		out, err = w.look(ctx)
		return err
	})
	if err != nil {
		w.behind = true
	}
	return out, err
}

func (w *dueWork) look(ctx context.Context) (coordinator.Outcome, error) {
	out, behind := coordinator.Outcome{NextDue: coordinator.NoDue}, w.behind
	w.behind = true // until this look has come to its end
	found := func(n int, since time.Duration) {
		if out.Found += n; n > 0 && !behind {
			out.Waited = max(out.Waited, since)
		}
	}
	start := time.Now()
	if wait := w.scan.wait(start); w.scan.took > dearHorizon && wait > 0 {
		out.RetryIn = wait
		return out, nil
	}
	h, err := w.o.store.Horizon(ctx)
	if err != nil {
		return out, err
	}
	w.scan.used(start, time.Since(start))
	if h.NextDue == 0 {
		promoted, err := w.o.store.PromoteDue(ctx, w.o.cfg.SweepBatch)
		if err != nil {
			return out, err
		}
		w.o.publish(promoted.Signals)
		found(promoted.Steps, h.Since.Due)
		out.More = promoted.Steps >= w.o.cfg.SweepBatch
	}
	more, err := w.waits.look(ctx, h, found)
	if err != nil {
		return out, err
	}
	out.More = out.More || more
	grace := w.graceLeft(h, start)
	if h.NextLease == 0 && grace == 0 {
		expired, err := w.expire(ctx)
		if err != nil {
			return out, err
		}
		found(expired, h.Since.Lease)
		out.More = out.More || expired >= w.o.cfg.SweepBatch
	}
	if h.NextSchedule == 0 { // last, so that it cannot hold up the others
		ran, more, err := w.schedules.look(ctx)
		if err != nil {
			return out, err
		}
		found(ran, h.Since.Schedule)
		out.More = out.More || more
	}
	if out.Found > 0 {
		if h, err = w.o.store.Horizon(ctx); err != nil {
			return out, err
		}
	}
	if h.NextSchedule >= 0 {
		h.NextSchedule = max(h.NextSchedule, w.schedules.wait(time.Now()))
	}
	if grace > 0 {
		h.NextLease = grace
	}
	out.NextDue = soonest(h)
	w.behind = h.Next() == 0 || grace > 0
	return out, nil
}

// mostGraces bounds how often the grace of leases begins anew, where the database
// comes and goes.
const mostGraces = 10

// graceLeft is for how long yet leases that have run out are left alone; 0: they
// may end. While the database was away no worker could extend its leases, and all
// of them, with the handlers that run, would be lost in the moment it is back,
// had the workers no time to do so. An orchestrator that has just started does not
// know whether it was away.
func (w *dueWork) graceLeft(h store.Horizon, now time.Time) time.Duration {
	left := w.o.cfg.LeaseGrace - now.Sub(w.o.store.ReachedSince())
	if h.NextLease != 0 || left <= 0 {
		w.held = time.Time{}
		return 0
	}
	if w.held.IsZero() {
		w.held = now
	}
	if now.Sub(w.held) >= mostGraces*w.o.cfg.LeaseGrace {
		return 0
	}
	return left
}

func (w *dueWork) expire(ctx context.Context) (int, error) {
	expired, err := w.o.store.ExpireLeases(ctx, w.o.cfg.SweepBatch)
	if err != nil || expired.Lost+expired.Unbegun == 0 {
		return 0, err
	}
	w.o.metrics.LeasesExpired.Add(float64(expired.Lost))
	w.o.metrics.ClaimsUnbegun.Add(float64(expired.Unbegun))
	w.o.log.Warn("leases ran out; the steps go on without their workers", zap.Int("steps", expired.Lost), zap.Int("not_begun", expired.Unbegun))
	if expired.Lost > 0 {
		w.o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
	}
	w.o.publish(expired.Signals)
	return expired.Lost + expired.Unbegun, nil
}

// soonest is when to look again; a time that has just passed is looked at
// after a moment, because whoever holds that row is about to commit.
func soonest(h store.Horizon) time.Duration {
	next := h.Next()
	if next == 0 {
		return skippedRetry
	}
	return next
}
