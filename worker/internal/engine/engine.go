package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Config describes an [Engine]. Package worker documents the bounds and sets defaults.
type Config struct {
	ID     *atomic.Pointer[uuid.UUID] // of the worker in the fleet; changes when the fleet considers it dead
	Board  Board
	Store  *store.Store // for transactions of handlers; nil over a board in memory
	TxPool store.WorkPoolOptions
	// Announce is how transactions that the engine does not commit signal their tasks.
	Announce  store.Announce
	Publisher signal.Publisher
	Settler   Settler           // nil: successes are reported like failures
	New       func() *Execution // returns an execution with its Step

	Namespaces []string // to serve, unless Every is set
	Every      bool
	Tags       []string
	// Can reports whether the worker can run a step of a namespace.
	Can  func(namespace string, def workflow.HandlerReference) bool
	Fast func() bool // whether it receives fast events of other workers
	// OnTopics gets the topics to listen to when they have changed.
	OnTopics func(ctx context.Context, topics []signal.Topic)
	Looks    func() bool // whether the mode allows looks
	Wake     func()      // requests another look; never blocks
	// Recovered requests a look at everything, since the database was away; it never blocks.
	Recovered func()

	MaxConcurrent     int
	Prefetch          int
	HandlerTimeout    time.Duration
	Lease             time.Duration
	LeaseGrace        time.Duration
	HeartbeatInterval time.Duration
	Report            Report
	SaveTimeout       time.Duration // of checkpoints that handlers wait for
	MaxHistory        int           // of checkpoints, per step

	Logs     Logs   // of handlers
	Inputs   Inputs // bounds of those that do not come with claims
	WorkerID string // names the worker in the history of tasks
	// Exclusive: no other worker may have the WorkerID. Fatal is called when another one
	// has taken it.
	Exclusive bool
	Fatal     func(error)
	// ReclaimGrace is how long claims of a dead worker of the WorkerID may be adopted, if
	// their handlers ran in other processes.
	ReclaimGrace time.Duration
	Describe     func() store.Daemon // for heartbeats, except for what the engine knows
	OnBeat       func()              // called after each heartbeat that succeeded
	Logger       *zap.Logger
	Metrics      *telemetry.Metrics
	Tracer       *tracing.Tracer // nil: no spans
}

// Report bounds the reporting of outcomes.
type Report struct {
	MaxBatch   int // outcomes per transaction
	MaxPending int // outcomes that wait to be reported
	ClaimBelow float64
	WarnFrom   float64
	SlowAfter  time.Duration
	Only       bool // Settler is nil
	Breaker    *breaker.Breaker
}

// Engine claims steps, runs them and reports their outcomes. It is safe for concurrent
// use, except for Look.
type Engine struct {
	cfg       Config
	board     Board
	samples   samples
	queues    *queues
	slots     *slots
	reporter  *reporter
	saver     *saver
	logs      *logs
	heartbeat *heartbeat
	scans     fullScans // used by Look alone, as the next
	// limitedScans are those for steps of limited callables.
	limitedScans fullScans
	limitedAlone bool // the latest look for steps of other callables found none
	full         fullKeys
	suspects     suspects
	inputs       inputs
	unknown      unknown
	rejected     rejected
	reaching     settle.Reaching
	settling     sync.Mutex
	own          []int32 // callables whose handlers run in this process
	publisher    signal.Publisher
	log          *zap.Logger
	metrics      *telemetry.Metrics
	count        counters
	txPool       txPool
	beats        *lifecycle.Loop
	watch        *lifecycle.Loop
	sorts        *lifecycle.Loop
	recovery     *lifecycle.Loop
	again        *lifecycle.Loop
	keeps        *lifecycle.Loop // of logs
	unsorted     chan struct{}   // a claim has left limited steps unsorted, or without room

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

// New returns an engine that does nothing yet.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, board: cfg.Board, publisher: cfg.Publisher, log: cfg.Logger, metrics: cfg.Metrics,
		slots:  newSlots(cfg.MaxConcurrent, cfg.Prefetch, max(int(cfg.Report.ClaimBelow*float64(cfg.Report.MaxPending)), 1)),
		txPool: txPool{options: cfg.TxPool, store: cfg.Store}, inputs: newInputs(cfg.Inputs),
	}
	e.slots.deadlines.passed = e.endOverdue
	e.slots.onZombies = func(count int) { e.metrics.HandlersZombie.Set(float64(count)) }
	e.base, e.cancel = context.WithCancelCause(context.Background())
	e.handlersCtx, e.endHandlers = context.WithCancelCause(e.base)
	e.queues, e.reporter, e.saver, e.rejected, e.logs = newQueues(&e.cfg), newReporter(e), newSaver(e), newRejected(e), newLogs(e)
	e.heartbeat = &heartbeat{e: e, soon: make(chan struct{}, 1)}
	e.metrics.HandlersLimit.Set(float64(cfg.MaxConcurrent))
	e.beats, e.watch = e.loop("worker-heartbeat", e.heartbeat.run), e.loop("worker-namespaces", e.watchQueues)
	e.unsorted, e.sorts = make(chan struct{}, 1), e.loop("worker-limits", e.tendLimits)
	e.recovery, e.again = e.loop("worker-recovery", e.recoverFromOutages), e.loop("worker-resend", e.resends)
	e.keeps = e.loop("worker-logs", e.logs.run)
	return e
}

