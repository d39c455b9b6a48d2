package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "redis"

// Config configures a source or a transport.
type Config struct {
	URL     string        // common.signals.redis.url
	Prefix  string        // of the channels (common.signals.redis.prefix)
	Timeout time.Duration // of connecting and of each exchange (common.signals.redis.timeout_ms)
	// ClientName shows in CLIENT LIST, with "-listener" that of a listening connection.
	ClientName string
	// BufferLimit is how many different signals wait for Receive before their payloads
	// are dropped (worker.mpsc_channels.event_listeners.pgmq_event_buffer_size).
	BufferLimit int
}

// channel is the name of a topic in Redis.
func (c *Config) channel(t signal.Topic) string { return c.Prefix + ":" + string(t) }

func (c *Config) topic(channel string) signal.Topic {
	return signal.Topic(strings.TrimPrefix(channel, c.Prefix+":"))
}

// source subscribes to channels. It is safe for concurrent use; each Connect opens a
// connection of its own.
type source struct {
	cfg       Config
	options   *redis.Options
	transport signal.Transport
}

// New returns a source that subscribes to channels. Its probes are sent over t, which must be
// the transport of all signals.
func New(cfg Config, t signal.Transport) (signal.Source, error) {
	if t == nil {
		return nil, errors.New("redis: missing transport for probes")
	}
	options, err := redisdial.Options(cfg.URL, cfg.ClientName+"-listener", cfg.Timeout)
	return &source{cfg: cfg, options: options, transport: t}, err
}

// Name implements signal.Source.
func (*source) Name() string { return Name }

var errReconnect = errors.New("the connection to Redis is lost")

// Connect implements signal.Source.
func (s *source) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	if err := topicset.Validate(topics); err != nil {
		return nil, err
	}
	// The library would connect again by itself, and the listener would not learn that
	// signals were missed.
	options, dial := *s.options, redis.NewDialer(s.options)
	var dialled atomic.Bool
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialled.Swap(true) {
			return nil, errReconnect
		}
		return dial(ctx, network, address)
	}
	client := redis.NewClient(&options)
	c := &connection{Owner: pgdial.NewOwner(s.cfg.BufferLimit, s.transport), cfg: &s.cfg, pubsub: client.Subscribe(ctx),
		turn: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	c.ended, c.end = context.WithCancelCause(context.Background())
	context.AfterFunc(c.Life, func() { _ = client.Close() }) // Receive of the library knows no context
	err := c.replace(ctx, topics)                            // dials
	c.Start("listening to Redis", c.run, func(error) {})
	if err == nil {
		err = c.confirm(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting the listener: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}
