package orchestration

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// skippedRetry is the delay before the next look at tasks that another transaction
// had locked: another orchestrator may have read before the last report arrived, and
// any other transaction does not apply reports.
const skippedRetry = 5 * time.Millisecond

// newApplyWork returns the work of the event system orchestration.
func newApplyWork(o *Orchestrator) *applyWork {
	return &applyWork{o: o, aside: setAside{aside.New[uuid.UUID]("apply", o.log, o.metrics), map[uuid.UUID]int{}}}
}

// applyWork looks for reported steps and applies them.
type applyWork struct {
	o     *Orchestrator
	scan  scanBudget
	aside setAside
	size  batchSize
}

// Look takes one batch of tasks with reported steps, decides what happens
// next to each, and commits all of it in one transaction.
//
// A look from the mark is always followed by a look at everything: a report whose
// transaction took longer than those of a thousand others lies behind the mark, and
// its signal may be the one that this look consumes. The second look is made at once
// if the first found nothing and the budget allows it, otherwise as soon as the
// budget does.
func (w *applyWork) Look(ctx context.Context, wake coordinator.Wake) (coordinator.Outcome, error) {
	w.o.onWake(wake)
	if !wake.Has(signal.TopicOrchestration) {
		return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
	}
	now := time.Now()
	missed := wake.Reason != coordinator.ReasonSignal && wake.Reason != coordinator.ReasonContinue
	if wake.Everywhere {
		w.o.store.LookFromBeginning()
		return w.look(ctx, true)
	}
	if (missed || w.scan.overdue(now)) && w.scan.allows(now) {
		return w.look(ctx, true)
	}
	out, err := w.look(ctx, false)
	if err == nil && w.scan.follows(&out, missed, time.Now()) {
		return w.look(ctx, true)
	}
	return out, err
}

// onWake handles what only signals carry. A wake for everything is a catch-up or a
// poll: any signal may have been missed.
func (o *Orchestrator) onWake(wake coordinator.Wake) {
	if wake.Has(signal.TopicControl) {
		o.store.ForgetPlanNames()
		o.beatNow() // it reads the policies
	}
	if wake.Has(signal.TopicEvents) {
		o.eventsPublished.notify()
	}
	if wake.Has(signal.TopicTransitions) {
		o.followers.wake.notify()
	}
	for _, payload := range wake.Payloads {
		o.waiters.signalled(payload)
	}
}

// look runs one transaction; full makes it look at everything.
func (w *applyWork) look(ctx context.Context, full bool) (out coordinator.Outcome, err error) {
	out.NextDue = coordinator.NoDue
	start := time.Now()
	limit := w.size.next(w.o.cfg.ApplyBatch)
	taken, err := w.o.store.TakeReported(ctx, limit+w.aside.hidden(), full)
	if err != nil {
		w.scan = scanBudget{}
		return out, err
	}
	defer taken.Release()
	if full {
		w.scan.used(start, time.Since(start))
	}
	if taken.Skipped > 0 {
		out.SoonerRetry(skippedRetry, coordinator.MissingLocked)
	}
	if len(taken.Tasks) == 0 {
		if taken.Skipped > 0 {
			w.o.endStuck(ctx, w.o.store.HoldTimeout())
		}
		return out, nil
	}
	w.size.took(taken.Tasks, w.o.cfg.ApplyBytes)
	changes, left := w.decide(taken.Tasks)
	for i := range left {
		w.reject(left[i].task, left[i].why)
	}
	w.tryAgain(&out)
	if len(changes) == 0 {
		return out, nil
	}
	held := len(w.aside.Held()) > 0
	if held {
		changes = upTo(limit, changes)
	}
	batch := w.o.cfg.Tracer.Batch()
	for i := range changes {
		batch.Add(changes[i].Task.Trace, changes[i].Task.UUID)
	}
	done, err := taken.Commit(ctx, w.o.cfg.Daemon.UUID, changes)
	w.o.cfg.Tracer.Done(&batch, "apply", err)
	if refused(ctx, err) {
		out.Found, err = w.apart(ctx, changes, err)
		w.tryAgain(&out)
		return out, err
	}
	if err != nil {
		return out, err
	}
	out.Found = w.committed(changes, done)
	out.More = out.Found >= limit
	if !held {
		out.Waited = taken.Waited
	}
	return out, nil
}

