package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Causes of the end of an execution's context; package worker documents them.
var (
	ErrLeaseLost = errors.New("the lease of the step is lost")
	ErrTimeout   = errors.New("the step ran out of time")
	ErrShutdown  = errors.New("the worker is shutting down")
)

// Step is the side of an execution that knows the handler.
type Step interface {
	// Run runs the handler, in the goroutine of the execution, and returns how it ended. It
	// may panic.
	Run() Ending
	// Prepare adds to Execution.Report the events of the step that follow from its end: f
	// is the failure, nil for a success. With plain no publisher is called; else it may
	// take long. The caller owns the right to report.
	Prepare(f *Failure, plain bool)
	// Accepted publishes them after the report was accepted; it never blocks.
	Accepted()
}

// Execution is one claimed step with everything needed until its outcome is reported. It
// is not reused: a handler may keep its context longer than it should.
type Execution struct {
	Step     Step
	Claim    store.Claimed
	Key      store.ClaimKey
	Ctx      LazyContext // of the handler
	Progress Progress
	Called   bool         // Step.Run has called the handler
	Report   store.Report // made by the owner of the right to report
	saved    atomic.Bool  // it has saved a checkpoint
	engine   *Engine
	worker   uuid.UUID    // under which it was claimed, if ahead
	tx       *transaction // of a handler that works in one; used only by its goroutine
	// queued: the handler waits for the connection of its transaction.
	queued atomic.Bool
	// mine: the handler's goroutine has the right to report, or to save the checkpoint.
	mine bool

	// The fields below are guarded by the slots' lock. The goroutine that has the permit
	// may read job, which does not change once set.
	job      *job // nil: not known yet
	phase    phase
	zombie   bool // reported or lost, but its handler still runs
	permit   int  // its index in running, from 1; 0: none
	leaseEnd time.Time
	since    time.Time // when it was claimed, by the local clock
	began    time.Time // when it got its permit
	deadline time.Time // of its handler
}

// execution makes the execution of a claim.
func (e *Engine) execution(c *store.Claimed, leaseEnd time.Time) *Execution {
	x := e.cfg.New()
	x.engine, x.Claim, x.Key, x.leaseEnd = e, *c, c.Key(), leaseEnd
	return x
}

func (x *Execution) of() *Execution { return x }

func (x *Execution) jobKey() jobKey { return jobKey{x.Claim.PlanID, x.Claim.PlanStep()} }

// Plan returns the plan of the task and the step of it that runs. It must not be called
// before Step.Run.
func (x *Execution) Plan() (*workflow.Plan, *workflow.PlanStep) { return x.job.plan, x.job.step }

// StepName returns the name of the step; a batch has its own.
func (x *Execution) StepName() string {
	if x.Claim.Batch != nil {
		return x.Claim.Batch.Name
	}
	return x.job.step.Name
}

// Why returns why the context of the execution has ended; nil before its end.
func (x *Execution) Why() error { return x.Ctx.why() }
