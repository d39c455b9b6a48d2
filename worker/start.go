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
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/ends"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// parts are the components of a running worker.
type parts struct {
	store      *store.Store // its own; nil if configured
	board      engine.Board
	transports map[string]signal.Transport // its own, by source
	senders    []sender                    // its own publisher over each; none if one is configured
	publisher  signal.Publisher
	engine     *engine.Engine
	publishing *publishing
	refused    []store.VersionConflict // templates; set before the loops run
	system     *coordinator.EventSystem
}

// sender sends signals over a source.
type sender struct {
	*pending.Sender
	source string
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

	p := &parts{transports: map[string]signal.Transport{}}
	err := w.assemble(ctx, p, templates)
	w.mu.Lock()
	if err == nil {
		w.state, w.parts = stateRunning, p
		w.mu.Unlock()
		if w.bus.Subscribed() { // perhaps only after the topics were chosen
			p.engine.Kick()
		}
		wanted, missing := p.engine.Namespaces()
		w.cfg.Logger.Info("worker started", zap.String("worker_id", w.cfg.WorkerID), zap.Stringer("worker_uuid", w.ownUUID()),
			zap.Strings("namespaces", wanted), zap.Strings("missing", missing),
			zap.Int("permits", w.cfg.MaxConcurrent), zap.Int("handlers", len(w.registry.names())))
		return nil
	}
	w.mu.Unlock()
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if p.system != nil {
		if err := p.engine.SignOff(undo); err != nil {
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
	for _, step := range []func() error{
		func() error { return w.openStore(ctx, p) },
		func() error { return w.openPublisher(ctx, p) },
		func() error { return w.registerTemplates(ctx, p, templates) },
		func() error { return w.build(ctx, p, templates) },
		func() error { return p.engine.Start(ctx) },
		func() error { return p.system.Start(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	p.publishing.start()
	w.bus.Start()
	return nil
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
			SignalsInTransaction: w.over(wal.Name, relay.Name),
			NotifyAfterCommit:    w.cfg.EventSource == nil && w.cfg.Publisher == nil && w.over(notify.Name),
			Publish:              w.afterCommits(p),
			Unpredicted:          w.cfg.Metrics.StepsUnpredicted.Inc,
			OnRejected:           aside.Left(w.cfg.Logger, w.cfg.Metrics),
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
	if err := s.CheckSchema(ctx); err != nil || p.store == nil {
		return err
	}
	return s.CheckSession(ctx)
}

// sources are those that signals are sent over: the event source, and the one that the fleet
// moves away from.
func (w *Worker) sources() []string {
	switch {
	case w.cfg.EventSource != nil:
		return []string{w.cfg.EventSource.Name()}
	case w.cfg.movingFrom != "":
		return []string{w.cfg.EventSourceName, w.cfg.movingFrom}
	}
	return []string{w.cfg.EventSourceName}
}

// over reports whether signals are sent over one of the sources.
func (w *Worker) over(sources ...string) bool {
	return slices.ContainsFunc(w.sources(), func(s string) bool { return slices.Contains(sources, s) })
}

// afterCommits publishes the signals of the store's commits where it cannot send them itself.
func (w *Worker) afterCommits(p *parts) func(signals ...signal.Signal) {
	if !w.over(amqp.Name, redis.Name) {
		return nil
	}
	return func(signals ...signal.Signal) {
		if w.cfg.Publisher != nil {
			w.cfg.Publisher.Publish(signals...)
		}
		for _, s := range p.senders {
			if s.source == amqp.Name || s.source == redis.Name {
				s.Publish(signals...)
			}
		}
	}
}

// rows returns the store of the worker, its own or the configured one.
func (w *Worker) rows(p *parts) *store.Store {
	if p.store != nil {
		return p.store
	}
	return w.cfg.Store
}

// ends makes the ends of the sources.
func (w *Worker) ends(p *parts) *ends.Config {
	const name = "tasker-worker-listener"
	exec := w.rows(p).Execer()
	cfg := &ends.Config{Exec: exec, AMQP: w.cfg.broker, Redis: w.cfg.redis,
		Notify: notify.Config{DSN: w.cfg.ListenerURL, ApplicationName: name},
		WAL:    wal.Config{DSN: w.cfg.ListenerURL, ApplicationName: name, Server: exec}}
	cfg.AMQP.ConnectionName = "tasker-worker"
	return cfg
}

// transport returns what sends over a source.
func (w *Worker) transport(p *parts, source string) (signal.Transport, error) {
	if t := p.transports[source]; t != nil {
		return t, nil
	}
	t, err := w.ends(p).Transport(source)
	if err == nil {
		p.transports[source] = t
	}
	return t, err
}

func (w *Worker) openPublisher(ctx context.Context, p *parts) error {
	if p.publisher = w.cfg.Publisher; p.publisher != nil {
		return nil
	}
	var all ends.Publishers
	for _, source := range w.sources() {
		transport, err := w.transport(p, source)
		if err != nil {
			return err
		}
		own := sender{source: source}
		own.Sender = pending.NewSender(transport, pending.SenderConfig{Logger: w.cfg.Logger, OnRestart: w.cfg.Metrics.Restarted, OnError: func(err error) {
			w.cfg.Metrics.SignalsFailed.Inc()
			w.cfg.Logger.Debug("signals not sent", zap.Error(err))
		}})
		if err := own.Start(ctx); err != nil {
			return err
		}
		p.senders, all = append(p.senders, own), append(all, own)
	}
	p.publisher = all
	return nil
}

func (w *Worker) registerTemplates(ctx context.Context, p *parts, templates []*workflow.Template) error {
	if len(templates) == 0 {
		return nil
	}
	resolved := make([]*workflow.Template, len(templates))
	for i, t := range templates {
		resolved[i] = t.Resolve(w.cfg.Environment)
		if names := w.publishers.missing(resolved[i]); len(names) > 0 {
			if w.cfg.DomainEvents.UnknownPublisher == publishError {
				return fmt.Errorf("template %s/%s:%s: publishers %q are not registered in this worker", t.Namespace, t.Name, t.Version, names)
			}
			w.cfg.Logger.Warn("a registered template names publishers that this worker does not have", zap.String("template", t.Name),
				zap.Strings("publishers", names), zap.String("published_instead", w.cfg.DomainEvents.UnknownPublisher))
		}
		for s := range resolved[i].Steps {
			step := &resolved[i].Steps[s]
			if step.Kind.ByEngine() {
				continue // it has no handler
			}
			if _, err := w.chain.resolve(resolved[i].Namespace, step.Handler); err != nil {
				w.cfg.Logger.Warn("a step of a registered template has no handler in this worker",
					zap.String("template", t.Name), zap.String("step_name", resolved[i].Steps[s].Name), zap.Error(err))
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
	for _, l := range registered.Limits {
		w.cfg.Logger.Warn(store.KeptLimit, zap.String("reason", l))
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
	cfg := listener.Config{Source: w.cfg.EventSource, Logger: w.cfg.Logger, Metrics: w.cfg.Metrics}
	if cfg.Source == nil {
		var found []signal.Source
		for _, source := range w.sources() {
			one, err := w.source(p, source)
			if err != nil {
				return nil, err
			}
			if one != nil {
				found = append(found, one)
			}
		}
		if len(found) == 0 {
			return nil, nil //nolint:nilnil // no source is a choice: the worker polls
		}
		if cfg.Source = found[0]; len(found) > 1 {
			cfg.From = found[1]
		}
	}
	return listener.New(cfg), nil
}

func (w *Worker) source(p *parts, source string) (signal.Source, error) {
	if source == "none" || w.cfg.ListenerURL == "" && source != amqp.Name && source != redis.Name {
		return nil, nil //nolint:nilnil // there is none
	}
	transport, err := w.transport(p, source)
	if err != nil {
		return nil, err
	}
	return w.ends(p).Source(source, transport)
}

// build makes the parts that find work and run it.
func (w *Worker) build(ctx context.Context, p *parts, templates []*workflow.Template) error {
	namespaces, err := w.namespaces(templates)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		w.cfg.Metrics.Known("namespace", namespace)
	}
	c, run := &w.cfg, &runner{cfg: &w.cfg, chain: w.chain, board: p.board}
	fatal := w.onFatal(c.Events.OnFatal)
	logs, err := c.Logs.engine()
	if err != nil {
		return err
	}
	p.engine = engine.New(engine.Config{
		ID: &w.id, Board: p.board, Store: w.rows(p), TxPool: store.WorkPoolOptions{Pool: c.Transactions.Pool, MaxConns: c.Transactions.MaxConnections},
		Announce: w.announcement(), Publisher: p.publisher, Settler: w.settler(p), New: run.newExecution,
		Namespaces: namespaces, Every: c.Every, Tags: c.Tags, Can: w.chain.offers, Fast: w.bus.Subscribed, OnTopics: w.topicsChanged(p),
		Looks: func() bool { return p.system.Mode() != deploymode.Disabled }, Wake: func() { p.system.Wake(coordinator.ReasonContinue) }, Recovered: func() { p.system.Recovered() },
		MaxConcurrent: c.MaxConcurrent, Prefetch: c.Prefetch, HandlerTimeout: c.HandlerTimeout,
		Logs: logs, Inputs: engine.Inputs(c.Inputs), Lease: c.Lease, LeaseGrace: c.LeaseGrace, HeartbeatInterval: c.HeartbeatInterval,
		Report: engine.Report(c.Report), SaveTimeout: c.Checkpoint.SaveTimeout, MaxHistory: c.Checkpoint.MaxHistory,
		WorkerID: c.WorkerID, Exclusive: c.Exclusive, ReclaimGrace: c.ReclaimGrace, Fatal: fatal, Describe: func() store.Daemon { return w.describe(p) }, OnBeat: p.countSignals(c.Metrics),
		Logger: c.Logger, Metrics: c.Metrics, Tracer: c.Tracer,
	})
	topics, err := p.engine.Open(ctx)
	if err != nil {
		return err
	}
	shared, err := w.listener(p)
	if err != nil {
		return err
	}
	replicas := newReplicas(w, p.publisher)
	run.publishing = newPublishing(p.engine.Context(), w, replicas)
	p.publishing = run.publishing
	events := c.Events
	events.Mode, events.Listener, events.Topics, events.OnFatal = c.Mode, shared, topics, fatal
	events.Take = func(received signal.Signal) bool {
		return p.engine.Receive(received) || replicas.take(received)
	}
	events.Logger, events.Metrics = c.Logger, c.Metrics
	p.system = coordinator.New(events, p.engine)
	replicas.listens = func() bool { return p.system.Mode().Listens() }
	return nil
}

// settler returns what decides about successes; nil: they are reported.
func (w *Worker) settler(p *parts) engine.Settler {
	rows := w.rows(p)
	if rows == nil || w.cfg.Report.Only {
		return nil
	}
	s := engine.Settler(settle.New(settle.Config{Store: rows, Actor: w.cfg.WorkerID, Publisher: p.publisher, Logger: w.cfg.Logger, Metrics: w.cfg.Metrics, Tracer: w.cfg.Tracer}))
	if w.around != nil {
		s = w.around(s)
	}
	return s
}

// describe returns what the fleet is to know of the worker and the engine does not.
func (w *Worker) describe(p *parts) store.Daemon {
	d := store.Daemon{Hostname: hostname(), Version: w.cfg.Version, Mode: string(p.system.Mode()), Refused: p.refused, Handlers: w.registry.names(),
		Signals: store.SignalSources{Source: w.sources()[0], MovingFrom: w.cfg.movingFrom, Unheard: p.system.Health().Unheard}}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == stateDraining {
		d.Mode = store.ModeDraining
	}
	d.Address = w.address
	return d
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

// topicsChanged returns a function that updates the listener's topics and requests a look
// at everything.
func (w *Worker) topicsChanged(p *parts) func(ctx context.Context, topics []signal.Topic) {
	return func(ctx context.Context, topics []signal.Topic) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := p.system.SetTopics(ctx, topics); err != nil {
			w.cfg.Logger.Debug("the listener has not applied the topics yet", zap.Error(err))
		}
		p.system.Wake(coordinator.ReasonCatchUp)
	}
}
