package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// connection is one subscription: a goroutine moves what arrives into the buffer.
type connection struct {
	*pgdial.Owner

	s                *session
	cfg              Config
	queue            string
	arrived, dropped <-chan amqp091.Delivery
	turn             chan struct{} // holds a token while the topics are replaced
	topics           atomic.Pointer[topicset.Set]
}

var _ signal.Connection = (*connection)(nil)

// Subscribe implements signal.Connection. New topics are bound before old ones are not. When
// ctx ends first, the connection ends, because its state is unknown.
func (c *connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := topicset.Validate(topics); err != nil {
		return err
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("subscribing: %w", ctx.Err())
	}
	defer func() { <-c.turn }()
	if c.Life.Err() != nil {
		return signal.ErrClosed
	}
	if err := c.s.bounded(ctx, func() error { return c.replace(topics) }); err != nil {
		return fmt.Errorf("subscribing to %d topics: %w", len(topics), err)
	}
	return nil
}

// replace changes the bindings. Only the last new one waits for the broker, which does one
// thing after the other.
func (c *connection) replace(topics []signal.Topic) error {
	wanted, current := topicset.Of(topics), topicset.Set{}
	if set := c.topics.Load(); set != nil {
		current = *set
	}
	var fresh []signal.Topic
	for t := range wanted {
		if !current.Has(t) {
			fresh = append(fresh, t)
		}
	}
	exchange := c.cfg.Topology.direct()
	for i, t := range fresh {
		if err := c.s.ch.QueueBind(c.queue, routingKey(t), exchange, i < len(fresh)-1, nil); err != nil {
			return err
		}
	}
	for t := range current {
		if wanted.Has(t) {
			continue
		}
		if err := c.s.ch.QueueUnbind(c.queue, routingKey(t), exchange, nil); err != nil {
			return err
		}
	}
	c.topics.Store(&wanted)
	return nil
}

// acknowledgeAfter is the longest time until what has arrived is acknowledged; the broker ends
// a channel with messages that are not for half an hour.
const acknowledgeAfter = time.Second

// run is the owner's loop. It returns why it ended.
func (c *connection) run() error {
	late := time.NewTimer(acknowledgeAfter)
	defer late.Stop()
	var open int // deliveries that are not acknowledged
	var last amqp091.Delivery
	acknowledge := func() error {
		open = 0
		return last.Ack(true)
	}
	for {
		var err error
		select {
		case <-c.Life.Done():
			return signal.ErrClosed
		case d, ok := <-c.arrived:
			if !ok {
				return fmt.Errorf("waiting for a signal: %w", c.s.failure())
			}
			c.take(d)
			if open, last = open+1, d; open == 1 {
				late.Reset(acknowledgeAfter)
			}
			if open >= max(c.cfg.Prefetch/2, 1) {
				err = acknowledge()
			}
		case _, ok := <-c.dropped:
			if !ok {
				return fmt.Errorf("waiting for a signal: %w", c.s.failure())
			}
			c.anything()
		case <-late.C:
			if open > 0 {
				err = acknowledge()
			}
		}
		if err != nil {
			return fmt.Errorf("acknowledging: %w", errors.Join(err, c.s.failure()))
		}
	}
}

// take puts a signal into the buffer. It ignores malformed messages of other programs.
func (c *connection) take(d amqp091.Delivery) {
	topic, ok := strings.CutPrefix(d.RoutingKey, signalKey)
	s := signal.Signal{Topic: signal.Topic(topic), Payload: string(d.Body)}
	if ok && s.Validate() == nil {
		c.Arrived.Put(s)
	}
}

// anything replaces the signals that the broker dropped: one signal without payload per topic.
func (c *connection) anything() {
	c.cfg.Metrics.SignalQueueOverflows.Inc()
	for t := range *c.topics.Load() {
		if !topicset.IsProbe(t) {
			c.Arrived.Put(signal.Signal{Topic: t})
		}
	}
}
