package daemon

import (
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/worker"
)

// lend makes the sessions that lend the claims of a worker to processes in other languages.
// permits follows how many steps they can hold.
func (s *shared) lend(w *worker.Worker, id string, c config.Sessions, share int, permits func(total int)) (*remote.Hub, error) {
	cfg := sessionConfig(id, c)
	cfg.Share = share
	cfg.Offer, cfg.Permits, cfg.Logger, cfg.Metrics = w.Reoffer, permits, s.log.Named("sessions"), s.metrics
	cfg.Adopt, cfg.ConfirmWithin = w.Host().Adopt, cfg.MaxWait
	cfg.Known, cfg.Subscribe = w.Host().Known, w.Subscribe
	hub := remote.New(cfg)
	m := s.metrics
	s.registry.MustRegister(connections{w.Host().TransactionPool, m.TransactionPoolMax, m.TransactionPoolActive, m.TransactionPoolIdle, m.TransactionPoolAcquires, m.TransactionPoolWait})
	return hub, w.AddResolver(hub)
}

// sessionConfig translates the settings of sessions, except their parts.
func sessionConfig(id string, c config.Sessions) remote.Config {
	return remote.Config{WorkerID: id, MaxSessions: c.MaxSessions, MaxPermits: c.MaxPermits, ReclaimGrace: c.ReclaimGrace, MaxLosses: c.MaxLosses, MaxWait: c.MaxWait}
}

// lending is a worker without handlers of its own in an orchestrator, for its sessions.
type lending struct {
	worker *worker.Worker
	hub    *remote.Hub
}

// newLending wires the sessions of an orchestrator: what a worker daemon has them by, on the
// connections, the signals and the listener of the orchestrator.
func (d *Orchestrator) newLending(c *config.Loaded, id string, cfg orchestration.Config) (*lending, error) {
	settings, err := lendingConfig(c)
	if err != nil {
		return nil, err
	}
	settings.WorkerID = id
	settings.Store, settings.Publisher = d.store, d.publisher
	settings.Environment, settings.Version = d.loaded.Environment, version()
	settings.Events.Listener, settings.Events.OnFatal = cfg.Orchestration.Listener, d.fail
	settings.Logger, settings.Metrics, settings.Tracer = d.log.Named("sessions"), d.metrics, d.tracer
	w, err := worker.New(settings)
	if err != nil {
		return nil, err
	}
	hub, err := d.lend(w, id, c.Orchestration.Sessions.Sessions, c.Orchestration.Web.Auth.PrincipalShare, w.Limit)
	return &lending{w, hub}, err
}

// lendingConfig are the settings of such a worker: its own keys, and the defaults of the
// others.
func lendingConfig(c *config.Loaded) (worker.Config, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return worker.Config{}, err
	}
	own, like := c.Orchestration, *defaults
	like.Common = c.Common
	cfg := worker.Configure(&like)
	cfg.Namespaces, cfg.Every = own.Sessions.Namespaces, len(own.Sessions.Namespaces) == 0
	cfg.MaxConcurrent, cfg.Mode = own.Sessions.MaxConcurrent, own.EventSystems.Orchestration.DeploymentMode
	return cfg, nil
}
