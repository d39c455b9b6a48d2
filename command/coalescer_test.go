package command_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/command"
	"github.com/tasker-go/tasker/telemetry"
)

func TestCoalescerOneInFlightOnePending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var order recorder[string]
		c := command.NewCoalescer(command.CoalescerConfig{Name: "look", Workers: 1, Timeout: time.Hour},
			func(ctx context.Context, key string) error {
				order.add(key)
				g.pass(ctx)
				return nil
			})
		c.Wake("a")
		synctest.Wait()
		for range 100 {
			c.Wake("a")
			c.Wake("b")
		}
		require.Equal(t, 2, c.Len())
		close(g.open)
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "a"}, order.all(), "the busy key goes to the back")
		require.Zero(t, c.Len())
		require.NoError(t, c.Stop(t.Context()))
		require.NoError(t, c.Stop(t.Context()))
		c.Wake("a")
		synctest.Wait()
		require.Len(t, order.all(), 3)
	})
}

func TestCoalescerSurvivesPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.Discard()
		var runs atomic.Int32
		c := command.NewCoalescer(command.CoalescerConfig{Name: "look", Metrics: m}, func(context.Context, int) error {
			if runs.Add(1) == 1 {
				panic("boom")
			}
			return nil
		})
		c.Wake(1)
		synctest.Wait()
		c.Wake(1)
		require.NoError(t, c.Stop(t.Context()), "Stop runs what was asked for")
		require.EqualValues(t, 2, runs.Load())
		require.InDelta(t, 1, testutil.ToFloat64(m.Commands.WithLabelValues("look", telemetry.OutcomePanic)), 0)
	})
}

func TestCoalescerStopIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := command.NewCoalescer(command.CoalescerConfig{Name: "look", Timeout: time.Hour},
			func(ctx context.Context, _ int) error { g.pass(ctx); return ctx.Err() })
		c.Wake(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, c.Stop(ctx), "1 keys left")
		require.NoError(t, c.Stop(t.Context()), "its context has ended")
	})
}

// Never two at once for a key, never more than Workers, and after every wake
// a run begins.
func TestCoalescerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		wakes := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 200).Draw(rt, "wakes")
		var mu sync.Mutex
		version := map[int]int{} // what a wake is about
		seen := map[int]int{}    // what the latest run saw
		running := map[int]bool{}
		active, worst, twice := 0, 0, false
		c := command.NewCoalescer(command.CoalescerConfig{Name: "look", Workers: workers}, func(_ context.Context, key int) error {
			mu.Lock()
			twice = twice || running[key]
			running[key] = true
			active++
			worst = max(worst, active)
			v := version[key]
			mu.Unlock()

			mu.Lock()
			seen[key] = v
			running[key] = false
			active--
			mu.Unlock()
			return nil
		})
		var wg sync.WaitGroup
		for half := range 2 {
			wg.Go(func() {
				for i := half; i < len(wakes); i += 2 {
					mu.Lock()
					version[wakes[i]]++
					mu.Unlock()
					c.Wake(wakes[i])
				}
			})
		}
		wg.Wait()
		if err := c.Stop(limit(t)); err != nil {
			rt.Fatal(err)
		}
		if twice || worst > workers {
			rt.Fatalf("twice %t, %d at once with %d workers", twice, worst, workers)
		}
		for key, v := range version {
			if seen[key] != v {
				rt.Fatalf("key %d: woken at %d, last run saw %d", key, v, seen[key])
			}
		}
	})
}

func BenchmarkCoalescerWakeIdle(b *testing.B) {
	ran := make(chan struct{}, 1)
	c := command.NewCoalescer(command.CoalescerConfig{Name: "look"}, func(context.Context, int) error {
		ran <- struct{}{}
		return nil
	})
	b.ReportAllocs()
	for b.Loop() {
		c.Wake(1)
		<-ran
	}
	_ = c.Stop(context.Background())
}

func BenchmarkCoalescerWakeBusy(b *testing.B) {
	g := newGate()
	c := command.NewCoalescer(command.CoalescerConfig{Name: "look"}, func(ctx context.Context, _ int) error { g.pass(ctx); return nil })
	c.Wake(1)
	<-g.came
	b.ReportAllocs()
	for b.Loop() {
		c.Wake(1)
	}
	close(g.open)
	_ = c.Stop(context.Background())
}
