package orchestration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Config describes an Orchestrator. Fields without a default here are required, except
// Logger, Metrics and fields that may be nil: see Configure and Check.
type Config struct {
	Store     *store.Store
	Publisher signal.Publisher
	// PublishAfter publishes a signal with a delay; nil: timers alone find steps that are due.
	PublishAfter func(delay time.Duration, s signal.Signal)
	// Daemon identifies the process in the fleet; Mode is filled in.
	Daemon    store.Daemon
	Decisions settle.Decisions // what is counted and logged of steps created at run time
	Rules     workflow.Rules
	// ReadinessBreaker guards the looks for due work; nil admits all.
	ReadinessBreaker *breaker.Breaker
	// Recovered is called when the database answers again after an outage, so that what else
	// looks for work does so; it must not block. nil: nothing else does.
	Recovered func()
	// DeadLetters creates dead-letter entries for tasks that failed for good.
	DeadLetters bool

	// Orchestration and Readiness are the settings of the two event systems;
	// Topics, Logger, Metrics and Processor are filled in.
	Orchestration coordinator.Config
	Readiness     coordinator.Config
	CommandBuffer int // commands of one kind that may wait

	ApplyBatch        int           // reported steps per transaction
	ApplyBytes        int           // results taken into memory by one transaction, in bytes; 0: no bound
	CreateBatch       int           // tasks per transaction
	CreatePending     int           // requests that may wait
	SweepBatch        int           // due steps or leases per statement
	MaxLosses         int           // processes with which a step may be lost without being blamed
	LeaseGrace        time.Duration // for which no lease ends after the database was away, and after the start; 0: none
	HeartbeatInterval time.Duration
	MaxTaskDepth      int               // tasks of which each is a step of the one before
	Documents         submission.Bounds // of contexts of tasks
	SchemaChecks      submission.SchemaLimits
	Reach             *auth.Reach        // what content of one namespace may use in others; nil: everything
	InputSchema       string             // enforce, warn or off: what to do with contexts that break a template's input schema
	Immutable         store.Immutability // of the versions of task types
	EventTTL          time.Duration      // for which an event without a waiting step is kept
	FollowPoll        time.Duration      // the interval of looks for transitions without a signal; 0: 2 s

	Logger  *zap.Logger
	Metrics *telemetry.Metrics
	Tracer  *tracing.Tracer // nil: no spans
}

// Orchestrator runs the orchestrator's side of the engine. It is safe for
// concurrent use between Start and Stop.
type Orchestrator struct {
	cfg             Config
	store           *store.Store
	log             *zap.Logger
	metrics         *telemetry.Metrics
	schema          *submission.SchemaPolicy // of contexts
	checker         *schema.Checker          // of contexts
	content         *content
	processor       *command.Processor
	apply           *coordinator.EventSystem
	readiness       *coordinator.EventSystem
	creates         *command.Batcher[store.NewTask, store.CreatedTask]
	taker           Taker // nil except in embedded mode
	waiters         *waiters
	eventsPublished broadcast
	followers       *followers
	revoked         *revoked
	recorder        settle.Recorder
	evicted         atomic.Int64 // the last search for sessions of frozen processes, in Unix ns
	address         atomic.Pointer[string]
	beatSoon        chan struct{} // of capacity 1: requests a heartbeat before its time
	beat            *lifecycle.Loop
	keep            *lifecycle.Loop
	recovery        *lifecycle.Loop
}

const (
	stopTimeout   = 5 * time.Second // of each part
	partitionDays = 7               // ledger partitions created ahead
)

// New wires an orchestrator; nothing runs before Start.
func New(cfg Config) (*Orchestrator, error) {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	rules, err := settle.Publish(cfg.Rules.Creation, cfg.Decisions, cfg.Reach)
	if err != nil {
		return nil, fmt.Errorf("configure the orchestrator: %w", err)
	}
	cfg.Daemon.Rules = rules
	o := &Orchestrator{cfg: cfg, store: cfg.Store, log: cfg.Logger, schema: schemaPolicy(cfg.InputSchema, cfg.Logger), metrics: cfg.Metrics,
		beatSoon: make(chan struct{}, 1)}
	o.recorder = settle.Recorder{Metrics: o.metrics, Log: o.log, Decisions: cfg.Decisions, Tracer: cfg.Tracer}
	o.waiters, o.followers = newWaiters(o), newFollowers(o)
	o.checker = submission.NewChecker(cfg.SchemaChecks, cfg.Metrics)
	o.revoked = newRevoked(&cfg)
	o.processor = newProcessor(&cfg)
	o.content = newContent(o.checker, func(in time.Duration) { o.readiness.WakeIn(in) })
	o.creates = command.NewBatcher(command.BatcherConfig{
		Name: "create_task", MaxBatch: cfg.CreateBatch, MaxPending: cfg.CreatePending, Patience: createPatience, Logger: cfg.Logger, Metrics: cfg.Metrics,
	}, o.flushCreates)
	o.beat = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "orchestrator-heartbeat", Run: o.heartbeats, Logger: cfg.Logger, OnRestart: cfg.Metrics.Restarted})
	o.keep = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "partitions", Run: o.partitions, Logger: cfg.Logger, OnRestart: cfg.Metrics.Restarted})
	o.recovery = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "orchestrator-recovery", Run: o.recoverFromOutages, Logger: cfg.Logger, OnRestart: cfg.Metrics.Restarted})

	applying := cfg.Orchestration
	applying.Take = func(received signal.Signal) (taken bool) {
		_, taken = received.Revokes() // for workers
		return taken
	}
	o.apply = coordinator.New(o.fill(applying, signal.TopicOrchestration, signal.TopicTasks, signal.TopicControl, signal.TopicEvents, signal.TopicTransitions), newApplyWork(o))
	o.readiness = coordinator.New(o.fill(cfg.Readiness, signal.TopicDue), newDueWork(o))
	return o, nil
}

