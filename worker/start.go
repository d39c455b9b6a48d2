package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/relay"
	"github.com/tasker-go/tasker/signal/wal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// parts are the components of a running worker.
type parts struct {
	store     *store.Store // its own; nil if configured
	board     board
	sender    *signal.Sender // its own publisher; nil if configured
	publisher signal.Publisher
	engine    *engine
	txPool    *txPool
	refused   []store.VersionConflict // templates; set before the loops run
	queues    *queues
	heartbeat *heartbeat
	beats     *lifecycle.Loop
	watch     *lifecycle.Loop
	system    *coordinator.EventSystem
}

// Start connects, registers the templates and begins to work; ctx bounds only the start.
// The database must answer and have the schema of this program. After an error nothing
// runs, and Start may be repeated. After Stop it returns an error.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	switch {
	case w.state != stateIdle:
		defer w.mu.Unlock()
		return fmt.Errorf("start the worker: it is %s", w.state)
	case len(w.problems) > 0:
		defer w.mu.Unlock()
		return fmt.Errorf("start the worker: %w", errors.Join(w.problems...))
	}
	w.state = stateStarting
	templates := slices.Collect(maps.Values(w.templates))
	w.mu.Unlock()

	p := &parts{}
	err := w.assemble(ctx, p, templates)
	w.mu.Lock()
	if err == nil {
		w.state, w.parts = stateRunning, p
		w.mu.Unlock()
		if w.bus.Subscribed() { // perhaps only after the topics were chosen
			p.queues.kick()
		}
		w.cfg.Logger.Info("worker started", zap.String("worker_id", w.cfg.WorkerID), zap.Stringer("worker_uuid", w.ID()),
			zap.Strings("namespaces", p.queues.wanted()), zap.Strings("missing", p.queues.missing()),
			zap.Int("permits", w.cfg.MaxConcurrent), zap.Int("handlers", len(w.registry.names())))
		return nil
	}
	w.mu.Unlock()
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if p.heartbeat != nil {
		if err := p.board.Stopped(undo, w.ID()); err != nil {
			w.cfg.Logger.Debug("not signed off", zap.Error(err))
		}
	}
	p.close(undo, w.cfg.Logger)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = stateIdle
	return fmt.Errorf("start the worker: %w", err)
}

// assemble creates and starts the parts from the bottom up. After an error the caller
// closes what it has created.
func (w *Worker) assemble(ctx context.Context, p *parts, templates []*workflow.Template) error {
	if err := w.openStore(ctx, p); err != nil {
		return err
	}
	if err := w.openPublisher(ctx, p); err != nil {
		return err
	}
	if err := w.registerTemplates(ctx, p, templates); err != nil {
		return err
	}
	names, err := w.namespaces(templates)
	if err != nil {
		return err
	}
	p.txPool = &txPool{cfg: w.cfg.Transactions, store: w.rows(p), announce: w.announcement()}
	p.queues = newQueues(p.board, names, w.cfg.Every, w.chain.offers, w.cfg.Logger)
	p.queues.fast = w.bus.Subscribed
	if _, err := p.queues.refresh(ctx); err != nil {
		return err
	}
	shared, err := w.listener(p)
	if err != nil {
		return err
	}
	w.build(p, shared)
	if w.cfg.Exclusive {
		if err := w.takeWorkerID(ctx, p, w.cfg.HeartbeatInterval/2); err != nil {
			return fmt.Errorf("acquire the worker_id: %w", err)
		}
		p.heartbeat.alone = true
		p.heartbeat.take = func(ctx context.Context) error { return w.takeWorkerID(ctx, p, 0) }
	}
	// The fleet must know the worker before its first claim.
	if err := p.heartbeat.beat(ctx); err != nil {
		return fmt.Errorf("register the worker: %w", err)
	}
	if err := w.checkTxPool(ctx, p); err != nil {
		return err
	}
	if err := errors.Join(p.beats.Start(ctx), p.watch.Start(ctx), p.system.Start(ctx)); err != nil {
		return err
	}
	p.engine.publishing.start()
	w.bus.Start()
	return nil
}

// checkTxPool checks that a configured pool leads to the database in which the worker has
// just registered.
func (w *Worker) checkTxPool(ctx context.Context, p *parts) error {
	if w.cfg.Transactions.Pool == nil {
		return nil
	}
	pool, err := p.txPool.open()
	if err != nil {
		return err
	}
	return pool.Check(ctx, w.ID())
}

