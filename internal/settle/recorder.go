package settle

import (
	"slices"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/workflow"
)

// Recorder counts committed decisions and logs the notable ones. It is safe for
// concurrent use.
type Recorder struct {
	Metrics   *telemetry.Metrics
	Log       *zap.Logger
	Decisions Decisions // how step creation is logged and counted
	Tracer    *tracing.Tracer
}

// Record must be called once per commit.
func (r Recorder) Record(changes []store.Change, done store.Committed) {
	for i := range changes {
		r.change(&changes[i], done.Cancelled[changes[i].Task.UUID])
	}
	for i := range done.Published {
		e := &done.Published[i]
		name := e.Name
		if e.Own {
			name = "" // handlers may make up any number of names
		}
		r.Metrics.DomainEventsPublished.WithLabelValues(r.Metrics.Named("event_name", name), r.Metrics.Named("namespace", e.Namespace)).Inc()
		r.Log.Info("Domain event published", zap.Stringer("correlation_id", e.CorrelationID), zap.Stringer("task_uuid", e.Task), zap.String("namespace", e.Namespace),
			zap.Stringer("event_id", e.UUID), zap.String("event_name", e.Name), zap.String("queue_name", e.Namespace+"_domain_events"), zap.Int64("message_id", e.Position))
	}
}

func (r Recorder) change(c *store.Change, cancelled int) {
	namespace := Namespace(c)
	label := r.Metrics.Named("namespace", namespace)
	if cancelled > 0 {
		r.Metrics.StepResults.WithLabelValues(label, workflow.OutcomeCancelled.String()).Add(float64(cancelled))
	}
	r.ready(c, label)
	for _, e := range c.Effects.End {
		r.Metrics.StepResults.WithLabelValues(label, e.Outcome.String()).Inc()
	}
	for _, again := range c.Effects.Retry {
		r.Metrics.StepResults.WithLabelValues(label, again.Outcome.String()).Inc()
	}
	if c.Effects.Finished {
		r.Metrics.TasksCompleted.WithLabelValues(label, c.Effects.State.String()).Inc()
	}
	if c.Task.Trace != nil {
		r.trace(c)
	}
	if c.Task.Plan != nil && plainqueue.Has(c.Task.Plan.Template) {
		r.queue(c, r.Metrics.Named("queue", namespace))
	}
	for i := range c.Effects.Decided {
		r.decided(c, &c.Effects.Decided[i], namespace)
	}
	for _, change := range c.Effects.Changes {
		if change.Reason != "" {
			r.Log.Warn("task changed", zap.Stringer("task_uuid", c.Task.UUID), zap.Stringer("from", change.From),
				zap.Stringer("to", change.To), zap.String("reason", change.Reason))
		}
	}
}

// ready counts the steps that were put in line for workers.
func (r Recorder) ready(c *store.Change, namespace string) {
	n := len(c.Effects.Retry)
	for _, put := range c.Effects.Put {
		if c.Task.Plan == nil {
			continue
		}
		if s := c.Task.Plan.Step(c.Progress, put.Step); s != nil && c.Task.Plan.CallableOf(s) != 0 {
			n++
		}
	}
	if n > 0 {
		r.Metrics.StepsReady.WithLabelValues(namespace).Add(float64(n))
	}
}

// CountCreated counts tasks of a plan that were created, and the steps that they begin with.
func CountCreated(m *telemetry.Metrics, plan *store.Plan, tasks int) {
	namespace := m.Named("namespace", plan.Template.Namespace)
	m.TasksCreated.WithLabelValues(namespace).Add(float64(tasks))
	m.StepsReady.WithLabelValues(namespace).Add(float64(tasks * len(plan.First)))
}

