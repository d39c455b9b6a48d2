package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/grpc"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/predict/outside"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/internal/tracing/otlp"
	"github.com/tasker-go/tasker/signal"
)

// stopEach bounds the stop of each part without its own bound.
const stopEach = 10 * time.Second

// stopMargin is the stop time that one part leaves to the others.
const stopMargin = 2 * time.Second

// shared are the parts of both daemons.
type shared struct {
	loaded   *config.Loaded // the latest
	root     string         // of the daemon's own keys
	log      *zap.Logger
	registry *prometheus.Registry
	metrics  *telemetry.Metrics
	store    *store.Store
	signals  *signals
	// publisher sends signals over all sources; in embedded mode it also passes them to the
	// other daemon of the process.
	publisher signal.Publisher
	commits   signal.Publisher // the same for the signals of commits that the store does not send
	counting  *lifecycle.Loop
	outages   *lifecycle.Loop     // says that the database is away
	relay     *relay.Relay        // nil unless an orchestrator's event source is "relay"
	bridges   []*lifecycle.Loop   // of an orchestrator that takes jobs from queues of other programs
	server    *rest.Server        // nil when neither REST nor gRPC is served
	listens   bool                // server is started: web.enabled
	grpc      *grpc.Server        // nil when grpc.enabled = false
	services  []lifecycle.Service // those below the API, in the order of their start
	fatal     chan error          // fatal errors
	breakers  *breaker.Set
	topology  *brokerTopology // nil: the daemon uses no RabbitMQ
	tracer    *tracing.Tracer // nil unless there are spans
	keySet    *auth.KeySet    // nil unless tokens are verified with a JWKS
	shutdown  config.Shutdown
	delay     time.Duration // between turning unready and stopping
}

// assemble opens the parts that both daemons have, and lets wire make the others. name is
// the daemon's name in pg_stat_activity; w is nil for an orchestrator, near unless another
// daemon runs in the process.
func assemble(ctx context.Context, loaded *config.Loaded, w *config.Worker, name string, buffers signalBuffers, near *neighbours, log *zap.Logger, wire func(*shared) error) error {
	if err := near.refused(loaded); err != nil {
		return err
	}
	c := loaded.Common
	s := &shared{loaded: loaded, root: "orchestration", log: log, registry: prometheus.NewRegistry(), fatal: make(chan error, 1), shutdown: c.Shutdown}
	if w != nil {
		s.root = "worker"
	}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = telemetry.NewMetrics(s.registry)
	var err error
	if s.breakers, err = newBreakers(c, w, log.Named("breakers"), s.metrics); err != nil {
		return err
	}
	if c.Signals.Uses(sourceAMQP) || w == nil && loaded.Orchestration.Bridge.RabbitMQQueue.Enabled {
		s.topology = newBrokerTopology(amqp.Configure(c))
	}
	senders, err := s.newSenders(name)
	if err != nil {
		return err
	}
	asked, err := s.newPredictor()
	if err != nil {
		return err
	}
	if s.store, err = openStore(ctx, c, name, near, s.breakers, s.publish, asked, log.Named("store"), s.metrics); err != nil {
		return err
	}
	if s.signals, err = newSignals(c, name, near, buffers, s.store, s.breakers, log.Named("signals"), s.metrics); err != nil {
		s.store.Close()
		return err
	}
	s.publisher, s.commits = s.signals.over(), s.signals.over(sourceNotify, sourceWAL, sourceRelay)
	if near != nil { // whose store sends no NOTIFY
		s.publisher, s.commits = near.beside(s.publisher), near.beside(s.signals.over(sourceWAL, sourceRelay))
	}
	m := s.metrics
	s.registry.MustRegister(connections{s.store.PoolStat, m.PoolMax, m.PoolActive, m.PoolIdle, m.PoolAcquires, m.PoolWait})
	s.counting = observeSenders(s.signals.senders, s.metrics, log.Named("signals"))
	s.outages = (&outages{outage: s.store.Outage, ping: s.store.Ping, log: log.Named("store")}).loop(m.Restarted)
	if err = wire(s); err != nil {
		s.store.Close()
	}
	if asked != nil {
		senders = append(senders, asked)
	}
	_, brokers := s.signals.services()
	if s.keySet != nil {
		senders = append(senders, s.keySet)
	}
	s.services = slices.Concat(senders, brokers, s.services) // the last to stop
	return err
}

// publish sends the signals of commits that the store does not send.
func (s *shared) publish(signals ...signal.Signal) { s.commits.Publish(signals...) }

// newSenders makes those of spans and of metrics, of which there may be none.
func (s *shared) newSenders(name string) (senders []lifecycle.Service, err error) {
	if c := s.tracingConfig(name); s.loaded.Common.Telemetry.Tracing.Enabled {
		spans, err := otlp.New(c)
		if err != nil {
			return nil, err
		}
		s.tracer, senders = spans.Tracer(), append(senders, spans)
	}
	if c := s.pushConfig(name); s.loaded.Common.Telemetry.Metrics.Enabled {
		pusher, err := otlp.NewPusher(c)
		if err != nil {
			return nil, err
		}
		senders = append(senders, pusher)
	}
	return senders, nil
}

