package amqp

import (
	"context"
	"fmt"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/signal"
)

// maxDelay is the longest delay of a signal: 36 hours, in 18 queues.
const maxDelay = 1 << 17 * time.Second

// SendAfter is Send with a delay of more than 0 and at most 36 hours, kept by the broker: the
// signals survive the sender, and are lost when the broker restarts. They are sent when they
// are due, or later by less than their delay, or than a second: a queue expires in order.
func (t *Transport) SendAfter(ctx context.Context, delay time.Duration, batch []signal.Signal) error {
	if delay <= 0 || delay > maxDelay {
		return fmt.Errorf("invalid delay %s: want more than 0 and at most %s", delay, maxDelay)
	}
	bucket := time.Second
	for bucket < delay {
		bucket *= 2
	}
	like := amqp091.Publishing{Headers: amqp091.Table{delayHeader: bucket.String()}, Expiration: strconv.FormatInt(max(delay.Milliseconds(), 1), 10)}
	return t.sendTo(ctx, batch, t.broker.cfg.Topology.delays(), func(ctx context.Context, s *session) error { return t.delaying(ctx, s, bucket) }, like)
}

// delayHeader routes a message to the queue of its delay; the routing key is that of the signal,
// which routes it from there to the listeners.
const delayHeader = "tasker-delay"

// delaying declares the queue of a delay.
func (t *Transport) delaying(ctx context.Context, s *session, bucket time.Duration) error {
	topology := t.broker.cfg.Topology
	name := topology.delayQueue(bucket)
	if t.ready[name] {
		return nil
	}
	err := s.declare(ctx, Object{Kind: KindQueue, Name: name, Bound: topology.delays(), match: amqp091.Table{"x-match": "all", delayHeader: bucket.String()},
		args: amqp091.Table{"x-message-ttl": bucket.Milliseconds(), "x-dead-letter-exchange": topology.direct(), "x-max-length": t.broker.cfg.MaxWaiting}})
	if err != nil {
		return fmt.Errorf("prepare a delay: %w: %w", ErrUnavailable, err)
	}
	t.ready[name] = true
	return nil
}
