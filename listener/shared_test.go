package listener_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/listener/listenertest"
	"github.com/tasker-go/tasker/signal"
)

// pair starts two subscriptions of one listener, the second one apart later.
func pair(t *testing.T, source signal.Source, apart time.Duration) (subscriptions []*listener.Subscription, owners []*owner) {
	t.Helper()
	both := over(source)
	for _, id := range []string{"first", "second"} {
		s, o := started(t, both, named(id))
		subscriptions, owners = append(subscriptions, s), append(owners, o)
		after(apart)
	}
	return subscriptions, owners
}

func named(id string, topics ...signal.Topic) listener.SubscriptionConfig {
	cfg := config()
	cfg.SystemID = id
	cfg.Topics = append([]signal.Topic{signal.Topic(id)}, topics...)
	return cfg
}

func contextFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestSubscriptionsShareOneConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		both := over(source)
		x, ox := started(t, both, named("x", "both"))
		y, oy := started(t, both, named("y", "both"))
		synctest.Wait()
		require.Equal(t, []signal.Topic{"both", "x", "y"}, topicsOf(source))
		source.Publish(signal.Signal{Topic: "x"}, signal.Signal{Topic: "y"}, signal.Signal{Topic: "both"})
		synctest.Wait()
		require.Equal(t, []signal.Signal{{Topic: "x"}, {Topic: "both"}}, ox.signals)
		require.Equal(t, []signal.Signal{{Topic: "y"}, {Topic: "both"}}, oy.signals)

		require.NoError(t, x.SetTopics(t.Context(), []signal.Topic{"y"}))
		require.Equal(t, []signal.Topic{"both", "y"}, topicsOf(source), "x is of interest no more")
		synctest.Wait()
		require.Equal(t, []int{2, 1}, []int{ox.catchUps(), oy.catchUps()})

		require.NoError(t, y.Stop(t.Context()))
		synctest.Wait()
		require.Equal(t, []signal.Topic{"y"}, topicsOf(source))
		require.Equal(t, deploymode.Listening, x.Snapshot().State)
		require.NoError(t, x.Stop(t.Context()))
		open, connects, _ := source.Counts()
		require.Equal(t, []int{0, 1}, []int{open, connects}, "the last one closes it")

		z, _ := started(t, both, named("z"))
		require.NoError(t, z.WaitHeard(t.Context()))
		_, connects, _ = source.Counts()
		require.Equal(t, 2, connects)
	})
}

// TestASlowSubscription loses payloads, and blocks no other.
func TestASlowSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		both := listener.New(listener.Config{Source: source, BufferLimit: 2})
		_, quick := started(t, both, named("quick", "a"))
		slow, gate := &owner{}, make(chan struct{})
		hooks := slow.hooks()
		record := hooks.OnSignal
		hooks.OnSignal = func(s signal.Signal) { <-gate; record(s) }
		s := both.Subscribe(named("slow", "a"), hooks)
		require.NoError(t, s.Start(t.Context()))
		synctest.Wait()
		for i := range 5 {
			source.Publish(signal.Signal{Topic: "a", Payload: fmt.Sprint(i)})
			synctest.Wait()
			require.Len(t, quick.signals, i+1)
		}
		after(90 * time.Second)
		require.True(t, s.Health().Loop.Stuck)
		require.True(t, s.Snapshot().Proven, "the connection is well")
		close(gate)
		synctest.Wait()
		require.Equal(t, []signal.Signal{{Topic: "a", Payload: "0"}, {Topic: "a"}}, slow.signals)
		require.NoError(t, s.Stop(t.Context()))
	})
}

// TestOneProbeForAll: two subscriptions send the probes of one, whatever the time between
// their starts, and each measures its own round trip.
func TestOneProbeForAll(t *testing.T) {
	t.Parallel()
	for apart := time.Duration(0); apart < interval; apart += 3700 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			source := &listenertest.Source{}
			subscriptions, _ := pair(t, source, apart)
			after(2 * interval)
			for _, s := range subscriptions {
				require.True(t, s.Snapshot().Proven)
			}
			before := source.Probes()
			after(10 * interval)
			require.Equal(t, 10, source.Probes()-before)
			for _, s := range subscriptions {
				require.True(t, s.Snapshot().Proven)
			}
		})
	}
}

