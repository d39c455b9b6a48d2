package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/signal"
)

// waitBatch bounds the steps that begin in one transaction, and the messages between
// tasks that one handles.
const waitBatch = 100

// waits begins the steps that the engine runs itself, and handles messages between
// tasks; it belongs to dueWork.
type waits struct {
	o *Orchestrator
	// left and unread are how many steps and ends were left to newer programs, rejected how
	// many tasks could not be cancelled: a batch takes others beside them.
	left, unread, rejected int
	failures               int       // in a row, since something was handled
	hold                   time.Time // not before this, after a failure
}

// wait is the remaining delay after a failure.
func (w *waits) wait(now time.Time) time.Duration { return max(w.hold.Sub(now), 0) }

// look handles what the horizon shows; found receives how much that was, and for how
// long it has been due. Where the database rejects some of it, the next looks leave it
// out for a while: retries, leases and schedules must not wait with it.
func (w *waits) look(ctx context.Context, h store.Horizon, found func(n int, since time.Duration)) (more bool, err error) {
	if w.wait(time.Now()) > 0 {
		return false, nil
	}
	handled := 0
	more, err = w.handle(ctx, h, func(n int, since time.Duration) {
		handled += n
		found(n, since)
	})
	if handled > 0 || err == nil {
		w.failures = 0
	}
	if refused(ctx, err) {
		backoff := deploymode.Backoff{Base: 100 * time.Millisecond, Max: deploymode.LongestHold, Multiplier: 2}
		w.hold = time.Now().Add(backoff.Delay(w.failures, 0))
		w.failures++
	}
	return more, err
}

// handle is look without a delay. What the database rejects of one kind does not affect the
// others.
func (w *waits) handle(ctx context.Context, h store.Horizon, found func(n int, since time.Duration)) (more bool, err error) {
	if h.Engine {
		n, failure := w.begin(ctx)
		found(n, h.Since.Engine)
		if more, err = n >= waitBatch, failure; err != nil && !refused(ctx, err) {
			return more, err
		}
	}
	if h.Messages {
		n, failure := w.messages(ctx)
		found(n, h.Since.Messages)
		more, err = more || n > 0, errors.Join(err, failure) // one message may lead to another
	}
	return more, err
}

// begin begins steps. One that is rejected on its own fails if its content is at fault.
func (w *waits) begin(ctx context.Context) (int, error) {
	culprits := map[store.ClaimKey]bool{}
	return w.apart(ctx, "steps that are to begin", &w.left, func(ctx context.Context, limit, skip int) (int, int, error) {
		var last store.ClaimKey
		picked := func(key store.ClaimKey) { last = key }
		found, left, err := w.batch(ctx, limit, skip, culprits, picked)
		if limit > 1 || !refused(ctx, err) {
			return found, left, err
		}
		w.o.log.Error("the database rejected the begin of a step", zap.Stringer("task_uuid", last.TaskUUID), zap.Int("step_no", last.Step), zap.Error(err))
		if !ofContent(err) {
			return 0, 0, err
		}
		culprits[last] = true
		return w.batch(ctx, limit, skip, culprits, picked)
	})
}

// apart handles steps or messages in one transaction. Where the database rejects that, they
// are handled one by one, and one that is rejected on its own stays and does not delay the
// others. left is how many stay because this program cannot read them: a batch takes others
// beside them.
func (w *waits) apart(ctx context.Context, what string, left *int, handle func(ctx context.Context, limit, skip int) (found, left int, err error)) (int, error) {
	found, unread, why := handle(ctx, waitBatch+*left, 0)
	if !refused(ctx, why) {
		*left = min(unread, maxAside)
		return found, why
	}
	w.o.log.Warn("the database rejected "+what+"; they are handled one by one", zap.Error(why))
	var err error
	for skip, tries := 0, 0; tries < waitBatch; tries++ {
		n, unread, failure := handle(ctx, 1, skip)
		if refused(ctx, failure) {
			skip, err = skip+1, cmp.Or(err, failure)
			continue
		}
		if failure != nil || n+unread == 0 {
			return found, errors.Join(err, failure)
		}
		found, skip = found+n, skip+unread
	}
	return found, err
}

var errRefusedByDatabase = errors.New("the database refuses what the step begins with; the log of the orchestrators has the details")