// The kinds of commands beside the looks of the event systems.
const (
	commandCreateMany = "create_many"
	commandAct        = "act"
)

// newProcessor bounds what an orchestrator does at once, kind by kind: neither a
// hanging look nor a storm of requests blocks commands of another kind.
func newProcessor(cfg *Config) *command.Processor {
	look := func(c *coordinator.Config) command.Kind {
		return command.Kind{Name: c.Command(), Workers: 1, Buffer: 1, Quiet: true} // a system makes one look at a time
	}
	return command.NewProcessor(command.Config{Name: "orchestrator", Logger: cfg.Logger, Metrics: cfg.Metrics, Kinds: []command.Kind{
		look(&cfg.Orchestration), look(&cfg.Readiness),
		// Two: the next transaction is prepared while another is under way, and single
		// creations keep their share of the connections.
		{Name: commandCreateMany, Workers: 2, Buffer: cfg.CommandBuffer, Quiet: true},
		// A quarter of the connections that a pool has by default.
		{Name: commandAct, Workers: 5, Buffer: cfg.CommandBuffer, Quiet: true},
	}})
}

func (o *Orchestrator) fill(c coordinator.Config, topics ...signal.Topic) coordinator.Config {
	c.Topics, c.Processor, c.Logger, c.Metrics = topics, o.processor, o.log, o.metrics
	return c
}

// services lists the parts in start order; they stop in reverse.
func (o *Orchestrator) services() []lifecycle.Service {
	return []lifecycle.Service{o.processor, o.waiters.loop, o.followers.loop, o.revoked.loop, o.keep, o.beat, o.content, o.readiness, o.apply, o.recovery}
}

// Start runs the event systems and loops. It returns when they are running;
// listeners connect in the background (see Ready).
func (o *Orchestrator) Start(ctx context.Context) error {
	return lifecycle.StartAll(ctx, o.log, stopTimeout, o.services()...)
}

// Stop ends everything in reverse order, each part within its bound: no new work is
// found, work under way is finished, and the orchestrator signs off from the fleet.
func (o *Orchestrator) Stop(ctx context.Context) error {
	err := o.creates.Stop(ctx)
	if stopErr := lifecycle.StopAll(ctx, o.log, stopTimeout, o.services()...); err == nil {
		err = stopErr
	}
	o.keepRates(ctx)
	if signOff := o.store.Stopped(ctx, o.cfg.Daemon.UUID); err == nil && signOff != nil {
		err = fmt.Errorf("sign off: %w", signOff)
	}
	return err
}

// publish sends signals, unless the transaction has carried them.
func (o *Orchestrator) publish(signals []signal.Signal) {
	if !o.store.SendsSignals() && len(signals) > 0 {
		o.cfg.Publisher.Publish(signals...)
	}
}

// SetAddress publishes the address of the daemon's API to the fleet, as host:port, for
// operators. A running orchestrator publishes it with a heartbeat at once; "" stands
// for no API. It may be called at any time.
func (o *Orchestrator) SetAddress(address string) {
	o.address.Store(&address)
	o.beatNow()
}

// beatNow requests a heartbeat before its time; it never blocks.
func (o *Orchestrator) beatNow() {
	lifecycle.Nudge(o.beatSoon)
}

