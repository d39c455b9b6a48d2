package daemon

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/bridge/amqpevents"
	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
)

// Check finds what the daemons reject at their start, as far as possible without a
// database: invalid connection strings, settings that a part rejects, templates that do
// not load. It opens no connection. It does not repeat Loaded.Refused.
func Check(loaded *config.Loaded) []error {
	errs := []error{checkServers(loaded)}
	roots := loaded.Context.Roots()
	if slices.Contains(roots, "orchestration") {
		errs = append(errs, checkOrchestrator(loaded)...)
	}
	if slices.Contains(roots, "worker") {
		errs = append(errs, checkWorker(loaded)...)
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func checkOrchestrator(loaded *config.Loaded) []error {
	d := &Orchestrator{shared: unwired(loaded)}
	engine := d.engineConfig(loaded, store.Daemon{}, nil)
	_, _, templates := loadTemplates(loaded.Common)
	var redis, rabbitMQ, events error
	if q := loaded.Orchestration.Bridge.RedisQueue; q.Enabled {
		_, redis = redisdial.Options(q.URL.Reveal(), "", q.Timeout)
	}
	if q := loaded.Orchestration.Bridge.RabbitMQQueue; q.Enabled {
		_, rabbitMQ = amqp.NewReceiver(amqp.Configure(loaded.Common), q.Keys)
	}
	if loaded.Orchestration.Bridge.RabbitMQEvents.Enabled {
		_, events = amqpevents.New(d.eventsBridge(loaded, "", ""))
	}
	return []error{checkConnections(loaded.Common, orchestratorBuffers(loaded.Orchestration)),
		engine.Check(), templates, redis, rabbitMQ, events, checkSessions(loaded), d.checkParts(nil)}
}

// checkSessions makes the worker that the sessions of an orchestrator have.
func checkSessions(loaded *config.Loaded) error {
	if !loaded.Orchestration.Sessions.Enabled {
		return nil
	}
	settings, err := lendingConfig(loaded)
	if err != nil {
		return err
	}
	settings.DatabaseURL, settings.WorkerID = loaded.Common.Database.URL.Reveal(), "sessions"
	_, err = worker.New(settings)
	return err
}

// unwired is a daemon without any part.
func unwired(loaded *config.Loaded) *shared {
	return &shared{loaded: loaded, log: zap.NewNop(), registry: prometheus.NewRegistry(), metrics: telemetry.Discard()}
}

// checkParts makes the parts that both daemons have beside their connections.
func (s *shared) checkParts(w *config.Worker) error {
	_, breakers := newBreakers(s.loaded.Common, w, s.log, s.metrics)
	_, senders := s.newSenders("")
	_, predictor := s.newPredictor()
	return errors.Join(breakers, senders, predictor)
}

func checkWorker(loaded *config.Loaded) []error {
	d := &Worker{shared: unwired(loaded)}
	settings := d.workerConfig(loaded, nil)
	settings.DatabaseURL = loaded.Common.Database.URL.Reveal() // in place of a store
	w, err := worker.New(settings)
	if err == nil {
		err = loadTemplatesOf(w, loaded.Worker)
	}
	return []error{checkConnections(loaded.Common, workerBuffers(loaded.Worker)), err, d.checkParts(&loaded.Worker)}
}

// checkServers reads the keys and certificates of the servers.
func checkServers(loaded *config.Loaded) error {
	s := unwired(loaded)
	var errs []error
	o, w := loaded.Orchestration, loaded.Worker
	for _, servers := range []struct {
		root string
		web  config.Web
		grpc config.GRPC
	}{{"orchestration", o.Web.Web, o.GRPC}, {"worker", w.Web, w.GRPC}} {
		if slices.Contains(loaded.Context.Roots(), servers.root) {
			_, access := s.accessOf(servers.web, nil, nil)
			_, certificate := s.tlsOf(servers.web.ServerTLS, overREST)
			_, other := s.tlsOf(servers.grpc.ServerTLS, overGRPC)
			errs = append(errs, access, certificate, other, unguarded(servers.grpc.Enabled, servers.grpc.BindAddress, servers.web.Auth))
		}
	}
	if slices.Contains(loaded.Context.Roots(), "orchestration") {
		_, err := providerOf(o.Web, s.log)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkConnections parses the connection strings as their users do.
func checkConnections(c config.Common, buffers signalBuffers) error {
	makes := (&signals{config: c, buffers: buffers}).ends()
	errs := []error{storeOptions(c, "", nil).Check()}
	for _, source := range []string{c.Signals.EventSource, c.Signals.MovingFrom} {
		if source == "" {
			continue
		}
		transport, err := makes.Transport(source)
		if err == nil {
			_, err = makes.Source(source, transport)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
