package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// How work is found in each mode: with its signal, without it, and later.
func TestFoundBy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode                     deploymode.Mode
		signalled, silent, timed string
		within                   time.Duration // the silent one
	}{
		{deploymode.Hybrid, telemetry.ByListener, telemetry.ByPoller, telemetry.ByTimer, relaxed},
		{deploymode.PollingOnly, telemetry.ByPoller, telemetry.ByPoller, telemetry.ByTimer, interval},
		{deploymode.EventDrivenOnly, telemetry.ByListener, "", telemetry.ByTimer, time.Hour},
		{deploymode.Disabled, "", "", "", time.Hour},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, c.mode).settled()
				found := func(by string, n int) {
					t.Helper()
					for _, label := range []string{telemetry.ByListener, telemetry.ByPoller, telemetry.ByTimer, telemetry.ByCatchUp} {
						want := 0
						if label == by {
							want = n
						}
						require.EqualValues(t, want, w.Health().Found[label], label)
						require.InDelta(t, want, testutil.ToFloat64(w.metrics.Found.WithLabelValues("sys", label)), 0, label)
					}
				}
				w.publish("a", 3)
				if c.mode == deploymode.PollingOnly {
					after(interval)
				}
				synctest.Wait()
				found(c.signalled, 3)
				if c.signalled != "" {
					require.Zero(t, w.board.left())
				}
				_ = w.Stop(t.Context())

				w = launch(t, c.mode).settled()
				w.board.put("b", 2)
				synctest.Wait()
				require.Equal(t, 2, w.board.left())
				after(c.within)
				found(c.silent, 2)
				_ = w.Stop(t.Context())

				w = launch(t, c.mode).settled()
				w.board.putDue(300 * time.Millisecond)
				w.WakeIn(300 * time.Millisecond)
				after(300 * time.Millisecond)
				found(c.timed, 1)
			})
		})
	}
}

func TestIdleCost(t *testing.T) {
	t.Parallel()
	for mode, want := range map[deploymode.Mode]int{
		deploymode.Hybrid: int(time.Hour / relaxed), deploymode.PollingOnly: int(time.Hour / interval),
		deploymode.EventDrivenOnly: 0, deploymode.Disabled: 0,
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, mode).settled()
				_, connects, _ := w.source.Counts()
				require.Equal(t, mode.Listens(), connects == 1, "a connection only in the modes that listen")
				after(time.Hour)
				require.Len(t, w.board.seen(), want)
			})
		})
	}
}

func TestWakesCoalesceAndNeverOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly).settled()
		gate := make(chan struct{})
		w.board.hold(gate)
		w.publish("a", 1)
		synctest.Wait()
		for range 100 {
			w.publish("a", 1)
			w.publish("b", 1)
			w.source.Publish(signal.Signal{Topic: "b", Payload: "x"}, signal.Signal{Topic: "b", Payload: "y"})
		}
		w.Wake(coordinator.Reason("timer"), "c")
		synctest.Wait()
		close(gate)
		wakes := w.board.seen()
		require.Len(t, wakes, 2)
		require.Equal(t, coordinator.ReasonSignal, wakes[1].Reason, "the strongest of them")
		require.Equal(t, map[signal.Topic]struct{}{"a": {}, "b": {}, "c": {}}, wakes[1].Topics)
		require.Equal(t, []string{"x", "y"}, wakes[1].Payloads)
		require.False(t, wakes[1].All)
		require.Zero(t, w.board.left())
		require.False(t, w.board.twice)
	})
}

func TestPayloadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) { c.MaxPayloads = 5 }).settled()
		gate := make(chan struct{})
		w.board.hold(gate)
		w.publish("a", 1)
		synctest.Wait()
		for i := range 6 {
			w.source.Publish(signal.Signal{Topic: "a", Payload: fmt.Sprint(i)})
		}
		synctest.Wait()
		close(gate)
		wakes := w.board.seen()
		require.Len(t, wakes[1].Payloads, 5)
		require.True(t, wakes[1].All, "without the complete payloads a look must cover everything")
	})
}