func (w *waits) batch(ctx context.Context, limit, skip int, culprits map[store.ClaimKey]bool, picked func(store.ClaimKey)) (found, left int, err error) {
	begun, err := w.o.store.BeginSteps(ctx, limit, skip, store.Beginner{
		Begin: func(e *store.EngineStep) (b enginestep.Beginning, err error) {
			picked(e.Key())
			if culprits[e.Key()] {
				return b, errRefusedByDatabase
			}
			err = lifecycle.Guard(func() (err error) {
				b, err = enginestep.Begin(e.Plan.Template, e.Step, &e.Scope, e.Priority)
				return err
			})
			return b, err
		},
		Task: w.subTask,
	})
	if err != nil {
		return 0, 0, err
	}
	if begun.Left > 0 && w.left == 0 {
		w.o.log.Error("steps cannot begin here; they are left to newer orchestrators", zap.Int("steps", begun.Left), zap.Error(begun.Why))
	}
	w.o.publish(begun.Signals)
	for _, s := range begun.Signals {
		if s.Topic == signal.TopicOrchestration {
			w.o.apply.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
	for i := range begun.Tasks {
		settle.CountCreated(w.o.metrics, begun.Tasks[i].Plan, 1)
	}
	if len(begun.Tasks) > 0 {
		w.o.scheduleLook()
	}
	return begun.Steps, begun.Left, nil
}

// subTask makes the task that a step runs. Its key contains the attempt; it has no
// identity, as an attempt begins once.
func (w *waits) subTask(e *store.EngineStep, sub *enginestep.SubTask, plan *store.Plan) (store.NewTask, error) {
	if plan == nil {
		return store.NewTask{}, &UnknownTemplateError{Namespace: sub.Namespace, Name: sub.Name, Version: sub.Version}
	}
	if e.Depth >= w.o.cfg.MaxTaskDepth {
		return store.NewTask{}, fmt.Errorf("tasks are nested %d deep: want at most %d", e.Depth, w.o.cfg.MaxTaskDepth)
	}
	r := Request{Namespace: sub.Namespace, Name: sub.Name, Version: sub.Version, Context: sub.Context, Priority: &sub.Priority,
		Initiator: subTaskInitiator, SourceSystem: subTaskSystem, Reason: cut("step "+e.Step.Name+" of task "+e.TaskUUID.String(), MaxReasonLength),
		CorrelationID: &e.CorrelationID, Schema: w.o.schema, Bounds: w.o.cfg.Documents, IdempotencyKey: fmt.Sprintf("%s/%d", store.StepUUID(e.TaskUUID, e.Step.No), e.Attempt)}
	if err := r.Check(); err != nil {
		return store.NewTask{}, err
	}
	task, err := submission.Task(&r, plan)
	task.Identity, task.Trace = nil, tracing.Within(e.Trace, e.TaskUUID)
	return task, err
}

// The initiator and source system of tasks that are steps.
const (
	subTaskInitiator = "workflow"
	subTaskSystem    = "tasker"
)

// messages handles messages of each kind.
func (w *waits) messages(ctx context.Context) (found int, err error) {
	none := 0
	for _, handle := range []func(context.Context) (int, error){
		func(ctx context.Context) (int, error) { return w.apart(ctx, "dependencies of tasks", &none, w.watch) },
		func(ctx context.Context) (int, error) { return w.apart(ctx, "ends of tasks", &w.unread, w.notify) },
		func(ctx context.Context) (int, error) { return w.apart(ctx, "domain events", &none, w.bring) },
		w.stop,
	} {
		n, failure := handle(ctx)
		found, err = found+n, errors.Join(err, failure)
		if failure != nil && !refused(ctx, failure) {
			break
		}
	}
	return found, err
}

// watch looks at what new tasks depend on.
func (w *waits) watch(ctx context.Context, limit, skip int) (found, left int, err error) {
	found, signals, err := w.o.store.WatchDependencies(ctx, limit, skip)
	if err == nil {
		w.o.publish(signals)
	}
	return found, 0, err
}

// notify notifies the dependents of ended tasks.
func (w *waits) notify(ctx context.Context, limit, skip int) (found, left int, err error) {
	notified, err := w.o.store.NotifyEnds(ctx, limit, skip)
	if err != nil {
		return 0, 0, err
	}
	if notified.Left > 0 && w.unread == 0 {
		w.o.log.Error("ends of tasks cannot be reported here; they are left to newer orchestrators", zap.Int("tasks", notified.Left), zap.Error(notified.Why))
	}
	w.o.publish(notified.Signals)
	if notified.Steps > 0 {
		w.o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
	}
	if notified.Released > 0 {
		w.o.scheduleLook()
	}
	return notified.Messages, notified.Left, nil
}

// bring delivers domain events to the steps that wait for them.
func (w *waits) bring(ctx context.Context, limit, skip int) (found, left int, err error) {
	brought, err := w.o.store.BringEvents(ctx, limit, skip, w.o.cfg.EventTTL)
	if err != nil {
		return 0, 0, err
	}
	if brought.Steps > 0 {
		w.o.reported(brought.Signals)
	}
	return brought.Events, 0, nil
}

// stop cancels tasks whose step was cancelled or is beyond a limit, and tasks whose
// dependencies failed. A task that cannot be cancelled any more is left unchanged. A task
// that the database rejects does not affect the others.
func (w *waits) stop(ctx context.Context) (int, error) {
	messages, err := w.o.store.StopMessages(ctx, waitBatch+w.rejected)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	by := map[string][]store.StopMessage{}
	for _, m := range messages {
		by[m.Reason()] = append(by[m.Reason()], m)
	}
	var done []store.StopMessage
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		handled, failure := w.stopFor(ctx, reason, by[reason])
		done, err = append(done, handled...), errors.Join(err, failure)
		if failure != nil && !refused(ctx, failure) {
			return 0, err
		}
	}
	w.rejected = min(len(messages)-len(done), maxAside)
	if len(done) == 0 {
		return 0, err
	}
	return len(done), errors.Join(err, w.o.store.DropStopMessages(ctx, done))
}

// stopFor returns the messages whose tasks have been cancelled or are left unchanged.
func (w *waits) stopFor(ctx context.Context, reason string, messages []store.StopMessage) ([]store.StopMessage, error) {
	tasks := make([]uuid.UUID, len(messages))
	for i := range messages {
		tasks[i] = messages[i].Task
	}
	acted, err := w.o.actApart(ctx, tasks, Action{Kind: ActionCancel, Actor: w.o.cfg.Daemon.ID, Reason: reason,
		still: func(ctx context.Context, taken *store.Taken) error {
			return w.o.store.TakeStopMessages(ctx, taken, messages)
		}})
	if err != nil && !refused(ctx, err) {
		return nil, fmt.Errorf("cancel tasks: %w", err)
	}
	for task, refusal := range acted.refused {
		w.o.log.Info("a task could not be cancelled", zap.Stringer("task_uuid", task), zap.String("reason", reason), zap.Error(refusal))
	}
	return slices.DeleteFunc(messages, func(m store.StopMessage) bool { return slices.Contains(acted.rejected, m.Task) }), err
}
