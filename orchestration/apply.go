package orchestration

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// skippedRetry is how soon tasks are looked at again that another
// orchestrator held: it may have read before the last report came in.
const skippedRetry = 5 * time.Millisecond

// applyWork looks for reported steps and applies them.
type applyWork struct {
	o    *Orchestrator
	scan scanBudget
}

// Look takes one batch of tasks with reported steps, decides what happens
// next to each, and commits all of it in one transaction.
func (w *applyWork) Look(ctx context.Context, wake coordinator.Wake) (coordinator.Outcome, error) {
	w.o.heard(wake)
	if !wake.Has(signal.TopicOrchestration) {
		return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
	}
	now := time.Now()
	full := (wake.Reason != coordinator.ReasonSignal && wake.Reason != coordinator.ReasonContinue || w.scan.overdue(now)) && w.scan.allows(now)
	found, out, err := w.look(ctx, full)
	if err == nil && found == 0 && !full && w.scan.allows(time.Now()) {
		// The signal told of something behind the mark.
		_, out, err = w.look(ctx, true)
	}
	return out, err
}

// heard takes what is told by signals alone. A wake for everything is a
// catch-up or a poll: what was missed may be anything.
func (o *Orchestrator) heard(wake coordinator.Wake) {
	if wake.Has(signal.TopicControl) {
		o.store.ForgetPlanNames()
	}
	if wake.Has(signal.TopicEvents) {
		o.news.tell()
	}
	for _, payload := range wake.Payloads {
		o.waiters.signalled(payload)
	}
}

func (w *applyWork) look(ctx context.Context, full bool) (found int, out coordinator.Outcome, err error) {
	out.NextDue = coordinator.NoDue
	start := time.Now()
	taken, err := w.o.store.TakeReported(ctx, w.o.cfg.ApplyBatch, full)
	if err != nil {
		return 0, out, err
	}
	defer taken.Release()
	if full {
		w.scan.used(start, time.Since(start))
	}
	if taken.Skipped > 0 {
		out.RetryIn = skippedRetry
	}
	if len(taken.Tasks) == 0 {
		return 0, out, nil
	}
	changes := w.o.decide(taken.Tasks)
	for i := range changes {
		found += len(changes[i].Task.Reported)
	}
	if found == 0 {
		return 0, out, nil
	}
	done, err := taken.Commit(ctx, w.o.cfg.Daemon.UUID, changes)
	if err != nil {
		return 0, out, err
	}
	w.o.publish(done.Signals)
	w.o.applied(changes, done)
	out.Found, out.More = found, found >= w.o.cfg.ApplyBatch
	return found, out, nil
}

// decide runs the rules over each task. A task whose records contradict each
// other must not stop the others, nor be found first each time: it goes into
// quarantine.
func (o *Orchestrator) decide(tasks []store.TakenTask) []store.Change {
	changes := make([]store.Change, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		err := t.Broken
		if err == nil {
			var c store.Change
			if c, err = o.advance(t, o.cfg.Daemon.ID, inputs(t)...); err == nil {
				changes = append(changes, c)
				continue
			}
		}
		o.log.Error("a task's records contradict each other; it ends as failed and waits for somebody to look at it",
			zap.Stringer("task_uuid", t.UUID), zap.Error(err))
		changes = append(changes, o.quarantine(t, err))
	}
	return changes
}

// advance runs the rules over one task. Where failures make no dead letters,
// nothing that the rules decide makes one.
func (o *Orchestrator) advance(t *store.TakenTask, actor string, in ...workflow.Input) (store.Change, error) {
	progress, effects, err := workflow.Advance(t.Plan.Plan, t.State, t.Progress, o.cfg.Rules, in...)
	if err != nil {
		return store.Change{}, err
	}
	if !o.cfg.DeadLetters {
		effects.DeadLetter = nil
	}
	return store.Change{Task: t, Progress: progress, Effects: effects, Actor: actor}, nil
}

// quarantine ends a task that cannot be decided about. Its entry in the dead
// letter queue is made also where failures make none.
func (o *Orchestrator) quarantine(t *store.TakenTask, why error) store.Change {
	reason := "the records of the task contradict each other: " + why.Error()
	if len(reason) > MaxReasonLength {
		reason = strings.ToValidUTF8(reason[:MaxReasonLength], "")
	}
	return store.Change{Task: t, Quarantine: true, Actor: o.cfg.Daemon.ID,
		Action: &store.Performed{Kind: "quarantine", Step: -1, Reason: reason},
		Effects: &workflow.Effects{State: workflow.TaskError, Finished: true,
			Changes:    []workflow.TaskChange{{From: t.State, To: workflow.TaskError, Reason: reason}},
			DeadLetter: &workflow.DeadLetter{Reason: workflow.DeadLetterExhausted, Detail: "records_contradict", Step: -1}},
	}
}

