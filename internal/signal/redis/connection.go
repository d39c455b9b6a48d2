package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// connection is one subscribed connection. Its owner reads; a Subscribe writes beside it, and
// ends with a marker: the name of a channel that does not exist, whose answer the owner reads after
// all others. (A server that cannot save rejects PING.)
type connection struct {
	*pgdial.Owner
	cfg    *Config
	pubsub *redis.PubSub

	ended context.Context // with the owner's loop; its cause is why
	end   context.CancelCauseFunc

	turn   chan struct{} // of capacity 1: held while the topics are replaced
	topics topicset.Set  // those asked for; under turn
	marker int           // the number of the latest one; under turn

	answered atomic.Pointer[string] // the latest name of which an unsubscription was answered
	news     chan struct{}          // of capacity 1: there is one
}

var _ signal.Connection = (*connection)(nil)

// Subscribe implements signal.Connection. New topics are subscribed to before old ones are
// dropped. When ctx ends first, the topics may be replaced later.
func (c *connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := topicset.Validate(topics); err != nil {
		return err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("subscribing: %w", ctx.Err())
	}
	if c.Life.Err() != nil {
		return signal.ErrClosed
	}
	if err := c.replace(c.Life, topics); err != nil { // not ctx, whose end would break the connection
		return err
	}
	return c.confirm(ctx)
}

// replace writes the commands for other topics.
func (c *connection) replace(ctx context.Context, topics []signal.Topic) error {
	wanted := topicset.Of(topics)
	if added := c.without(wanted, c.topics); len(added) > 0 {
		if err := c.pubsub.Subscribe(ctx, added...); err != nil {
			return fmt.Errorf("subscribing to %d topics: %w", len(added), err)
		}
	}
	c.marker++
	if err := c.pubsub.Unsubscribe(ctx, append(c.without(c.topics, wanted), c.mark())...); err != nil {
		return fmt.Errorf("unsubscribing from old topics: %w", err)
	}
	c.topics = wanted
	return nil
}

// mark is the name of the latest marker, which is that of no topic.
func (c *connection) mark() string { return c.cfg.Prefix + "?" + strconv.Itoa(c.marker) }

// without returns the channels of the topics that are not among others.
func (c *connection) without(topics, others topicset.Set) (channels []string) {
	for t := range topics {
		if !others.Has(t) {
			channels = append(channels, c.cfg.channel(t))
		}
	}
	return channels
}

// confirm waits until the server has answered the commands of the latest replace.
func (c *connection) confirm(ctx context.Context) error {
	for mark := c.mark(); ; {
		if name := c.answered.Load(); name != nil && *name == mark {
			return nil
		}
		select {
		case <-c.news:
		case <-c.ended.Done():
			return context.Cause(c.ended)
		case <-ctx.Done():
			return fmt.Errorf("subscribing: %w", ctx.Err())
		}
	}
}

// run is the owner's loop. It returns why it ended.
func (c *connection) run() (err error) {
	defer func() { c.end(err) }()
	for {
		received, err := c.pubsub.Receive(c.Life)
		if c.Life.Err() != nil {
			return signal.ErrClosed
		}
		if err != nil {
			return fmt.Errorf("waiting for Redis: %w", err)
		}
		switch m := received.(type) {
		case *redis.Message:
			s := signal.Signal{Topic: c.cfg.topic(m.Channel), Payload: m.Payload}
			if s.Validate() == nil { // any client may publish anything
				c.Arrived.Put(s)
			}
		case *redis.Subscription:
			c.answered.Store(&m.Channel)
			lifecycle.Nudge(c.news)
		}
	}
}
