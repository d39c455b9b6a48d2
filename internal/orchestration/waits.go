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
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/aside"
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
// tasks; it belongs to dueWork. What the database rejects of one kind does not affect the others.
type waits struct {
	o                                        *Orchestrator
	steps, dependencies, ends, events, stops *isolated
	dependents                               *aside.Set[uuid.UUID] // of ended tasks, beside ends
	failures                                 int                   // in a row, since something was handled
	hold                                     time.Time             // not before this, after a failure
}

func newWaits(o *Orchestrator) *waits {
	w := &waits{o: o}
	flow := func(name, what string, keys func(context.Context, store.Rows) ([]uuid.UUID, error),
		run func(context.Context, store.Rows) (int, error)) *isolated {
		return &isolated{what: what, set: aside.New[uuid.UUID](name, o.log, o.metrics), log: o.log, keys: keys, run: run}
	}
	w.steps = flow("engine_steps", "steps that are to begin", o.store.EngineTasks, w.begin)
	w.steps.alone, w.steps.blame, w.steps.waits = w.fail, o.blameTask, o.content.held
	w.dependencies = flow("dependencies", "dependencies of tasks", o.store.DependentTasks, w.watch)
	w.dependencies.blame = o.blameTask
	w.ends = flow("ends", "ends of tasks", o.store.EndedTasks, w.notify)
	w.ends.alone, w.dependents = w.notifyApart, aside.New[uuid.UUID]("dependents", o.log, o.metrics)
	w.events = flow("events", "domain events", o.store.EventsToBring, w.bring)
	w.stops = flow("stops", "tasks to cancel", nil, w.stop)
	return w
}

// sets are what is set aside of each kind.
func (w *waits) sets() []*aside.Set[uuid.UUID] {
	return []*aside.Set[uuid.UUID]{w.steps.set, w.dependencies.set, w.ends.set, w.events.set, w.stops.set}
}

// without is what the horizon leaves out.
func (w *waits) without() store.Without {
	return store.Without{Engine: w.steps.except(), Dependencies: w.dependencies.except(), Ends: w.ends.except(),
		Events: w.events.except(), Stops: w.stops.except()}
}

// wait is the remaining delay after a failure.
func (w *waits) wait(now time.Time) time.Duration { return max(w.hold.Sub(now), 0) }

// look handles what the horizon shows; found receives how much that was, and for how
// long it has been due. Where the database rejects all of a kind, the next looks leave it
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