func (e *Engine) loop(name string, run func(ctx context.Context) error) *lifecycle.Loop {
	return lifecycle.NewLoop(lifecycle.LoopConfig{Name: name, Run: run, Logger: e.log, OnRestart: e.metrics.Restarted})
}

// Open reads the namespaces to serve and returns the topics to listen to.
func (e *Engine) Open(ctx context.Context) ([]signal.Topic, error) {
	_, err := e.queues.refresh(ctx)
	e.queues.listened = e.queues.topics()
	return e.queues.listened, err
}

// Start begins to send heartbeats, after the first one: the fleet must know the worker
// before its first claim.
func (e *Engine) Start(ctx context.Context) error {
	// Sessions open once the worker runs: until then what it can run is its own.
	e.own = e.queues.callables()
	if e.cfg.Exclusive {
		if err := e.takeWorkerID(ctx, e.cfg.HeartbeatInterval/2); err != nil {
			return fmt.Errorf("acquire the worker_id: %w", err)
		}
		e.heartbeat.alone = true
	}
	if err := e.heartbeat.beat(ctx); err != nil {
		return fmt.Errorf("register the worker: %w", err)
	}
	if err := e.txPool.check(ctx, e.id()); err != nil {
		return err
	}
	return errors.Join(e.beats.Start(ctx), e.watch.Start(ctx), e.sorts.Start(ctx), e.recovery.Start(ctx), e.again.Start(ctx), e.keeps.Start(ctx))
}

// Loops returns the health of the engine's loops.
func (e *Engine) Loops() []lifecycle.LoopHealth {
	return []lifecycle.LoopHealth{e.beats.Health(), e.watch.Health(), e.sorts.Health(), e.recovery.Health(), e.again.Health(), e.keeps.Health()}
}

// recoverFromOutages looks at everything once the database answers again: what waited for it
// may still have a long wait ahead, and signals were missed.
func (e *Engine) recoverFromOutages(ctx context.Context) error {
	return e.board.Recover(ctx, func(away time.Duration) {
		e.log.Debug("the database answers again; looking at everything", zap.Duration("away", away))
		e.BeatSoon()
		e.cfg.Recovered()
	})
}

// signal sends signals about what a statement has changed, unless the store does.
func (e *Engine) signal(signals ...signal.Signal) {
	if !e.board.SendsSignals() {
		e.publisher.Publish(signals...)
	}
}

// id returns the worker's UUID in the fleet.
func (e *Engine) id() uuid.UUID { return *e.cfg.ID.Load() }

// Namespaces returns those to serve, whether they exist or not, and those that do not.
func (e *Engine) Namespaces() (wanted, missing []string) {
	return e.queues.wanted(), e.queues.missing()
}

