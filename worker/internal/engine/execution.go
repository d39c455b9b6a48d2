package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/internal/store"
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
	// Prepare adds to Execution.Report the events of the step that follow from its end: own
	// are the handler's, f is the failure, nil for a success. With plain no publisher is
	// called; else it may take long. The caller owns the right to report.
	Prepare(own []store.MadeEvent, f *Failure, plain bool)
	// Ended is called with the answer to the report, unless the engine ends before: false
	// for a claim that was lost. It publishes the events of an accepted one. It never
	// blocks.
	Ended(accepted bool)
}

// Execution is one claimed step with everything needed until its outcome is reported. It
// is not reused: a handler may keep its context longer than it should.
type Execution struct {
	Step     Step
	Claim    store.Claimed
	Key      store.ClaimKey
	Ctx      lazyContext // of the handler
	Progress Progress
	Called   bool                       // Step.Run has called the handler
	Report   store.Report               // made by the owner of the right to report
	Late     bool                       // Report is that its time limit has passed; set by the owner, too
	saved    atomic.Bool                // it has saved a checkpoint
	log      atomic.Pointer[AttemptLog] // nil: nothing was logged
	unsaid   atomic.Bool                // its progress waits to be written
	engine   *Engine
	worker   uuid.UUID    // under which it was claimed, if ahead
	tx       *transaction // of a handler that works in one; used only by its goroutine
	// queued: the handler waits for the connection of its transaction.
	queued atomic.Bool
	// noDatabase: the handler asked for a transaction of an engine without a database.
	noDatabase atomic.Bool
	// forsaken: the database rejects what the execution leaves behind, so its lease is not extended.
	forsaken atomic.Bool
	// replaced: its report is already one in place of the outcome; used by the reporter.
	replaced bool
	// reporting are the bytes that its report occupies until it is answered; used by the reporter.
	reporting int
	// mine: the handler's goroutine has the right to report, or to save the checkpoint.
	mine bool
	// known is job, for the log, which any goroutine writes.
	known atomic.Pointer[job]

	// The fields below are guarded by the slots' lock. The goroutine that has the permit
	// may read job, which does not change once set.
	job      *job // nil: not known yet
	phase    phase
	zombie   bool // reported or lost, but its handler still runs
	permit   int  // its index in running, from 1; 0: none
	leaseEnd time.Time
	claimEnd time.Time // its first leaseEnd
	since    time.Time // when it was claimed, by the local clock
	began    time.Time // when it got its permit
	deadline time.Time // of its handler
}

// execution makes the execution of a claim.
func (e *Engine) execution(c *store.Claimed, leaseEnd time.Time) *Execution {
	x := e.cfg.New()
	x.engine, x.Claim, x.Key, x.leaseEnd, x.claimEnd = e, *c, c.Key(), leaseEnd, leaseEnd
	return x
}

// MarshalLogObject implements zapcore.ObjectMarshaler: the fields that identify an
// execution in the log. Those of the plan are missing until that is known.
func (x *Execution) MarshalLogObject(to zapcore.ObjectEncoder) error {
	to.AddString("correlation_id", x.Claim.CorrelationID.String())
	to.AddString("task_uuid", x.Key.TaskUUID.String())
	to.AddString("step_uuid", x.Claim.StepUUID().String())
	if j := x.known.Load(); j != nil {
		to.AddString("namespace", j.plan.Template.Namespace)
		to.AddString("template", j.plan.Template.Name)
		to.AddString("step_name", x.nameIn(j))
	}
	to.AddInt64("step_no", int64(x.Key.Step))
	to.AddInt64("attempt", int64(x.Claim.Attempt))
	return nil
}

func (x *Execution) of() *Execution { return x }

// callable is what the step calls, "" while that is not known.
func (x *Execution) callable() string {
	if j := x.known.Load(); j != nil {
		return j.step.Handler.Callable
	}
	return ""
}

func (x *Execution) jobKey() jobKey { return jobKey{x.Claim.PlanID, x.Claim.PlanStep()} }

// describe sets what an execution does.
func (x *Execution) describe(j *job) {
	x.job = j
	x.known.Store(j)
}

// onlyAttempt reports whether the first attempt of the step is its last.
func (x *Execution) onlyAttempt() bool {
	retry := &x.job.step.Retry
	return !retry.Retryable || cmp.Or(x.Claim.MaxAttempts, retry.MaxAttempts) <= 1
}

// Plan returns the plan of the task and the step of it that runs. It must not be called
// before Step.Run.
func (x *Execution) Plan() (*workflow.Plan, *workflow.PlanStep) { return x.job.plan, x.job.step }

// StepName returns the name of the step; a batch has its own.
func (x *Execution) StepName() string { return x.nameIn(x.job) }

func (x *Execution) nameIn(j *job) string {
	if x.Claim.Batch != nil {
		return x.Claim.Batch.Name
	}
	return j.step.Name
}

// Why returns why the context of the execution has ended; nil before its end.
func (x *Execution) Why() error { return x.Ctx.why() }

// job is what all executions of a step of a plan have in common. Those of one claim share
// it.
type job struct {
	plan  *workflow.Plan
	step  *workflow.PlanStep
	calls int32         // the callable
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
		limit: e.cfg.HandlerTimeout, took: e.metrics.StepDuration.WithLabelValues(e.metrics.Named("namespace", t.Namespace)),
	}
	j.publishers = slices.ContainsFunc(step.Events, func(e workflow.Event) bool { return e.Publisher != "" })
	if len(plan.Callables) > 0 { // else it is rehearsed without a database
		j.calls = plan.CallableOf(step)
	}
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
		x.worker, executions[i] = worker, x
		x.describe(j)
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

// MaxProgress bounds the message of a progress report, in bytes.
const MaxProgress = 500

// progressLogInterval is how often one execution's progress is logged.
const progressLogInterval = time.Second

// Progress is the latest progress reported by a handler.
type Progress struct {
	mu       sync.Mutex
	fraction float64
	message  string
	logged   time.Time
}

// Set stores a report and reports whether to log it.
func (p *Progress) Set(fraction float64, message string) bool {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction, p.message = min(max(fraction, 0), 1), Clip(message, MaxProgress)
	if !p.logged.IsZero() && now.Sub(p.logged) < progressLogInterval {
		return false
	}
	p.logged = now
	return true
}

// Get returns the latest report.
func (p *Progress) Get() (fraction float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fraction, p.message
}