func inputs(t *store.TakenTask) []workflow.Input {
	list := make([]workflow.Input, len(t.Reported))
	for i, s := range t.Reported {
		if s.Outcome == workflow.OutcomeLeaseLost {
			list[i] = workflow.LeaseLost{Step: s.Step, Attempt: s.Attempt}
			continue
		}
		list[i] = workflow.Reported{Step: s.Step, Attempt: s.Attempt, Success: s.Outcome == workflow.OutcomeSuccess,
			Retryable: s.Retryable, RetryAfter: s.RetryAfter, Seed: seed(t, s), Result: s.Result}
	}
	return list
}

// seed makes jitter that differs between steps and attempts and is the same
// whenever the same report is applied again.
func seed(t *store.TakenTask, s store.TakenStep) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(t.UUID[:])
	var b [4]byte
	binary.BigEndian.PutUint16(b[:], uint16(s.Step))     // #nosec G115 -- any bits will do
	binary.BigEndian.PutUint16(b[2:], uint16(s.Attempt)) // #nosec G115
	_, _ = h.Write(b[:])
	return h.Sum64()
}

// applied counts, wakes those who wait, and moves the timer.
func (o *Orchestrator) applied(changes []store.Change, done store.Committed) {
	stirred := false
	for i := range changes {
		c := &changes[i]
		o.drained.Add(uint64(len(c.Effects.End) + len(c.Effects.Retry)))
		namespace := ""
		if c.Task.Plan != nil { // unreadable records
			namespace = c.Task.Plan.Template.Namespace
		}
		for _, e := range c.Effects.End {
			o.metrics.StepResults.WithLabelValues(namespace, e.Outcome.String()).Inc()
		}
		for _, r := range c.Effects.Retry {
			o.metrics.StepResults.WithLabelValues(namespace, r.Outcome.String()).Inc()
		}
		for _, d := range c.Effects.Decided {
			o.decided(c, &d, namespace)
		}
		stirred = stirred || len(c.Effects.Put)+len(c.Effects.Retry) > 0
		if d := c.Effects.DeadLetter; d != nil {
			o.metrics.DLQEntriesCreated.WithLabelValues(d.Reason.String()).Inc()
		}
		if c.Effects.Finished {
			o.metrics.TasksCompleted.WithLabelValues(namespace, c.Effects.State.String()).Inc()
			o.waiters.ended(c.Task.UUID, false) // whoever waits here need not have said so yet
		}
		for _, change := range c.Effects.Changes {
			if change.Reason != "" {
				o.log.Warn("task changed", zap.Stringer("task_uuid", c.Task.UUID), zap.Stringer("from", change.From),
					zap.Stringer("to", change.To), zap.String("reason", change.Reason))
			}
		}
	}
	o.published(done.Published)
	if done.NextDue >= 0 {
		o.readiness.WakeIn(done.NextDue)
	}
	if stirred {
		o.stir()
	}
}

// published tells of durable domain events that were committed.
func (o *Orchestrator) published(list []store.PublishedEvent) {
	if len(list) > 0 {
		o.news.tell()
	}
	for i := range list {
		e := &list[i]
		o.metrics.DomainEventsPublished.WithLabelValues(e.Name, e.Namespace).Inc()
		o.log.Info("Domain event published", zap.Stringer("event_id", e.UUID), zap.String("event_name", e.Name),
			zap.String("queue_name", e.Namespace+"_domain_events"), zap.Int64("message_id", e.Position), zap.String("namespace", e.Namespace),
			zap.Stringer("task_uuid", e.Task), zap.Stringer("correlation_id", e.CorrelationID))
	}
}

// leaseWatch is how soon after putting steps in line the leases are looked at.
const leaseWatch = time.Second

// stir makes the readiness system look at the board a moment after steps were
// put in line: by then they have been claimed, and it sets its timer to the
// end of their leases. An idle board is not looked at.
func (o *Orchestrator) stir() { o.readiness.WakeIn(leaseWatch) }

// scanBudget lets full scans cost at most a twentieth of the time: they walk
// over what is dead, which may be much while an old snapshot is held.
type scanBudget struct {
	last time.Time
	// took is the shorter of the latest two: one slow scan may have had to
	// prepare its statement or wait for a busy machine.
	took, latest time.Duration
}

// fullTakeEvery is how long an orchestrator that is never short of reports goes
// without a full scan: one that died in its transaction may have left some
// behind the mark of the others.
const fullTakeEvery = 2 * time.Second

// overdue reports whether a scan should be made although there is no reason to
// expect something.
func (b *scanBudget) overdue(now time.Time) bool { return now.Sub(b.last) >= fullTakeEvery }

func (b *scanBudget) allows(now time.Time) bool { return b.wait(now) <= 0 }

// wait is how long it is until a scan is allowed; not positive: it is now.
func (b *scanBudget) wait(now time.Time) time.Duration { return 20*b.took - now.Sub(b.last) }

func (b *scanBudget) used(start time.Time, took time.Duration) {
	b.took = min(took, b.latest) // 0 after the very first, which proves nothing
	b.last, b.latest = start.Add(took), took
}
