package listener

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// Config describes a [Listener].
type Config struct {
	// Source makes the connections. Required.
	Source signal.Source
	// From is the source that the fleet moves away from, which is listened to beside Source;
	// nil unless it moves.
	From signal.Source
	// BufferLimit is how many different signals wait for each subscription before their
	// payloads are dropped; default pending.DefaultLimit.
	BufferLimit int

	// Logger and Metrics are for the connection; those of a subscription are its own.
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Listener keeps one connection of a source for all event systems of a process, and while the
// fleet moves one of either source (move.go). It connects when the first subscription starts, and closes the connection when the last
// one stops; the next one to start connects again. It is safe for concurrent use.
type Listener struct {
	cfg    Config
	from   *Listener    // of Config.From; nil unless the fleet moves
	probe  signal.Topic // of this listener alone
	probes atomic.Int64 // the number of the latest probe
	begin  time.Time

	// mu guards the fields below, and those of connectors and subscriptions that say so.
	// It is never held during a wait or a hook.
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced when a subscription moves
	connector *connector    // the latest one; nil before the first subscription
	timeout   time.Duration // the longest ConnectTimeout of the subscriptions
}

// New returns a listener without subscriptions.
func New(cfg Config) *Listener {
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	cfg.Metrics = cfg.Metrics.OrDiscard()
	l := &Listener{
		cfg:     cfg,
		probe:   signal.ProbeTopic(rand.Text()),
		begin:   time.Now(),
		changed: make(chan struct{}),
	}
	if cfg.From != nil {
		cfg.Source, cfg.From = cfg.From, nil
		l.from = New(cfg)
	}
	return l
}

// Source returns the name of the source: notify, wal, relay, redis or inproc.
func (l *Listener) Source() string { return l.cfg.Source.Name() }

// join adds s to the connector; the first subscription starts one.
func (l *Listener) join(ctx context.Context, s *Subscription) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch c := s.connector; {
	case s.stopped:
		return lifecycle.ErrStopped
	case c != nil && slices.Contains(c.started, s):
		return nil
	}
	if l.connector == nil || len(l.connector.started) == 0 {
		l.connector = newConnector(l, l.connector)
		if err := l.connector.loop.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	s.connector, s.lastError = l.connector, ""
	s.connector.started = append(s.connector.started, s)
	s.version = s.connector.change()
	return nil
}

// leave removes s; with the last subscription it ends the connection and waits for that.
func (l *Listener) leave(ctx context.Context, s *Subscription) error {
	l.mu.Lock()
	c := s.connector
	if c == nil {
		l.mu.Unlock()
		return nil
	}
	if i := slices.Index(c.started, s); i >= 0 {
		c.started = slices.Delete(c.started, i, i+1)
		c.change()
		s.cfg.Metrics.WALLag.DeleteLabelValues(s.cfg.SystemID)
	}
	left := len(c.started)
	l.mu.Unlock()
	if left > 0 {
		return nil
	}
	return c.loop.Stop(ctx)
}

// ofDatabase is a source whose connections lead to the database.
type ofDatabase interface{ OfDatabase() }

// Reconnect replaces the connection, or begins an attempt to connect anew, if the source uses
// the database: it was away, so the connection may carry nothing any more. It never blocks.
func (l *Listener) Reconnect() {
	if l.from != nil {
		l.from.Reconnect()
	}
	if _, ok := l.cfg.Source.(ofDatabase); !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connector == nil {
		return
	}
	if l.connector.abandon != nil {
		l.connector.abandon()
	}
	lifecycle.Nudge(l.connector.again)
}

// now is the time on the line of the machines.
func (l *Listener) now() time.Duration { return time.Since(l.begin) }

// announce wakes the waiters in Subscription.await; it requires the lock.
func (l *Listener) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}
