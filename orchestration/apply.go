package orchestration

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// skippedRetry is how soon tasks are looked at again that another
// orchestrator held: it may have read before the last report came in.
const skippedRetry = 5 * time.Millisecond

// brokenRetry is how soon reports are looked at again that could not be
// applied.
const brokenRetry = 10 * time.Second

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
	full := wake.Reason != coordinator.ReasonSignal && wake.Reason != coordinator.ReasonContinue && w.scan.allows(time.Now())
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
	changes, broken := w.decide(taken.Tasks)
	if broken > 0 {
		out.RetryIn = brokenRetry
	}
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
// other is left as it is and reported loudly; it must not stop the others.
func (w *applyWork) decide(tasks []store.TakenTask) (changes []store.Change, broken int) {
	changes = make([]store.Change, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		progress, effects, err := workflow.Advance(t.Plan.Plan, t.State, t.Progress, w.o.cfg.Rules, inputs(t)...)
		if err != nil {
			broken++
			w.o.log.Error("a task's records contradict each other; it is left as it is",
				zap.Stringer("task_uuid", t.UUID), zap.Error(err))
			continue
		}
		changes = append(changes, store.Change{Task: t, Progress: progress, Effects: effects, Actor: w.o.cfg.Daemon.ID})
	}
	return changes, broken
}

func inputs(t *store.TakenTask) []workflow.Input {
	list := make([]workflow.Input, len(t.Reported))
	for i, s := range t.Reported {
		if s.Outcome == workflow.OutcomeLeaseLost {
			list[i] = workflow.LeaseLost{Step: s.Step, Attempt: s.Attempt}
			continue
		}
		list[i] = workflow.Reported{Step: s.Step, Attempt: s.Attempt, Success: s.Outcome == workflow.OutcomeSuccess,
			Retryable: s.Retryable, RetryAfter: s.RetryAfter, Seed: seed(t, s)}
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
		namespace := c.Task.Plan.Template.Namespace
		for _, e := range c.Effects.End {
			o.metrics.StepResults.WithLabelValues(namespace, e.Outcome.String()).Inc()
		}
		for _, r := range c.Effects.Retry {
			o.metrics.StepResults.WithLabelValues(namespace, r.Outcome.String()).Inc()
		}
		stirred = stirred || len(c.Effects.Put)+len(c.Effects.Retry) > 0
		if c.Effects.Finished {
			o.metrics.TasksCompleted.WithLabelValues(namespace, c.Effects.State.String()).Inc()
			o.waiters.ended(c.Task.UUID) // whoever waits here need not have said so yet
		}
		for _, change := range c.Effects.Changes {
			if change.Reason != "" {
				o.log.Warn("task changed", zap.Stringer("task_uuid", c.Task.UUID), zap.Stringer("from", change.From),
					zap.Stringer("to", change.To), zap.String("reason", change.Reason))
			}
		}
	}
	if done.NextDue >= 0 {
		o.readiness.WakeIn(done.NextDue)
	}
	if stirred {
		o.stir()
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

func (b *scanBudget) allows(now time.Time) bool { return b.wait(now) <= 0 }

// wait is how long it is until a scan is allowed; not positive: it is now.
func (b *scanBudget) wait(now time.Time) time.Duration { return 20*b.took - now.Sub(b.last) }

func (b *scanBudget) used(start time.Time, took time.Duration) {
	b.took = min(took, b.latest) // 0 after the very first, which proves nothing
	b.last, b.latest = start.Add(took), took
}

// Cancel ends a live task and takes its steps off the board; running handlers
// learn of it with their next heartbeat, and what they report is refused. The
// error wraps store.ErrTaskEnded or store.ErrNotFound.
func (o *Orchestrator) Cancel(ctx context.Context, task uuid.UUID, actor, reason string) error {
	taken, err := o.store.TakeTask(ctx, task)
	if err != nil {
		return err
	}
	defer taken.Release()
	t := &taken.Tasks[0]
	progress, effects, err := workflow.Advance(t.Plan.Plan, t.State, t.Progress, o.cfg.Rules, workflow.Cancel{Reason: reason})
	if err != nil {
		return fmt.Errorf("cancel the task: %w", err)
	}
	changes := []store.Change{{Task: t, Progress: progress, Effects: effects, Actor: actor}}
	done, err := taken.Commit(ctx, o.cfg.Daemon.UUID, changes)
	if err != nil {
		return fmt.Errorf("cancel the task: %w", err)
	}
	o.publish(done.Signals)
	o.applied(changes, done)
	return nil
}