// committed does the work that follows a commit; it returns the number of reports
// applied.
func (w *applyWork) committed(changes []store.Change, done store.Committed) (reports int) {
	tasks := make([]uuid.UUID, len(changes))
	for i := range changes {
		reports += len(changes[i].Task.Reported)
		tasks[i] = changes[i].Task.UUID
	}
	w.aside.Pass(tasks...)
	w.o.publish(done.Signals)
	w.o.applied(changes, done)
	return reports
}

// upTo returns the first changes with so many reports, at least one.
func upTo(limit int, changes []store.Change) []store.Change {
	reports := 0
	for i := range changes {
		if reports += len(changes[i].Task.Reported); reports >= limit {
			return changes[:i+1]
		}
	}
	return changes
}

// undecided is a task that is left unchanged, and why.
type undecided struct {
	task *store.TakenTask
	why  error
}

// decide runs the rules over each task. A task with contradictory records goes into
// quarantine: it must not stop the others, nor be found first each time. A task that
// has been set aside is left out.
func (w *applyWork) decide(tasks []store.TakenTask) (changes []store.Change, left []undecided) {
	o := w.o
	changes = make([]store.Change, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		switch {
		case len(t.Reported) == 0 || w.aside.holds(t):
			continue
		case t.Unreadable != nil:
			left = append(left, undecided{t, t.Unreadable})
			continue
		}
		err := t.Broken
		if err == nil {
			var c store.Change
			if c, err = o.advance(t, o.cfg.Daemon.ID, inputs(t)...); err == nil {
				changes = append(changes, c)
				continue
			}
		}
		o.log.Error("a task's records contradict each other; it ends as failed with a dead-letter entry",
			zap.Stringer("task_uuid", t.UUID), zap.Error(err))
		changes = append(changes, o.quarantine(t, "records_contradict", "the records of the task contradict each other: "+err.Error()))
	}
	return changes, left
}

// advance runs the rules over one task. Where failures make no dead letters, it
// drops the entry that the rules made.
func (o *Orchestrator) advance(t *store.TakenTask, actor string, in ...workflow.Input) (store.Change, error) {
	progress, effects, err := settle.Advance(t.Plan, t.State, t.Progress, o.cfg.Rules, in...)
	if err != nil {
		return store.Change{}, err
	}
	if !o.cfg.DeadLetters {
		effects.DeadLetter = nil
	}
	return store.Change{Task: t, Progress: progress, Effects: effects, Actor: actor}, nil
}

// quarantine ends a task whose state cannot be decided. Its dead-letter entry is
// made even where failures make none.
func (o *Orchestrator) quarantine(t *store.TakenTask, detail, reason string) store.Change {
	o.metrics.TasksQuarantined.WithLabelValues(detail).Inc()
	if len(reason) > MaxReasonLength {
		reason = strings.ToValidUTF8(reason[:MaxReasonLength], "")
	}
	return store.Change{Task: t, Quarantine: true, Actor: o.cfg.Daemon.ID,
		Action: &store.Performed{Kind: "quarantine", Step: -1, Reason: reason},
		Effects: &workflow.Effects{State: workflow.TaskError, Finished: true,
			Changes:    []workflow.TaskChange{{From: t.State, To: workflow.TaskError, Reason: reason}},
			DeadLetter: &workflow.DeadLetter{Reason: workflow.DeadLetterExhausted, Detail: detail, Step: -1}},
	}
}

func inputs(t *store.TakenTask) []workflow.Input {
	list := make([]workflow.Input, len(t.Reported))
	for i, s := range t.Reported {
		if s.Outcome == workflow.OutcomeLeaseLost {
			list[i] = workflow.LeaseLost{Step: s.Step, Attempt: s.Attempt, Final: !s.Retryable}
			continue
		}
		list[i] = workflow.Reported{Step: s.Step, Attempt: s.Attempt, Success: s.Outcome == workflow.OutcomeSuccess,
			Retryable: s.Retryable, RetryAfter: s.RetryAfter, Seed: seed(t, s), Result: s.Result}
	}
	return list
}

