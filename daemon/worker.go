package daemon

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/api/rest"
	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/worker"
)

// Register registers the handlers and templates of a worker before it starts.
type Register func(*worker.Worker) error

// Worker is a wired worker daemon.
type Worker struct {
	*shared
	loaded *config.Loaded
	worker *worker.Worker
}

// NewWorker connects to the database, lets register add handlers and templates, loads
// further templates from worker.template_path, and wires the daemon. Nothing runs before
// Start.
func NewWorker(ctx context.Context, loaded *config.Loaded, register Register, log *zap.Logger) (*Worker, error) {
	return newWorker(ctx, loaded, register, nil, log)
}

func newWorker(ctx context.Context, loaded *config.Loaded, register Register, near *neighbours, log *zap.Logger) (*Worker, error) {
	if err := near.refused(loaded); err != nil {
		return nil, err
	}
	s, err := assemble(ctx, loaded.Common, &loaded.Worker, "tasker-worker", workerBuffers(loaded.Worker), near, log)
	if err != nil {
		return nil, err
	}
	d := &Worker{shared: s, loaded: loaded}
	if err := d.wire(loaded, register, near); err != nil {
		s.store.Close()
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
	observeConnections(d.registry, "tasker_transaction_pool", "of the pool for handlers that work in a transaction", d.worker.TransactionPool)
	if err := register(d.worker); err != nil {
		return fmt.Errorf("register handlers: %w", err)
	}
	if err := loadTemplatesOf(d.worker, c.Worker); err != nil {
		return err
	}
	if !c.Worker.Web.Enabled {
		return nil
	}
	web, err := workerWeb(c.Worker.Web)
	if err != nil {
		return err
	}
	d.server, err = rest.NewWorker(d.webConfig(web, d.loaded.Environment), rest.Worker{
		ID: c.Worker.WorkerID, Type: c.Worker.WorkerType, Status: supervisedWorker{d.worker, d}, Database: d.store,
		Namespaces: func() []string { return d.worker.Health().Namespaces },
		Loaded:     func() (bool, string) { return templatesLoaded(d.worker.Health()) },
		Events:     d.eventMetrics, Breakers: d.breakers,
		Checks: func(context.Context) map[string]telemetry.Check {
			return map[string]telemetry.Check{"step_processing": stepProcessing(d.worker.Health()), "circuit_breakers": d.breakers.Check()}
		},
	})
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
	cfg.Environment, cfg.Version = d.loaded.Environment, Version()
	cfg.Events.Listener, cfg.Events.OnFatal = shared, d.fail
	cfg.Report.Breaker = d.breakers.Breaker(breaker.Report)
	cfg.Logger, cfg.Metrics = d.log, d.metrics
	return cfg
}

// eventMetrics returns the counts of the worker's domain events for the API.
func (d *Worker) eventMetrics() client.EventMetrics {
	s := d.worker.EventStats()
	return client.EventMetrics{
		Router: client.EventRouterStats{TotalRouted: s.Durable + s.Fast + s.Broadcast, DurableRouted: s.Durable, FastRouted: s.Fast,
			BroadcastRouted: s.Broadcast, FastDeliveryErrors: s.FastFailed, RoutingErrors: s.DurableFailed},
		Bus: client.EventBusStats{TotalEventsDispatched: s.Bus.Dispatched, RustHandlerDispatches: s.Bus.Delivered, RustHandlerErrors: s.Bus.Failed,
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

// services lists the parts below the API in the order of their start.
func (d *Worker) services() []lifecycle.Service {
	return []lifecycle.Service{d.counting, d.signals.sender, workerService{d.worker, d.log}}
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
	if err := d.start(ctx, d.services()...); err != nil {
		return err
	}
	d.show(d.worker.SetAddress)
	d.log.Info("worker daemon started", zap.String("mode", string(d.worker.Mode())), zap.Any("address", d.Addr()))
	return nil
}

// Stop ends the daemon within ctx: unready first, then claiming stops, running handlers
// are awaited, results are reported, the rest is handed back.
func (d *Worker) Stop(ctx context.Context) error { return d.stopAll(ctx, d.services()...) }

// Addr returns the address of the API; nil if it is off.
func (d *Worker) Addr() net.Addr { return d.address() }

// Failed delivers fatal errors.
func (d *Worker) Failed() <-chan error { return d.fatal }

// Reload follows a changed configuration as far as that is possible without a
// new start.
func (d *Worker) Reload(ctx context.Context, next *config.Loaded) error {
	warnOfRestarts(d.log, d.loaded.Changes(next))
	d.loaded = next
	return d.worker.Reload(ctx, systemSettings(next.Worker.EventSystems.Worker.EventSystem))
}