func (w *Worker) openStore(ctx context.Context, p *parts) error {
	if p.board = w.board; p.board != nil {
		return p.board.CheckSchema(ctx)
	}
	s := w.cfg.Store
	if s == nil {
		var err error
		s, err = store.Open(ctx, store.Options{
			URL: w.cfg.DatabaseURL, ApplicationName: "tasker-worker", MaxConns: w.cfg.MaxConnections,
			SignalsInTransaction: w.inWAL(),
			NotifyAfterCommit:    w.cfg.EventSource == nil && w.cfg.Publisher == nil && w.cfg.EventSourceName == notify.Name,
			Observe: func(flow string, took time.Duration, _ error) {
				w.cfg.Metrics.StoreStatement.WithLabelValues(flow).Observe(took.Seconds())
			},
		})
		if err != nil {
			return err
		}
		p.store = s
	}
	p.board = s
	return s.CheckSchema(ctx)
}

func (w *Worker) sourceName() string {
	if w.cfg.EventSource != nil {
		return w.cfg.EventSource.Name()
	}
	return w.cfg.EventSourceName
}

// inWAL reports whether signals are sent through the WAL.
func (w *Worker) inWAL() bool {
	name := w.sourceName()
	return name == wal.Name || name == relay.Name
}

// rows returns the store of the worker, its own or the configured one.
func (w *Worker) rows(p *parts) *store.Store {
	if p.store != nil {
		return p.store
	}
	return w.cfg.Store
}

// transport returns the way of sending that matches the event source.
func (w *Worker) transport(p *parts) signal.Transport {
	s := w.rows(p)
	if w.inWAL() {
		return wal.NewTransport(s.Execer())
	}
	return notify.NewTransport(s.Execer())
}

func (w *Worker) openPublisher(ctx context.Context, p *parts) error {
	if p.publisher = w.cfg.Publisher; p.publisher != nil {
		return nil
	}
	p.sender = signal.NewSender(w.transport(p), signal.SenderConfig{Logger: w.cfg.Logger, OnRestart: w.restarted, OnError: func(err error) {
		w.cfg.Metrics.SignalsFailed.Inc()
		w.cfg.Logger.Debug("signals not sent", zap.Error(err))
	}})
	p.publisher = p.sender
	return p.sender.Start(ctx)
}

func (w *Worker) registerTemplates(ctx context.Context, p *parts, templates []*workflow.Template) error {
	if len(templates) == 0 {
		return nil
	}
	resolved := make([]*workflow.Template, len(templates))
	for i, t := range templates {
		resolved[i] = t.Resolve(w.cfg.Environment)
		if names := w.publishers.missing(resolved[i]); len(names) > 0 {
			if w.cfg.DomainEvents.UnknownPublisher == PublishError {
				return fmt.Errorf("template %s/%s:%s: publishers %q are not registered in this worker", t.Namespace, t.Name, t.Version, names)
			}
			w.cfg.Logger.Warn("a registered template names publishers that this worker does not have", zap.String("template", t.Name),
				zap.Strings("publishers", names), zap.String("published_instead", string(w.cfg.DomainEvents.UnknownPublisher)))
		}
		for s := range resolved[i].Steps {
			step := &resolved[i].Steps[s]
			if step.Kind.ByEngine() {
				continue // it has no handler
			}
			if err := w.CanResolve(step.Handler); err != nil {
				w.cfg.Logger.Warn("a step of a registered template has no handler in this worker",
					zap.String("template", t.Name), zap.String("step", resolved[i].Steps[s].Name), zap.Error(err))
			}
		}
	}
	registered, err := p.board.RegisterTemplates(ctx, store.Registrant{ID: w.cfg.WorkerID, Environment: w.cfg.Environment, Immutable: w.cfg.Immutable}, resolved)
	if err != nil {
		return err
	}
	for _, c := range registered.Refused {
		w.cfg.Logger.Warn(store.RefusedTemplate, zap.Stringer("template", c))
	}
	for _, c := range registered.Replaced {
		w.cfg.Logger.Warn(store.ReplacedTemplate, zap.Stringer("template", c))
	}
	p.refused = registered.Refused
	p.publisher.Publish(signal.Signal{Topic: signal.TopicControl})
	return nil
}

// namespaces returns the configured ones, else those of the templates.
func (w *Worker) namespaces(templates []*workflow.Template) ([]string, error) {
	if w.cfg.Every || len(w.cfg.Namespaces) > 0 {
		return w.cfg.Namespaces, nil
	}
	var names []string
	for _, t := range templates {
		names = append(names, t.Namespace)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		return nil, errors.New("no namespaces: set Namespaces or Every, or register a template")
	}
	return names, nil
}

// listener returns the configured one, or one of the worker's own; nil: the worker polls.
func (w *Worker) listener(p *parts) (*listener.Listener, error) {
	if w.cfg.Events.Listener != nil {
		return w.cfg.Events.Listener, nil
	}
	source, err := w.source(p)
	if source == nil || err != nil {
		return nil, err
	}
	return listener.New(listener.Config{Source: source, Logger: w.cfg.Logger, Metrics: w.cfg.Metrics}), nil
}