// seed makes jitter that differs between steps and attempts and repeats when the
// same report is applied again.
func seed(t *store.TakenTask, s store.TakenStep) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(t.UUID[:])
	var b [4]byte
	binary.BigEndian.PutUint16(b[:], uint16(s.Step))     // #nosec G115 -- any bits will do
	binary.BigEndian.PutUint16(b[2:], uint16(s.Attempt)) // #nosec G115
	_, _ = h.Write(b[:])
	return h.Sum64()
}

// applied counts, notifies waiters, and moves the timer.
func (o *Orchestrator) applied(changes []store.Change, done store.Committed) {
	o.recorder.Record(changes, done)
	enqueued := false
	for i := range changes {
		c := &changes[i]
		enqueued = enqueued || len(c.Effects.Put)+len(c.Effects.Retry) > 0
		o.remind(c.Effects.Retry)
		if d := c.Effects.DeadLetter; d != nil {
			o.metrics.DLQEntriesCreated.WithLabelValues(d.Reason.String()).Inc()
		}
		if c.Effects.Finished {
			o.waiters.ended(c.Task.UUID, false) // waiters here may not be recorded on the board yet
		}
	}
	if slices.Contains(done.Signals, signal.Signal{Topic: signal.TopicEvents}) {
		o.eventsPublished.notify()
	}
	if done.NextDue >= 0 {
		o.readiness.WakeIn(done.NextDue)
	}
	if enqueued {
		o.scheduleLook()
	}
}

// remind makes the event source, if it keeps delays, wake all orchestrators when steps that back
// off are due: each has a timer, unless the signal about the new due time did not arrive.
func (o *Orchestrator) remind(steps []workflow.RetryStep) {
	if o.cfg.PublishAfter == nil {
		return
	}
	for _, step := range steps {
		if step.DueIn > 0 {
			o.cfg.PublishAfter(step.DueIn, signal.Signal{Topic: signal.TopicDue})
		}
	}
}

// leaseWatch is the delay between enqueuing steps and a look at the leases.
const leaseWatch = time.Second

// scheduleLook makes the readiness system look at the board a moment after steps
// were enqueued: by then they have been claimed, and it sets its timer to the end
// of their leases. An idle board is not looked at.
func (o *Orchestrator) scheduleLook() { o.readiness.WakeIn(leaseWatch) }

// scanBudget limits full scans to a twentieth of the time, but lets one through every
// deploymode.LongestHold: they read dead row versions, of which there may be many while an
// old snapshot is held. A failed scan does not count, and a poll or a catch-up does not ask.
type scanBudget struct {
	last time.Time
	// took is the shorter duration of the latest two scans: one slow scan may have had
	// to prepare its statement or wait for a busy machine.
	took, latest time.Duration
}

// fullTakeEvery is how long an orchestrator that finds reports from its mark goes
// without a full scan, where the budget allows one.
const fullTakeEvery = 100 * time.Millisecond

// overdue reports whether a scan should be made without any other reason.
func (b *scanBudget) overdue(now time.Time) bool { return now.Sub(b.last) >= fullTakeEvery }

func (b *scanBudget) allows(now time.Time) bool { return b.wait(now) <= 0 }

// wait returns the time until a scan is allowed; not positive: now.
func (b *scanBudget) wait(now time.Time) time.Duration {
	return min(20*b.took, deploymode.LongestHold) - now.Sub(b.last)
}

// follows reports whether a look from the mark is to be followed by a full scan at
// once; otherwise out asks for it. missed says that there was another reason to
// look than a signal, so that any signal may have been missed.
func (b *scanBudget) follows(out *coordinator.Outcome, missed bool, now time.Time) bool {
	wait := b.wait(now)
	switch {
	case out.Found == 0 && wait <= 0:
		return true
	case out.Found == 0:
		out.SoonerRetry(wait, coordinator.MissingUnseen)
	case missed:
		out.SoonerRetry(max(wait, time.Millisecond), "")
	default:
		out.SoonerRetry(max(wait, fullTakeEvery-now.Sub(b.last), time.Millisecond), "")
	}
	return false
}

func (b *scanBudget) used(start time.Time, took time.Duration) {
	b.took = min(took, b.latest) // 0 after the very first, which proves nothing
	b.last, b.latest = start.Add(took), took
}