// TestSharedConnectionGoesDeaf: both detect it no later than a single one would, and both
// are proven again on one new connection.
func TestSharedConnectionGoesDeaf(t *testing.T) {
	t.Parallel()
	for apart := time.Duration(0); apart < interval; apart += 3700 * time.Millisecond {
		for dies := time.Duration(0); dies < interval; dies += 4300 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				source := &listenertest.Source{}
				subscriptions, owners := pair(t, source, apart)
				after(2*interval + dies)
				for _, s := range subscriptions {
					require.True(t, s.Snapshot().Proven)
				}
				source.SetMute(true)
				after(interval + threshold + time.Millisecond)
				for i, s := range subscriptions {
					require.False(t, s.Snapshot().Proven, "%s apart, dead after %s: %d is still proven", apart, dies, i)
				}
				source.SetMute(false)
				after(time.Minute)
				for i, s := range subscriptions {
					require.True(t, s.Snapshot().Proven)
					require.GreaterOrEqual(t, owners[i].catchUps(), 2)
				}
				open, _, _ := source.Counts()
				require.Equal(t, 1, open)
			})
		}
	}
}

// TestOneGivesUpForAll: the one with the shortest threshold decides.
func TestOneGivesUpForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		both := over(source)
		cfg := named("patient")
		cfg.FallbackActivationThreshold = time.Hour
		patient, owner := started(t, both, cfg)
		quick, _ := started(t, both, named("quick"))
		after(2 * interval)
		require.True(t, patient.Snapshot().Proven)
		source.SetMute(true)
		after(interval + threshold)
		require.False(t, quick.Snapshot().Proven)
		require.False(t, patient.Snapshot().Proven)
		source.SetMute(false)
		after(2 * interval)
		require.True(t, patient.Snapshot().Proven)
		require.GreaterOrEqual(t, owner.catchUps(), 2)
	})
}

// TestANewSubscriptionDoesNotWait for the delay of the others.
func TestANewSubscriptionDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		source.SetDown(true)
		both := over(source)
		x, _ := started(t, both, named("x"))
		after(time.Minute)
		source.SetDown(false)
		require.Equal(t, deploymode.Connecting, x.Snapshot().State)
		y, _ := started(t, both, named("y"))
		synctest.Wait()
		require.Equal(t, deploymode.Listening, x.Snapshot().State)
		require.Equal(t, deploymode.Listening, y.Snapshot().State)
		require.Zero(t, y.Snapshot().Attempts)
	})
}

// closing is a source whose connections close when the gate opens.
type closing struct {
	*listenertest.Source
	gate chan struct{}
}

type closingConnection struct {
	signal.Connection
	gate chan struct{}
}

func (c closing) Connect(ctx context.Context, topics []signal.Topic) (signal.Connection, error) {
	conn, err := c.Source.Connect(ctx, topics)
	return closingConnection{conn, c.gate}, err
}

func (c closingConnection) Close(ctx context.Context) error {
	select {
	case <-c.gate:
	case <-ctx.Done():
	}
	return c.Connection.Close(ctx)
}

// TestTheNextWaitsForTheEnd: a persistent slot has one reader. A connection that hangs
// does not block the next one for ever.
func TestTheNextWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			source := closing{&listenertest.Source{}, make(chan struct{})}
			both := over(source)
			x, _ := started(t, both, named("x"))
			after(s)
			stopped := make(chan error)
			go func() { stopped <- x.Stop(context.Background()) }()
			synctest.Wait()
			y, _ := started(t, both, named("y"))
			begin, want := time.Now(), 3*s
			if hangs {
				want = 10 * s
				time.AfterFunc(time.Minute, func() { close(source.gate) })
			} else {
				time.AfterFunc(want, func() { close(source.gate) })
			}
			require.NoError(t, y.WaitHeard(t.Context()))
			require.Equal(t, want, time.Since(begin))
			require.NoError(t, <-stopped)
			open, _, _ := source.Counts()
			require.Equal(t, 1, open)
			after(time.Minute)
		})
	}
}

