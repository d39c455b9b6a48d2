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

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// Name is the name of this source in configuration, logs and metrics.
const Name = "redis"

// Config configures a source and its transport.
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

// Broker is a source with its transport. It is safe for concurrent use; each Connect opens
// a connection of its own.
type Broker struct {
	cfg     Config
	options *redis.Options
	client  *redis.Client // sends
}

var (
	_ signal.Source     = (*Broker)(nil)
	_ signal.Transport  = (*Broker)(nil)
	_ lifecycle.Service = (*Broker)(nil)
)

// New opens no connection.
func New(cfg Config) (*Broker, error) {
	sending, err := redisdial.Options(cfg.URL, cfg.ClientName, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	listening := *sending
	listening.ClientName += "-listener"
	sending.PoolSize = 2 // a sender and a probe
	return &Broker{cfg: cfg, options: &listening, client: redis.NewClient(sending)}, nil
}

// Name implements signal.Source.
func (b *Broker) Name() string { return Name }

// Start implements lifecycle.Service: the first Send connects.
func (b *Broker) Start(context.Context) error { return nil }

// Stop ends the connections that send.
func (b *Broker) Stop(context.Context) error { return b.client.Close() }

// channel is the name of a topic in Redis.
func (b *Broker) channel(t signal.Topic) string { return b.cfg.Prefix + ":" + string(t) }

func (b *Broker) topic(channel string) signal.Topic {
	return signal.Topic(strings.TrimPrefix(channel, b.cfg.Prefix+":"))
}

// Send implements signal.Transport: one round trip, whatever the size of the batch. If one
// signal is malformed, none is sent and the error wraps signal.ErrMalformed. The deadline of
// ctx bounds it, and the timeout of the configuration where ctx is cancelled.
func (b *Broker) Send(ctx context.Context, batch []signal.Signal) error {
	for _, s := range batch {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	_, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range batch {
			p.Publish(ctx, b.channel(s.Topic), s.Payload)
		}
		return nil
	})
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("publish to Redis: %w: %w", ctx.Err(), err)
	case errors.As(err, &answer):
		return fmt.Errorf("publish to Redis: %w", err)
	}
	return fmt.Errorf("publish to Redis: %w: %w", ErrUnavailable, err)
}

// ErrUnavailable is wrapped by errors of Send if Redis could not be reached or did not
// answer within the timeout.
var ErrUnavailable = errors.New("not reached")

var errReconnect = errors.New("the connection to Redis is lost")

// Connect implements signal.Source.
func (b *Broker) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	if err := topicset.Validate(topics); err != nil {
		return nil, err
	}
	// The library would connect again by itself, and the listener would not learn that
	// signals were missed.
	options, dial := *b.options, redis.NewDialer(b.options)
	var dialled atomic.Bool
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialled.Swap(true) {
			return nil, errReconnect
		}
		return dial(ctx, network, address)
	}
	client := redis.NewClient(&options)
	c := &connection{Owner: pgdial.NewOwner(b.cfg.BufferLimit, b), broker: b, pubsub: client.Subscribe(ctx),
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
