package engine

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Config describes an [Engine]. Package worker documents the bounds and sets defaults.
type Config struct {
	ID             *Identity
	Board          Board
	Queues         *Queues
	TxPool         *TxPool
	Publisher      signal.Publisher
	New            func() *Execution // returns an execution with its Step
	MaxConcurrent  int
	Prefetch       int
	HandlerTimeout time.Duration
	Lease          time.Duration
	LeaseGrace     time.Duration
	Tags           []string
	Report         Report
	SaveTimeout    time.Duration // of checkpoints that handlers wait for
	MaxHistory     int           // of checkpoints, per step
	Settler        Settler       // nil: successes are reported like failures
	WorkerID       string        // names the worker in the history of tasks
	Logger         *zap.Logger
	Metrics        *telemetry.Metrics
}

// Report bounds the reporting of outcomes.
type Report struct {
	MaxBatch   int // outcomes per transaction
	MaxPending int // outcomes that wait to be reported
	ClaimBelow float64
	WarnFrom   float64
	SlowAfter  time.Duration
	Breaker    *breaker.Breaker
}

// Engine claims steps, runs them and reports their outcomes. It is safe for concurrent
// use, except for Look.
type Engine struct {
	cfg       Config
	id        *Identity
	board     Board
	queues    *Queues
	slots     *slots
	reporter  *reporter
	saver     *saver
	scans     fullScans // used by Look alone
	unknown   unknown
	looks     func() bool // whether the mode allows looks
	wake      func()      // requests another look; never blocks
	beat      func()      // requests an early heartbeat; never blocks
	publisher signal.Publisher
	log       *zap.Logger
	metrics   *telemetry.Metrics
	count     counters
	txPool    *TxPool

	base        context.Context // for sending reports; ends when the worker is closed
	cancel      context.CancelCauseFunc
	handlersCtx context.Context // ends when the handlers are cancelled
	endHandlers context.CancelCauseFunc
	group       conc.WaitGroup // the handlers' goroutines
}

// counters count since the worker was created.
type counters struct {
	claimed, succeeded, failed, stale, leasesLost atomic.Uint64
}

// New returns an engine that does nothing until it looks for work.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, id: cfg.ID, board: cfg.Board, queues: cfg.Queues, txPool: cfg.TxPool,
		slots: newSlots(cfg.MaxConcurrent, cfg.Prefetch, max(int(cfg.Report.ClaimBelow*float64(cfg.Report.MaxPending)), 1)),
		looks: func() bool { return true }, wake: func() {}, beat: func() {}, publisher: cfg.Publisher, log: cfg.Logger, metrics: cfg.Metrics,
	}
	e.slots.deadlines.passed = e.endOverdue
	e.slots.onZombies = func(count int) { e.metrics.HandlersZombie.Set(float64(count)) }
	e.base, e.cancel = context.WithCancelCause(context.Background())
	e.handlersCtx, e.endHandlers = context.WithCancelCause(e.base)
	e.reporter = newReporter(e)
	e.saver = newSaver(e)
	e.metrics.HandlersLimit.Set(float64(cfg.MaxConcurrent))
	return e
}

// Connect connects the engine, before its first look, with what makes it look: looks says
// whether the mode allows looks, wake requests one.
func (e *Engine) Connect(looks func() bool, wake func()) { e.looks, e.wake = looks, wake }

// Context returns a context that lasts until Close.
func (e *Engine) Context() context.Context { return e.base }

// Close ends the contexts of everything that still runs, with the cause ErrShutdown.
func (e *Engine) Close(ctx context.Context) error {
	err := errors.Join(e.saver.batch.Stop(ctx), e.reporter.batch.Stop(ctx))
	e.slots.close(ErrShutdown)
	e.cancel(ErrShutdown)
	return err
}

// Counts are counts since the engine was created.
type Counts struct{ Claimed, Succeeded, Failed, Stale, LeasesLost uint64 }

// Counts returns the counts.
func (e *Engine) Counts() Counts {
	c := &e.count
	return Counts{c.claimed.Load(), c.succeeded.Load(), c.failed.Load(), c.stale.Load(), c.leasesLost.Load()}
}

