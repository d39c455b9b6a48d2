package engine

import (
	"time"

	"go.uber.org/zap"
)

// leftFor is how long a worker does not claim a callable for which it found no handler.
const leftFor = 10 * time.Second

// Leave hands back a step for which the accepting resolver found no handler, if another
// worker offers its callable: no attempt is used, and this worker does not claim the
// callable for a while.
func (x *Execution) Leave(why error) bool {
	e := x.engine
	callable := e.callableOf(x)
	others, err := e.board.OthersOffer(&x.Ctx, x.worker, callable, e.cfg.Lease)
	if err != nil || !others {
		return false
	}
	e.queues.leave(callable, time.Now().Add(leftFor))
	e.beat() // so that others do not rely on this worker
	if err := e.handBack(&x.Ctx, []*Execution{x}); err != nil {
		e.log.Debug("a step was not left to others", zap.Error(err))
		return false
	}
	e.log.Warn("left a step to other workers: its handler was not found in this worker", zap.Stringer("task_uuid", x.Key.TaskUUID),
		zap.Int("step_no", x.Key.Step), zap.Duration("for", leftFor), zap.Error(why))
	return true
}

// callableOf returns the callable of an execution; 0 if its plan cannot be read any more.
func (e *Engine) callableOf(x *Execution) int32 {
	plan, err := e.board.PlanByID(&x.Ctx, x.Claim.PlanID) // in the cache: its job is known
	if err != nil {
		return 0
	}
	return plan.Callables[x.Claim.PlanStep()]
}
