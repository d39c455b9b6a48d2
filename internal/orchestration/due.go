package orchestration

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// newDueWork returns the work of the event system task_readiness.
func newDueWork(o *Orchestrator) *dueWork {
	w := &dueWork{o: o, schedules: newDueSchedules(o), waits: newWaits(o)}
	w.due = &isolated{what: "due steps", set: aside.New[uuid.UUID]("due", o.log, o.metrics), log: o.log,
		keys: o.store.DueTasks, run: w.promote, blame: o.blameTask}
	w.leases = &isolated{what: "ended leases", set: aside.New[uuid.UUID]("leases", o.log, o.metrics), log: o.log,
		keys: o.store.EndedLeases, run: w.expire, blame: o.blameTask}
	return w
}

// dueWork moves due steps, begins the steps that the engine runs itself, ends expired
// leases and runs due schedules.
type dueWork struct {
	o           *Orchestrator
	due, leases *isolated
	schedules   *dueSchedules
	waits       *waits
	// scan rations horizon queries that are expensive because dead versions lie in
	// front of what is due.
	scan scanBudget
	// behind: the previous look left work or did not get that far. Then the time
	// since it was due says nothing about signals and timers.
	behind bool
	// held is since when expired leases are left alone, see graceLeft.
	held time.Time
}

// dearHorizon is the duration of a horizon query from which it is rationed.
const dearHorizon = 5 * time.Millisecond

// Look reads the horizon first: one cheap query shows whether there is anything to do
// and how long the timer may sleep. While the breaker for it is open, it waits: that is
// no failure of the look.
func (w *dueWork) Look(ctx context.Context, wake coordinator.Wake) (out coordinator.Outcome, err error) {
	guard := w.o.cfg.ReadinessBreaker
	if wake.Everywhere {
		w.scan = scanBudget{}
		w.o.store.LookFromBeginning()
		guard.Retry()
	}
	if wait := guard.Wait(); wait > 0 {
		w.behind = true
		return coordinator.Outcome{NextDue: coordinator.NoDue, RetryIn: min(wait, deploymode.LongestHold)}, nil
	}
	err = guard.Do(ctx, func(ctx context.Context) (err error) {
		out, err = w.look(ctx)
		return err
	})
	if err != nil {
		w.behind, w.scan = true, scanBudget{}
	}
	return out, err
}

func (w *dueWork) look(ctx context.Context) (coordinator.Outcome, error) {
	out, behind := coordinator.Outcome{NextDue: coordinator.NoDue}, w.behind
	w.behind = true // until this look completes
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
	h, err := w.o.store.Horizon(ctx, w.without())
	if err != nil {
		return out, err
	}
	w.scan.used(start, time.Since(start))
	var failure error // of a kind that the database rejects as a whole; the others do not wait for it
	rejected := func(err error) bool {
		failure = errors.Join(failure, err)
		return err != nil && !refused(ctx, err)
	}
	if h.NextDue == 0 {
		promoted, err := w.due.look(ctx, w.o.cfg.SweepBatch)
		if rejected(err) {
			return out, failure
		}
		found(promoted, h.Since.Due)
		out.More = promoted >= w.o.cfg.SweepBatch
	}
	more, err := w.waits.look(ctx, h, found)
	if rejected(err) {
		return out, failure
	}
	out.More = out.More || more
	grace := w.graceLeft(h, start)
	if h.NextLease == 0 && grace == 0 {
		expired, err := w.leases.look(ctx, w.o.cfg.SweepBatch)
		if rejected(err) {
			return out, failure
		}
		found(expired, h.Since.Lease)
		out.More = out.More || expired >= w.o.cfg.SweepBatch
	}
	if h.NextSchedule == 0 { // last, so that it cannot delay the others
		ran, more, err := w.schedules.look(ctx)
		if err != nil {
			return out, errors.Join(failure, err)
		}
		found(ran, h.Since.Schedule)
		out.More = out.More || more
	}
	if failure != nil {
		return out, failure
	}
	if out.Found > 0 || w.again() > 0 { // the horizon must not find what is set aside due again
		if h, err = w.o.store.Horizon(ctx, w.without()); err != nil {
			return out, err
		}
	}
	if h.NextSchedule >= 0 {
		h.NextSchedule = max(h.NextSchedule, w.schedules.wait(time.Now()))
	}
	if grace > 0 {
		h.NextLease = grace
	}
	held := w.waits.wait(time.Now())
	if held > 0 {
		h.Engine, h.Messages = false, false
		out.SoonerRetry(held, "")
	}
	if next := w.again(); next > 0 {
		out.SoonerRetry(next, "")
	}
	out.NextDue = soonest(h)
	w.behind = h.Next() == 0 || grace > 0 || held > 0
	return out, nil
}

