package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "wal"

// querier queries the server for one row; *pgxpool.Pool is one.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Config configures a source. A zero field means its default; that of the configuration
// where it names a key ([config.Defaults]).
type Config struct {
	// DSN reaches the server directly, as a role with REPLICATION. Required, except
	// with Like.
	DSN string
	// Like is a pool configuration to use instead of DSN: connections are made like
	// those of the pool, including its hook BeforeConnect. AfterConnect is rejected:
	// replication connections run no statements.
	Like *pgxpool.Config
	// Publication has no tables. It is created if it does not exist
	// (common.signals.wal.publication).
	Publication string
	// Slot names a persistent slot, created if it does not exist; it continues after the
	// confirmed position. Empty means a temporary slot.
	Slot string
	// Failover makes the persistent slot one that standbys copy (sync_replication_slots),
	// so that it is there after a failover. PostgreSQL 17 or later; requires Slot
	// (common.signals.wal.failover).
	Failover bool
	// OnSlotLost is called when the server had invalidated the persistent slot
	// (max_slot_wal_keep_size, idle_replication_slot_timeout), so that Connect made it
	// anew: the signals since are lost. The reason is that of pg_replication_slots.
	OnSlotLost func(slot, reason string)
	// OnSlotUnbounded is called by each Connect with a persistent slot on a server that
	// lets slots keep WAL without limit (max_slot_wal_keep_size = -1).
	OnSlotUnbounded func(slot string)
	// ApplicationName shows in pg_stat_replication. Default "tasker-listener".
	ApplicationName string
	// ConnectTimeout bounds connecting to one host when the DSN has no
	// connect_timeout (common.database.connect_timeout_seconds).
	ConnectTimeout time.Duration
	// StatusInterval is the longest time between two status messages to the server; a
	// third of wal_sender_timeout when that is shorter. Default 10 s.
	StatusInterval time.Duration
	// SilenceTimeout ends a connection on which the server has been silent for so long.
	// A big transaction of other clients may keep the server busy and silent, hence the
	// default of 2 min.
	SilenceTimeout time.Duration
	// BufferLimit is how many different signals wait for Receive before their payloads
	// are dropped
	// (worker.mpsc_channels.event_listeners.pgmq_event_buffer_size).
	BufferLimit int
	// AllTopics returns the signals of every topic, subscribed or not, for forwarding.
	AllTopics bool
	// Server, when set, is queried for whether the rows of a signal are visible yet (the
	// commit is in the WAL a moment earlier), and with each probe for the end of the
	// WAL. Set it wherever signals make a component look at rows. The stream only shows
	// how far the server has read, so without it LagBytes cannot see a server that falls
	// behind in decoding.
	Server querier
}

func (c Config) withDefaults() (Config, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return c, err
	}
	c.Publication = cmp.Or(c.Publication, defaults.Common.Signals.WAL.Publication)
	c.BufferLimit = cmp.Or(c.BufferLimit, defaults.Worker.MPSCChannels.EventListeners.PGMQEventBufferSize)
	c.ApplicationName = cmp.Or(c.ApplicationName, "tasker-listener")
	c.StatusInterval = cmp.Or(max(c.StatusInterval, 0), 10*time.Second)
	c.SilenceTimeout = cmp.Or(max(c.SilenceTimeout, 0), 2*time.Minute)
	if c.OnSlotLost == nil {
		c.OnSlotLost = func(string, string) {}
	}
	if c.OnSlotUnbounded == nil {
		c.OnSlotUnbounded = func(string) {}
	}
	return c, nil
}

// source reads signals from the WAL. It is safe for concurrent use; each Connect opens a
// connection of its own. A persistent slot allows one at a time.
type source struct {
	dial      *pgdial.Dialer
	cfg       Config
	transport signal.Transport
}

// New returns a source that reads signals from the WAL; its connections have a method
// LagBytes. Its probes are sent over t, which must be the transport of all signals. Connect
// wraps ErrSlotInUse when another connection reads the slot.
func New(cfg Config, t signal.Transport) (signal.Source, error) {
	if t == nil {
		return nil, errors.New("wal: missing transport for probes")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Slot != "" && !slotName.MatchString(cfg.Slot) {
		return nil, fmt.Errorf("invalid slot name %q: want 1–63 of a-z, 0-9, _", cfg.Slot)
	}
	if cfg.Failover && cfg.Slot == "" {
		return nil, errors.New("invalid failover without a slot name: want the name of a persistent slot")
	}
	if err := signal.Topic(cfg.Publication).Validate(); err != nil { // same limits for all identifiers
		return nil, fmt.Errorf("invalid publication name %q: %w", cfg.Publication, err)
	}
	if cfg.Like != nil && cfg.Like.AfterConnect != nil {
		return nil, errors.New("invalid pool with AfterConnect: want none for replication connections, which run no statements")
	}
	dial, err := pgdial.New(pgdial.Target{DSN: cfg.DSN, Like: cfg.Like, ApplicationName: cfg.ApplicationName, ConnectTimeout: cfg.ConnectTimeout})
	if err != nil {
		return nil, err
	}
	return &source{dial: dial, cfg: cfg, transport: t}, nil
}

// Name implements signal.Source.
func (s *source) Name() string { return Name }

// OfDatabase marks a source whose connections lead to the database.
func (*source) OfDatabase() {}

// Connect implements signal.Source.
func (s *source) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	if err := topicset.Validate(topics); err != nil {
		return nil, err
	}
	at, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := s.dial.Replicate(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting for replication: %w", denied(err, replicating))
	}
	c, err := s.stream(ctx, conn, at)
	if err != nil {
		pgdial.Close(conn)
		return nil, err
	}
	c.setTopics(topics)
	c.Start("reading the WAL", c.run, c.terminate)
	return c, nil
}

// prepare does the work that needs an ordinary connection.
func (s *source) prepare(ctx context.Context) (at place, err error) {
	conn, err := s.dial.Connect(ctx)
	if err != nil {
		return at, fmt.Errorf("connecting to prepare replication: %w", err)
	}
	defer pgdial.Close(conn.PgConn())
	if err := ensurePublication(ctx, conn, s.cfg); err != nil || s.cfg.Slot == "" {
		return at, err
	}
	return findSlot(ctx, conn, s.cfg.Slot, s.cfg.OnSlotLost)
}

// stream starts the replication from the slot.
func (s *source) stream(ctx context.Context, conn *pgconn.PgConn, at place) (*connection, error) {
	timeout, err := senderTimeout(ctx, conn)
	if err != nil {
		return nil, err
	}
	slot, temporary := s.cfg.Slot, s.cfg.Slot == ""
	if temporary {
		slot = temporarySlotName()
	}
	if !at.found {
		at.start, err = createSlot(ctx, conn, slot, temporary, s.cfg.Failover)
	} else if s.cfg.Failover && !at.failover {
		err = setFailover(ctx, conn, slot)
	}
	if err != nil {
		return nil, err
	}
	if err := startReplication(ctx, conn, slot, s.cfg.Publication, at.start); err != nil {
		return nil, err
	}
	interval := s.cfg.StatusInterval
	if timeout > 0 {
		interval = min(interval, timeout/3)
	}
	return &connection{
		Owner: pgdial.NewOwner(s.cfg.BufferLimit, s.transport), conn: conn, server: s.cfg.Server, temporary: temporary, all: s.cfg.AllTopics,
		interval: interval, silence: s.cfg.SilenceTimeout, pos: newPosition(at.start), seen: visibility{server: s.cfg.Server},
	}, nil
}
