package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

var modes = []deploymode.Mode{deploymode.PollingOnly, deploymode.EventDrivenOnly, deploymode.Hybrid, deploymode.Disabled}

func TestHybridFallsBackAndRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		w := launch(t, deploymode.Hybrid, func(c *coordinator.Config) { c.Logger = zap.New(core) })
		fallback := func() float64 {
			return testutil.ToFloat64(w.metrics.PollingFallbackActive.WithLabelValues("sys", "hybrid"))
		}
		synctest.Wait()
		require.Equal(t, deploymode.PaceTight, w.Health().Pace, "until the listener has proven itself")
		require.InDelta(t, 1, fallback(), 0)
		w.settled()
		require.Equal(t, deploymode.PaceRelaxed, w.Health().Pace)
		require.InDelta(t, 0, fallback(), 0)
		require.Equal(t, deploymode.Healthy, w.Health().Status)

		w.source.SetMute(true)
		after(10*s + threshold)
		h := w.Health()
		require.Equal(t, deploymode.PaceTight, h.Pace)
		require.True(t, h.FallbackActive)
		require.True(t, h.Ready)
		require.Equal(t, deploymode.Degraded, h.Status)
		require.InDelta(t, 1, fallback(), 0)
		w.board.put("a", 1)
		after(interval)
		require.Zero(t, w.board.left())

		w.source.SetMute(false)
		after(time.Minute)
		h = w.Health()
		require.Equal(t, deploymode.PaceRelaxed, h.Pace)
		require.Equal(t, deploymode.Healthy, h.Status)
		require.Equal(t, deploymode.Listening, h.Listener.State)
		require.EqualValues(t, 3, h.ModeSwitches) // relaxed, tight, relaxed
		require.InDelta(t, 3, testutil.ToFloat64(w.metrics.ModeSwitches.WithLabelValues("sys", "hybrid")), 0)
		require.Equal(t, 3, logs.FilterMessage("event system switched").Len(), "each logged once")
		require.GreaterOrEqual(t, h.CatchUpScans, uint64(2))
	})
}

// Signals sent while there was no connection are lost; the work is not.
func TestCatchUpAfterEveryConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly)
		require.Equal(t, []coordinator.Reason{coordinator.ReasonCatchUp}, w.board.reasons())
		for range 3 {
			w.source.SetDown(true)
			w.source.Break()
			synctest.Wait()
			w.publish("b", 2)
			after(s)
			require.Equal(t, 2, w.board.left())
			w.source.SetDown(false)
			after(10 * s)
			require.Zero(t, w.board.left())
		}
		require.EqualValues(t, 6, w.Health().Found[telemetry.ByCatchUp])
		require.InDelta(t, 4, testutil.ToFloat64(w.metrics.CatchUpScans.WithLabelValues("sys")), 0)
	})
}

func TestNewTopicsAreCaughtUpWith(t *testing.T) {
	t.Parallel()
	for _, mode := range modes[:3] {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, mode).settled()
				w.board.put("new", 1) // before the listener subscribed to it
				require.NoError(t, w.SetTopics(t.Context(), []signal.Topic{"a", "new"}))
				synctest.Wait()
				require.Zero(t, w.board.left())
				if mode == deploymode.PollingOnly {
					require.NoError(t, w.SetMode(t.Context(), deploymode.EventDrivenOnly))
				}
				w.publish("new", 1)
				synctest.Wait()
				require.Zero(t, w.board.left())
			})
		})
	}
}