// handle is look without a delay.
func (w *waits) handle(ctx context.Context, h store.Horizon, found func(n int, since time.Duration)) (more bool, err error) {
	if h.Engine {
		n, failure := w.steps.look(ctx, waitBatch)
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

// begin begins steps.
func (w *waits) begin(ctx context.Context, rows store.Rows) (int, error) {
	return w.batch(ctx, rows, false)
}

// fail ends a step that is rejected on its own as failed, if its content is at fault.
func (w *waits) fail(ctx context.Context, task uuid.UUID, why error) (handled bool, err error) {
	if !store.OfContent(why) {
		return false, nil
	}
	_, err = w.batch(ctx, store.Rows{Limit: waitBatch, Only: []uuid.UUID{task}}, true)
	return err == nil, err
}

var errRefusedByDatabase = errors.New("the database refuses what the step begins with; the log of the orchestrators has the details")

func (w *waits) batch(ctx context.Context, rows store.Rows, fails bool) (int, error) {
	begun, err := w.o.store.BeginSteps(ctx, rows, store.Beginner{
		Begin: func(e *store.EngineStep) (b enginestep.Beginning, err error) {
			if fails {
				return b, errRefusedByDatabase
			}
			err = lifecycle.Guard(func() (err error) {
				b, err = enginestep.Begin(e.Plan.Template, e.Step, &e.Scope, e.Priority)
				return err
			})
			return b, err
		},
		Task: func(e *store.EngineStep, sub *enginestep.SubTask, plan *store.Plan) (store.NewTask, error) {
			return w.subTask(ctx, e, sub, plan)
		},
	})
	if err != nil {
		return 0, err
	}
	if w.steps.left.add(begun.Left, leftFor) {
		w.o.log.Error("steps cannot begin here; they are left to newer orchestrators", zap.Int("steps", len(begun.Left)), zap.Error(begun.Why))
	}
	w.o.publish(begun.Signals)
	for _, s := range begun.Signals {
		if s.Topic == signal.TopicOrchestration {
			w.o.apply.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
	w.o.metrics.BackpressureRefusals.WithLabelValues("quota").Add(float64(begun.Refused))
	for i := range begun.Tasks {
		settle.CountCreated(w.o.metrics, begun.Tasks[i].Plan, 1)
	}
	if len(begun.Tasks) > 0 {
		w.o.scheduleLook()
	}
	return begun.Steps, nil
}

// subTask makes the task that a step runs. Its key contains the attempt; it has no
// identity, as an attempt begins once.
func (w *waits) subTask(ctx context.Context, e *store.EngineStep, sub *enginestep.SubTask, plan *store.Plan) (store.NewTask, error) {
	// Whoever brought the template may have gone: its namespace is what counts, and whether there is
	// such a template there is not told.
	if err := w.o.cfg.Reach.Check(e.Plan.Template.Namespace, sub.Namespace); err != nil {
		return store.NewTask{}, err
	}
	if plan == nil {
		return store.NewTask{}, &UnknownTemplateError{Namespace: sub.Namespace, Name: sub.Name, Version: sub.Version}
	}
	if e.Depth >= w.o.cfg.MaxTaskDepth {
		return store.NewTask{}, fmt.Errorf("tasks are nested %d deep: want at most %d", e.Depth, w.o.cfg.MaxTaskDepth)
	}
	r := Request{Namespace: sub.Namespace, Name: sub.Name, Version: sub.Version, Context: sub.Context, Priority: &sub.Priority,
		Initiator: subTaskInitiator, SourceSystem: subTaskSystem, Reason: cut("step "+e.Step.Name+" of task "+e.TaskUUID.String(), MaxReasonLength),
		CorrelationID: &e.CorrelationID, Schema: w.o.schema, Checks: w.o.content.of(e.TaskUUID), Bounds: w.o.cfg.Documents,
		IdempotencyKey: fmt.Sprintf("%s/%d", store.StepUUID(e.TaskUUID, e.Step.No), e.Attempt)}
	if err := r.Check(); err != nil {
		return store.NewTask{}, err
	}
	task, err := submission.Task(ctx, &r, plan)
	task.Quota = store.QuotaSubTasks
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
	for _, flow := range []*isolated{w.dependencies, w.ends, w.events, w.stops} {
		n, failure := flow.look(ctx, waitBatch)
		found, err = found+n, errors.Join(err, failure)
		if failure != nil && !refused(ctx, failure) {
			break
		}
	}
	return found, err
}

// watch looks at what new tasks depend on.
func (w *waits) watch(ctx context.Context, rows store.Rows) (int, error) {
	found, signals, err := w.o.store.WatchDependencies(ctx, rows)
	if err == nil {
		w.o.publish(signals)
	}
	return found, err
}

// notify notifies the dependents of ended tasks.
func (w *waits) notify(ctx context.Context, rows store.Rows) (int, error) {
	notified, err := w.o.store.NotifyEnds(ctx, rows)
	if err != nil {
		return 0, err
	}
	if w.ends.left.add(notified.Left, leftFor) {
		w.o.log.Error("ends of tasks cannot be reported here; they are left to newer orchestrators", zap.Int("tasks", len(notified.Left)), zap.Error(notified.Why))
	}
	w.o.publish(notified.Signals)
	if notified.Steps > 0 {
		w.o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
	}
	if notified.Released > 0 {
		w.o.scheduleLook()
	}
	return notified.Messages, nil
}

// notifyApart notifies those dependents of an ended task that the database does not reject. One that it rejects
// again and again while others pass is ended.
func (w *waits) notifyApart(ctx context.Context, task uuid.UUID, _ error) (handled bool, err error) {
	all := true
	notified, err := w.o.store.NotifyEndApart(ctx, task, func(dependent uuid.UUID, why error) {
		all = false
		if w.dependents.Reject(dependent, why, zap.Stringer("task_uuid", dependent), zap.Stringer("key", task)) {
			w.o.blameTask(ctx, dependent, why)
		}
	})
	if notified.Released > 0 {
		w.dependents.Pass()
		w.o.scheduleLook()
	}
	if notified.Steps > 0 {
		w.o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
	}
	w.o.publish(notified.Signals)
	if err != nil || !all {
		return false, err
	}
	_, err = w.notify(ctx, store.Rows{Limit: 1, Only: []uuid.UUID{task}}) // nothing is left but the message
	return err == nil, err
}

// bring delivers domain events to the steps that wait for them.
func (w *waits) bring(ctx context.Context, rows store.Rows) (int, error) {
	brought, err := w.o.store.BringEvents(ctx, rows, w.o.cfg.EventTTL)
	if err != nil {
		return 0, err
	}
	if brought.Steps > 0 {
		w.o.reported(brought.Signals)
	}
	return brought.Events, nil
}

// stop cancels tasks whose step was cancelled or is beyond a limit, and tasks whose
// dependencies failed. A task that cannot be cancelled any more is left unchanged; one that the
// database rejects is set aside.
func (w *waits) stop(ctx context.Context, rows store.Rows) (int, error) {
	messages, err := w.o.store.StopMessages(ctx, rows)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	by := map[string][]store.StopMessage{}
	for _, m := range messages {
		by[m.Reason()] = append(by[m.Reason()], m)
	}
	var done []store.StopMessage
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		handled, err := w.stopFor(ctx, reason, by[reason])
		if err != nil {
			return 0, err
		}
		done = append(done, handled...)
	}
	if len(done) == 0 {
		return 0, nil
	}
	return len(done), w.o.store.DropStopMessages(ctx, done)
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
	if len(acted.changed) > 0 {
		w.stops.set.Pass(acted.changed...)
	}
	for task, why := range acted.rejected {
		w.stops.set.Reject(task, why, zap.Stringer("task_uuid", task))
	}
	for task, refusal := range acted.refused {
		w.o.log.Info("a task could not be cancelled", zap.Stringer("task_uuid", task), zap.String("reason", reason), zap.Error(refusal))
	}
	return slices.DeleteFunc(messages, func(m store.StopMessage) bool { return acted.rejected[m.Task] != nil }), nil
}