func (w *Worker) source(p *parts) (signal.Source, error) {
	url := w.cfg.ListenerURL
	switch {
	case w.cfg.EventSource != nil:
		return w.cfg.EventSource, nil
	case w.cfg.EventSourceName == "none" || url == "":
		return nil, nil //nolint:nilnil // no source is a choice: the worker polls
	case w.cfg.EventSourceName == wal.Name:
		return wal.New(wal.Config{DSN: url, ApplicationName: "tasker-worker-listener", Server: w.rows(p).Execer()}, w.transport(p))
	case w.cfg.EventSourceName == relay.Name:
		return relay.NewSource(notify.Config{DSN: url, ApplicationName: "tasker-worker-listener"}, w.transport(p))
	}
	return notify.New(notify.Config{DSN: url, ApplicationName: "tasker-worker-listener"}, w.transport(p))
}

// build makes the parts that find work and hold it.
func (w *Worker) build(p *parts, shared *listener.Listener) {
	c, log := w.cfg, w.cfg.Logger
	cfg := engineConfig{
		MaxConcurrent: c.MaxConcurrent, Prefetch: c.Prefetch, MaxResultBytes: c.MaxResultBytes,
		HandlerTimeout: c.HandlerTimeout, Lease: c.Lease, LeaseGrace: c.LeaseGrace, Tags: c.Tags, Report: c.Report, Checkpoint: c.Checkpoint, Isolation: c.Isolation,
		DomainEvents: c.DomainEvents, Publishers: w.publishers, Bus: w.bus, WorkerID: c.WorkerID,
	}
	if rows := w.rows(p); rows != nil && !c.Report.Only {
		cfg.Settler = settle.New(settle.Config{Store: rows, Actor: c.WorkerID, Publisher: p.publisher, Logger: log, Metrics: c.Metrics})
		if w.around != nil {
			cfg.Settler = w.around(cfg.Settler)
		}
	}
	p.engine = newEngine(cfg, w.id, p.board, w.chain, p.queues, p.publisher, log, c.Metrics)
	p.engine.txPool = p.txPool

	events := c.Events
	p.queues.listened = p.queues.topics()
	events.Mode, events.Listener, events.Topics = c.Mode, shared, p.queues.listened
	events.Take = p.engine.receive
	events.Logger, events.Metrics = log, c.Metrics
	events.OnFatal = w.onFatal(events.OnFatal)
	p.system = coordinator.New(events, p.engine)
	p.engine.publishing.replicas.listens = func() bool { return p.system.Mode().Listens() }
	p.engine.looks = func() bool { return p.system.Mode() != deploymode.Disabled }
	p.engine.wake = func() { p.system.Wake(coordinator.ReasonContinue) }

	p.heartbeat = &heartbeat{e: p.engine, interval: c.HeartbeatInterval, describe: func() store.Daemon {
		d := w.daemon(p.system.Mode(), p.queues.wanted())
		d.Refused, d.Callables, d.Handlers = p.refused, p.queues.callables(), w.registry.names()
		return d
	}, onBeat: p.countSignals(c.Metrics), soon: make(chan struct{}, 1), fatal: events.OnFatal}
	p.engine.beat = p.heartbeat.beatSoon
	p.beats = w.loop("worker-heartbeat", p.heartbeat.run)
	p.watch = w.loop("worker-namespaces", func(ctx context.Context) error {
		return p.queues.watch(ctx, c.HeartbeatInterval, p.topicsChanged)
	})
}

func (w *Worker) loop(name string, run func(ctx context.Context) error) *lifecycle.Loop {
	return lifecycle.NewLoop(lifecycle.LoopConfig{Name: name, Run: run, Logger: w.cfg.Logger, OnRestart: w.restarted})
}

func (w *Worker) restarted(loop string) { w.cfg.Metrics.LoopRestarts.WithLabelValues(loop).Inc() }

func (w *Worker) daemon(mode deploymode.Mode, namespaces []string) store.Daemon {
	shown := string(mode)
	w.mu.Lock()
	if w.state == stateDraining {
		shown = store.ModeDraining
	}
	address := w.address
	w.mu.Unlock()
	return store.Daemon{UUID: w.ID(), ID: w.cfg.WorkerID, Hostname: hostname(), Address: address, Version: w.cfg.Version,
		Mode: shown, Namespaces: namespaces, Tags: w.cfg.Tags}
}

// onFatal returns a function that reports a fatal error to Run and calls also.
func (w *Worker) onFatal(also func(error)) func(error) {
	return func(err error) {
		select {
		case w.fatal <- err:
		default:
		}
		if also != nil {
			also(err)
		}
	}
}

// topicsChanged updates the listener's topics and requests a look at everything.
func (p *parts) topicsChanged(ctx context.Context, topics []signal.Topic) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := p.system.SetTopics(ctx, topics); err != nil {
		p.engine.log.Debug("the listener has not applied the topics yet", zap.Error(err))
	}
	p.system.Wake(coordinator.ReasonCatchUp)
	p.engine.beat() // reports the new offer
}
