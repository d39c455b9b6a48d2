package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// SubscriptionConfig describes a [Subscription]. Intervals, delays and bounds are
// required: their defaults are in package config.
type SubscriptionConfig struct {
	// SystemID is the event system that subscribes, in logs and metrics.
	SystemID string
	// Topics to start with.
	Topics []signal.Topic
	// Config has the mode and the thresholds. Of the delays before an attempt to reconnect
	// the shortest of all subscriptions counts.
	deploymode.Config
	// ConnectTimeout bounds connecting, changing the topics and closing. The longest of
	// all subscriptions counts.
	ConnectTimeout time.Duration

	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Check rejects a configuration that lacks a value without a default here.
func (c SubscriptionConfig) Check() error {
	var err error
	if known := []deploymode.OnListenerFailure{deploymode.Unready, deploymode.Poll, deploymode.Exit}; !slices.Contains(known, c.OnListenerFailure) {
		err = fmt.Errorf("invalid OnListenerFailure %q: want one of %v", c.OnListenerFailure, known)
	}
	err = errors.Join(err, settings.Positive("HealthCheckInterval", c.HealthCheckInterval),
		settings.Positive("FallbackActivationThreshold", c.FallbackActivationThreshold),
		settings.Positive("RecoveryThreshold", c.RecoveryThreshold), settings.Positive("ConnectTimeout", c.ConnectTimeout),
		settings.Positive("Reconnect.Base", c.Reconnect.Base), settings.Positive("Reconnect.Max", c.Reconnect.Max))
	if err != nil {
		return fmt.Errorf("configure the listener of %s: %w", c.SystemID, err)
	}
	return nil
}

// Hooks are the callbacks of a subscription. Each is called sequentially, must return
// quickly and must not call the methods that wait (SetTopics, SetMode, Stop) of any
// subscription of the listener. All are required.
type Hooks struct {
	// OnSignal gets every signal of the topics. A signal whose OnSignal panics is
	// dropped, and OnConnected follows.
	OnSignal func(signal.Signal)
	// OnConnected: a new or changed subscription is in place. Signals may have been
	// missed before, so everything must be looked at.
	OnConnected func()
	// OnChange gets the snapshot, in order, after every change of more than its
	// measurements.
	OnChange func(deploymode.Snapshot)
	// OnFatal: the listener failed too often and the process should end
	// (on_listener_failure = "exit"). Called once.
	OnFatal func(error)
}

// Subscription is one event system's share of a [Listener]: its topics, its bounded
// buffer of arrived signals, and its view of the connection, by its own mode and
// thresholds. It implements lifecycle.Service and is safe for concurrent use.
type Subscription struct {
	listener *Listener
	from     *Subscription // to Config.From; nil unless the fleet moves
	cfg      SubscriptionConfig
	hooks    Hooks
	arrived  *pending.Buffer
	loop     *lifecycle.Loop // delivers the arrived signals
	dropped  bool            // OnSignal has panicked; owned by the loop

	stepping sync.Mutex // held during a step and its hooks, so that they stay in order

	// Guarded by Listener.mu:

	connector *connector // nil while the mode has no listener
	machine   deploymode.Machine
	topics    topicset.Set
	version   uint64 // the connector's first with these topics
	probe     int64  // the number of the probe that it waits for
	probeAt   time.Time
	lagAt     time.Time
	lastError string
	warned    time.Duration // when lastError was logged as a warning, on the line of the machines
	stopped   bool
}

// Subscribe returns a subscription that is not started.
func (l *Listener) Subscribe(cfg SubscriptionConfig, hooks Hooks) *Subscription {
	if l.from == nil {
		return l.subscribe(cfg, hooks)
	}
	return l.subscribeBoth(cfg, hooks)
}

func (l *Listener) subscribe(cfg SubscriptionConfig, hooks Hooks) *Subscription {
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	cfg.Metrics = cfg.Metrics.OrDiscard()
	l.mu.Lock()
	l.timeout = max(l.timeout, cfg.ConnectTimeout)
	l.mu.Unlock()
	s := &Subscription{
		listener: l,
		cfg:      cfg,
		hooks:    hooks,
		arrived:  pending.NewBuffer(l.cfg.BufferLimit),
		machine:  deploymode.NewMachine(cfg.Config),
		topics:   topicset.Of(cfg.Topics),
	}
	s.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name:       cfg.SystemID + "-listener",
		Run:        s.deliver,
		MaxSilence: time.Minute,
		OnRestart:  cfg.Metrics.Restarted,
		Logger:     cfg.Logger,
	})
	return s
}

// Start implements lifecycle.Service. In the modes with a listener it joins the connection
// and does not wait for it; see WaitHeard.
func (s *Subscription) Start(ctx context.Context) error {
	return s.each(func(s *Subscription) error { return s.start(ctx) })
}

