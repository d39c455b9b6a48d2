package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/events"
)

// engineConfig is the part of Config that the engine uses.
type engineConfig struct {
	MaxConcurrent  int
	Prefetch       int
	MaxResultBytes int
	HandlerTimeout time.Duration
	Lease          time.Duration
	LeaseGrace     time.Duration
	Tags           []string
	Report         ReportConfig
	Checkpoint     CheckpointConfig
	Isolation      IsolationConfig
	DomainEvents   DomainEventConfig
	Publishers     *publishers
	Bus            *events.Bus
	Settler        settler // nil: successes are reported like failures
	WorkerID       string  // names the worker in the history of tasks
}

// engine claims steps, runs them and reports their outcomes.
type engine struct {
	cfg        engineConfig
	id         *identity
	board      board
	chain      *chain
	queues     *queues
	slots      *slots
	shared     sharedResults
	reporter   *reporter
	saver      *saver
	publishing *publishing
	scans      fullScans // used by Look alone
	unknown    unknown
	looks      func() bool // whether the mode allows looks
	wake       func()      // requests another look; never blocks
	beat       func()      // requests an early heartbeat; never blocks
	publisher  signal.Publisher
	log        *zap.Logger
	metrics    *telemetry.Metrics
	count      *counters
	txPool     *txPool

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

func newEngine(cfg engineConfig, id *identity, b board, c *chain, q *queues, publisher signal.Publisher, log *zap.Logger, m *telemetry.Metrics) *engine {
	e := &engine{
		cfg: cfg, id: id, board: b, chain: c, queues: q,
		slots: newSlots(cfg.MaxConcurrent, cfg.Prefetch, max(int(cfg.Report.ClaimBelow*float64(cfg.Report.MaxPending)), 1)),
		looks: func() bool { return true }, wake: func() {}, beat: func() {}, publisher: publisher, log: log, metrics: m, count: &counters{},
	}
	e.slots.deadlines.passed = e.endOverdue
	e.slots.onZombies = func(count int) { m.HandlersZombie.Set(float64(count)) }
	e.base, e.cancel = context.WithCancelCause(context.Background())
	e.handlersCtx, e.endHandlers = context.WithCancelCause(e.base)
	e.reporter = newReporter(e)
	e.saver = newSaver(e)
	others := newReplicas(id.get(), cfg.DomainEvents.RememberedIDs, cfg.Bus, publisher, log, m)
	e.publishing = newPublishing(e.base, cfg.DomainEvents, cfg.Publishers, cfg.Bus, others, cfg.MaxConcurrent, log, m)
	m.HandlersLimit.Set(float64(cfg.MaxConcurrent))
	return e
}

// close ends the contexts of everything that still runs.
func (e *engine) close() {
	e.slots.close(ErrShutdown)
	e.cancel(ErrShutdown)
}

// start runs an execution that has a permit, and then those that inherit the permit.
func (e *engine) start(x *execution) {
	e.metrics.HandlersActive.Inc()
	e.group.Go(func() { e.work(x) })
}

func (e *engine) work(x *execution) {
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
		if next := e.finish(x, failing(typed(TypePanic, "the handler ended its goroutine"))); next != nil {
			e.start(next)
		}
	}()
	for x != nil {
		x = e.finish(x, e.execute(x))
	}
	ended = true
}
