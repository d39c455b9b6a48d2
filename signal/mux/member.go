package mux

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/signal"
)

// member is the connection of one listener.
type member struct {
	upstream *upstream
	arrived  *signal.Buffer

	// Guarded by Source.mu:

	topics signal.TopicSet
	closed bool
	asked  time.Time      // time of its last probe
	out    *signal.Signal // its probe, until it comes back
	flight *flight        // its last probe that was sent, until it is back
	proven bool           // a probe that was sent has come back
}

// lagging is a member of an upstream that reads a log.
type lagging struct {
	*member
	log
}

// log is implemented by connections that know how far they are behind.
type log interface{ LagBytes() int64 }

var (
	_ signal.Connection = (*member)(nil)
	_ log               = (*lagging)(nil)
)

// connection returns m with the capabilities of its upstream.
func (m *member) connection() signal.Connection {
	if l, ok := m.upstream.conn.(log); ok {
		return &lagging{m, l}
	}
	return m
}

// Receive implements signal.Connection.
func (m *member) Receive(ctx context.Context) (signal.Signal, error) { return m.arrived.Take(ctx) }

// Subscribe implements signal.Connection. When ctx ends first, the topics are replaced
// a moment later.
func (m *member) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := signal.ValidateTopics(topics); err != nil {
		return err
	}
	version, err := m.replace(signal.NewTopicSet(topics))
	if err != nil {
		return err
	}
	return m.await(ctx, version)
}

func (m *member) replace(topics signal.TopicSet) (version uint64, err error) {
	u := m.upstream
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	if err := m.usable(); err != nil {
		return 0, err
	}
	m.topics = topics
	return u.change(), nil
}

// await waits until the upstream is subscribed to a version of the topics.
func (m *member) await(ctx context.Context, version uint64) error {
	u := m.upstream
	for {
		u.source.mu.Lock()
		err, done, changed := m.usable(), u.applied >= version, u.changed
		u.source.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the shared connection: %w", ctx.Err())
		}
	}
}

// usable returns why m cannot be used any more; it requires the lock.
func (m *member) usable() error {
	if m.closed {
		return signal.ErrClosed
	}
	return m.upstream.err
}

// Close implements signal.Connection. If the upstream connection ends, it waits until
// that is closed.
func (m *member) Close(ctx context.Context) error {
	if !m.leave() {
		return nil
	}
	select {
	case <-m.upstream.gone:
		return m.upstream.closeErr
	case <-ctx.Done():
		return fmt.Errorf("closing the shared connection: %w", ctx.Err())
	}
}

// leave ends the membership and reports whether the upstream is over: its last member
// left, or a member that suspects it to be deaf.
func (m *member) leave() (over bool) {
	u := m.upstream
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	if m.closed {
		return u.err != nil
	}
	m.closed = true
	delete(u.members, m)
	switch {
	case u.err != nil:
	case m.unanswered():
		u.fail(ErrSuspect)
	case len(u.members) == 0:
		u.fail(signal.ErrClosed)
	default:
		u.change()
		u.announce()
	}
	m.arrived.Close()
	return u.err != nil
}
