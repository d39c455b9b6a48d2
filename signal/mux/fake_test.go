package mux_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }

const patience = 60 * time.Second

var (
	errDown   = errors.New("the source is down")
	errBroken = errors.New("the connection is broken")
)

// fake is a source in memory that fails on demand. A non-nil gate blocks its operation
// until it is closed.
type fake struct {
	lagBytes int64 // reported by its connections, unless 0

	mu          sync.Mutex
	open        []*fakeConn
	connects    int
	subscribes  int
	probes      int
	down        error
	mute        bool          // probes and signals get lost
	trip        time.Duration // of a probe
	connecting  chan struct{}
	subscribing chan struct{}
	closing     chan struct{}
}

func (f *fake) Name() string { return "fake" }

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// pass waits at a gate until it opens or ctx ends.
func (f *fake) pass(ctx context.Context, gate *chan struct{}) error {
	f.mu.Lock()
	g := *gate
	f.mu.Unlock()
	if g == nil {
		return ctx.Err()
	}
	select {
	case <-g:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	f.set(func() { f.connects++ })
	if err := f.pass(ctx, &f.connecting); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	c := &fakeConn{source: f, arrived: signal.NewBuffer(0), topics: slices.Clone(topics)}
	f.open = append(f.open, c)
	if f.lagBytes != 0 {
		return laggingConn{c}, nil
	}
	return c, nil
}

// publish delivers at once to all open connections.
func (f *fake) publish(signals ...signal.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliver(signals...)
}

func (f *fake) deliver(signals ...signal.Signal) {
	for _, c := range f.open {
		for _, s := range signals {
			if !f.mute && slices.Contains(c.topics, s.Topic) {
				c.arrived.Put(s)
			}
		}
	}
}

// breakAll ends all connections from the server side.
func (f *fake) breakAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		c.arrived.Fail(errBroken)
	}
	f.open = nil
}

// state returns the open connections and their topics.
func (f *fake) state() (open, connects int, topics []signal.Topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		topics = append(topics, c.topics...)
	}
	return len(f.open), f.connects, topics
}

func (f *fake) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probes
}

type fakeConn struct {
	source  *fake
	arrived *signal.Buffer
	topics  []signal.Topic // guarded by source.mu
}

type laggingConn struct{ *fakeConn }

func (c laggingConn) LagBytes() int64 { return c.source.lagBytes }

func (c *fakeConn) Receive(ctx context.Context) (signal.Signal, error) {
	s, err := c.arrived.Take(ctx)
	if s.Payload == "panic" {
		panic("the source has a fault")
	}
	return s, err
}

// Subscribe drops the old topics before the gate and adds the new ones after it, so
// that a caller that returns too early misses signals.
func (c *fakeConn) Subscribe(ctx context.Context, topics []signal.Topic) error {
	c.source.set(func() {
		c.source.subscribes++
		c.topics = slices.DeleteFunc(c.topics, func(t signal.Topic) bool { return !slices.Contains(topics, t) })
	})
	if err := c.source.pass(ctx, &c.source.subscribing); err != nil {
		return err
	}
	c.source.set(func() { c.topics = slices.Clone(topics) })
	return nil
}

func (c *fakeConn) Probe(ctx context.Context, s signal.Signal) error {
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.source.probes++
	if c.source.trip == 0 {
		c.source.deliver(s)
		return ctx.Err()
	}
	lost := c.source.mute
	time.AfterFunc(c.source.trip, func() { // takes time: of a bubble
		if !lost {
			c.source.publish(s)
		}
	})
	return ctx.Err()
}

func (c *fakeConn) Close(ctx context.Context) error {
	c.arrived.Close()
	err := c.source.pass(ctx, &c.source.closing)
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.source.open = slices.DeleteFunc(c.source.open, func(o *fakeConn) bool { return o == c })
	return err
}
