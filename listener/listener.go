package listener

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// Config describes a [Listener]. Source, intervals, delays and bounds are required:
// their defaults are in package config.
type Config struct {
	// SystemID is the event system of the listener, in logs and metrics.
	SystemID string
	// ID names this listener in the fleet, for its probe topic; default random.
	ID string
	// Mode is Hybrid or EventDrivenOnly.
	Mode   deploymode.Mode
	Source signal.Source
	// Topics to start with; the probe topic is added.
	Topics []signal.Topic

	HealthCheckInterval         time.Duration
	FallbackActivationThreshold time.Duration
	RecoveryThreshold           int
	OnListenerFailure           deploymode.OnListenerFailure
	// ConnectTimeout bounds connecting, changing the subscription and closing.
	ConnectTimeout time.Duration
	Reconnect      Reconnect

	Clock   lifecycle.Clock    // default the real one
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Check rejects a configuration that lacks a value without a default here.
func (c Config) Check() error {
	var err error
	if known := []deploymode.OnListenerFailure{deploymode.Unready, deploymode.Poll, deploymode.Exit}; !slices.Contains(known, c.OnListenerFailure) {
		err = fmt.Errorf("invalid OnListenerFailure %q: want one of %v", c.OnListenerFailure, known)
	}
	err = errors.Join(err, config.Positive("HealthCheckInterval", c.HealthCheckInterval),
		config.Positive("FallbackActivationThreshold", c.FallbackActivationThreshold),
		config.Positive("RecoveryThreshold", c.RecoveryThreshold), config.Positive("ConnectTimeout", c.ConnectTimeout),
		config.Positive("Reconnect.Initial", c.Reconnect.Initial), config.Positive("Reconnect.Max", c.Reconnect.Max))
	if err != nil {
		return fmt.Errorf("configure the listener of %s: %w", c.SystemID, err)
	}
	return nil
}

// Reconnect controls the attempts to reconnect.
type Reconnect struct {
	// Initial and Max bound the delay, which doubles with each failed attempt.
	Initial, Max time.Duration
	// Jitter is the largest random share taken off a delay.
	Jitter float64
	// MaxAttempts is the number of consecutive failures after which OnListenerFailure
	// applies; 0 means any number. Attempts continue for ever.
	MaxAttempts int
}

// Hooks are the callbacks of a listener. Each is called sequentially, must return
// quickly and must not call the listener's methods that wait (SetTopics, SetMode, Stop).
// Nil hooks are skipped.
type Hooks struct {
	// OnSignal gets every signal except probes.
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

// Listener implements lifecycle.Service and is safe for concurrent use.
type Listener struct {
	cfg   Config
	hooks Hooks
	probe signal.Topic
	nonce string
	loop  *lifecycle.Loop
	begin time.Time

	topicsChanged chan struct{} // of capacity 1

	stepping sync.Mutex // held during a step and its hooks, so that they stay in order

	mu          sync.Mutex
	machine     deploymode.Machine
	topics      []signal.Topic
	version     uint64 // of topics
	applied     uint64 // the subscribed version
	changed     chan struct{}
	lag         signal.Lag
	lastError   string
	connectedAt time.Time
	stopped     bool
}

// New returns a listener that is not started.
func New(cfg Config, hooks Hooks) *Listener {
	if cfg.ID == "" {
		cfg.ID = rand.Text()
	}
	if cfg.Clock == nil {
		cfg.Clock = lifecycle.RealClock()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	l := &Listener{
		cfg:           cfg,
		hooks:         hooks.withDefaults(),
		probe:         signal.ProbeTopic(cfg.ID),
		nonce:         rand.Text()[:8],
		begin:         cfg.Clock.Now(),
		topicsChanged: make(chan struct{}, 1),
		machine:       deploymode.NewMachine(cfg.machine()),
		version:       1,
		changed:       make(chan struct{}),
	}
	l.topics = l.complete(cfg.Topics)
	l.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name: cfg.SystemID + "-listener",
		Run:  l.run,
		// Connecting ends with its deadline, closing with twice the deadline; what takes
		// longer than both together does not end at all.
		MaxSilence: 4*cfg.ConnectTimeout + time.Minute,
		OnRestart:  func(name string) { cfg.Metrics.LoopRestarts.WithLabelValues(name).Inc() },
		Clock:      cfg.Clock,
		Logger:     cfg.Logger,
	})
	return l
}

func (c Config) machine() deploymode.Config {
	r := c.Reconnect
	return deploymode.Config{
		Mode:                        c.Mode,
		HealthCheckInterval:         c.HealthCheckInterval,
		FallbackActivationThreshold: c.FallbackActivationThreshold,
		RecoveryThreshold:           c.RecoveryThreshold,
		MaxReconnectAttempts:        r.MaxAttempts,
		OnListenerFailure:           c.OnListenerFailure,
		Reconnect:                   deploymode.Backoff{Base: r.Initial, Max: r.Max, Multiplier: 2, Jitter: r.Jitter},
	}
}

func (h Hooks) withDefaults() Hooks {
	if h.OnSignal == nil {
		h.OnSignal = func(signal.Signal) {}
	}
	if h.OnConnected == nil {
		h.OnConnected = func() {}
	}
	if h.OnChange == nil {
		h.OnChange = func(deploymode.Snapshot) {}
	}
	if h.OnFatal == nil {
		h.OnFatal = func(error) {}
	}
	return h
}

// Name implements lifecycle.Service.
func (l *Listener) Name() string { return l.loop.Name() }

// Start implements lifecycle.Service. It does not wait for the connection; see
// WaitConnected.
func (l *Listener) Start(ctx context.Context) error {
	switch {
	case l.cfg.Source == nil:
		return fmt.Errorf("starting %s: no source of signals", l.Name())
	case !l.cfg.Mode.Listens():
		return fmt.Errorf("starting %s: %s has no listener", l.Name(), l.cfg.Mode)
	case l.cfg.Check() != nil:
		return l.cfg.Check()
	case len(l.probe) > signal.MaxTopicBytes:
		return fmt.Errorf("starting %s: the id %q makes a topic longer than %d bytes", l.Name(), l.cfg.ID, signal.MaxTopicBytes)
	}
	return l.loop.Start(ctx)
}

// Stop implements lifecycle.Service: it closes the connection.
func (l *Listener) Stop(ctx context.Context) error {
	err := l.loop.Stop(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return err
	}
	l.stopped = true
	mode := l.machine.Snapshot().Mode.Label()
	l.cfg.Metrics.ListenerActive.DeleteLabelValues(l.cfg.SystemID, mode)
	l.cfg.Metrics.ListenerLag.DeleteLabelValues(l.cfg.SystemID, mode)
	// The owner caused this change, so it is not reported.
	l.machine, _ = l.machine.Step(deploymode.Event{Kind: deploymode.ModeChanged, Mode: deploymode.Disabled}, 0)
	l.announce()
	return err
}

// SetMode changes between Hybrid and EventDrivenOnly; the connection stays.
func (l *Listener) SetMode(mode deploymode.Mode) error {
	if !mode.Listens() {
		return fmt.Errorf("%s: %s has no listener", l.Name(), mode)
	}
	l.step(deploymode.Event{Kind: deploymode.ModeChanged, Mode: mode})
	return nil
}

// SetTopics replaces the topics and returns once signals of the new ones are received;
// without a connection it returns at once, and the next connection subscribes to them.
// OnConnected follows in both cases. An error means that ctx ended first; the topics
// are kept.
func (l *Listener) SetTopics(ctx context.Context, topics []signal.Topic) error {
	want := l.complete(topics)
	l.mu.Lock()
	if !slices.Equal(want, l.topics) {
		l.topics = want
		l.version++
		select {
		case l.topicsChanged <- struct{}{}:
		default:
		}
	}
	version := l.version
	l.mu.Unlock()
	err := l.await(ctx, func() bool {
		return l.applied >= version || l.machine.Snapshot().State != deploymode.Listening
	})
	if err != nil {
		return fmt.Errorf("subscribing %s to %d topics: %w", l.Name(), len(topics), err)
	}
	return nil
}

// WaitConnected waits until the listener is connected and subscribed, ctx ends, or the
// listener is stopped.
func (l *Listener) WaitConnected(ctx context.Context) error {
	err := l.await(ctx, func() bool { return l.machine.Snapshot().State == deploymode.Listening })
	if err != nil {
		return fmt.Errorf("waiting for %s to connect: %w%s", l.Name(), err, l.because())
	}
	return nil
}

// WaitHeard is WaitConnected, and waits for a returned probe too: with a source that
// accepts subscriptions and delivers nothing it never succeeds.
func (l *Listener) WaitHeard(ctx context.Context) error {
	err := l.await(ctx, func() bool {
		s := l.machine.Snapshot()
		return s.State == deploymode.Listening && s.GoodProbes > 0
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to receive: %w%s", l.Name(), err, l.because())
	}
	return nil
}

// because returns the latest error as the end of another.
func (l *Listener) because() string {
	if last := l.Health().LastError; last != "" {
		return " (" + last + ")"
	}
	return ""
}

// await waits until done, which is called with the lock held.
func (l *Listener) await(ctx context.Context, done func() bool) error {
	for {
		l.mu.Lock()
		ok, stopped, changed := done(), l.stopped, l.changed
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

// announce wakes the waiters in await; it requires the lock.
func (l *Listener) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// complete adds the probe topic, sorts and removes duplicates.
func (l *Listener) complete(topics []signal.Topic) []signal.Topic {
	all := append(slices.Clone(topics), l.probe)
	slices.Sort(all)
	return slices.Compact(all)
}

// Snapshot returns the state of the machine.
func (l *Listener) Snapshot() deploymode.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.Snapshot()
}