func (s *Subscription) start(ctx context.Context) error {
	if err := s.cfg.Check(); err != nil {
		return err
	}
	if err := s.loop.Start(ctx); err != nil {
		return err
	}
	return s.follow(ctx)
}

// follow joins the connection or leaves it, as the mode says.
func (s *Subscription) follow(ctx context.Context) error {
	if s.own().Mode.Listens() {
		return s.listener.join(ctx, s)
	}
	return s.listener.leave(ctx, s)
}

// Stop implements lifecycle.Service: it changes the mode to Disabled for good.
func (s *Subscription) Stop(ctx context.Context) error {
	return s.each(func(s *Subscription) error { return s.end(ctx) })
}

func (s *Subscription) end(ctx context.Context) error {
	err := errors.Join(s.setMode(ctx, deploymode.Disabled), s.loop.Stop(ctx))
	l := s.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	s.stopped = true
	l.announce()
	return err
}

// SetMode changes the mode of a started subscription. The change is reported before the
// subscription joins the connection or leaves it. The last one to leave closes the
// connection and waits for that; the topics of others stay subscribed without a gap.
func (s *Subscription) SetMode(ctx context.Context, mode deploymode.Mode) error {
	return s.each(func(s *Subscription) error { return s.setMode(ctx, mode) })
}

func (s *Subscription) setMode(ctx context.Context, mode deploymode.Mode) error {
	s.step(deploymode.Event{Kind: deploymode.ModeChanged, Mode: mode})
	return s.follow(ctx)
}

// SetTopics replaces the topics and returns once signals of the new ones are received;
// without a connection it returns at once, and the next connection subscribes to them.
// OnConnected follows in both cases. An error means that ctx ended first; the topics
// are kept.
func (s *Subscription) SetTopics(ctx context.Context, topics []signal.Topic) error {
	return s.each(func(s *Subscription) error { return s.setTopics(ctx, topics) })
}

func (s *Subscription) setTopics(ctx context.Context, topics []signal.Topic) error {
	want, l := topicset.Of(topics), s.listener
	l.mu.Lock()
	if !maps.Equal(want, s.topics) {
		s.topics = want
		if s.connector != nil {
			s.version = s.connector.change()
		}
	}
	version := s.version
	l.mu.Unlock()
	err := s.await(ctx, func() bool {
		return s.machine.Snapshot().State != deploymode.Listening || s.connector.applied >= version
	})
	if err != nil {
		return fmt.Errorf("subscribing %s to %d topics: %w", s.loop.Name(), len(topics), err)
	}
	return nil
}

// WaitHeard waits until the connection, one of them while the fleet moves, is subscribed to
// the topics and a probe has come back, ctx ends, or the subscription is stopped. With a
// source that accepts subscriptions and delivers nothing it never succeeds.
func (s *Subscription) WaitHeard(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var heard atomic.Bool
	err := s.each(func(s *Subscription) error {
		err := s.waitHeard(ctx)
		if err == nil {
			heard.Store(true)
			cancel()
		}
		return err
	})
	if heard.Load() {
		return nil
	}
	return err
}

func (s *Subscription) waitHeard(ctx context.Context) error {
	err := s.await(ctx, func() bool {
		at := s.machine.Snapshot()
		return at.State == deploymode.Listening && at.GoodProbes > 0
	})
	if err == nil {
		return nil
	}
	cause := ""
	if last := s.health().LastError; last != "" {
		cause = " (" + last + ")"
	}
	return fmt.Errorf("waiting for %s to receive: %w%s", s.loop.Name(), err, cause)
}

// await waits until done, which is called with the lock held.
func (s *Subscription) await(ctx context.Context, done func() bool) error {
	l := s.listener
	for {
		l.mu.Lock()
		ok, stopped, changed := done(), s.stopped, l.changed
		l.mu.Unlock()
		switch {
		case ok:
			return nil
		case stopped:
			return lifecycle.ErrStopped
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// own returns the state of the machine of its own source.
func (s *Subscription) own() deploymode.Snapshot {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return s.machine.Snapshot()
}

// deliver passes the arrived signals to the owner.
func (s *Subscription) deliver(ctx context.Context) error {
	if s.dropped {
		s.dropped = false
		s.catchUp()
	}
	received := s.cfg.Metrics.NotificationsReceived.WithLabelValues(s.cfg.SystemID)
	for {
		s.loop.Rest()
		sig, err := s.arrived.Take(ctx)
		if err != nil {
			return err
		}
		s.loop.Beat()
		received.Inc()
		s.dropped = true
		s.hooks.OnSignal(sig)
		s.dropped = false
	}
}