// Topics returns the topics to listen to.
func (e *Engine) Topics() []signal.Topic { return e.queues.topics() }

// Kick requests, without blocking, that the engine claims what it can run now.
func (e *Engine) Kick() { e.queues.kick() }

// Reoffer computes again which known callables the worker can run, and claims what has
// been added.
func (e *Engine) Reoffer() {
	if e.queues.reoffer() {
		e.BeatSoon() // reports the new offer
		e.cfg.Wake()
	}
}

// Limit changes the number of handlers that run at once, to 0 to Config.MaxConcurrent.
func (e *Engine) Limit(handlers int) {
	handlers = min(max(handlers, 0), e.cfg.MaxConcurrent)
	e.metrics.HandlersLimit.Set(float64(handlers))
	e.follow(e.slots.setLimit(handlers))
}

// BeatSoon requests a heartbeat now, without blocking: to report a change, and because
// the worker learns from it that an operator called off a step.
func (e *Engine) BeatSoon() { e.heartbeat.beatSoon() }

// Heartbeats returns the age of the latest success, the number of failures in a row since, and
// the last of them.
func (e *Engine) Heartbeats() (age time.Duration, failures int, err error) {
	return e.heartbeat.state()
}

// TxPool returns the statistics of the connections of handlers in transactions; it is
// cheap.
func (e *Engine) TxPool() store.PoolStat { return e.txPool.stat() }

// Context returns a context that lasts until Close.
func (e *Engine) Context() context.Context { return e.base }

// Close stops what still runs and ends its contexts, with the cause ErrShutdown.
func (e *Engine) Close(ctx context.Context) error {
	err := errors.Join(e.stopLoops(ctx), e.saver.batch.Stop(ctx), e.reporter.batch.Stop(ctx))
	e.slots.close(ErrShutdown)
	e.cancel(ErrShutdown)
	return errors.Join(err, e.txPool.close(ctx))
}

