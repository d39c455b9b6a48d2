package daemon

import (
	"context"
	"errors"
	"fmt"
	_ "time/tzdata" // the zones of schedules, for machines without them

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/api/grpc"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/backpressure"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Orchestrator is a wired orchestrator daemon.
type Orchestrator struct {
	*shared
	engine *orchestration.Orchestrator
	// registered: the templates of the search paths are in the database.
	registered  bool
	depth       *queueDepth
	autoscaling *autoscaling
	sweeps      *sweep.Runner
	admission   *backpressure.Admission
	queues      *taskmaster.Service
	lending     *lending // nil: there are no sessions
}

// newOrchestrator connects to the database, loads the configured templates, and wires the
// daemon. Nothing runs before Start.
func newOrchestrator(ctx context.Context, loaded *config.Loaded, near *neighbours, log *zap.Logger) (*Orchestrator, error) {
	d := &Orchestrator{}
	err := assemble(ctx, loaded, nil, "tasker-orchestrator", orchestratorBuffers(loaded.Orchestration), near, log, func(s *shared) error {
		d.shared = s
		return d.wire(ctx, loaded)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Orchestrator) wire(ctx context.Context, c *config.Loaded) error {
	o := c.Orchestration
	self, err := introduce("", string(o.EventSystems.Orchestration.DeploymentMode))
	if err != nil {
		return err
	}
	self.Signals = store.SignalSources{Source: c.Common.Signals.EventSource, MovingFrom: c.Common.Signals.MovingFrom}
	if _, err := patiently(ctx, d.log.Named("store"), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.registerTemplates(ctx, c.Common, self.ID)
	}); err != nil {
		return err
	}
	d.registered = true
	d.depth = newQueueDepth(d.store.QueueDepth, d.unserved, d.store.OldestClaimable, c.Common.Queues.PGMQ.QueueDepthThresholds, d.metrics)
	d.registry.MustRegister(d.depth)
	d.autoscaling = newAutoscaling(d.store.Loads, o, c.Common.Queues.PGMQ.QueueDepthThresholds.OverflowThreshold+1, d.metrics.WorkersDesired)
	d.registry.MustRegister(d.autoscaling)
	if d.relay, err = d.signals.newRelay(d.log.Named("signals"), d.metrics); err != nil {
		return err
	}
	engine := d.engineConfig(c, self, d.signals.listener)
	engine.PublishAfter = d.signals.publishAfter
	if d.engine, err = orchestration.New(engine); err != nil {
		return err
	}
	if d.sweeps, err = sweep.New(d.sweepConfig(o, self)); err != nil {
		return err
	}
	if d.queues, err = taskmaster.New(d.queueConfig(c, engine, self)); err != nil {
		return err
	}
	d.admission = backpressure.New(d.admissionConfig(c))
	d.services = []lifecycle.Service{d.counting, d.outages}
	if d.relay != nil {
		d.services = append(d.services, d.relay) // it ends after all senders
	}
	senders, _ := d.signals.services()
	d.services = append(append(d.services, senders...), d.engine, d.queues, d.sweeps, d.admission)
	if o.Sessions.Enabled {
		if d.lending, err = d.newLending(c, self.ID, engine); err != nil {
			return err
		}
		d.engine.ServeFirst(d.lending.worker.Host())
		d.services = append(d.services, workerService{d.lending.worker, d.log})
	}
	if err := d.wireBridges(c, self.ID); err != nil {
		return err
	}
	if !o.Web.Enabled && !o.GRPC.Enabled {
		return nil
	}
	return d.serve(c, self, engine.Rules)
}

// engineConfig completes the settings of the engine.
func (d *Orchestrator) engineConfig(c *config.Loaded, self store.Daemon, shared *listener.Listener) orchestration.Config {
	cfg := orchestration.Configure(c)
	cfg.Store, cfg.Publisher, cfg.Daemon = d.store, d.publisher, self
	cfg.ReadinessBreaker = d.breakers.Breaker(breaker.TaskReadiness)
	cfg.Recovered = func() { d.queues.Recovered() }
	for _, system := range []*coordinator.Config{&cfg.Orchestration, &cfg.Readiness} {
		system.Listener, system.OnFatal = shared, d.fail
	}
	cfg.Logger, cfg.Metrics, cfg.Tracer = d.log.Named("engine"), d.metrics, d.tracer
	return cfg
}

// queueConfig describes the plain task queues. Their waiting claims follow the mode of the
// orchestration event system.
func (d *Orchestrator) queueConfig(c *config.Loaded, engine orchestration.Config, self store.Daemon) taskmaster.Config {
	t := c.Orchestration.Taskmaster
	return taskmaster.Config{Store: d.store, Engine: d.engine, Publisher: d.publisher, System: engine.Orchestration,
		Liveness:  store.LivenessLimits{Stale: t.Heartbeat.StaleThreshold, Dead: t.Heartbeat.DeadThreshold},
		BaseDelay: t.Retry.BaseDelay, MaxWaiting: t.MaxWaitingClaims, Share: c.Orchestration.Web.Auth.PrincipalShare, Actor: self.ID, Logger: d.log.Named("queues"), Metrics: d.metrics}
}

func orchestratorBuffers(o config.Orchestration) signalBuffers {
	c := o.MPSCChannels
	return signalBuffers{connection: c.EventListeners.PGMQEventBufferSize, system: c.EventSystems.EventChannelBufferSize}
}

// admissionConfig says which new tasks are rejected.
func (d *Orchestrator) admissionConfig(c *config.Loaded) backpressure.Config {
	return backpressure.Config{
		Depth: d.depth.measure, Overflow: func() int { return d.depth.judgedBy().OverflowThreshold },
		ShowOnly: !c.Orchestration.Backpressure.RefuseTasks, Drained: d.drained,
		Channels:       []backpressure.Channel{{Name: "orchestrator", Saturation: d.engine.Saturation}},
		ChannelWarning: c.Common.MPSCChannels.OverflowPolicy.LogWarningThreshold,
		Blocked:        d.breakers.Breaker(breaker.Web).Wait, Logger: d.log.Named("admission"), Metrics: d.metrics,
	}
}

// drained counts the claims of the whole fleet.
func (d *Orchestrator) drained(ctx context.Context) (total uint64, ok bool) {
	total, err := d.store.ClaimsEver(ctx)
	return total, err == nil
}

// serve makes the servers.
func (d *Orchestrator) serve(c *config.Loaded, self store.Daemon, rules workflow.Rules) (err error) {
	o := c.Orchestration
	cfg, err := d.webConfig(o.Web, o.GRPC, d.loaded.Environment)
	if err != nil {
		return err
	}
	api := d.api(c, self, rules)
	if d.lending != nil {
		api.Sessions = d.lending.hub
	}
	d.server, err = rest.NewOrchestrator(cfg, api)
	if err != nil || !o.GRPC.Enabled {
		return err
	}
	settings, err := d.grpcConfig(o.GRPC, o.Web)
	if err != nil {
		return err
	}
	settings.Sessions = d.lending != nil
	d.grpc, err = grpc.NewOrchestrator(settings, d.server)
	return err
}

// api has the parts of the API.
func (d *Orchestrator) api(c *config.Loaded, self store.Daemon, rules workflow.Rules) rest.Orchestrator {
	o := c.Orchestration
	return rest.Orchestrator{
		Engine: d.supervised(), Queues: d.queues,
		Compat: rest.Compat{DistributedTaskQueue: o.Compat.DistributedTaskQueue, TaskQueueEngine: o.Compat.TaskQueueEngine}, Store: d.store, Guard: d.breakers.Breaker(breaker.Web), ID: self.ID,
		RegisterTemplate: d.registerTemplate, Verify: d.verify(rules), RunSweep: d.sweeps.RunNow, Loaded: d.templatesLoaded, Checks: d.checks,
		Thresholds: sweep.Thresholds(o), MaxEventConsumers: o.Events.MaxConsumers, MaxEventStreams: o.Events.MaxStreams,
		NewEvents: d.engine.NewEvents, Metrics: d.metrics, Breakers: d.breakers, Admission: d.admission,
		Autoscaling: d.autoscaling.advise, Config: d.shownConfig(c), AnalyticsAge: c.Common.Cache.AnalyticsTTL,
	}
}

// templatesLoaded and checks show the daemon to the API.
func (d *Orchestrator) templatesLoaded() (loaded bool, reason string) {
	if !d.registered {
		return false, "those of task_templates.search_paths are not registered"
	}
	return true, ""
}

func (d *Orchestrator) checks(ctx context.Context) map[string]telemetry.Check {
	checks := map[string]telemetry.Check{"queue_depth": d.depth.check(ctx), "steps_without_worker": d.depth.checkWorkers(ctx), "sweeps": d.sweeps.Check(),
		"circuit_breakers": d.breakers.Check()}
	if d.relay != nil {
		checks["signal_relay"] = relayCheck(d.relay.Health())
	}
	if d.lending != nil {
		checks["step_processing"] = stepProcessing(d.lending.worker.Health())
	}
	return d.topology.addTo(ctx, checks)
}

// unserved looks for steps that no live worker can run.
func (d *Orchestrator) unserved(ctx context.Context, limit int) ([]store.Unserved, error) {
	return d.store.Unserved(ctx, rest.FleetLive, limit)
}

// verify replays the ledger of one task for the API.
func (d *Orchestrator) verify(rules workflow.Rules) func(context.Context, uuid.UUID) ([]string, error) {
	return func(ctx context.Context, task uuid.UUID) ([]string, error) {
		report, err := d.store.CheckTask(ctx, rules, task)
		if err != nil {
			return nil, err
		}
		problems := make([]string, 0, len(report.Violations))
		for _, v := range report.Violations {
			problems = append(problems, v.Problem)
		}
		return problems, nil
	}
}

// registerTemplate registers a template that an operator has sent.
func (d *Orchestrator) registerTemplate(ctx context.Context, t *workflow.Template, actor string) (store.Registered, error) {
	by := store.Registrant{ID: actor, Environment: d.loaded.Environment, Immutable: store.Immutability(d.loaded.Common.TaskTemplates.Immutable)}
	registered, err := d.store.RegisterTemplates(ctx, by, []*workflow.Template{t.Resolve(d.loaded.Environment)})
	for _, l := range registered.Limits {
		d.log.Warn(store.KeptLimit, zap.String("reason", l))
	}
	if err == nil {
		d.signals.over().Publish(signal.Signal{Topic: signal.TopicControl}) // workers of all namespaces may not know this one
	}
	return registered, err
}

// registerTemplates registers the templates of task_templates.search_paths. Paths without
// a match are fine: workers register their own templates.
func (d *Orchestrator) registerTemplates(ctx context.Context, c config.Common, by string) error {
	found, problems, err := loadTemplates(c)
	if err != nil {
		return err // with the warnings about the same files
	}
	for _, p := range problems.Warnings() {
		if p.Code == template.CodeIO {
			d.log.Debug(p.String()) // the default folder need not exist
			continue
		}
		d.log.Warn(p.String())
	}
	resolved := make([]*workflow.Template, 0, len(found))
	for _, f := range found {
		resolved = append(resolved, f.Template.Resolve(d.loaded.Environment))
	}
	registered, err := d.store.RegisterTemplates(ctx, store.Registrant{ID: by, Environment: d.loaded.Environment, Immutable: store.Immutability(c.TaskTemplates.Immutable)}, resolved)
	if err != nil {
		return err
	}
	for _, c := range registered.Refused {
		d.log.Warn(store.RefusedTemplate, zap.Stringer("template", c))
	}
	for _, c := range registered.Replaced {
		d.log.Warn(store.ReplacedTemplate, zap.Stringer("template", c))
	}
	for _, l := range registered.Limits {
		d.log.Warn(store.KeptLimit, zap.String("reason", l))
	}
	if n := len(resolved) - len(registered.Refused); n > 0 {
		d.log.Info("registered templates", zap.Int("templates", n))
	}
	return nil
}

func loadTemplates(c config.Common) ([]template.Loaded, template.Problems, error) {
	found, problems, err := template.Load(c.TaskTemplates.SearchPaths...)
	if err != nil {
		err = fmt.Errorf("load the templates of common.task_templates.search_paths: %w", err)
	}
	return found, problems, err
}

// Start runs the daemon; listeners connect in the background.
func (d *Orchestrator) Start(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	d.show(d.engine.SetAddress)
	if d.lending != nil {
		d.show(d.lending.worker.Host().SetAddress)
	}
	d.signals.over().Publish(signal.Signal{Topic: signal.TopicControl}) // templates may be new
	d.log.Info("orchestrator started", zap.String("mode", string(d.engine.Mode())), addressField(d.Addr()))
	return nil
}

// Stop stops the daemon like shared.Stop; sessions learn of it first, and report what they
// hold while their worker waits.
func (d *Orchestrator) Stop(ctx context.Context) error {
	if d.lending != nil {
		d.lending.hub.Drain()
	}
	return d.shared.Stop(ctx)
}

// Store returns the daemon's store, for programs that embed it.
func (d *Orchestrator) Store() *store.Store { return d.store }

// reload follows a changed configuration as far as that is possible without a
// new start.
func (d *Orchestrator) reload(ctx context.Context, next *config.Loaded) error {
	d.follow(next)
	d.depth.judgeBy(next.Common.Queues.PGMQ.QueueDepthThresholds)
	systems := next.Orchestration.EventSystems
	err := errors.Join(d.engine.Reload(ctx, systemSettings(systems.Orchestration), systemSettings(systems.TaskReadiness)),
		d.queues.Reload(ctx, systemSettings(systems.Orchestration)))
	if d.lending != nil {
		err = errors.Join(err, d.lending.worker.Host().Reload(ctx, systemSettings(systems.Orchestration)))
	}
	return err
}
