package listener_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/listener/listenertest"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Apart(m)) }

const (
	s         = time.Second
	interval  = 30 * s
	threshold = 5 * s
)

// owner records the calls of the hooks.
type owner struct {
	mu        sync.Mutex
	signals   []signal.Signal
	connected int
	changes   []deploymode.Snapshot
	fatal     []error
}

func (o *owner) hooks() listener.Hooks {
	lock := func(f func()) {
		o.mu.Lock()
		defer o.mu.Unlock()
		f()
	}
	return listener.Hooks{
		OnSignal:    func(sig signal.Signal) { lock(func() { o.signals = append(o.signals, sig) }) },
		OnConnected: func() { lock(func() { o.connected++ }) },
		OnChange:    func(c deploymode.Snapshot) { lock(func() { o.changes = append(o.changes, c) }) },
		OnFatal:     func(err error) { lock(func() { o.fatal = append(o.fatal, err) }) },
	}
}

func (o *owner) states() (out []deploymode.State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.changes {
		if len(out) == 0 || out[len(out)-1] != c.State {
			out = append(out, c.State)
		}
	}
	return out
}

func (o *owner) catchUps() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.connected
}

func over(source signal.Source) *listener.Listener {
	return listener.New(listener.Config{Source: source})
}

// topicsOf returns the topics of the connection without the probe topic, which is among
// them.
func topicsOf(source *listenertest.Source) []signal.Topic {
	all := source.Topics()
	return slices.Delete(all, probeOf(all), probeOf(all)+1)
}

func probeOf(topics []signal.Topic) int { return slices.IndexFunc(topics, topicset.IsProbe) }

func config() listener.SubscriptionConfig {
	return listener.SubscriptionConfig{
		SystemID: "sys",
		Topics:   []signal.Topic{"b", "a", "a"},
		Config: deploymode.Config{
			Mode:                        deploymode.Hybrid,
			OnListenerFailure:           deploymode.Unready,
			HealthCheckInterval:         interval,
			FallbackActivationThreshold: threshold,
			RecoveryThreshold:           2,
			MaxReconnectAttempts:        3,
			Reconnect:                   deploymode.Backoff{Base: s, Max: 8 * s, Multiplier: 2, Jitter: -1},
		},
		ConnectTimeout: 10 * s,
		Metrics:        telemetry.Discard(),
	}
}

func started(t *testing.T, shared *listener.Listener, cfg listener.SubscriptionConfig) (*listener.Subscription, *owner) {
	t.Helper()
	o := &owner{}
	l := shared.Subscribe(cfg, o.hooks())
	require.NoError(t, l.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, l.Stop(context.Background())) })
	return l, o
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestListensAndProvesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		cfg := config()
		l, o := started(t, over(source), cfg)
		require.NoError(t, l.Start(t.Context()))
		require.NoError(t, l.WaitHeard(t.Context()))
		synctest.Wait()
		require.Equal(t, []signal.Topic{"a", "b"}, topicsOf(source))
		require.Equal(t, 1, o.catchUps())
		require.False(t, l.Snapshot().Proven)

		after(threshold)
		require.True(t, l.Snapshot().Proven)
		require.Equal(t, deploymode.PaceRelaxed, l.Snapshot().Pace)

		source.Publish(signal.Signal{Topic: "a", Payload: "x"}, signal.Signal{Topic: "c"}, signal.Signal{Topic: "b"})
		synctest.Wait()
		require.Equal(t, []signal.Signal{{Topic: "a", Payload: "x"}, {Topic: "b"}}, o.signals, "probes and other topics are left out")
		require.InDelta(t, 2, testutil.ToFloat64(cfg.Metrics.NotificationsReceived.WithLabelValues("sys")), 0)
		require.InDelta(t, 1, testutil.ToFloat64(cfg.Metrics.ListenerActive.WithLabelValues("sys", "hybrid")), 0)

		h := l.Health()
		require.Equal(t, 2, h.Topics)
		require.Equal(t, "test", h.Source)
		require.False(t, h.LagAt.IsZero())
		require.False(t, h.ConnectedAt.IsZero())
		require.Equal(t, lifecycle.LoopRunning, h.Loop.State)

		require.NoError(t, l.Stop(t.Context()))
		require.NoError(t, l.Stop(t.Context()))
		open, _, _ := source.Counts()
		require.Zero(t, open)
		require.Equal(t, deploymode.Off, l.Snapshot().State)
		require.ErrorIs(t, l.WaitHeard(t.Context()), lifecycle.ErrStopped)
		require.Zero(t, testutil.CollectAndCount(cfg.Metrics.ListenerActive))
	})
}

func TestDeafIsDroppedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"mute", "hang"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := &listenertest.Source{}
				cfg := config()
				l, o := started(t, over(source), cfg)
				after(threshold)
				require.True(t, l.Snapshot().Proven)
				set := source.SetMute
				if way == "hang" {
					set = source.SetHang
				}
				set(true)
				require.NoError(t, l.WaitHeard(t.Context()), "a probe was received once")
				after(interval + threshold - 1)
				require.Equal(t, deploymode.PaceRelaxed, l.Snapshot().Pace)
				after(1)
				require.Equal(t, deploymode.PaceTight, l.Snapshot().Pace)
				set(false)
				after(s) // the delay before reconnecting
				require.Equal(t, deploymode.Listening, l.Snapshot().State)
				require.Equal(t, deploymode.PaceTight, l.Snapshot().Pace, "not before it is proven")
				require.Equal(t, 2, o.catchUps())
				after(threshold)
				require.Equal(t, deploymode.PaceRelaxed, l.Snapshot().Pace)
				require.InDelta(t, 1, testutil.ToFloat64(cfg.Metrics.Reconnections.WithLabelValues("sys")), 0)
				want := []deploymode.State{deploymode.Listening, deploymode.Deaf, deploymode.Reconnecting, deploymode.Listening}
				require.Equal(t, want, o.states())
			})
		})
	}
}

func TestReconnectsForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		cfg := config()
		cfg.Mode = deploymode.EventDrivenOnly
		cfg.OnListenerFailure = deploymode.Exit
		l, o := started(t, over(source), cfg)
		after(threshold)
		require.True(t, l.Snapshot().Ready)
		source.SetDown(true)
		source.Break()
		after(1) // lost; attempts follow 1, 2, 4, 8, 8, … s after one another
		require.Equal(t, deploymode.Reconnecting, l.Snapshot().State)
		require.True(t, l.Snapshot().Ready)
		after(7 * s)
		require.Equal(t, 3, l.Snapshot().Attempts)
		require.False(t, l.Snapshot().Ready)
		require.Len(t, o.fatal, 1)
		require.ErrorContains(t, o.fatal[0], "source is down")
		_, _, attempts := source.Counts()
		after(80 * s)
		_, _, later := source.Counts()
		require.Equal(t, 10, later-attempts, "capped at 8 s, for ever")
		require.Len(t, o.fatal, 1)
		short, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		require.ErrorContains(t, l.WaitHeard(short), "source is down")

		source.SetDown(false)
		require.NoError(t, l.WaitHeard(t.Context()))
		require.False(t, l.Snapshot().Ready)
		after(threshold)
		require.True(t, l.Snapshot().Ready)
		require.Empty(t, l.Health().LastError)
	})
}

// A source that keeps signals may deliver the probes of an earlier connection.
// TestALongFailureIsLoggedEachMinute: the operator sees why a listener does not come back.
func TestALongFailureIsLoggedEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		core, logged := observer.New(zap.WarnLevel)
		cfg := config()
		cfg.Logger = zap.New(core)
		source.SetDown(true)
		started(t, over(source), cfg)
		warnings := func() int { return logged.FilterMessage("listener not connected").Len() }
		after(50 * s)
		require.Equal(t, 1, warnings())
		after(5 * time.Minute)
		require.Equal(t, 6, warnings(), "each minute or, between attempts of 8 s, a little later")
	})
}

func TestAStaleProbeProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		source.SetHang(true)
		l, _ := started(t, over(source), config())
		after(s) // the first probe is under way
		source.Break()
		after(2 * s) // the second
		require.Equal(t, deploymode.Listening, l.Snapshot().State)
		probe := source.Topics()[probeOf(source.Topics())]
		for _, stale := range []string{"", "stale", "1"} {
			source.Publish(signal.Signal{Topic: probe, Payload: stale})
		}
		synctest.Wait()
		require.Zero(t, l.Snapshot().GoodProbes)
		source.Publish(signal.Signal{Topic: probe, Payload: "2"})
		synctest.Wait()
		require.Equal(t, 1, l.Snapshot().GoodProbes)
	})
}

// A transaction pooler accepts LISTEN and delivers nothing.
func TestConnectedIsNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		source.SetMute(true)
		l, _ := started(t, over(source), config())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		after(s)
		require.Equal(t, deploymode.Listening, l.Snapshot().State)
		require.ErrorIs(t, l.WaitHeard(ctx), context.DeadlineExceeded)
		source.SetMute(false)
		require.NoError(t, l.WaitHeard(t.Context()))
	})
}

func TestSetTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		l, o := started(t, over(source), config())
		after(threshold)
		require.NoError(t, l.SetTopics(t.Context(), []signal.Topic{"c", "a"}))
		require.Equal(t, []signal.Topic{"a", "c"}, topicsOf(source))
		synctest.Wait()
		require.Equal(t, 2, o.catchUps(), "work of the new topic may have come before")
		require.NoError(t, l.SetTopics(t.Context(), []signal.Topic{"a", "c"}))
		synctest.Wait()
		require.Equal(t, 2, o.catchUps(), "the same topics again change nothing")
		require.True(t, l.Snapshot().Proven)

		// Without a connection they are part of the next one.
		source.SetDown(true)
		source.Break()
		synctest.Wait()
		require.NoError(t, l.SetTopics(t.Context(), []signal.Topic{"d"}))
		source.SetDown(false)
		require.NoError(t, l.WaitHeard(t.Context()))
		require.Equal(t, []signal.Topic{"d"}, topicsOf(source))

		// A hanging subscription ends the connection, but the topics are kept.
		after(threshold)
		source.SetHang(true)
		short, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		require.ErrorIs(t, l.SetTopics(short, []signal.Topic{"e"}), context.DeadlineExceeded)
		source.SetHang(false)
		after(time.Minute)
		require.Equal(t, []signal.Topic{"e"}, topicsOf(source))
		require.True(t, l.Snapshot().Proven)
	})
}

func TestSetMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		cfg := config()
		l, o := started(t, over(source), cfg)
		after(threshold)
		require.NoError(t, l.SetMode(t.Context(), deploymode.EventDrivenOnly))
		require.Equal(t, deploymode.PaceOff, l.Snapshot().Pace)
		require.Equal(t, deploymode.EventDrivenOnly, o.changes[len(o.changes)-1].Mode)
		_, connects, _ := source.Counts()
		require.Equal(t, 1, connects, "the connection stays")
		require.InDelta(t, 1, testutil.ToFloat64(cfg.Metrics.ListenerActive.WithLabelValues("sys", "event_driven")), 0)
		require.Equal(t, 1, testutil.CollectAndCount(cfg.Metrics.ListenerActive), "no stale series")
	})
}

// TestAPanicInAHookIsMadeUpFor by a catch-up, without another connection.
func TestAPanicInAHookIsMadeUpFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		o := &owner{}
		hooks := o.hooks()
		record := hooks.OnSignal
		hooks.OnSignal = func(sig signal.Signal) {
			if sig.Payload == "boom" {
				panic("boom")
			}
			record(sig)
		}
		l := over(source).Subscribe(config(), hooks)
		require.NoError(t, l.Start(t.Context()))
		after(threshold)
		source.Publish(signal.Signal{Topic: "a", Payload: "boom"})
		after(s)
		require.Equal(t, deploymode.Listening, l.Snapshot().State)
		require.Equal(t, 2, o.catchUps())
		source.Publish(signal.Signal{Topic: "a"})
		synctest.Wait()
		require.Len(t, o.signals, 1)
		_, connects, _ := source.Counts()
		require.Equal(t, 1, connects)
		require.NoError(t, l.Stop(t.Context()))
	})
}

// laggingSource reads a log and knows its lag.
type laggingSource struct {
	*listenertest.Source
	bytes *atomic.Int64
}

type laggingConnection struct {
	signal.Connection
	bytes *atomic.Int64
}

func (s laggingSource) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	c, err := s.Source.Connect(ctx, topics)
	return laggingConnection{c, s.bytes}, err
}

func (c laggingConnection) LagBytes() int64 { return c.bytes.Load() }

func TestMeasuresTheLagOfALog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := laggingSource{&listenertest.Source{}, &atomic.Int64{}}
		cfg := config()
		l, _ := started(t, over(source), cfg)
		lag := func() float64 { return testutil.ToFloat64(cfg.Metrics.WALLag.WithLabelValues("sys")) }
		source.bytes.Store(500)
		after(threshold)
		require.True(t, l.Snapshot().Proven)
		require.InDelta(t, 500, lag(), 0)
		source.SetMute(true) // no probe comes back, which is when the lag matters
		source.bytes.Store(1 << 40)
		after(interval)
		require.InDelta(t, float64(1<<40), lag(), 0)
		source.SetDown(true)
		source.Break()
		after(s)
		require.Zero(t, testutil.CollectAndCount(cfg.Metrics.WALLag), "without a connection the lag is unknown")
	})

	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		started(t, over(&listenertest.Source{}), cfg)
		after(interval)
		require.Zero(t, testutil.CollectAndCount(cfg.Metrics.WALLag), "not every source reads a log")
	})
}