func TestAFailedLookIsRepeatedWithoutASignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly).settled()
		broken := errors.New("deadlock")
		w.board.fail(broken)
		w.publish("a", 1)
		synctest.Wait()
		require.Equal(t, deploymode.Degraded, w.Health().Status)
		ready, _ := w.Ready()
		require.True(t, ready)
		w.publish("b", 1) // more signals do not make it look more often
		after(s - 1)
		require.Len(t, w.board.seen(), 1)
		after(1) // then 1, 2, 4, 4 … s
		after(2 * s)
		require.Len(t, w.board.seen(), 2)
		h := w.Health()
		require.Equal(t, 3, h.ConsecutiveErrors)
		require.Equal(t, deploymode.Unhealthy, h.Status)
		require.False(t, h.Ready)
		require.Contains(t, h.Reason, "deadlock")
		w.board.fail(nil)
		after(4 * s)
		wakes := w.board.seen()
		require.Len(t, wakes, 1)
		require.Equal(t, map[signal.Topic]struct{}{"a": {}, "b": {}}, wakes[0].Topics, "what failed and what came meanwhile")
		require.Equal(t, coordinator.ReasonSignal, wakes[0].Reason)
		require.Zero(t, w.board.left())
		require.Equal(t, deploymode.Healthy, w.Health().Status)
		require.Empty(t, w.Health().LastError)
		after(time.Hour)
		require.Empty(t, w.board.seen())
	})
}

// TestErrorsHoldUpNoPoll: nor any other look for longer than two seconds.
func TestErrorsHoldUpNoPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) {
			c.Retry = deploymode.Backoff{Base: time.Hour}
		}).settled()
		w.board.fail(errors.New("no database"))
		w.publish("a", 1)
		synctest.Wait()
		w.board.fail(nil)
		after(deploymode.LongestHold)
		require.Zero(t, w.board.left())
		_ = w.Stop(t.Context())

		polled := launch(t, deploymode.PollingOnly, func(c *coordinator.Config) {
			c.Retry = deploymode.Backoff{Base: time.Hour}
			c.Poller.Backoff = deploymode.Backoff{Base: s / 10}
		}).settled()
		polled.board.fail(errors.New("no database"))
		after(interval)
		polled.board.fail(nil)
		polled.board.put("a", 1)
		after(s / 10)
		require.Zero(t, polled.board.left())
	})
}

// TestAPollLooksEverywhere whatever else woke the system: its reason names the signal.
func TestAPollLooksEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.PollingOnly).settled()
		w.Wake(coordinator.ReasonSignal, "a")
		wakes := w.board.seen()
		require.Len(t, wakes, 1)
		require.False(t, wakes[0].Everywhere)

		gate := make(chan struct{})
		w.board.hold(gate)
		w.Wake(coordinator.ReasonSignal, "a") // is looked at
		after(interval)                       // the poll waits for its turn
		w.Wake(coordinator.ReasonSignal, "a")
		w.board.hold(nil)
		close(gate)
		wakes = w.board.seen()
		require.Len(t, wakes, 2)
		require.Equal(t, coordinator.ReasonSignal, wakes[1].Reason)
		require.True(t, wakes[1].Everywhere)
		require.False(t, wakes[1].CatchUp)

		w.Wake(coordinator.ReasonSignal, "a")
		w.Wake(coordinator.ReasonCatchUp, "a")
		wakes = w.board.seen()
		require.Len(t, wakes, 1)
		require.Equal(t, coordinator.ReasonSignal, wakes[0].Reason)
		require.True(t, wakes[0].Everywhere)
		require.True(t, wakes[0].CatchUp)
	})
}

func TestAConnectionCutsTheWaitShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) {
			c.Retry = deploymode.Backoff{Base: time.Hour}
		}).settled()
		w.board.fail(errors.New("no database"))
		w.publish("a", 1)
		synctest.Wait()
		w.board.fail(nil)
		w.source.Break()
		after(s)
		require.Zero(t, w.board.left())
	})
}

func TestAPanicInALookIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		sys := coordinator.New(config(deploymode.PollingOnly, nil), lookFunc(
			func(context.Context, coordinator.Wake) (coordinator.Outcome, error) {
				if looks++; looks == 1 {
					panic("boom")
				}
				return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
			}))
		require.NoError(t, sys.Start(t.Context()))
		synctest.Wait()
		require.Equal(t, "panic: boom", sys.Health().LastError)
		require.Empty(t, sys.Health().DeadLoops)
		after(s)
		require.Equal(t, 2, looks)
		require.NoError(t, sys.Stop(t.Context()))
	})
}

func TestMoreIsLookedAtAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly).settled()
		w.board.limit = 10
		w.publish("a", 35)
		begin := time.Now()
		wakes := w.board.seen()
		require.Zero(t, time.Since(begin))
		require.Len(t, wakes, 4)
		require.Equal(t, coordinator.ReasonSignal, wakes[0].Reason)
		require.Equal(t, coordinator.ReasonContinue, wakes[3].Reason)
		require.Equal(t, wakes[0].Topics, wakes[3].Topics)
		require.False(t, wakes[3].All)
		require.EqualValues(t, 10, w.Health().Found[telemetry.ByListener])
		require.EqualValues(t, 25, w.Health().Found[telemetry.ByContinue])
	})
}

func TestTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly).settled()
		w.board.putDue(10 * s)
		w.board.putDue(5 * s)
		w.board.putDue(7 * s)
		w.publish("a", 1) // this look learns of the due times
		synctest.Wait()
		w.WakeIn(20 * s)
		w.WakeIn(6 * s)
		after(5 * s)
		require.Equal(t, 2, w.board.left())
		after(2 * s)
		require.Equal(t, 1, w.board.left())
		after(3 * s)
		require.Zero(t, w.board.left())
		require.EqualValues(t, 3, w.Health().Found[telemetry.ByTimer])
		w.board.seen()
		after(time.Hour)
		require.LessOrEqual(t, len(w.board.seen()), 1)
	})
}

// Due work that another transaction keeps locked, or a Work that returns the zero
// Outcome, must not keep a core busy.
func TestEmptyLooksDoNotSpin(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]coordinator.Outcome{
		"zero":     {},
		"more":     {More: true, NextDue: coordinator.NoDue},
		"retry in": {RetryIn: 1, NextDue: coordinator.NoDue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				sys := coordinator.New(config(deploymode.PollingOnly, nil), lookFunc(
					func(context.Context, coordinator.Wake) (coordinator.Outcome, error) { looks++; return out, nil }))
				require.NoError(t, sys.Start(t.Context()))
				after(60 * s)
				require.Less(t, looks, 60+60+20, "polls, timers at their cap, and the climb")
				require.Greater(t, looks, 60)
				require.NoError(t, sys.Stop(t.Context()))
			})
		})
	}
}

// Work that a signal had announced too does not count as found by polling.
func TestAPollThatCoincidesWithASignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.Hybrid).settled()
		gate := make(chan struct{})
		w.board.hold(gate)
		w.publish("a", 1)
		after(relaxed)    // a poll is waiting
		w.publish("b", 4) // not what the look under way is about
		synctest.Wait()
		close(gate)
		synctest.Wait()
		h := w.Health()
		require.EqualValues(t, 5, h.Found[telemetry.ByListener])
		require.Zero(t, h.Poller.Found)
		w.board.put("b", 2)
		after(relaxed)
		h = w.Health()
		require.EqualValues(t, 2, h.Poller.Found)
		require.EqualValues(t, 2, h.Found[telemetry.ByPoller])
	})
}

// Work that was ready long before a poll found it, with a healthy listener, has lost
// its signal. Work that has just become ready may be found by either, and without a
// listener polling is the way to find work.
func TestWorkThatOnlyAPollFindsIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode   deploymode.Mode
		waited time.Duration
		missed uint64
	}{
		"long ready":         {deploymode.Hybrid, 2 * time.Second, 3},
		"just ready":         {deploymode.Hybrid, 20 * time.Millisecond, 0},
		"without a listener": {deploymode.PollingOnly, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, c.mode).settled()
				w.board.waited = c.waited
				w.board.put("a", 3) // without a signal
				after(relaxed)
				h := w.Health()
				require.EqualValues(t, 3, h.Found[telemetry.ByPoller])
				require.Equal(t, c.missed, h.Missed)
				require.InDelta(t, float64(c.missed), testutil.ToFloat64(w.metrics.Missed.WithLabelValues("sys")), 0)
				w.publish("a", 3)
				after(time.Millisecond)
				require.Equal(t, c.missed, w.Health().Missed, "these had a signal")
			})
		})
	}
}

func TestRetryIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		sys := coordinator.New(config(deploymode.Hybrid, nil), lookFunc(
			func(_ context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
				out := coordinator.Outcome{NextDue: coordinator.NoDue}
				if w.Reason == coordinator.ReasonCatchUp {
					out.RetryIn = 300 * time.Millisecond
				}
				if w.Reason == coordinator.Reason("timer") {
					at = append(at, time.Since(begin))
				}
				return out, nil
			}))
		require.NoError(t, sys.Start(t.Context()))
		require.Equal(t, deploymode.PollingOnly, sys.Mode(), "Hybrid without a source")
		after(10 * s)
		require.Equal(t, []time.Duration{300 * time.Millisecond}, at)
		require.NoError(t, sys.Stop(t.Context()))
	})
}

func TestLooksRunOnTheProcessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.Discard()
		p := command.NewProcessor(command.Config{Name: "commands", Metrics: m, Kinds: []command.Kind{{Name: "sys-look", Workers: 1, Buffer: 10}}})
		require.NoError(t, p.Start(t.Context()))
		use := func(c *coordinator.Config) { c.Processor = p }
		one := launch(t, deploymode.EventDrivenOnly, use).settled()
		two := launch(t, deploymode.EventDrivenOnly, use).settled()
		gate := make(chan struct{})
		one.board.hold(gate)
		one.publish("a", 1)
		synctest.Wait()
		two.publish("a", 1)
		synctest.Wait()
		require.Empty(t, two.board.seen(), "one worker: the systems share it")
		close(gate)
		synctest.Wait()
		require.Zero(t, one.board.left()+two.board.left())
		require.Positive(t, testutil.ToFloat64(m.Commands.WithLabelValues("sys-look", telemetry.OutcomeOK)))
		two.board.fail(errors.New("no"))
		two.publish("a", 1)
		synctest.Wait()
		require.Positive(t, testutil.ToFloat64(m.Commands.WithLabelValues("sys-look", telemetry.OutcomeError)))
		require.NoError(t, one.Stop(t.Context()))
		require.NoError(t, two.Stop(t.Context()))
		require.NoError(t, p.Stop(t.Context()))
	})
}

// TestAHangingLookBlocksNoOtherSystem: each system has a kind of commands of its own.
func TestAHangingLookBlocksNoOtherSystem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := command.NewProcessor(command.Config{Name: "commands", Kinds: []command.Kind{
			{Name: "readiness-look", Workers: 1, Buffer: 1}, {Name: "apply-look", Workers: 1, Buffer: 1}}})
		require.NoError(t, p.Start(t.Context()))
		system := func(id string) *world {
			return launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) { c.SystemID, c.Processor = id, p }).settled()
		}
		readiness, apply := system("readiness"), system("apply")
		gate := make(chan struct{})
		readiness.board.hold(gate)
		readiness.publish("a", 1)
		synctest.Wait()
		apply.publish("a", 1)
		synctest.Wait()
		require.Zero(t, apply.board.left())
		require.Positive(t, readiness.board.left())
		close(gate)
		synctest.Wait()
		require.Zero(t, readiness.board.left())
		require.NoError(t, readiness.Stop(t.Context()))
		require.NoError(t, apply.Stop(t.Context()))
		require.NoError(t, p.Stop(t.Context()))
	})
}

// Failures among successes are counted by the minute, and a system may be configured
// to ignore them.
func TestHealthByTheRateOfErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate := func(c *coordinator.Config) { c.MaxErrorsPerMinute = 2 }
		w := launch(t, deploymode.EventDrivenOnly, rate).settled()
		failOnce := func() {
			w.board.fail(errors.New("deadlock"))
			w.publish("a", 1)
			synctest.Wait()
			w.board.fail(nil)
			after(s)
			require.Zero(t, w.Health().ConsecutiveErrors)
		}
		failOnce()
		failOnce()
		require.Equal(t, deploymode.Healthy, w.Health().Status)
		failOnce()
		require.Equal(t, deploymode.Unhealthy, w.Health().Status, "three within a minute")
		after(time.Minute)
		require.Equal(t, deploymode.Healthy, w.Health().Status)

		indifferent := launch(t, deploymode.EventDrivenOnly, rate, func(c *coordinator.Config) { c.IgnoreErrors = true }).settled()
		indifferent.board.fail(errors.New("deadlock"))
		indifferent.publish("a", 1)
		after(time.Minute)
		require.Greater(t, indifferent.Health().ConsecutiveErrors, 3)
		require.Equal(t, deploymode.Healthy, indifferent.Health().Status)
		ready, _ := indifferent.Ready()
		require.True(t, ready)
	})
}

func TestLooksThatAreNotTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, untimed := range []bool{false, true} {
			m := telemetry.NewMetrics(prometheus.NewRegistry())
			w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) { c.Untimed, c.Metrics = untimed, m }).settled()
			w.publish("a", 1)
			synctest.Wait()
			require.Equal(t, !untimed, testutil.CollectAndCount(m.EventProcessing) > 0)
		}
	})
}
