package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict/outside"
	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
)

// The values of common.signals.event_source.
const (
	sourceNotify = notify.Name
	sourceWAL    = wal.Name
	sourceRelay  = relay.Name
	sourceAMQP   = amqp.Name
	sourceRedis  = redis.Name
)

// startPatience is how long a daemon waits at start for a database that does not answer.
// Orchestrated restarts start both at once.
const startPatience = 30 * time.Second

// openStore connects to the database, migrates it if configured, and checks that its
// schema matches this program. In embedded mode the other daemon receives signals
// directly, so they need not travel with the commit. Those that a broker carries are passed to
// publish after it.
func openStore(ctx context.Context, c config.Common, name string, near *neighbours, breakers *breaker.Set, publish func(...signal.Signal), asked *outside.Client, log *zap.Logger, m *telemetry.Metrics) (*store.Store, error) {
	opts, overBroker := storeOptions(c, name, near), slices.Contains([]string{sourceAMQP, sourceRedis}, c.Signals.EventSource)
	if overBroker {
		opts.Publish = publish
	}
	opts.OnForget = func() {
		log.Warn("the database is another server than before, was restarted, or went back to an older state; the caches are dropped")
	}
	opts.OnSlowAcquire = func(waited time.Duration) {
		log.Warn("waited long for a connection; the pool may be too small", zap.Duration("waited", waited))
	}
	opts.Unpredicted = m.StepsUnpredicted.Inc
	if asked != nil {
		opts.Predictor, opts.NotFollowed = asked, func(why order.Missing) { m.PredictorNotFollowed.WithLabelValues(string(why)).Inc() }
	}
	opts.Observe = func(flow string, took time.Duration, err error) {
		m.StoreStatement.WithLabelValues(flow).Observe(took.Seconds())
		if err == nil {
			answered(breakers, !overBroker)
		}
	}
	// As a whole, since the database may become unavailable between one and the next.
	return patiently(ctx, log, func(ctx context.Context) (*store.Store, error) { return openOnce(ctx, c.Database, opts, log) })
}

// storeOptions completes the settings of the pool.
func storeOptions(c config.Common, name string, near *neighbours) store.Options {
	opts := store.Configure(c)
	opts.ApplicationName = name
	opts.NotifyAfterCommit = opts.NotifyAfterCommit && near == nil
	if opts.Like = near.like(); opts.Like != nil {
		opts.URL = ""
	}
	return opts
}