// trace makes the spans of a decision: of attempts whose leases ran out, of outcomes that were
// followed, and of the task, if it has ended.
func (r Recorder) trace(c *store.Change) {
	name := "task"
	if c.Task.Plan != nil {
		name = c.Task.Plan.Template.Namespace + "/" + c.Task.Plan.Template.Name
	}
	of := func(step, attempt int) tracing.Attempt {
		a := tracing.Attempt{Row: c.Task.Trace, Task: c.Task.UUID, Step: step, Attempt: attempt, Name: name}
		if c.Progress != nil {
			if s := c.Task.Plan.Step(c.Progress, step); s != nil {
				a.Name += "/" + s.Name
			}
		}
		return a
	}
	for i := range c.Task.Reported {
		if s := &c.Task.Reported[i]; s.Outcome == workflow.OutcomeLeaseLost {
			r.Tracer.Lost(of(s.Step, s.Attempt))
		}
	}
	for i := range c.Effects.Decided {
		d := &c.Effects.Decided[i]
		r.Tracer.Decided(of(d.Step, 0), len(d.Created), d.Batches)
	}
	if state := c.Effects.State; c.Effects.Finished {
		r.Tracer.Ended(c.Task.Trace, c.Task.UUID, name, state.String(), state != workflow.TaskComplete && state != workflow.TaskResolvedManually)
	}
}

// queue counts what became of a task of a queue.
func (r Recorder) queue(c *store.Change, queue string) {
	for _, again := range c.Effects.Retry {
		reason := "failed"
		if again.Outcome == workflow.OutcomeLeaseLost {
			reason = "worker_dead"
		}
		r.Metrics.QueueRequeued.WithLabelValues(reason).Inc()
	}
	if !c.Effects.Finished || c.Effects.State == workflow.TaskComplete || c.Effects.State == workflow.TaskResolvedManually {
		return
	}
	reason := "exhausted"
	died := func(e workflow.EndStep) bool {
		return e.Reason == workflow.ReasonWorkerLost || e.Reason == workflow.ReasonPoison
	}
	switch {
	case c.Action != nil && c.Action.Reason == "deadline" && c.Effects.DeadLetter != nil:
		reason = "deadline"
	case c.Action != nil:
		reason = "operator"
	case slices.ContainsFunc(c.Effects.End, died):
		reason = "worker_dead"
	}
	r.Metrics.QueueDeadLettered.WithLabelValues(queue, reason).Inc()
}

// decided counts and logs an outcome that was followed.
func (r Recorder) decided(c *store.Change, d *workflow.Decided, namespace string) {
	if d.Odd != "" {
		r.Log.Warn("an outcome is read as nothing to do", zap.Stringer("task_uuid", c.Task.UUID), zap.String("namespace", namespace),
			zap.String("step_name", c.Task.Plan.Steps[d.Step].Name), zap.String("outcome", d.Odd))
	}
	say := r.Decisions
	if !say.Uncounted {
		label := r.Metrics.Named("namespace", namespace)
		r.Metrics.StepsCreated.WithLabelValues(label).Add(float64(len(d.Created)))
		r.Metrics.BatchesCreated.WithLabelValues(label).Add(float64(d.Batches))
	}
	many := say.WarnSteps > 0 && len(d.Created) >= say.WarnSteps
	deep := say.WarnDepth > 0 && d.Depth >= say.WarnDepth
	if !many && !deep && !say.Log {
		return
	}
	names := make([]string, len(d.Created))
	for i, no := range d.Created {
		names[i] = c.Task.Plan.Steps[no].Name
	}
	tell := r.Log.Info
	if many || deep {
		tell = r.Log.Warn
	}
	tell("steps created", zap.Stringer("task_uuid", c.Task.UUID), zap.String("namespace", namespace),
		zap.String("step_name", c.Task.Plan.Steps[d.Step].Name), zap.Strings("created", names), zap.Int("batches", d.Batches), zap.Int("depth", d.Depth))
}

// Namespace returns the namespace of a changed task; "" where its records could not be read.
func Namespace(c *store.Change) string {
	if c.Task.Plan == nil {
		return ""
	}
	return c.Task.Plan.Template.Namespace
}