// TestStopLeavesNoSeries of its own, and keeps those of others.
func TestStopLeavesNoSeries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		both := over(&listenertest.Source{})
		cfg := named("x")
		x, _ := started(t, both, cfg)
		other := named("y")
		other.Metrics = cfg.Metrics
		started(t, both, other)
		after(interval)
		require.Equal(t, 2, testutil.CollectAndCount(cfg.Metrics.ListenerActive))
		require.NoError(t, x.Stop(t.Context()))
		after(interval)
		require.Equal(t, 1, testutil.CollectAndCount(cfg.Metrics.ListenerActive))
		require.ErrorContains(t, x.Start(t.Context()), "stopped")
	})
}

// TestSharedRecoveryProperty is TestRecoveryProperty for two subscriptions, one of which
// comes and goes.
func TestSharedRecoveryProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.SampledFrom([]string{"down", "up", "mute", "loud", "hang", "flow", "break", "topics", "away", "back"}), 1, 12).Draw(rt, "acts")
		waits := rapid.SliceOfN(rapid.IntRange(0, 60_000), len(acts), len(acts)).Draw(rt, "waits")
		problem := ""
		synctest.Test(t, func(t *testing.T) {
			source := &listenertest.Source{}
			both := over(source)
			stays, owner := started(t, both, named("stays"))
			guest, _ := started(t, both, named("guest"))
			for i, act := range acts {
				switch act {
				case "down", "up":
					source.SetDown(act == "down")
				case "mute", "loud":
					source.SetMute(act == "mute")
				case "hang", "flow":
					source.SetHang(act == "hang")
				case "break":
					source.Break()
				case "topics":
					_ = stays.SetTopics(contextFor(t, s), []signal.Topic{signal.Topic(strings.Repeat("t", i+1)), "stays"})
				case "away":
					require.NoError(t, guest.SetMode(contextFor(t, 2*time.Minute), deploymode.PollingOnly))
				case "back":
					require.NoError(t, guest.SetMode(contextFor(t, 2*time.Minute), deploymode.Hybrid))
				}
				after(time.Duration(waits[i]) * time.Millisecond)
			}
			source.SetDown(false)
			source.SetMute(false)
			source.SetHang(false)
			after(3 * time.Minute)
			for i, l := range []*listener.Subscription{stays, guest} {
				if h := l.Health(); h.State != deploymode.Off && !h.Proven {
					problem = fmt.Sprintf("subscription %d is not proven again: %+v", i, h)
				}
			}
			source.Publish(signal.Signal{Topic: "stays", Payload: "last"})
			synctest.Wait()
			open, connects, _ := source.Counts()
			switch received := len(owner.signals); {
			case open != 1:
				problem = "not one connection is open"
			case owner.catchUps() < connects:
				problem = "a connection without a catch-up"
			case received != 1:
				problem = fmt.Sprintf("%d signals arrived", received)
			}
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// TestTheLongestConnectTimeoutCounts for the connection that subscriptions share, whichever
// of them started it.
func TestTheLongestConnectTimeoutCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &listenertest.Source{}
		both := over(source)
		timeouts := func(name string, connect time.Duration) listener.SubscriptionConfig {
			cfg := named(name, signal.Topic(name))
			cfg.ConnectTimeout, cfg.HealthCheckInterval, cfg.FallbackActivationThreshold = connect, time.Hour, time.Hour
			return cfg
		}
		started(t, both, timeouts("short", time.Second))
		after(10 * time.Second)
		source.SetHang(true)
		started(t, both, timeouts("long", 20*time.Second))
		after(19 * time.Second)
		_, connects, _ := source.Counts()
		require.Equal(t, 1, connects, "subscribing to the topics of the second may still succeed")
		source.SetHang(false)
		after(10 * time.Second)
		_, connects, _ = source.Counts()
		require.Equal(t, 2, connects)
	})
}
