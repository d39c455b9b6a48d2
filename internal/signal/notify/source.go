package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "notify"

// Config configures a source. A zero field means its default; that of the configuration
// where it names a key ([config.Defaults]).
type Config struct {
	// DSN reaches the server directly, not through a pooler. Required, except with Like.
	DSN string
	// Like is a pool configuration to use instead of DSN: connections are made like
	// those of the pool, including its hooks BeforeConnect and AfterConnect.
	Like *pgxpool.Config
	// ApplicationName shows in pg_stat_activity. Default "tasker-listener".
	ApplicationName string
	// ConnectTimeout bounds connecting to one host when the DSN has no
	// connect_timeout (common.database.connect_timeout_seconds).
	ConnectTimeout time.Duration
	// CommandTimeout bounds a LISTEN or UNLISTEN. Beyond it the connection ends, because
	// its state is unknown. Default 10 s.
	CommandTimeout time.Duration
	// BufferLimit is how many different signals wait for Receive before their payloads
	// are dropped
	// (worker.mpsc_channels.event_listeners.pgmq_event_buffer_size).
	BufferLimit int
}

// source listens with LISTEN. It is safe for concurrent use; each Connect opens a
// connection of its own.
type source struct {
	dial      *pgdial.Dialer
	cfg       Config
	transport signal.Transport
}

// New returns a source that listens with LISTEN. Its probes are sent over t, which must be
// the transport of all signals, so that a stuck pool shows as lag.
func New(cfg Config, t signal.Transport) (signal.Source, error) {
	if t == nil {
		return nil, errors.New("notify: missing transport for probes")
	}
	defaults, err := config.Defaults()
	if err != nil {
		return nil, err
	}
	cfg.ApplicationName = cmp.Or(cfg.ApplicationName, "tasker-listener")
	cfg.CommandTimeout = cmp.Or(max(cfg.CommandTimeout, 0), 10*time.Second)
	cfg.BufferLimit = cmp.Or(cfg.BufferLimit, defaults.Worker.MPSCChannels.EventListeners.PGMQEventBufferSize)
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
	conn, err := s.dial.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting the listener: %w", err)
	}
	c := &connection{Owner: pgdial.NewOwner(s.cfg.BufferLimit, s.transport), conn: conn, timeout: s.cfg.CommandTimeout}
	if err := c.prepare(ctx, topics); err != nil {
		pgdial.Close(conn.PgConn())
		return nil, err
	}
	c.start()
	return c, nil
}