// newPredictor makes what asks the predictor outside; nil where there is none. Its breaker is
// no part of the daemon's health, which does not need it.
func (s *shared) newPredictor() (*outside.Client, error) {
	cfg := s.predictorConfig()
	if cfg.URL == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	own := breakerSettings(s.loaded.Common, nil)[breaker.Messaging]
	own.Judge = nil
	set, err := breaker.NewSet(breaker.Config{Logger: s.log.Named("breakers"), Metrics: s.metrics}, map[string]breaker.Settings{breaker.Predictor: own})
	if err != nil {
		return nil, err
	}
	cfg.Breaker = set.Breaker(breaker.Predictor)
	return outside.New(cfg), nil
}

func (s *shared) predictorConfig() outside.Config {
	p := s.loaded.Common.Predictor
	return outside.Config{URL: p.URL, Token: p.Token.Reveal(), Timeout: p.Timeout, Batch: p.BatchSize, Answers: p.Answers, OnRestart: s.metrics.Restarted, Logger: s.log.Named("store")}
}

func (s *shared) tracingConfig(name string) otlp.Config {
	c := s.loaded.Common.Telemetry.Tracing
	return otlp.Config{Collector: s.collector(name, "tracing", c.Endpoint, c.Headers, c.Timeout, c.Interval), Ratio: c.SampleRatio, Batch: c.BatchSize, Queue: c.QueueSize,
		Dropped: s.metrics.SpansDropped}
}

func (s *shared) pushConfig(name string) otlp.Push {
	c := s.loaded.Common.Telemetry.Metrics
	return otlp.Push{Collector: s.collector(name, "metrics", c.Endpoint, c.Headers, c.Timeout, c.Interval), Metrics: s.registry, Failed: s.metrics.PushesFailed}
}

func (s *shared) collector(name, table, endpoint string, headers config.Secret, timeout, interval time.Duration) otlp.Collector {
	return otlp.Collector{Key: "common.telemetry." + table, Endpoint: endpoint, Headers: headers.Reveal(), Timeout: timeout, Interval: interval,
		Service: name, Version: version(), Environment: s.loaded.Environment, OnRestart: s.metrics.Restarted, Logger: s.log.Named("telemetry")}
}

