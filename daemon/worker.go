package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/api/grpc"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/worker"
)

// Register registers the handlers and templates of a worker before it starts.
type Register func(*worker.Worker) error

// Worker is a wired worker daemon.
type Worker struct {
	*shared
	worker   *worker.Worker
	sessions *remote.Hub
}

// newWorker connects to the database, lets register add handlers and templates, loads
// further templates from worker.template_path, and wires the daemon. Nothing runs before
// Start.
func newWorker(ctx context.Context, loaded *config.Loaded, register Register, near *neighbours, log *zap.Logger) (*Worker, error) {
	d := &Worker{}
	err := assemble(ctx, loaded, &loaded.Worker, "tasker-worker", workerBuffers(loaded.Worker), near, log, func(s *shared) error {
		d.shared = s
		return d.wire(loaded, register, near)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Worker) wire(c *config.Loaded, register Register, near *neighbours) error {
	settings := d.workerConfig(c, d.signals.listener)
	settings.Transactions.Pool = near.workPool()
	var err error
	if d.worker, err = worker.New(settings); err != nil {
		return err
	}
	if d.sessions, err = d.lend(d.worker, c.Worker.WorkerID, c.Worker.Sessions, c.Worker.Web.Auth.PrincipalShare, d.permits); err != nil {
		return err
	}
	senders, _ := d.signals.services()
	d.services = append(append([]lifecycle.Service{d.counting, d.outages}, senders...), workerService{d.worker, d.log})
	if err := register(d.worker); err != nil {
		return fmt.Errorf("register handlers: %w", err)
	}
	if err := loadTemplatesOf(d.worker, c.Worker); err != nil {
		return err
	}
	if !c.Worker.Web.Enabled && !c.Worker.GRPC.Enabled {
		return nil
	}
	return d.serve(c)
}

// permits follows the permits of all sessions. A program with handlers of its own keeps its
// limit: they need permits too.
func (d *Worker) permits(ofSessions int) {
	if len(d.worker.Health().Handlers) == 0 {
		d.worker.Limit(ofSessions)
	}
}

// serve makes the servers.
func (d *Worker) serve(c *config.Loaded) error {
	own := c.Worker
	web, err := workerWeb(own.Web)
	if err != nil {
		return err
	}
	cfg, err := d.webConfig(web, own.GRPC, d.loaded.Environment)
	if err != nil {
		return err
	}
	queues := &waiting{count: d.store.QueueDepth, oldest: d.store.OldestClaimable,
		limit: c.Common.Queues.PGMQ.QueueDepthThresholds.OverflowThreshold + 1, sampled: sampled[map[string]rest.QueueState]{now: time.Now}}
	d.server, err = rest.NewWorker(cfg, rest.Worker{
		ID: own.WorkerID, Type: own.WorkerType, Status: supervisedWorker{d.worker, d}, Database: d.store,
		Namespaces: func() []string { return d.worker.Health().Namespaces },
		Loaded:     func() (bool, string) { return templatesLoaded(d.worker.Health()) },
		Events:     d.eventMetrics, Breakers: d.breakers, Sessions: d.sessions,
		Templates: d.store, CheckHandler: d.worker.Host().CheckHandler, Tags: own.Tags, Queues: queues.measure, Config: d.shownConfig(c),
		Checks: func(ctx context.Context) map[string]telemetry.Check {
			return d.topology.addTo(ctx, map[string]telemetry.Check{"step_processing": stepProcessing(d.worker.Health()), "circuit_breakers": d.breakers.Check()})
		},
	})
	if err != nil || !own.GRPC.Enabled {
		return err
	}
	settings, err := d.grpcConfig(own.GRPC, web)
	if err != nil {
		return err
	}
	d.grpc, err = grpc.NewWorker(settings, d.server)
	return err
}

// workerWeb has the defaults of an orchestrator where a worker has no keys.
func workerWeb(w config.Web) (config.OrchestrationWeb, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return config.OrchestrationWeb{}, err
	}
	web := defaults.Orchestration.Web
	web.Web = w
	return web, nil
}

func loadTemplatesOf(w *worker.Worker, c config.Worker) error {
	if c.TemplatePath == "" {
		return nil
	}
	if err := w.LoadTemplates(c.TemplatePath); err != nil {
		return fmt.Errorf("load the templates of worker.template_path: %w", err)
	}
	return nil
}

func (d *Worker) workerConfig(c *config.Loaded, shared *listener.Listener) worker.Config {
	cfg := worker.Configure(c)
	cfg.Store, cfg.Publisher = d.store, d.publisher
	cfg.Environment, cfg.Version = d.loaded.Environment, version()
	cfg.Events.Listener, cfg.Events.OnFatal = shared, d.fail
	cfg.Report.Breaker = d.breakers.Breaker(breaker.Report)
	cfg.Logger, cfg.Metrics, cfg.Tracer = d.log.Named("worker"), d.metrics, d.tracer
	if s := c.Worker.Sessions; s.MaxSessions > 0 && (c.Worker.Web.Enabled || c.Worker.GRPC.Enabled) {
		cfg.ReclaimGrace = s.ReclaimGrace
	}
	return cfg
}

// eventMetrics returns the counts of the worker's domain events for the API.
func (d *Worker) eventMetrics() wire.EventMetrics {
	s := d.worker.Host().EventStats()
	return wire.EventMetrics{
		Router: wire.EventRouterStats{TotalRouted: s.Durable + s.Fast + s.Broadcast, DurableRouted: s.Durable, FastRouted: s.Fast,
			BroadcastRouted: s.Broadcast, FastDeliveryErrors: s.FastFailed, RoutingErrors: s.DurableFailed},
		Bus: wire.EventBusStats{TotalEventsDispatched: s.Bus.Dispatched, RustHandlerDispatches: s.Bus.Delivered, RustHandlerErrors: s.Bus.Failed,
			FFIChannelDrops: s.Bus.Dropped, RustSubscriberPatterns: s.Bus.Patterns, RustHandlerCount: s.Bus.Subscribers},
		CapturedAt: client.Time{Time: time.Now()}, WorkerID: d.worker.Health().WorkerID,
	}
}

func workerBuffers(w config.Worker) signalBuffers {
	c := w.MPSCChannels
	return signalBuffers{connection: c.EventListeners.PGMQEventBufferSize, system: c.EventSystems.EventChannelBufferSize}
}

// systems are the event systems of the worker by name.
func (d *Worker) systems() map[string]coordinator.Health {
	systems := map[string]coordinator.Health{}
	if events := d.worker.Health().Events; events != nil {
		systems["worker"] = *events
	}
	return systems
}

// templatesLoaded reports whether there can be steps for the worker: it has registered
// its templates, and one of its namespaces has templates.
func templatesLoaded(h worker.Health) (loaded bool, reason string) {
	switch {
	case h.State == "idle", h.State == "starting":
		return false, "the worker is " + h.State
	case len(h.Missing) > 0 && len(h.Missing) == len(h.Namespaces):
		return false, "none of the namespaces is registered: " + strings.Join(h.Missing, ", ")
	}
	return true, ""
}

// stepProcessing judges how the handlers do. All permits in use is the plan,
// not a fault; handlers that do not end are one.
func stepProcessing(h worker.Health) telemetry.Check {
	c := telemetry.Check{Status: deploymode.Healthy, Message: fmt.Sprintf("%d of %d handlers are running", h.Running, h.Limit)}
	if h.Zombies > 0 {
		c.Status = deploymode.Degraded
		c.Message += fmt.Sprintf("; %d of them ignore the end of their context", h.Zombies)
	}
	return c
}

// workerService makes a service of a worker.
type workerService struct {
	*worker.Worker
	log *zap.Logger
}

// Name implements lifecycle.Service.
func (workerService) Name() string { return "worker" }

// Start waits for a database that just became unavailable: the worker registers itself
// and its templates before it runs.
func (w workerService) Start(ctx context.Context) error {
	_, err := patiently(ctx, w.log, func(ctx context.Context) (struct{}, error) { return struct{}{}, w.Worker.Start(ctx) })
	return err
}

// Start runs the daemon; listeners connect in the background.
func (d *Worker) Start(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	d.show(d.worker.Host().SetAddress)
	d.log.Info("worker daemon started", zap.String("mode", string(d.worker.Mode())), addressField(d.Addr()))
	return nil
}

// Stop stops the daemon like shared.Stop; sessions learn of it first, and report what they
// hold while the worker waits.
func (d *Worker) Stop(ctx context.Context) error {
	d.sessions.Drain()
	return d.shared.Stop(ctx)
}

// reload follows a changed configuration as far as that is possible without a
// new start.
func (d *Worker) reload(ctx context.Context, next *config.Loaded) error {
	d.follow(next)
	return d.worker.Host().Reload(ctx, systemSettings(next.Worker.EventSystems.Worker.EventSystem))
}
