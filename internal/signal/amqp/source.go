package amqp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// source receives signals. It is safe for concurrent use; each Connect opens a connection of
// its own.
type source struct {
	broker    *broker
	transport signal.Transport
}

// New returns a source that receives signals from the broker. Its probes are sent over t,
// which must be the transport of all signals.
func New(cfg Config, t signal.Transport) (signal.Source, error) {
	if t == nil {
		return nil, errors.New("amqp: missing transport for probes")
	}
	b, err := newBroker(cfg)
	if err != nil {
		return nil, err
	}
	return &source{broker: b, transport: t}, nil
}

// Name implements signal.Source.
func (s *source) Name() string { return Name }

// Connect implements signal.Source.
func (s *source) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	if err := topicset.Validate(topics); err != nil {
		return nil, err
	}
	session, err := s.broker.dial(ctx)
	if err != nil {
		return nil, err
	}
	cfg := s.broker.cfg
	c := &connection{Owner: pgdial.NewOwner(cfg.BufferLimit, s.transport), s: session, cfg: cfg, turn: make(chan struct{}, 1),
		queue: cfg.Topology.Namespace + ".signals." + strings.ToLower(rand.Text()[:16])}
	if err := c.open(ctx, topics); err != nil {
		session.close()
		return nil, fmt.Errorf("subscribe at the broker: %w: %w", ErrUnavailable, err)
	}
	c.Start("receiving from the broker", c.run, func(error) { session.close() })
	return c, nil
}

// open declares the connection's queues and consumes from them. What is dropped of the first
// leaves a message in the second.
func (c *connection) open(ctx context.Context, topics []signal.Topic) error {
	ch, drops := c.s.ch, c.queue+".drops"
	return c.s.bounded(ctx, func() (err error) {
		if err := ch.Qos(c.cfg.Prefetch, 0, false); err != nil {
			return err
		}
		for name, args := range map[string]amqp091.Table{
			drops:   {"x-max-length": 1},
			c.queue: {"x-max-length": c.cfg.MaxWaiting, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": drops},
		} {
			if _, err := ch.QueueDeclare(name, false, true, true, false, args); err != nil {
				return err
			}
		}
		if err := c.replace(topics); err != nil {
			return err
		}
		if c.dropped, err = ch.Consume(drops, "drops", true, true, false, false, nil); err != nil {
			return err
		}
		c.arrived, err = ch.Consume(c.queue, "signals", false, true, false, false, nil)
		return err
	})
}
