package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// job is what all executions of a step of a plan have in common. Those of one claim share
// it.
type job struct {
	plan  *workflow.Plan
	step  *workflow.PlanStep
	name  string        // namespace/task/step, for people
	limit time.Duration // of the handler
	took  prometheus.Observer
	// publishers make events of its end.
	publishers bool
}

// jobKey identifies executions of one claim that share a job.
type jobKey struct {
	plan int32
	step int
}

// job prepares the execution of a step.
func (e *Engine) job(plan *store.Plan, key jobKey) (*job, error) {
	if !usable(plan.Plan, key.step) {
		return nil, Errorf(TypePlanUnreadable, "plan %d has no step %d", key.plan, key.step)
	}
	t, step := plan.Template, &plan.Steps[key.step]
	j := &job{
		plan: plan.Plan, step: step, name: t.Namespace + "/" + t.Name + "/" + step.Name,
		limit: e.cfg.HandlerTimeout, took: e.metrics.StepDuration.WithLabelValues(t.Namespace),
	}
	j.publishers = slices.ContainsFunc(step.Events, func(e workflow.Event) bool { return e.Publisher != "" })
	if step.TimeoutSeconds > 0 {
		j.limit = time.Duration(step.TimeoutSeconds) * time.Second
	}
	return j, nil
}

// prepare makes executions of claimed steps and gives each its job. If a plan cannot be
// read now, the executions read it.
func (e *Engine) prepare(ctx context.Context, worker uuid.UUID, claimed []store.Claimed, leaseEnd time.Time) []*Execution {
	executions := make([]*Execution, len(claimed))
	plans := make([]int32, len(claimed))
	for i := range claimed {
		plans[i] = claimed[i].PlanID
	}
	if err := e.board.ReadPlans(ctx, plans); err != nil {
		e.log.Debug("plans not read ahead", zap.Error(err))
	}
	jobs := make(map[jobKey]*job, 1)
	for i := range claimed {
		x := e.execution(&claimed[i], leaseEnd)
		key := x.jobKey()
		j, known := jobs[key]
		if !known {
			j = e.readAhead(ctx, key)
			jobs[key] = j
		}
		x.worker, x.job, executions[i] = worker, j, x
	}
	return executions
}

// readAhead returns nil if the plan cannot be read or used.
func (e *Engine) readAhead(ctx context.Context, key jobKey) *job {
	plan, err := e.board.PlanByID(ctx, key.plan)
	if err != nil {
		e.log.Debug("plan not read ahead", zap.Int32("plan", key.plan), zap.Error(err))
		return nil
	}
	j, err := e.job(plan, key)
	if err != nil {
		return nil
	}
	return j
}

// awaitJob finds the job of an execution without one. While the database is unavailable
// it retries until the claim is lost or the worker ends.
func (e *Engine) awaitJob(x *Execution) error {
	for n := 0; ; n++ {
		plan, err := e.board.PlanByID(&x.Ctx, x.Claim.PlanID)
		switch {
		case err == nil:
			j, err := e.job(plan, x.jobKey())
			if err == nil {
				e.slots.describe(x, j)
			}
			return err
		case !errors.Is(err, store.ErrUnavailable) && x.Ctx.Err() == nil:
			return Errorf(TypePlanUnreadable, "the plan of the step cannot be used: %w", err)
		}
		if err := pause(&x.Ctx, n, 0); err != nil {
			return err
		}
	}
}

// usable reports whether a claim matches the plan it names.
func usable(plan *workflow.Plan, step int) bool { return step >= 0 && step < len(plan.Steps) }