func (e *Engine) stopLoops(ctx context.Context) error {
	return errors.Join(e.keeps.Stop(ctx), e.again.Stop(ctx), e.recovery.Stop(ctx), e.beats.Stop(ctx), e.watch.Stop(ctx), e.sorts.Stop(ctx))
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
	if err := x.Claim.Unreadable; err != nil {
		return Failing(unreadable(err))
	}
	if x.job == nil {
		if err := e.awaitJob(x); err != nil {
			return x.Judge(err)
		}
	}
	if why := x.Why(); why != nil {
		return x.Judge(why)
	}
	if x.Claim.Large {
		free, err := e.readInputs(x)
		if errors.Is(err, errHandedBack) {
			return Ending{Kind: GivenUp, Err: err}
		}
		if err != nil {
			return x.Judge(err)
		}
		defer free()
	} else if bytes := x.Claim.InputBytes(); bytes > e.inputs.MaxBytes { // of parents that were settled together
		return x.Judge(e.inputs.tooLarge(bytes))
	}
	end := e.run(x)
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

// run runs the handler, within the span of the attempt if its task has a trace.
func (e *Engine) run(x *Execution) (end Ending) {
	c := &x.Claim
	if c.Trace == nil {
		return x.Step.Run()
	}
	ctx, span := e.cfg.Tracer.Run(tracing.Attempt{Row: c.Trace, Task: c.TaskUUID, Step: c.Step, Attempt: c.Attempt, Name: x.job.name,
		Waited: c.ClaimedAt.Sub(c.EnqueuedAt)})
	x.Ctx.trace(ctx)
	failure := TypePanic // the handler may end its goroutine
	defer func() { tracing.Ran(span, failure) }()
	end = x.Step.Run()
	failure = ""
	switch {
	case end.Failure != nil:
		failure = end.Failure.Type
	case end.Kind == GivenUp:
		failure = "given up"
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
			e.log.Error("the engine panicked", zap.String("panic", fmt.Sprint(r)), zap.Stack("stack"))
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
	ClaimSuspect(ctx context.Context, req store.ClaimRequest) (claimed []store.Claimed, rest store.Rest, err error)
	ClaimLimited(ctx context.Context, req store.ClaimRequest, full bool) (claimed []store.Claimed, rest store.Rest, again time.Duration, err error)
	SortLimited(ctx context.Context, callable int32, except []uuid.UUID) (more bool, err error)
	ActBeyond(ctx context.Context, callables []int32) (store.Beyond, error)
	LimitedCallables(ctx context.Context) (map[int32]store.LimitedCallable, error)
	KnownLimits() map[int32]store.LimitedCallable
	Inputs(ctx context.Context, c *store.Claimed, most int64) (bytes int64, err error)
	LookFromBeginning()
	Recover(ctx context.Context, answered func(away time.Duration)) error
	BeginClaims(ctx context.Context, worker uuid.UUID, before, token int64) error
	Report(ctx context.Context, reports []store.Report) (accepted []bool, err error)
	KeepLogs(ctx context.Context, chunks []store.LogChunk, dropped []store.DroppedLog, progress []store.StepProgress) error
	SaveCheckpoints(ctx context.Context, list []store.Checkpoint, history int, lease time.Duration) (saved []store.SavedCheckpoint, err error)
	ClaimsAfter(ctx context.Context, worker uuid.UUID, after int64) ([]store.ClaimKey, error)
	RejectedClaims(ctx context.Context, req store.ClaimRequest, why error, alone func(step store.WaitingStep, why error)) error
	FailWaiting(ctx context.Context, step store.RowKey, failure json.RawMessage) ([]signal.Signal, error)
	Adopt(ctx context.Context, worker uuid.UUID, held []store.HeldClaim, namespaces []string, lease time.Duration) (adopted []store.Adopted, locked bool, err error)
	HandBack(ctx context.Context, claims []store.ClaimKey) (signals []signal.Signal, err error)
	LoseClaim(ctx context.Context, k store.ClaimKey, blamed bool, maxLosses int) (signals []signal.Signal, err error)
	ReleaseLeases(ctx context.Context, claims []store.ClaimKey) error
	TakeWorkerID(ctx context.Context, d store.Daemon, from store.Succession) (store.TakenWorkerID, error)
	WorkerHeartbeat(ctx context.Context, d store.Daemon, claims []store.ClaimKey, lease time.Duration) (lost []int64, err error)
	KeepRates(ctx context.Context, within time.Duration) (dropped int64, err error)
	Stopped(ctx context.Context, daemon uuid.UUID) error
	Queues(ctx context.Context, namespaces []string) (map[string]int32, error)
	OthersOffer(ctx context.Context, worker uuid.UUID, callable int32, alive time.Duration) (bool, error)
	Callables(ctx context.Context) ([]store.Callable, error)
	KnownCallables() []store.Callable
	CallablesVersion() uint64
	SampleOf(callable int32, plan *workflow.Plan, step *workflow.PlanStep, context []byte, took time.Duration) (sample store.Sample, ok bool)
	ReadPlans(ctx context.Context, ids []int32) error
	PlanByID(ctx context.Context, id int32) (*store.Plan, error)
	StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error)
	BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]store.BatchResult, error)
	BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error)
	RegisterTemplates(ctx context.Context, who store.Registrant, templates []*workflow.Template) (store.Registered, error)
	CheckSchema(ctx context.Context) error
	ForgetPlanNames()
	HearLanes(received signal.Signal) (unknown bool)
	ExpectsSteps(callables []int32) bool
	SendsSignals() bool
}

var _ Board = (*store.Store)(nil)

// pause waits before retry n (0 for the first) of a statement that the database did not
// answer, at least least, or returns the cause of ctx's end.
func pause(ctx context.Context, n int, least time.Duration) error {
	b := deploymode.Backoff{Base: 100 * time.Millisecond, Max: deploymode.LongestHold, Multiplier: 2, Jitter: 0.5}
	return lifecycle.Pause(ctx, max(b.Delay(n, rand.Float64()), least))
}
