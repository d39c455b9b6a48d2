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
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict/outside"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/ends"
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
// directly, so they need not travel with the commit. Those that the store does not send are
// passed to publish after it, where it sends others, or a broker carries them.
func openStore(ctx context.Context, c config.Common, name string, near *neighbours, breakers *breaker.Set, publish func(...signal.Signal), asked *outside.Client, log *zap.Logger, m *telemetry.Metrics) (*store.Store, error) {
	opts := storeOptions(c, name, near)
	if c.Signals.Uses(sourceAMQP, sourceRedis) || near != nil && c.Signals.MovingFrom != "" {
		opts.Publish = publish
	}
	opts.OnForget = func() {
		log.Warn("the database is another server than before, was restarted, or went back to an older state; the caches are dropped")
	}
	opts.OnSlowAcquire = func(waited time.Duration) {
		log.Warn("waited long for a connection; the pool may be too small", zap.Duration("waited", waited))
	}
	opts.Unpredicted = m.StepsUnpredicted.Inc
	opts.OnRejected = aside.Left(log, m)
	if asked != nil {
		opts.Predictor, opts.NotFollowed = asked, func(why order.Missing) { m.PredictorNotFollowed.WithLabelValues(string(why)).Inc() }
	}
	opts.Observe = func(flow string, took time.Duration, err error) {
		m.StoreStatement.WithLabelValues(flow).Observe(took.Seconds())
		if err == nil {
			answered(breakers, c)
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
	if err == nil {
		err = s.CheckSession(ctx)
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

// signals are the two ends of the configured event source, and of the one that the fleet moves
// away from.
type signals struct {
	config   config.Common
	name     string
	like     *store.PoolConfig // how to connect; nil: as config says
	buffers  signalBuffers
	store    *store.Store
	senders  []*sourceSender    // of the event source first
	listener *listener.Listener // of the event systems of this process
	slots    slotHooks
	metrics  *telemetry.Metrics
}

// sourceSender sends signals over one source.
type sourceSender struct {
	*pending.Sender
	source string
	broker lifecycle.Service // that has the connection; nil: the store has it
}

// Health is that of the loop, which has the name of the source.
func (s *sourceSender) Health() lifecycle.LoopHealth {
	h := s.Sender.Health()
	h.Name += "-" + s.source
	return h
}

// overBroker reports whether a source carries signals beside the database.
func overBroker(source string) bool { return source == sourceAMQP || source == sourceRedis }

// over returns what sends over all sources but those.
func (s *signals) over(but ...string) signal.Publisher {
	var all ends.Publishers
	for _, one := range s.senders {
		if !slices.Contains(but, one.source) {
			all = append(all, one)
		}
	}
	return all
}

// services are the senders, and what must be stopped after them.
func (s *signals) services() (senders, brokers []lifecycle.Service) {
	for _, one := range s.senders {
		if senders = append(senders, one); one.broker != nil {
			brokers = append(brokers, one.broker)
		}
	}
	return senders, brokers
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
	listening := out.listenerConfig()
	listening.Logger, listening.Metrics = log, m
	var err error
	if listening.Source, err = out.add(c.Signals.EventSource, usedSource, breakers.Breaker(breaker.Messaging), log); err != nil {
		return nil, err
	}
	if from := c.Signals.MovingFrom; from != "" {
		if listening.From, err = out.add(from, movedFromSource, breakers.Breaker(breaker.MovedFrom), log); err != nil {
			return nil, err
		}
	}
	if out.listener = listener.New(listening); near != nil && near.listener != nil {
		out.listener = near.listener
	}
	return out, nil
}

// add makes the sender of a source, and returns what receives over it.
func (s *signals) add(source, role string, guard *breaker.Breaker, log *zap.Logger) (signal.Source, error) {
	makes := s.ends()
	transport, err := makes.Transport(source)
	if err != nil {
		return nil, err
	}
	own, note := &sourceSender{source: source}, func(error) {}
	var after func(context.Context, time.Duration, []signal.Signal) error
	if broker, ok := transport.(ends.Broker); ok {
		if role == usedSource {
			note = s.noteBroker(source)
		}
		if d, ok := transport.(delaying); ok {
			after = func(ctx context.Context, delay time.Duration, batch []signal.Signal) error {
				return guard.Do(ctx, func(ctx context.Context) error {
					err := d.SendAfter(ctx, delay, batch)
					note(err)
					return err
				})
			}
		}
		own.broker, transport = broker, seenTransport{transport, guard, note}
	}
	// Listeners probe past the breaker: that shows a recovery.
	own.Sender = pending.NewSender(guardedTransport{transport, guard}, pending.SenderConfig{
		Logger: log, OnRestart: s.metrics.Restarted, SendAfter: after,
		OnError: func(err error) {
			if errors.Is(err, breaker.ErrOpen) {
				return // it was logged when it opened
			}
			log.Warn("signals could not be sent; pollers and catch-up scans find the work", zap.String("source", source), zap.Error(err))
		},
	})
	s.senders = append(s.senders, own)
	s.metrics.EventSource.WithLabelValues(source, role).Set(1)
	receives, err := makes.Source(source, transport)
	if own.broker != nil && err == nil {
		receives = seenSource{receives, note}
	}
	return receives, err
}

// The roles of a source.
const (
	usedSource      = "used"
	movedFromSource = "moved_from"
)

// delaying is a transport that keeps delays.
type delaying interface {
	SendAfter(ctx context.Context, delay time.Duration, batch []signal.Signal) error
}

// publishAfter sends a signal with a delay over the sources that keep delays.
func (s *signals) publishAfter(delay time.Duration, sig signal.Signal) {
	for _, one := range s.senders {
		one.PublishAfter(delay, sig)
	}
}

// ends makes the two ends of sources.
func (s *signals) ends() *ends.Config {
	cfg := &ends.Config{Notify: s.notifyConfig(), WAL: s.walConfig(), AMQP: s.amqpConfig(), Redis: s.redisConfig()}
	if s.store != nil {
		cfg.Exec, cfg.WAL.Server = s.store.Execer(), s.store.Execer()
	}
	return cfg
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

func (s *signals) amqpConfig() amqp.Config {
	cfg := amqp.Configure(s.config)
	cfg.ConnectionName, cfg.BufferLimit, cfg.Metrics = s.name, s.buffers.connection, s.metrics
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
