package listener_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/listener/listenertest"
	"github.com/tasker-go/tasker/signal"
)

// moving starts a subscription of a fleet that moves from one source to another.
func moving(t *testing.T, to, from signal.Source, mode deploymode.Mode) (*listener.Subscription, *owner) {
	t.Helper()
	cfg := config()
	cfg.Mode = mode
	return started(t, listener.New(listener.Config{Source: to, From: from}), cfg)
}

// TestMovingListensToBoth: signals of either source arrive, and polling relaxes once both are
// proven.
func TestMovingListensToBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to, from := &listenertest.Source{}, &listenertest.Source{}
		l, o := moving(t, to, from, deploymode.Hybrid)
		after(2 * interval)
		require.True(t, l.Snapshot().Proven)
		require.Equal(t, deploymode.PaceRelaxed, l.Snapshot().Pace)
		require.True(t, l.Health().From.Proven)
		to.Publish(signal.Signal{Topic: "a", Payload: "new"})
		from.Publish(signal.Signal{Topic: "a", Payload: "old"})
		synctest.Wait()
		require.ElementsMatch(t, []signal.Signal{{Topic: "a", Payload: "new"}, {Topic: "a", Payload: "old"}}, o.signals)
		require.NoError(t, l.SetTopics(t.Context(), []signal.Topic{"c"}))
		require.Equal(t, []signal.Topic{"c"}, topicsOf(to))
		require.Equal(t, []signal.Topic{"c"}, topicsOf(from))

		require.NoError(t, l.SetMode(t.Context(), deploymode.PollingOnly))
		for _, s := range []*listenertest.Source{to, from} {
			open, _, _ := s.Counts()
			require.Zero(t, open)
		}
		require.Equal(t, deploymode.PaceTight, l.Snapshot().Pace)
		require.NoError(t, l.SetMode(t.Context(), deploymode.EventDrivenOnly))
		require.NoError(t, l.WaitHeard(contextFor(t, time.Minute)))
	})
}

// TestMovingWhileOneIsDown: a source that is down, accepts everything and delivers nothing, or
// ends its connections, has no effect on the signals of the other one. Hybrid polls tightly
// until both are proven; EventDrivenOnly is ready.
func TestMovingWhileOneIsDown(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.Hybrid, deploymode.EventDrivenOnly} {
		for name, fail := range map[string]func(*listenertest.Source, bool){"down": (*listenertest.Source).SetDown, "mute": (*listenertest.Source).SetMute, "hanging": (*listenertest.Source).SetHang} {
			for _, newOne := range []bool{true, false} {
				t.Run(string(mode)+" "+name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						bad, good := &listenertest.Source{}, &listenertest.Source{}
						fail(bad, true)
						to, from := bad, good
						if !newOne {
							to, from = good, bad
						}
						l, o := moving(t, to, from, mode)
						heard := 0
						hears := func(s *listenertest.Source, want deploymode.Pace, proven bool) {
							t.Helper()
							s.Publish(signal.Signal{Topic: "a"})
							synctest.Wait()
							heard++
							require.Len(t, o.signals, heard)
							if mode == deploymode.EventDrivenOnly {
								want = deploymode.PaceOff
							}
							at := l.Snapshot()
							require.Equal(t, want, at.Pace)
							require.Equal(t, proven, at.Proven)
							require.True(t, at.Ready, at.Reason)
							require.Equal(t, proven, at.Reason == "", at.Reason)
						}
						for range 20 { // for longer than it counts as exhausted
							after(interval)
							hears(good, deploymode.PaceTight, false)
						}
						_, connects, _ := good.Counts()
						require.Equal(t, 1, connects, "the other one is not disturbed")
						require.Empty(t, o.fatal)

						fail(bad, false)
						after(3 * interval)
						hears(good, deploymode.PaceRelaxed, true)
						hears(bad, deploymode.PaceRelaxed, true)

						bad.SetDown(true)
						bad.Break()
						synctest.Wait()
						hears(good, deploymode.PaceTight, false)
					})
				})
			}
		}
	}
}

// TestMovingWithoutEither: with none of both a daemon is what it is without its only source.
func TestMovingWithoutEither(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to, from := &listenertest.Source{}, &listenertest.Source{}
		to.SetDown(true)
		from.SetDown(true)
		cfg := config()
		cfg.Mode, cfg.OnListenerFailure = deploymode.EventDrivenOnly, deploymode.Exit
		l, o := started(t, listener.New(listener.Config{Source: to, From: from}), cfg)
		synctest.Wait()
		require.False(t, l.Snapshot().Ready)
		after(time.Minute)
		require.Len(t, o.fatal, 1, "the end is asked for by the last of both")
		require.False(t, l.Snapshot().Ready)
		require.Contains(t, l.Snapshot().Reason, "failed")
		require.Equal(t, deploymode.Unhealthy, l.Snapshot().Level())

		from.SetDown(false)
		after(time.Minute)
		require.True(t, l.Snapshot().Ready)
	})
}

// TestMovingProperty: whatever becomes of the sources, the pace is relaxed exactly if both are
// proven, and in the end they are, and the owner has learnt of it.
func TestMovingProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type act struct {
			source int
			what   func(*listenertest.Source)
			wait   time.Duration
		}
		whats := []func(*listenertest.Source){(*listenertest.Source).Break}
		for _, fail := range []func(*listenertest.Source, bool){(*listenertest.Source).SetDown, (*listenertest.Source).SetMute, (*listenertest.Source).SetHang} {
			for _, on := range []bool{true, false} {
				whats = append(whats, func(s *listenertest.Source) { fail(s, on) })
			}
		}
		acts := make([]act, rapid.IntRange(1, 12).Draw(rt, "acts"))
		for i := range acts {
			acts[i] = act{rapid.IntRange(0, 1).Draw(rt, "source"), whats[rapid.IntRange(0, len(whats)-1).Draw(rt, "what")],
				time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "wait")) * time.Millisecond}
		}
		var problem string
		synctest.Test(t, func(t *testing.T) {
			sources, o := []*listenertest.Source{{}, {}}, &owner{}
			l := listener.New(listener.Config{Source: sources[0], From: sources[1]}).Subscribe(config(), o.hooks())
			_ = l.Start(t.Context())
			for _, a := range acts {
				a.what(sources[a.source])
				after(a.wait)
				if h := l.Health(); (h.Proven && h.From.Proven) != (l.Snapshot().Pace == deploymode.PaceRelaxed) {
					problem = "pace " + string(l.Snapshot().Pace)
				}
			}
			for _, source := range sources {
				source.SetDown(false)
				source.SetMute(false)
				source.SetHang(false)
			}
			after(5 * time.Minute)
			if !l.Snapshot().Proven || !o.changes[len(o.changes)-1].Proven {
				problem = "not proven, or not reported"
			}
			_ = l.Stop(context.Background())
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}
