package inproc

import (
	"context"
	"sync"

	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// Bus delivers signals to the connections that subscribed to their topics. Each
// connection has a bounded buffer of its own, so a slow reader loses payloads and
// never blocks a sender. A Bus is safe for concurrent use.
type Bus struct {
	mu    sync.RWMutex
	conns map[*connection]struct{}
}

var (
	_ signal.Source    = (*Bus)(nil)
	_ signal.Transport = (*Bus)(nil)
	_ signal.Publisher = (*Bus)(nil)
)

// New returns a Bus whose connections buffer pending.DefaultLimit signals before they
// drop payloads.
func New() *Bus { return &Bus{conns: make(map[*connection]struct{})} }

// Name implements signal.Source.
func (b *Bus) Name() string { return "inproc" }

// Connect implements signal.Source. It does not wait for anything.
func (b *Bus) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := topicset.Validate(topics); err != nil {
		return nil, err
	}
	c := &connection{bus: b, arrived: pending.NewBuffer(0), topics: topicset.Of(topics)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[c] = struct{}{}
	return c, nil
}

// Send implements signal.Transport. If one signal is malformed, none is sent and the
// error wraps signal.ErrMalformed.
func (b *Bus) Send(ctx context.Context, batch []signal.Signal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, s := range batch {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	b.fanOut(batch)
	return nil
}

// Publish implements signal.Publisher without a Sender: within one process
// there is no round trip to share. Malformed signals are dropped.
func (b *Bus) Publish(signals ...signal.Signal) {
	for _, s := range signals {
		if s.Validate() == nil {
			b.fanOut([]signal.Signal{s})
		}
	}
}

func (b *Bus) fanOut(batch []signal.Signal) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for c := range b.conns {
		for _, s := range batch {
			if c.topics.Has(s.Topic) {
				c.arrived.Put(s)
			}
		}
	}
}

// connection is one subscription to a Bus. topics changes under the bus's lock.
type connection struct {
	bus     *Bus
	arrived *pending.Buffer
	topics  topicset.Set
}

func (c *connection) Receive(ctx context.Context) (signal.Signal, error) { return c.arrived.Take(ctx) }

func (c *connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := topicset.Validate(topics); err != nil {
		return err
	}
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	if _, open := c.bus.conns[c]; !open {
		return signal.ErrClosed
	}
	c.topics = topicset.Of(topics)
	return nil
}

func (c *connection) Probe(ctx context.Context, s signal.Signal) error {
	return c.bus.Send(ctx, []signal.Signal{s})
}

func (c *connection) Close(context.Context) error {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	delete(c.bus.conns, c)
	c.arrived.Close()
	return nil
}