// mostGraces bounds how often the grace of leases restarts while the database comes
// and goes.
const mostGraces = 10

// graceLeft returns for how long expired leases are still left alone; 0: they may end.
// While the database was away no worker could extend its leases; without a grace all
// of them, with the running handlers, would be lost as soon as it is back. A newly
// started orchestrator does not know whether the database was away.
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

// sets are what is set aside of each kind.
func (w *dueWork) sets() []*aside.Set[uuid.UUID] {
	return append(w.waits.sets(), w.due.set, w.leases.set, w.schedules.flow.set)
}

// again is when the first row of those set aside may be tried again; 0: none is.
func (w *dueWork) again() (first time.Duration) {
	for _, set := range w.sets() {
		if next := set.Next(); first == 0 || next > 0 && next < first {
			first = next
		}
	}
	return first
}

// without is what the horizon leaves out.
func (w *dueWork) without() store.Without {
	without := w.waits.without()
	without.Due, without.Leases, without.Schedules = w.due.except(), w.leases.except(), w.schedules.flow.except()
	return without
}

func (w *dueWork) promote(ctx context.Context, rows store.Rows) (int, error) {
	promoted, err := w.o.store.PromoteDue(ctx, rows)
	if err == nil {
		w.o.publish(promoted.Signals)
	}
	return promoted.Steps, err
}

func (w *dueWork) expire(ctx context.Context, rows store.Rows) (int, error) {
	expired, err := w.o.store.ExpireLeases(ctx, rows, w.o.cfg.MaxLosses)
	if err != nil || expired.Claims() == 0 {
		return 0, err
	}
	w.o.metrics.LeasesExpired.Add(float64(expired.Lost + expired.Spared))
	w.o.metrics.LossesSpared.Add(float64(expired.Spared))
	w.o.metrics.LossesBlamed.Add(float64(len(expired.Blamed)))
	w.o.metrics.ClaimsUnbegun.Add(float64(expired.Unbegun))
	w.o.log.Warn("leases expired; the steps no longer wait for their workers", zap.Int("steps", expired.Lost+expired.Spared),
		zap.Int("spared", expired.Spared), zap.Int("not_begun", expired.Unbegun))
	for _, step := range expired.Blamed {
		w.o.log.Warn("a step is blamed for the loss of its worker", zap.Stringer("task_uuid", step.TaskUUID), zap.Int("step_no", step.StepNo))
	}
	if expired.Lost > 0 {
		w.o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
	}
	w.o.publish(expired.Signals)
	return expired.Claims(), nil
}

// soonest returns the delay before the next look; for a time that has just passed it
// is a moment, because the transaction that holds the row is about to commit.
func soonest(h store.Horizon) time.Duration {
	next := h.Next()
	if next == 0 {
		return skippedRetry
	}
	return next
}

// endStuck ends the sessions of frozen processes that hold locks, unless the last
// search was less than pause ago. Otherwise these locks would stay until the server's
// own time-outs, which do not see all of them; see store.EndStuck.
func (o *Orchestrator) endStuck(ctx context.Context, pause time.Duration) {
	now, last := time.Now().UnixNano(), o.evicted.Load()
	if now-last < pause.Nanoseconds() || !o.evicted.CompareAndSwap(last, now) {
		return
	}
	ended, err := o.store.EndStuck(ctx)
	if err != nil {
		o.evicted.CompareAndSwap(now, last) // it was not searched
	}
	switch {
	case errors.Is(err, store.ErrUnavailable): // heartbeats say so, once
	case err != nil && ctx.Err() == nil:
		o.log.Warn("searching for sessions of frozen processes failed", zap.Error(err))
	case ended > 0:
		o.metrics.StuckSessionsEnded.Add(float64(ended))
		o.log.Warn("ended the sessions of processes that froze while holding locks", zap.Int("sessions", ended))
	}
}