// openOnce is openStore without patience.
func openOnce(ctx context.Context, d config.Database, opts store.Options, log *zap.Logger) (*store.Store, error) {
	s, err := store.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	err = s.CheckGrants(ctx)
	if err == nil && d.MigrateOnStart {
		err = migrate(ctx, d, opts.Like, log)
	}
	var version int64
	if err == nil {
		version, err = s.SchemaVersion(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	if version > store.SchemaVersion {
		log.Info("the schema of the database is newer than this program, which lacks what was added", zap.Int64("schema_version", version),
			zap.Int("known_schema", store.SchemaVersion))
	}
	return s, nil
}

func migrator(d config.Database, like *store.PoolConfig) (*store.Migrator, error) {
	if like != nil {
		return store.MigratorLike(like)
	}
	return store.NewMigrator(d.ListenerDSN().Reveal())
}

func migrate(ctx context.Context, d config.Database, like *store.PoolConfig, log *zap.Logger) error {
	m, err := migrator(d, like)
	if err != nil {
		return err
	}
	applied, err := m.Up(ctx)
	if err != nil {
		return err
	}
	if len(applied) > 0 {
		log.Info("migrated the database", zap.Int64s("versions", applied))
	}
	return nil
}

// patiently retries open while the database is unavailable, for startPatience.
func patiently[T any](ctx context.Context, log *zap.Logger, open func(context.Context) (T, error)) (T, error) {
	deadline := time.Now().Add(startPatience)
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		opened, err := open(ctx)
		if err == nil || !unavailable(err) || ctx.Err() != nil || time.Now().Add(pause).After(deadline) {
			return opened, err
		}
		log.Warn("the database does not answer; retrying", zap.Duration("in", pause), zap.Error(err))
		if lifecycle.Pause(ctx, pause) != nil {
			return opened, fmt.Errorf("stopped while waiting for the database: %w", err)
		}
	}
}

// signals are the two ends of the configured event source.
type signals struct {
	config    config.Common
	name      string
	like      *store.PoolConfig // how to connect; nil: as config says
	buffers   signalBuffers
	store     *store.Store
	transport signal.Transport
	broker    lifecycle.Service // that holds the connection of transport; nil: the store does
	note      func(error)       // what became of an exchange with the broker
	sender    *pending.Sender
	listener  *listener.Listener // of the event systems of this process
	slots     slotHooks
	metrics   *telemetry.Metrics
}

// slotHooks report on a persistent replication slot.
type slotHooks struct {
	lost      func(slot, reason string)
	unbounded func(slot string)
}

// newSlotHooks returns hooks that log and count; that a slot is unbounded, once.
func newSlotHooks(log *zap.Logger, m *telemetry.Metrics) slotHooks {
	var once sync.Once
	return slotHooks{
		lost: func(slot, reason string) {
			m.WALSlotsLost.Inc()
			log.Warn(wal.SlotLostMessage, zap.String("slot", slot), zap.String("reason", reason))
		},
		unbounded: func(slot string) {
			once.Do(func() { log.Warn(wal.SlotUnboundedMessage, zap.String("slot", slot)) })
		},
	}
}

// signalBuffers are how many different signals wait on the listening
// connection, and for each event system.
type signalBuffers struct{ connection, system int }

// newSignals makes both ends. In embedded mode the worker has the orchestrator's listener.
func newSignals(c config.Common, name string, near *neighbours, buffers signalBuffers, s *store.Store, breakers *breaker.Set, log *zap.Logger, m *telemetry.Metrics) (*signals, error) {
	out := &signals{config: c, name: name, like: near.like(), buffers: buffers, store: s, slots: newSlotHooks(log, m), metrics: m}
	messaging := breakers.Breaker(breaker.Messaging)
	var after func(context.Context, time.Duration, []signal.Signal) error
	switch c.Signals.EventSource {
	case sourceNotify:
		out.transport = notify.NewTransport(s.Execer())
	case sourceWAL, sourceRelay:
		// Signals published outside of transactions go the same way: only a relay
		// announces them.
		out.transport = wal.NewTransport(s.Execer())
	case sourceAMQP:
		sender, err := amqp.NewTransport(out.amqpConfig(""))
		if err != nil {
			return nil, fmt.Errorf("prepare the event source %s: %w", sourceAMQP, err)
		}
		out.note = noteBroker(m, amqp.Reason)
		out.transport, out.broker = seenTransport{sender, messaging, out.note}, sender
		after = func(ctx context.Context, delay time.Duration, batch []signal.Signal) error {
			return messaging.Do(ctx, func(ctx context.Context) error {
				err := sender.SendAfter(ctx, delay, batch)
				out.note(err)
				return err
			})
		}
	case sourceRedis:
		sender, err := redis.NewTransport(out.redisConfig())
		if err != nil {
			return nil, fmt.Errorf("prepare the event source %s: %w", sourceRedis, err)
		}
		out.note = noteBroker(m, redisdial.Reason)
		out.transport, out.broker = seenTransport{sender, messaging, out.note}, sender
	default:
		return nil, fmt.Errorf("invalid common.signals.event_source %q: want %s, %s, %s, %s or %s", c.Signals.EventSource, sourceNotify, sourceWAL, sourceRelay, sourceAMQP, sourceRedis)
	}
	// Listeners probe past the breaker: that shows a recovery.
	out.sender = pending.NewSender(guardedTransport{out.transport, messaging}, pending.SenderConfig{
		Logger: log, OnRestart: m.Restarted, SendAfter: after,
		OnError: func(err error) {
			if errors.Is(err, breaker.ErrOpen) {
				return // it was logged when it opened
			}
			log.Warn("signals could not be sent; pollers and catch-up scans find the work", zap.Error(err))
		},
	})
	if near != nil && near.listener != nil {
		out.listener = near.listener
		return out, nil
	}
	listening := out.listenerConfig()
	listening.Logger, listening.Metrics = log, m
	var err error
	if listening.Source, err = out.newSource(); err != nil {
		return nil, fmt.Errorf("prepare the event source %s: %w", c.Signals.EventSource, err)
	}
	if out.note != nil {
		listening.Source = seenSource{listening.Source, out.note}
	}
	out.listener = listener.New(listening)
	return out, nil
}

func (s *signals) newSource() (signal.Source, error) {
	switch s.config.Signals.EventSource {
	case sourceNotify:
		return notify.New(s.notifyConfig(), s.transport)
	case sourceRelay:
		return relay.NewSource(s.notifyConfig(), s.transport)
	case sourceAMQP:
		return amqp.New(s.amqpConfig("-listener"), s.transport)
	case sourceRedis:
		return redis.New(s.redisConfig(), s.transport)
	default:
		cfg := s.walConfig()
		cfg.Server = s.store.Execer()
		return wal.New(cfg, s.transport)
	}
}

func (s *signals) listenerConfig() listener.Config {
	return listener.Config{BufferLimit: s.buffers.system}
}

// dsn is where listeners connect to, unless they do as a pool does.
func (s *signals) dsn() string {
	if s.like != nil {
		return ""
	}
	return s.config.Database.ListenerDSN().Reveal()
}

func (s *signals) notifyConfig() notify.Config {
	d := s.config.Database
	return notify.Config{DSN: s.dsn(), Like: s.like, ApplicationName: s.name + "-listener", ConnectTimeout: d.ConnectTimeout,
		BufferLimit: s.buffers.connection}
}

func (s *signals) amqpConfig(suffix string) amqp.Config {
	cfg := amqp.Configure(s.config)
	cfg.ConnectionName, cfg.BufferLimit, cfg.Metrics = s.name+suffix, s.buffers.connection, s.metrics
	return cfg
}

func (s *signals) walConfig() wal.Config {
	d, w := s.config.Database, s.config.Signals.WAL
	return wal.Config{DSN: s.dsn(), Like: s.like, ApplicationName: s.name + "-listener", Slot: w.Slot, Failover: w.Failover, Publication: w.Publication,
		ConnectTimeout: d.ConnectTimeout, BufferLimit: s.buffers.connection, OnSlotLost: s.slots.lost, OnSlotUnbounded: s.slots.unbounded}
}

func (s *signals) redisConfig() redis.Config {
	r := s.config.Signals.Redis
	return redis.Config{URL: r.URL.Reveal(), Prefix: r.Prefix, Timeout: r.Timeout, ClientName: s.name, BufferLimit: s.buffers.connection}
}