// heartbeats registers the orchestrator and reads, with the same statement, when the
// timer is due: steps that another replica put on the board before it died are found
// this way even where no orchestrator polls.
func (o *Orchestrator) heartbeats(ctx context.Context) error {
	timer := time.NewTimer(o.cfg.HeartbeatInterval)
	defer timer.Stop()
	var scan scanBudget // limits scans of dead row versions while an old snapshot is held
	for failures := 0; ; {
		d := o.cfg.Daemon
		d.Mode, d.Signals.Unheard = string(o.apply.Mode()), o.apply.Health().Unheard
		if address := o.address.Load(); address != nil {
			d.Address = *address
		}
		begin := time.Now()
		attend := scan.allows(begin)
		a, err := o.store.ProcessorHeartbeat(ctx, d, o.cfg.HeartbeatInterval, attend)
		if err == nil {
			o.keepRates(ctx)
			if a.Uncounted {
				o.store.NoteCounts()
			}
		}
		if err == nil && attend {
			scan.used(begin, time.Since(begin))
			o.attend(a)
		}
		failures = o.countFailures(ctx, failures, err)
		o.endStuck(ctx, o.cfg.HeartbeatInterval/2)
		next := o.cfg.HeartbeatInterval
		if err != nil {
			next = min(next/5, deploymode.LongestHold)
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-o.beatSoon:
		}
	}
}

// keepRates writes what was counted since the last heartbeat. What cannot be written waits for the next.
func (o *Orchestrator) keepRates(ctx context.Context) {
	dropped, err := o.store.KeepRates(ctx, o.cfg.HeartbeatInterval)
	o.metrics.RatesDropped.Add(float64(dropped))
	if err != nil {
		o.log.Warn("the rates of the last heartbeat's interval were not written", zap.Error(err))
	}
}

// countFailures returns how many heartbeats in a row failed. It logs the first one, and the
// end of the series.
func (o *Orchestrator) countFailures(ctx context.Context, failures int, err error) int {
	switch {
	case err == nil && failures > 0:
		o.log.Info("heartbeats succeed again", zap.Int("failures", failures))
		fallthrough
	case err == nil:
		return 0
	case failures == 0 && ctx.Err() == nil:
		o.log.Warn("heartbeat failed and will be repeated", zap.Error(err))
	}
	return failures + 1
}

// attend acts on the answer of a heartbeat. Its signals are sent with every event
// source: there is no transaction that could carry them.
func (o *Orchestrator) attend(a store.Attention) {
	if a.Next() >= 0 {
		o.readiness.WakeIn(a.Next())
	}
	if len(a.Signals) > 0 {
		o.cfg.Publisher.Publish(a.Signals...)
	}
}

// recoverFromOutages looks at everything once the database answers again: what waited for it
// may still have a long wait ahead, and signals were missed.
func (o *Orchestrator) recoverFromOutages(ctx context.Context) error {
	return o.store.Recover(ctx, func(away time.Duration) {
		o.log.Debug("the database answers again; looking at everything", zap.Duration("away", away))
		o.beatNow()
		for _, system := range o.Systems() {
			system.Recovered()
		}
		if o.cfg.Recovered != nil {
			o.cfg.Recovered()
		}
	})
}

// partitions creates the ledger's partitions ahead of time.
func (o *Orchestrator) partitions(ctx context.Context) error {
	const interval = time.Hour
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if made, err := o.store.EnsurePartitions(ctx, partitionDays); err != nil && ctx.Err() == nil {
			o.log.Warn("creating the ledger's partitions failed; retried in an hour, rows go to the default partition until then", zap.Error(err))
		} else if made > 0 {
			o.log.Info("created partitions of the ledger", zap.Int("partitions", made))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Systems are the event systems.
func (o *Orchestrator) Systems() []*coordinator.EventSystem {
	return []*coordinator.EventSystem{o.apply, o.readiness}
}

// Reload applies changed settings to the running event systems, each its own. An error
// of one does not affect the other.
func (o *Orchestrator) Reload(ctx context.Context, orchestration, readiness coordinator.Settings) error {
	return errors.Join(o.apply.Reload(ctx, orchestration), o.readiness.Reload(ctx, readiness))
}

// Mode is the deployment mode of the orchestration event system.
func (o *Orchestrator) Mode() deploymode.Mode { return o.apply.Mode() }

// Health reports the event systems by name.
func (o *Orchestrator) Health() map[string]coordinator.Health {
	return map[string]coordinator.Health{"orchestration": o.apply.Health(), "task_readiness": o.readiness.Health()}
}

// Loops reports the supervised loops.
func (o *Orchestrator) Loops() []lifecycle.LoopHealth {
	return []lifecycle.LoopHealth{o.waiters.loop.Health(), o.followers.loop.Health(), o.revoked.loop.Health(), o.keep.Health(), o.beat.Health(), o.recovery.Health()}
}

// Saturation is how full the command channel is, 0 to 1.
func (o *Orchestrator) Saturation() float64 { return o.processor.Saturation() }

// Ready reports whether the orchestrator can serve, and if not why.
func (o *Orchestrator) Ready() (ready bool, reason string) {
	for _, system := range []*coordinator.EventSystem{o.apply, o.readiness} {
		if ready, reason := system.Ready(); !ready {
			return false, reason
		}
	}
	for _, loop := range o.Loops() {
		if loop.Dead() {
			return false, "loop " + loop.Name + " is not running"
		}
	}
	return true, ""
}

// Name implements lifecycle.Service.
func (o *Orchestrator) Name() string { return "orchestrator" }
