package orchestration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/lifecycle"
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
	// left and unread are how many steps and ends were left to newer programs: a batch takes
	// others beside them.
	left, unread int
}

// look handles what the horizon shows; found receives how much that was, and for how
// long it has been due. What the database rejects of one kind does not affect the others.
func (w *waits) look(ctx context.Context, h store.Horizon, found func(n int, since time.Duration)) (more bool, err error) {
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

// begin makes one transaction. Where the database rejects it, steps begin one by one,
// and a step that is rejected on its own fails: it must not delay the others.
func (w *waits) begin(ctx context.Context) (int, error) {
	found, err := w.batch(ctx, waitBatch, nil, nil)
	if !refused(ctx, err) {
		return found, err
	}
	w.o.log.Warn("the database rejected steps that are to begin; they begin one by one", zap.Error(err))
	culprits := map[store.ClaimKey]bool{}
	for range waitBatch {
		var one store.ClaimKey
		n, failure := w.batch(ctx, 1, culprits, func(key store.ClaimKey) { one = key })
		switch {
		case refused(ctx, failure) && !culprits[one] && ofContent(failure):
			culprits[one] = true
			w.o.log.Error("the database rejected the begin of a step", zap.Stringer("task_uuid", one.TaskUUID), zap.Int("step_no", one.Step), zap.Error(failure))
		case failure != nil:
			return found, failure
		case n == 0:
			return found, nil
		}
		found += n
	}
	return found, nil
}

var errRefusedByDatabase = errors.New("the database refuses what the step begins with; the log of the orchestrators has the details")

func (w *waits) batch(ctx context.Context, limit int, culprits map[store.ClaimKey]bool, picked func(store.ClaimKey)) (int, error) {
	begun, err := w.o.store.BeginSteps(ctx, limit+w.left, store.Beginner{
		Begin: func(e *store.EngineStep) (b enginestep.Beginning, err error) {
			if picked != nil {
				picked(e.Key())
			}
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
		return 0, err
	}
	if begun.Left > 0 && w.left == 0 {
		w.o.log.Error("steps cannot begin here; they are left to newer orchestrators", zap.Int("steps", begun.Left), zap.Error(begun.Why))
	}
	w.left = min(begun.Left, maxAside)
	w.o.publish(begun.Signals)
	for _, s := range begun.Signals {
		if s.Topic == signal.TopicOrchestration {
			w.o.apply.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
	for i := range begun.Tasks {
		w.o.metrics.TasksCreated.WithLabelValues(begun.Tasks[i].Plan.Template.Namespace).Inc()
	}
	if len(begun.Tasks) > 0 {
		w.o.scheduleLook()
	}
	return begun.Steps, nil
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
		CorrelationID: &e.CorrelationID, Schema: w.o.schema, IdempotencyKey: fmt.Sprintf("%s/%d", store.StepUUID(e.TaskUUID, e.Step.No), e.Attempt)}
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
	for _, handle := range []func(context.Context) (int, error){w.watch, w.notify, w.bring, w.stop} {
		n, failure := handle(ctx)
		found, err = found+n, errors.Join(err, failure)
		if failure != nil && !refused(ctx, failure) {
			break
		}
	}
	return found, err
}

// watch looks at what new tasks depend on.
func (w *waits) watch(ctx context.Context) (int, error) {
	found, signals, err := w.o.store.WatchDependencies(ctx, waitBatch)
	if err != nil {
		return 0, err
	}
	w.o.publish(signals)
	return found, nil
}

// notify notifies the dependents of ended tasks.
func (w *waits) notify(ctx context.Context) (int, error) {
	notified, err := w.o.store.NotifyEnds(ctx, waitBatch+w.unread)
	if err != nil {
		return 0, err
	}
	if notified.Left > 0 && w.unread == 0 {
		w.o.log.Error("ends of tasks cannot be reported here; they are left to newer orchestrators", zap.Int("tasks", notified.Left), zap.Error(notified.Why))
	}
	w.unread = min(notified.Left, maxAside)
	w.o.publish(notified.Signals)
	if notified.Steps > 0 {
		w.o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
	}
	if notified.Released > 0 {
		w.o.scheduleLook()
	}
	return notified.Messages, nil
}

// bring delivers domain events to the steps that wait for them.
func (w *waits) bring(ctx context.Context) (int, error) {
	brought, err := w.o.store.BringEvents(ctx, waitBatch, w.o.cfg.EventTTL)
	if err != nil {
		return 0, err
	}
	if brought.Steps > 0 {
		w.o.reported(brought.Signals)
	}
	return brought.Events, nil
}

// stop cancels tasks whose step was cancelled or is beyond a limit, and tasks whose
// dependencies failed. A task that cannot be cancelled any more is left unchanged. A task that the database
// rejects does not affect the others.
func (w *waits) stop(ctx context.Context) (int, error) {
	messages, err := w.o.store.StopMessages(ctx, waitBatch)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	done, err := w.stopAll(ctx, messages)
	if refused(ctx, err) && len(messages) > 1 {
		w.o.log.Warn("the database rejected the cancelling of tasks; they are cancelled one by one", zap.Error(err))
		done, err = nil, nil
		for i := range messages {
			one, failure := w.stopAll(ctx, messages[i:i+1])
			if failure != nil && !refused(ctx, failure) {
				return len(done), failure
			}
			done, err = append(done, one...), errors.Join(err, failure)
		}
	}
	if len(done) == 0 {
		return 0, err
	}
	return len(done), errors.Join(err, w.o.store.DropStopMessages(ctx, done))
}

// stopAll returns the messages whose tasks have been cancelled or are left unchanged.
func (w *waits) stopAll(ctx context.Context, messages []store.StopMessage) (done []store.StopMessage, err error) {
	by := map[string][]store.StopMessage{}
	for _, m := range messages {
		by[m.Reason()] = append(by[m.Reason()], m)
	}
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		of := by[reason]
		tasks := make([]uuid.UUID, len(of))
		for i := range of {
			tasks[i] = of[i].Task
		}
		acted, err := w.o.act(ctx, tasks, Action{Kind: ActionCancel, Actor: w.o.cfg.Daemon.ID, Reason: reason,
			still: func(ctx context.Context, taken *store.Taken) error { return w.o.store.TakeStopMessages(ctx, taken, of) }})
		if err != nil {
			return done, fmt.Errorf("cancel tasks: %w", err)
		}
		for task, refusal := range acted.refused {
			w.o.log.Info("a task could not be cancelled", zap.Stringer("task_uuid", task), zap.String("reason", reason), zap.Error(refusal))
		}
		done = append(done, of...)
	}
	return done, nil
}
