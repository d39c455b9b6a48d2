package orchestration

import (
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Decisions says what is told of steps that are created at run time.
type Decisions struct {
	// WarnSteps and WarnDepth are from which number of created steps, and of
	// nested decisions, on an outcome is logged as a warning; 0: never.
	WarnSteps, WarnDepth int
	// Log has every outcome logged.
	Log bool
	// Uncounted leaves them out of the metrics.
	Uncounted bool
}

// decided counts and tells of an outcome that was followed.
func (o *Orchestrator) decided(c *store.Change, d *workflow.Decided, namespace string) {
	if d.Odd != "" {
		o.log.Warn("an outcome is read as nothing to do", zap.Stringer("task_uuid", c.Task.UUID), zap.String("namespace", namespace),
			zap.String("step", c.Task.Plan.Steps[d.Step].Name), zap.String("outcome", d.Odd))
	}
	say := o.cfg.Decisions
	if !say.Uncounted {
		o.metrics.StepsCreated.WithLabelValues(namespace).Add(float64(len(d.Created)))
		o.metrics.BatchesCreated.WithLabelValues(namespace).Add(float64(d.Batches))
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
	tell := o.log.Info
	if many || deep {
		tell = o.log.Warn
	}
	tell("steps created", zap.Stringer("task_uuid", c.Task.UUID), zap.String("namespace", namespace),
		zap.String("step", c.Task.Plan.Steps[d.Step].Name), zap.Strings("created", names), zap.Int("batches", d.Batches), zap.Int("depth", d.Depth))
}
