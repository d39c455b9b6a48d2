package settle

import (
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/telemetry"
)

// Recorder counts what was decided and committed, and logs what is worth it. It is
// safe for concurrent use.
type Recorder struct {
	Metrics *telemetry.Metrics
	Log     *zap.Logger
}

// Record is to be called once for each commit.
func (r Recorder) Record(changes []store.Change, done store.Committed) {
	for i := range changes {
		r.change(&changes[i])
	}
	for i := range done.Published {
		e := &done.Published[i]
		r.Metrics.DomainEventsPublished.WithLabelValues(e.Name, e.Namespace).Inc()
		r.Log.Info("Domain event published", zap.Stringer("event_id", e.UUID), zap.String("event_name", e.Name),
			zap.String("queue_name", e.Namespace+"_domain_events"), zap.Int64("message_id", e.Position), zap.String("namespace", e.Namespace),
			zap.Stringer("task_uuid", e.Task), zap.Stringer("correlation_id", e.CorrelationID))
	}
}

func (r Recorder) change(c *store.Change) {
	namespace := Namespace(c)
	for _, e := range c.Effects.End {
		r.Metrics.StepResults.WithLabelValues(namespace, e.Outcome.String()).Inc()
	}
	for _, again := range c.Effects.Retry {
		r.Metrics.StepResults.WithLabelValues(namespace, again.Outcome.String()).Inc()
	}
	if c.Effects.Finished {
		r.Metrics.TasksCompleted.WithLabelValues(namespace, c.Effects.State.String()).Inc()
	}
	for _, change := range c.Effects.Changes {
		if change.Reason != "" {
			r.Log.Warn("task changed", zap.Stringer("task_uuid", c.Task.UUID), zap.Stringer("from", change.From),
				zap.Stringer("to", change.To), zap.String("reason", change.Reason))
		}
	}
}

// Namespace is that of a changed task; "" where its records could not be read.
func Namespace(c *store.Change) string {
	if c.Task.Plan == nil {
		return ""
	}
	return c.Task.Plan.Template.Namespace
}
