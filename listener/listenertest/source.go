// Package listenertest has a source of signals for tests that fails on demand.
package listenertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tasker-go/tasker/signal"
)

// ErrDown is the error of a source that is down.
var ErrDown = errors.New("source is down")

// ErrBroken is the error of a broken connection.
var ErrBroken = errors.New("connection is broken")

// Source is a signal.Source in memory. It is safe for concurrent use.
type Source struct {
	mu          sync.Mutex
	down        bool
	mute        bool
	hang        bool
	connections []*connection
	connects    int
	attempts    int
	probes      int
}

var _ signal.Source = (*Source)(nil)

// Name implements signal.Source.
func (s *Source) Name() string { return "test" }

// SetDown makes connecting fail; existing connections continue.
func (s *Source) SetDown(down bool) { s.set(func() { s.down = down }) }

// SetMute makes the source accept everything and deliver nothing.
func (s *Source) SetMute(mute bool) { s.set(func() { s.mute = mute }) }

// SetHang makes probes and subscriptions hang until their context ends.
func (s *Source) SetHang(hang bool) { s.set(func() { s.hang = hang }) }

func (s *Source) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Break ends all connections.
func (s *Source) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.connections {
		c.end()
	}
	s.connections = nil
}

// Publish delivers signals to the connections subscribed to their topics.
func (s *Source) Publish(signals ...signal.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mute {
		return
	}
	for _, sig := range signals {
		for _, c := range s.connections {
			if slices.Contains(c.topics, sig.Topic) {
				c.queue <- sig
			}
		}
	}
}

// Topics returns the topics of the latest connection, nil without one.
func (s *Source) Topics() []signal.Topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.connections) == 0 {
		return nil
	}
	return slices.Clone(s.connections[len(s.connections)-1].topics)
}

// Counts returns the open connections, all connections ever made and all attempts.
func (s *Source) Counts() (open, connects, attempts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections), s.connects, s.attempts
}

// Probes returns how many probes were sent.
func (s *Source) Probes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes
}

// Connect implements signal.Source.
func (s *Source) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.down {
		return nil, ErrDown
	}
	c := &connection{source: s, topics: slices.Clone(topics), queue: make(chan signal.Signal, 4096), ended: make(chan struct{})}
	s.connections = append(s.connections, c)
	s.connects++
	return c, nil
}

type connection struct {
	source *Source
	topics []signal.Topic // guarded by source.mu
	queue  chan signal.Signal
	once   sync.Once
	ended  chan struct{}
}

func (c *connection) end() { c.once.Do(func() { close(c.ended) }) }

func (c *connection) Receive(ctx context.Context) (signal.Signal, error) {
	select {
	case sig := <-c.queue:
		return sig, nil
	case <-c.ended:
		return signal.Signal{}, ErrBroken
	case <-ctx.Done():
		return signal.Signal{}, ctx.Err()
	}
}

func (c *connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.topics = slices.Clone(topics)
	return nil
}

func (c *connection) Probe(ctx context.Context, sig signal.Signal) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	c.source.set(func() { c.source.probes++ })
	c.source.Publish(sig)
	return nil
}

func (c *connection) usable(ctx context.Context) error {
	c.source.mu.Lock()
	hang := c.source.hang
	c.source.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-c.ended:
		return ErrBroken
	default:
		return ctx.Err()
	}
}

func (c *connection) Close(context.Context) error {
	c.end()
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.source.connections = slices.DeleteFunc(c.source.connections, func(o *connection) bool { return o == c })
	return nil
}