// execute runs one step to its end in this goroutine.
func (e *Engine) execute(x *Execution) Ending {
	defer x.Ctx.end(context.Canceled) // releases derived contexts
	if x.job == nil {
		if err := e.awaitJob(x); err != nil {
			return x.Judge(err)
		}
	}
	if why := x.Why(); why != nil {
		return x.Judge(why)
	}
	end := x.Step.Run()
	if end.Kind == Success && end.Next != nil && x.tx == nil {
		if err := e.beginToContinue(x); err != nil {
			return x.Judge(err)
		}
	}
	if x.tx != nil {
		return e.conclude(x, end)
	}
	return end
}

// start runs an execution that has a permit, and then those that inherit the permit.
func (e *Engine) start(x *Execution) {
	e.metrics.HandlersActive.Inc()
	e.group.Go(func() { e.work(x) })
}

func (e *Engine) work(x *Execution) {
	ended := false
	defer func() {
		e.metrics.HandlersActive.Dec()
		if ended {
			return
		}
		// The handler has called runtime.Goexit, or this package has a bug; the permit
		// must not be lost.
		if r := recover(); r != nil {
			e.log.Error("the engine panicked", zap.Any("panic", r), zap.Stack("stack"))
		}
		e.abandon(x)
		if next := e.finish(x, Failing(Errorf(TypePanic, "the handler ended its goroutine"))); next != nil {
			e.start(next)
		}
	}()
	for x != nil {
		x = e.finish(x, e.execute(x))
	}
	ended = true
}

// Board is the part of *store.Store that a worker uses; tests have a fake.
type Board interface {
	Claim(ctx context.Context, req store.ClaimRequest, full bool) (claimed []store.Claimed, rest store.Rest, err error)
	BeginClaims(ctx context.Context, worker uuid.UUID, before, token int64) error
	Report(ctx context.Context, reports []store.Report) (accepted []bool, err error)
	SaveCheckpoints(ctx context.Context, list []store.Checkpoint, history int, lease time.Duration) (saved []store.SavedCheckpoint, err error)
	ClaimsAfter(ctx context.Context, worker uuid.UUID, after int64) ([]store.ClaimKey, error)
	HandBack(ctx context.Context, claims []store.ClaimKey) (signals []signal.Signal, err error)
	ReleaseLeases(ctx context.Context, claims []store.ClaimKey) error
	TakeWorkerID(ctx context.Context, d store.Daemon, dead []uuid.UUID, silence time.Duration) (store.TakenWorkerID, error)
	WorkerHeartbeat(ctx context.Context, d store.Daemon, claims []store.ClaimKey, lease time.Duration) (lost []int64, err error)
	Stopped(ctx context.Context, daemon uuid.UUID) error
	Queues(ctx context.Context, namespaces []string) (map[string]int32, error)
	OthersOffer(ctx context.Context, worker uuid.UUID, callable int32, alive time.Duration) (bool, error)
	Callables(ctx context.Context) ([]store.Callable, error)
	KnownCallables() []store.Callable
	CallablesVersion() uint64
	ReadPlans(ctx context.Context, ids []int32) error
	PlanByID(ctx context.Context, id int32) (*store.Plan, error)
	StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error)
	BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]store.BatchResult, error)
	BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error)
	RegisterTemplates(ctx context.Context, who store.Registrant, templates []*workflow.Template) (store.Registered, error)
	CheckSchema(ctx context.Context) error
	ForgetPlanNames()
	HearLanes(received signal.Signal) (unknown bool)
	SendsSignals() bool
}

var _ Board = (*store.Store)(nil)

// Identity is the worker's UUID in the fleet. It changes when the fleet considers the
// worker dead: its claims are lost, and it registers as a new worker.
type Identity struct{ id atomic.Pointer[uuid.UUID] }

// NewIdentity returns the identity of a worker that starts as id.
func NewIdentity(id uuid.UUID) *Identity {
	i := &Identity{}
	i.id.Store(&id)
	return i
}

// Get returns the present UUID.
func (i *Identity) Get() uuid.UUID { return *i.id.Load() }

// renew makes a new UUID; it returns an error if the random source fails.
func (i *Identity) renew() error {
	id, err := uuid.NewV7()
	if err == nil {
		i.id.Store(&id)
	}
	return err
}

// patience is the backoff for statements that the database did not answer.
func patience() deploymode.Backoff {
	return deploymode.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.5}
}

// pause waits before retry n (0 for the first), at least least, or returns the cause of
// ctx's end.
func pause(ctx context.Context, n int, least time.Duration) error {
	return lifecycle.Pause(ctx, max(patience().Delay(n, rand.Float64()), least))
}