// fail ends the daemon; the first reason counts.
func (s *shared) fail(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// webConfig completes the settings of the HTTP server.
func (s *shared) webConfig(w config.OrchestrationWeb, g config.GRPC, environment string) (cfg rest.Config, err error) {
	s.delay = shutdownDelay(s.shutdown, w.Web, g)
	cfg = rest.Configure(w)
	cfg.Version, cfg.Environment = version(), environment
	cfg.Telemetry, cfg.Metrics, cfg.Logger, cfg.LogLevels = s.metrics, s.registry, s.log.Named("api"), telemetry.LevelsOf(s.log)
	cfg.Tracer, cfg.MetricAliases = s.tracer, s.loaded.Common.Telemetry.Aliases
	stored := rest.StoredCredentials{Database: s.store, Idle: w.Browser.SessionIdle}
	var sessions auth.SessionStore // of orchestrators alone
	if s.root == "orchestration" {
		sessions = stored
	}
	if cfg.Access, err = s.accessOf(w.Web, stored, sessions); err != nil {
		return cfg, err
	}
	if sessions != nil {
		if cfg.Access.Provider, err = providerOf(w, s.log.Named("auth")); err != nil {
			return cfg, err
		}
	}
	cfg.Warnings = s.loaded.Unencrypted(s.root)
	cfg.Access.Reach = orchestration.ReachOf(w.Auth, s.loaded.Common.Namespaces.Grants)
	cfg.TLS, err = s.tlsOf(w.ServerTLS, overREST)
	s.listens = w.Enabled
	return cfg, err
}

// grpcConfig completes the settings of the gRPC server beside a REST server, whose
// credentials and bounds are its own.
func (s *shared) grpcConfig(g config.GRPC, w config.OrchestrationWeb) (cfg grpc.Config, err error) {
	if err := unguarded(g.Enabled, g.BindAddress, w.Auth); err != nil {
		return cfg, err
	}
	cfg = grpc.Configure(g, w)
	cfg.OnFatal, cfg.Telemetry, cfg.Logger = s.fail, s.metrics, s.log.Named("api")
	cfg.TLS, err = s.tlsOf(g.ServerTLS, overGRPC)
	return cfg, err
}

// doors are the servers, in the order of their start.
func (s *shared) doors() (services []lifecycle.Service) {
	if s.server != nil && s.listens {
		services = append(services, s.server)
	}
	if s.grpc != nil {
		services = append(services, s.grpc)
	}
	return services
}

// Failed delivers fatal errors.
func (s *shared) Failed() <-chan error { return s.fatal }

// GRPCAddr returns the address of the gRPC server; nil if it is off.
func (s *shared) GRPCAddr() net.Addr {
	if s.grpc == nil {
		return nil
	}
	return s.grpc.Addr()
}

// Addr returns the address of the REST API; nil if it is off.
func (s *shared) Addr() net.Addr {
	if s.server == nil {
		return nil
	}
	return s.server.Addr()
}

// show reports the API's address with set: the bound address, with the host's name in
// place of all interfaces. Without an API it reports nothing.
func (s *shared) show(set func(address string)) {
	bound := s.Addr()
	if bound == nil {
		return
	}
	host, err := os.Hostname()
	if err != nil {
		s.log.Warn("the fleet does not see the name of this host", zap.Error(err))
		host = "" // the address of all interfaces stays
	}
	set(shownAddress(bound, host))
}

func shownAddress(bound net.Addr, host string) string {
	tcp, ok := bound.(*net.TCPAddr)
	if !ok || host == "" || !(tcp.IP == nil || tcp.IP.IsUnspecified()) {
		return bound.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// start starts the services in order and the servers last, so that they serve only running
// parts; if one fails, those before it are stopped.
func (s *shared) start(ctx context.Context) error {
	err := s.listen(ctx)
	if err == nil {
		services := append(slices.Clip(s.services), s.doors()...)
		err = lifecycle.StartAll(ctx, s.log, stopEach, services...)
	}
	if err != nil {
		err = errors.Join(err, lifecycle.StopAll(context.WithoutCancel(ctx), s.log, stopEach, s.doors()...))
		s.store.Close()
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

// listen takes the addresses of the servers before anything is claimed; the error names the
// key of one that is not free.
func (s *shared) listen(ctx context.Context) error {
	if s.server != nil && s.listens {
		if err := s.server.Listen(ctx); err != nil {
			return fmt.Errorf("open %s.web.bind_address: %w", s.root, err)
		}
	}
	if s.grpc != nil {
		if err := s.grpc.Listen(ctx); err != nil {
			return fmt.Errorf("open %s.grpc.bind_address: %w", s.root, err)
		}
	}
	return nil
}

// Stop ends the daemon within ctx: it turns unready, serves for the delay, accepts no more
// requests, stops its services in reverse, and closes the pool last. Until then probes and
// metrics are answered, those over gRPC too. Requests under way come first and may not use up the time of the
// others; a worker stops claiming, waits for its handlers, reports and hands back the rest.
func (s *shared) Stop(ctx context.Context) error {
	var failed []error
	if s.grpc != nil {
		s.grpc.Drain()
	}
	if s.server != nil {
		s.server.Drain()
		s.linger(ctx)
		each := stopEach
		if deadline, ok := ctx.Deadline(); ok {
			each = min(each, time.Until(deadline)/3)
		}
		finishing, cancel := context.WithTimeout(ctx, each)
		failed = append(failed, s.server.Finish(finishing))
		cancel()
	}
	each := stopEach
	if deadline, ok := ctx.Deadline(); ok {
		// The longest part (a worker with its handlers) may take nearly all.
		each = max(each, time.Until(deadline)-stopMargin)
	}
	failed = append(failed, lifecycle.StopAll(ctx, s.log, each, s.services...))
	failed = append(failed, lifecycle.StopAll(ctx, s.log, stopEach, s.doors()...))
	return errors.Join(append(failed, s.closeStore(ctx))...)
}

// follow makes next the configuration, and logs its changes that need a restart.
func (s *shared) follow(next *config.Loaded) {
	changes := s.loaded.Changes(next)
	s.loaded = next
	for _, c := range changes {
		if !c.Reloadable {
			s.log.Warn("a changed setting takes effect after a restart", zap.String("key", c.Key))
		}
	}
}

// warnOfIdle logs in one line the keys that are set and have no effect.
func warnOfIdle(log *zap.Logger, idle []config.Problem) {
	if len(idle) == 0 {
		return
	}
	keys := make([]string, 0, len(idle))
	for _, p := range idle {
		keys = append(keys, p.Key)
	}
	log.Warn("settings without effect; tasker-ctl config validate tells why", zap.Int("count", len(keys)), zap.Strings("keys", keys))
}

// connections reads the numbers of a pool when it is scraped.
type connections struct {
	stat                              func() store.PoolStat
	most, active, idle, acquire, wait *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c connections) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c connections) Collect(ch chan<- prometheus.Metric) {
	s := c.stat()
	ch <- prometheus.MustNewConstMetric(c.most, prometheus.GaugeValue, float64(s.Max))
	ch <- prometheus.MustNewConstMetric(c.active, prometheus.GaugeValue, float64(s.Acquired))
	ch <- prometheus.MustNewConstMetric(c.idle, prometheus.GaugeValue, float64(s.Idle))
	ch <- prometheus.MustNewConstMetric(c.acquire, prometheus.CounterValue, float64(s.Acquires))
	ch <- prometheus.MustNewConstMetric(c.wait, prometheus.CounterValue, s.AcquireDuration.Seconds())
}

// joined drops the errors that only say that the caller stopped.
func joined(errs ...error) error {
	kept := errs[:0:0]
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			kept = append(kept, err)
		}
	}
	return errors.Join(kept...)
}
