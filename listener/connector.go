package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

var (
	errRestarted = errors.New("the listener restarted")
	errDoubted   = errors.New("the server was away; the connection may carry nothing any more")
)

// connector keeps the connection from the first subscription to the last: it connects,
// serves the connection until it is lost, and repeats.
type connector struct {
	listener *Listener
	loop     *lifecycle.Loop
	poke     chan struct{} // of capacity 1: the subscriptions or their topics have changed
	again    chan struct{} // of capacity 1: the connection is in doubt
	before   *connector    // closes its connection first; owned by the loop

	// Guarded by Listener.mu:

	started []*Subscription // and not stopped
	version uint64          // of their topics
	applied uint64          // the version that the connection is subscribed to; 0 without one
	abandon func()          // ends an attempt to connect; nil without one
}

func newConnector(l *Listener, before *connector) *connector {
	c := &connector{listener: l, poke: make(chan struct{}, 1), again: make(chan struct{}, 1), before: before}
	c.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name: "listener",
		Run:  c.run,
		// Connecting ends with its deadline, closing with twice the deadline; what takes
		// longer than both together does not end at all.
		MaxSilence: 4*l.timeout + time.Minute,
		OnRestart:  l.cfg.Metrics.Restarted,
		Logger:     l.cfg.Logger,
	})
	return c
}

func (c *connector) run(ctx context.Context) error {
	defer func() {
		if ctx.Err() == nil { // after a panic the machines must not assume a connection
			c.lost(errRestarted)
		}
	}()
	c.awaitPredecessor(ctx)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		c.loop.Beat()
		err := c.connectAndServe(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		timer.Reset(c.lost(err))
		if err := c.pause(ctx, timer); err != nil {
			return err
		}
	}
}

// awaitPredecessor waits until the previous connection is closed: a persistent slot has
// one reader. A connection that hangs is abandoned.
func (c *connector) awaitPredecessor(ctx context.Context) {
	if c.before == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout())
	defer cancel()
	_ = c.before.loop.Stop(ctx) // its owner got the error
	c.before = nil
}

// pause waits for the timer; a new subscription ends the wait.
func (c *connector) pause(ctx context.Context, timer *time.Timer) error {
	c.loop.Rest()
	for {
		select {
		case <-timer.C:
			return nil
		case <-c.again:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.poke:
			if c.expected() {
				return nil
			}
		}
	}
}

func (c *connector) connectAndServe(ctx context.Context) error {
	select {
	case <-c.again: // the doubt was about an earlier connection
	default:
	}
	topics, version := c.union()
	connecting, cancel := context.WithTimeout(ctx, c.timeout())
	c.attempts(cancel)
	conn, err := c.listener.cfg.Source.Connect(connecting, sorted(topics))
	c.attempts(nil)
	cancel()
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", c.listener.Source(), err)
	}
	return c.serve(ctx, conn, topics, version)
}

// attempts says how to end the attempt to connect; nil: there is none.
func (c *connector) attempts(abandon func()) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.abandon = abandon
}

func sorted(topics topicset.Set) []signal.Topic { return slices.Sorted(maps.Keys(topics)) }

// change records that the topics of the subscriptions have changed and returns their
// version; it requires the lock.
func (c *connector) change() uint64 {
	c.version++
	lifecycle.Nudge(c.poke)
	return c.version
}

// subscriptions returns the started ones.
func (c *connector) subscriptions() []*Subscription {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return slices.Clone(c.started)
}

// timeout bounds connecting, subscribing and closing.
func (c *connector) timeout() time.Duration {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.listener.timeout
}

// union returns the topics of all subscriptions with the probe topic, and their version.
func (c *connector) union() (topics topicset.Set, version uint64) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	topics = topicset.Of([]signal.Topic{l.probe})
	for _, s := range c.started {
		maps.Copy(topics, s.topics)
	}
	return topics, c.version
}

// subscribed records the version that the connection is subscribed to, and reports it to
// the subscriptions whose topics are new in it; some says whether there are such.
func (c *connector) subscribed(version uint64) (some bool) {
	l := c.listener
	l.mu.Lock()
	var fresh []*Subscription
	for _, s := range c.started {
		if s.version > c.applied && s.version <= version {
			fresh = append(fresh, s)
		}
	}
	c.applied = version
	l.announce()
	l.mu.Unlock()
	for _, s := range fresh {
		s.subscribed()
	}
	return len(fresh) > 0
}

// lost reports the end of the connection, or of an attempt to connect, to the
// subscriptions. The shortest of their delays before the next attempt counts.
func (c *connector) lost(err error) (retry time.Duration) {
	c.listener.mu.Lock()
	c.applied = 0
	c.listener.mu.Unlock()
	first := true
	for _, s := range c.subscriptions() {
		if delay, ok := s.lost(err); ok && (first || delay < retry) {
			retry, first = delay, false
		}
	}
	return retry
}

// expected reports whether a subscription waits for its first attempt to connect.
func (c *connector) expected() bool {
	return slices.ContainsFunc(c.subscriptions(), func(s *Subscription) bool {
		at := s.own()
		return at.State == deploymode.Connecting && at.Attempts == 0
	})
}
