package mux

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/signal"
)

// upstream is one connection of the wrapped source and its members. One goroutine reads
// it and puts the signals into the buffers of the members, which never block; another
// one keeps it subscribed to the union of their topics. Once over it stays over: the
// next member to connect makes another one.
type upstream struct {
	source *Source

	life  context.Context // ends when the upstream is over
	end   context.CancelFunc
	stale chan struct{} // of capacity 1: the union may have changed
	gone  chan struct{} // closed when the connection was released
	owner conc.WaitGroup

	conn     signal.Connection // set before an open upstream has members
	topics   signal.TopicSet   // of conn; owned by the subscribing goroutine
	closeErr error             // of conn; set before gone is closed

	// Guarded by source.mu:

	members   map[*member]struct{}
	wanted    uint64        // version of the members' topics
	applied   uint64        // the version that conn is subscribed to
	changed   chan struct{} // closed and replaced when applied, err or a member's end changes
	err       error         // why it is over
	abandoned bool          // over because its opener gave up
	proof     proof
}

func newUpstream(s *Source) *upstream {
	// The life of a connection is not that of the context that connected it.
	life, end := context.WithCancel(context.Background())
	return &upstream{
		source:  s,
		life:    life,
		end:     end,
		stale:   make(chan struct{}, 1),
		gone:    make(chan struct{}),
		members: make(map[*member]struct{}),
		changed: make(chan struct{}),
	}
}

// open connects and records the result in applied and err.
func (u *upstream) open(ctx context.Context) {
	err := lifecycle.Guard(func() error { return u.connect(ctx) })
	if err == nil {
		u.start()
		return
	}
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	u.abandoned = ctx.Err() != nil
	u.fail(err)
	close(u.gone)
}

func (u *upstream) connect(ctx context.Context) error {
	if err := u.awaitPredecessor(ctx); err != nil {
		return err
	}
	version, topics := u.union()
	conn, err := u.source.wrapped.Connect(ctx, list(topics))
	if err != nil {
		return err
	}
	u.conn, u.topics = conn, topics
	u.subscribed(version)
	return nil
}

// awaitPredecessor waits until the previous connection is closed: a persistent slot has
// one reader. A connection that hangs is abandoned.
func (u *upstream) awaitPredecessor(ctx context.Context) error {
	s := u.source
	s.mu.Lock()
	before := s.closing
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	patience := time.NewTimer(s.cfg.CloseTimeout)
	defer patience.Stop()
	select {
	case <-before.gone:
	case <-patience.C:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the previous connection to close: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = nil
	return nil
}

func (u *upstream) start() {
	u.owner.Go(func() {
		defer close(u.gone)
		var subscriber conc.WaitGroup
		subscriber.Go(func() { u.over(lifecycle.Guard(u.keepSubscribed)) })
		u.over(lifecycle.Guard(u.read))
		ctx, cancel := context.WithTimeout(context.Background(), u.source.cfg.CloseTimeout)
		defer cancel()
		u.closeErr = lifecycle.Guard(func() error { return u.conn.Close(ctx) })
		subscriber.Wait()
	})
}

// read delivers the signals, and returns why no more arrive.
func (u *upstream) read() error {
	for {
		s, err := u.conn.Receive(u.life)
		if err != nil {
			return err
		}
		u.dispatch(s)
	}
}

func (u *upstream) dispatch(s signal.Signal) {
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	for m := range u.members {
		if m.topics.Has(s.Topic) {
			m.arrived.Put(s)
		}
	}
	u.returned(s)
}

// keepSubscribed replaces the topics of the connection whenever the union of the
// members' topics changes. New topics are never dropped in between: a caller of
// Subscribe waits for a version that was decided after its topics were known, and
// subscriptions run one after the other.
func (u *upstream) keepSubscribed() error {
	for {
		select {
		case <-u.life.Done():
			return u.life.Err()
		case <-u.stale:
		}
		version, topics := u.union()
		if !maps.Equal(topics, u.topics) {
			if err := u.subscribe(topics); err != nil {
				return fmt.Errorf("subscribing the shared connection: %w", err)
			}
			u.topics = topics
		}
		u.subscribed(version)
	}
}

func (u *upstream) subscribe(topics signal.TopicSet) error {
	ctx, cancel := context.WithTimeout(u.life, u.source.cfg.SubscribeTimeout)
	defer cancel()
	return u.conn.Subscribe(ctx, list(topics))
}

// union returns the topics of all members and their version.
func (u *upstream) union() (version uint64, topics signal.TopicSet) {
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	topics = make(signal.TopicSet)
	for m := range u.members {
		maps.Copy(topics, m.topics)
	}
	return u.wanted, topics
}

func list(topics signal.TopicSet) []signal.Topic { return slices.Sorted(maps.Keys(topics)) }

func (u *upstream) subscribed(version uint64) {
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	u.applied = version
	u.announce()
}

func (u *upstream) over(err error) {
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	u.fail(err)
}

func (u *upstream) wasAbandoned() bool {
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	return u.abandoned
}

// The methods below require source.mu.

// change records that the topics of the members have changed, and returns their
// version.
func (u *upstream) change() uint64 {
	u.wanted++
	select {
	case u.stale <- struct{}{}:
	default:
	}
	return u.wanted
}

// fail ends the upstream for all members; the first reason counts.
func (u *upstream) fail(err error) {
	if u.err != nil {
		return
	}
	u.err = err
	for m := range u.members {
		m.arrived.Fail(err)
	}
	u.source.current = nil
	if u.conn != nil {
		u.source.closing = u
	}
	u.end()
	u.announce()
}

func (u *upstream) announce() {
	close(u.changed)
	u.changed = make(chan struct{})
}