func TestOnListenerFailure(t *testing.T) {
	t.Parallel()
	for _, answer := range []deploymode.OnListenerFailure{deploymode.Unready, deploymode.Poll, deploymode.Exit} {
		t.Run(string(answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var fatal []error
				w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) {
					c.Subscription.OnListenerFailure = answer
					c.OnFatal = func(err error) { fatal = append(fatal, err) }
				}).settled()
				ready, _ := w.Ready()
				require.True(t, ready)
				w.source.SetDown(true)
				w.source.Break()
				after(2 * time.Minute)
				h := w.Health()
				require.Equal(t, answer == deploymode.Poll, h.Ready)
				require.Equal(t, answer == deploymode.Poll, h.FallbackActive)
				require.Contains(t, h.Reason, "the listener failed")
				require.Equal(t, answer == deploymode.Exit, len(fatal) == 1)
				w.board.put("a", 1)
				after(interval)
				require.Equal(t, answer == deploymode.Poll, w.board.left() == 0)

				w.source.SetDown(false)
				after(time.Minute)
				h = w.Health()
				require.True(t, h.Ready)
				require.Equal(t, deploymode.PaceOff, h.Pace)
				require.Zero(t, w.board.left())
				w.board.seen()
				after(time.Hour)
				require.Empty(t, w.board.seen(), "it no longer polls")
			})
		})
	}
}

// Every change of mode, with work coming before, during and after it.
func TestSetMode(t *testing.T) {
	t.Parallel()
	for _, from := range modes {
		for _, to := range modes {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := launch(t, from).settled()
					switches := w.Health().ModeSwitches
					w.board.put("a", 1) // its signal is lost
					var wg sync.WaitGroup
					ctx, cancel := context.WithCancel(t.Context())
					wg.Go(func() {
						for ctx.Err() == nil {
							w.publish("b", 1)
							time.Sleep(time.Millisecond)
						}
					})
					after(100 * time.Millisecond)
					require.NoError(t, w.SetMode(t.Context(), to))
					require.Equal(t, to, w.Mode())
					after(100 * time.Millisecond)
					cancel()
					wg.Wait()

					h := w.Health()
					if from == to {
						require.Equal(t, switches, h.ModeSwitches)
					} else {
						require.Equal(t, switches+1, h.ModeSwitches, "counted once")
						require.InDelta(t, 1, testutil.ToFloat64(w.metrics.ModeSwitches.WithLabelValues("sys", to.Label())), 0)
					}
					after(30 * s)
					h = w.Health()
					require.Equal(t, to.Listens(), h.Listener != nil)
					open, _, _ := w.source.Counts()
					require.Equal(t, to.Listens(), open == 1)
					require.Equal(t, map[deploymode.Mode]deploymode.Pace{
						deploymode.PollingOnly: deploymode.PaceTight, deploymode.Hybrid: deploymode.PaceRelaxed,
						deploymode.EventDrivenOnly: deploymode.PaceOff, deploymode.Disabled: deploymode.PaceOff,
					}[to], h.Pace)
					require.True(t, h.Ready, h.Reason)
					switch {
					case to == deploymode.Disabled:
					case from == deploymode.EventDrivenOnly && to == deploymode.EventDrivenOnly:
						require.Equal(t, 1, w.board.left(), "without its signal it cannot be found")
					default:
						require.Zero(t, w.board.left())
					}
					require.False(t, w.board.twice)
					require.Equal(t, 1, testutil.CollectAndCount(w.metrics.PollingFallbackActive), "no stale series")
				})
			})
		}
	}
}

func TestEventDrivenOnlyIsNotEnteredWithoutHearing(t *testing.T) {
	t.Parallel()
	for _, from := range []deploymode.Mode{deploymode.PollingOnly, deploymode.Hybrid, deploymode.Disabled} {
		for _, trouble := range []string{"down", "mute"} {
			t.Run(fmt.Sprint(from, " ", trouble), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := launch(t, from)
					if trouble == "down" {
						w.source.SetDown(true)
					} else {
						w.source.SetMute(true)
					}
					w.source.Break()
					synctest.Wait()
					before := w.Health().ModeSwitches
					err := w.SetMode(t.Context(), deploymode.EventDrivenOnly)
					require.ErrorContains(t, err, "stays in "+string(from))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, from, w.Mode())
					w.board.put("a", 1)
					after(interval)
					require.Equal(t, from == deploymode.Disabled, w.board.left() == 1, "it polls as before")
					require.Equal(t, before, w.Health().ModeSwitches)
					require.Equal(t, from == deploymode.Hybrid, w.Health().Listener != nil)
				})
			})
		}
	}
}

func TestSetModeRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.PollingOnly, func(c *coordinator.Config) { c.Listener = nil })
		require.ErrorContains(t, w.SetMode(t.Context(), "push"), "invalid deployment mode")
		require.ErrorContains(t, w.SetMode(t.Context(), deploymode.Hybrid), "no event source")
		require.NoError(t, w.SetMode(t.Context(), "polling_only"), "as people write it")
		require.Equal(t, deploymode.PollingOnly, w.Mode())
		require.ErrorContains(t, coordinator.New(config("push", nil), &board{}).Start(t.Context()), `invalid Mode "push"`)
		fresh := coordinator.New(config(deploymode.PollingOnly, nil), &board{})
		require.ErrorContains(t, fresh.SetMode(t.Context(), deploymode.Disabled), "not running")
		ready, why := fresh.Ready()
		require.False(t, ready)
		require.Equal(t, "not started", why)
		require.NoError(t, fresh.Stop(t.Context()))
	})
}

func TestStopInterruptsAChangeOfMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.PollingOnly)
		w.source.SetDown(true)
		changed := make(chan error, 1)
		go func() { changed <- w.SetMode(context.Background(), deploymode.EventDrivenOnly) }()
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, w.Stop(t.Context()))
		require.Zero(t, time.Since(begin))
		require.Error(t, <-changed)
	})
}

// Whatever happens to the source, the database and the mode: looks never overlap, and
// once all is well all work is found in bounded time.
func TestNothingIsForgottenProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type act struct {
			what string
			mode deploymode.Mode
			wait time.Duration
		}
		start := rapid.SampledFrom(modes).Draw(rt, "start")
		acts := make([]act, rapid.IntRange(1, 15).Draw(rt, "acts"))
		lossless := true // signals are lost only with the connection
		for i := range acts {
			acts[i] = act{
				what: rapid.SampledFrom([]string{"work", "work", "work", "due", "down", "up", "break", "mute", "loud", "error", "ok", "mode"}).Draw(rt, "act"),
				mode: rapid.SampledFrom(modes).Draw(rt, "mode"),
				wait: time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "wait")) * time.Millisecond,
			}
			lossless = lossless && acts[i].what != "mute"
		}
		var problem string
		synctest.Test(t, func(t *testing.T) {
			w := launch(t, start)
			for _, a := range acts {
				switch a.what {
				case "work":
					w.publish("a", 1)
				case "due":
					w.board.putDue(a.wait)
					w.source.Publish(signal.Signal{Topic: "a"})
				case "down", "up":
					w.source.SetDown(a.what == "down")
				case "break":
					w.source.Break()
				case "mute", "loud":
					w.source.SetMute(a.what == "mute")
				case "error":
					w.board.fail(context.DeadlineExceeded)
				case "ok":
					w.board.fail(nil)
				case "mode":
					_ = w.SetMode(t.Context(), a.mode)
				}
				after(a.wait)
			}
			w.source.SetDown(false)
			w.source.SetMute(false)
			w.board.fail(nil)
			// A lossless source is enough for EventDrivenOnly; a source that lost signals
			// silently needs polling.
			if w.Mode() == deploymode.Disabled || (!lossless && w.Mode() == deploymode.EventDrivenOnly) {
				if err := w.SetMode(t.Context(), deploymode.Hybrid); err != nil {
					problem = err.Error()
				}
			}
			after(2 * time.Minute)
			h := w.Health()
			switch {
			case w.board.left() > 0:
				problem = fmt.Sprintf("%d rows forgotten in %s", w.board.left(), w.Mode())
			case w.board.twice:
				problem = "two looks at once"
			case !h.Ready || h.Status != deploymode.Healthy || len(h.DeadLoops) > 0:
				problem = fmt.Sprintf("not well: %+v", h)
			case h.Mode == deploymode.Hybrid && h.Pace != deploymode.PaceRelaxed:
				problem = "still polling tightly"
			}
			_ = w.Stop(context.Background())
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}
