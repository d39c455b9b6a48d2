package backpressure_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/backpressure"
	"github.com/tasker-go/tasker/internal/perfguard"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the changeable input of an admission.
type world struct {
	depths  atomic.Pointer[map[string]int]
	drained atomic.Uint64
	full    atomic.Uint64 // percent
	blocked atomic.Int64  // a duration
	chance  atomic.Uint64 // percent
	counts  atomic.Int64
}

func (w *world) config() backpressure.Config {
	return backpressure.Config{
		Depth: func(context.Context) map[string]int {
			w.counts.Add(1)
			if d := w.depths.Load(); d != nil {
				return *d
			}
			return nil
		},
		Overflow: func() int { return 1000 },
		Drained:  func(context.Context) (uint64, bool) { return w.drained.Load(), true },
		Channels: []backpressure.Channel{{Name: "commands", Saturation: func() float64 { return float64(w.full.Load()) / 100 }}},
		Blocked:  func() time.Duration { return time.Duration(w.blocked.Load()) },
		Chance:   func() float64 { return float64(w.chance.Load()) / 100 },
	}
}

func (w *world) set(depths map[string]int) { w.depths.Store(&depths) }

// running starts an admission in a bubble with fake time.
func running(t *testing.T, cfg backpressure.Config) *backpressure.Admission {
	t.Helper()
	a := backpressure.New(cfg)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
	return a
}

// settle lets the admission measure the present state.
func settle(a *backpressure.Admission) {
	for range 2 {
		a.AdmitTask("any")
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
	}
}

func TestTasksAreRefusedByTheDepthOfTheirOwnQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		w.set(map[string]int{"deep": 960, "critical": 900, "warned": 800, "shallow": 3})
		a := running(t, w.config())
		_, ok := a.AdmitTask("deep")
		require.True(t, ok, "before the first measurement")
		settle(a)
		r, ok := a.AdmitTask("deep")
		require.False(t, ok)
		require.Equal(t, backpressure.Refusal{Reason: backpressure.QueueDepth, RetryAfter: time.Minute, Where: "deep"}, r)
		for _, open := range []string{"warned", "shallow", "unheard of"} {
			_, ok = a.AdmitTask(open)
			require.True(t, ok, open)
		}
		// Half of the tasks of the critical queue are admitted.
		w.chance.Store(49)
		r, ok = a.AdmitTask("critical")
		require.False(t, ok)
		require.Equal(t, 30*time.Second, r.RetryAfter)
		require.Contains(t, r.Message(), "critical")
		w.chance.Store(51)
		_, ok = a.AdmitTask("critical")
		require.True(t, ok)
	})
}

func TestRetryAfterFollowsTheDrainRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		w.set(map[string]int{"deep": 1000})
		a := running(t, w.config())
		for range 10 {
			w.drained.Add(30)
			a.AdmitTask("deep")
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.drained.Add(30) // the call below requests another measurement
		r, ok := a.AdmitTask("deep")
		require.False(t, ok)
		require.InDelta(t, 10*time.Second, r.RetryAfter, float64(time.Second), "300 steps at 30 a second")
		_, rate, _ := a.Measured()
		require.InDelta(t, 30, rate, 1.5)
	})
}

func TestAnIdleAdmissionMeasuresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		a := running(t, w.config())
		time.Sleep(time.Hour)
		require.Zero(t, w.counts.Load())
		for range 1000 {
			a.AdmitTask("any")
			a.AdmitRequest()
		}
		synctest.Wait()
		require.EqualValues(t, 1, w.counts.Load())
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			a.AdmitTask("any")
		}
		require.InDelta(t, 10, w.counts.Load(), 2, "one a second")
	})
}

func TestWhatIsOldOrUnknownRefusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		w.set(map[string]int{"deep": 2000})
		a := running(t, w.config())
		settle(a)
		_, ok := a.AdmitTask("deep")
		require.False(t, ok)
		time.Sleep(time.Hour)
		_, ok = a.AdmitTask("deep")
		require.True(t, ok, "the measurement is an hour old")
		synctest.Wait()
		_, ok = a.AdmitTask("deep")
		require.False(t, ok, "still over the threshold")
		w.depths.Store(nil) // the database does not answer
		settle(a)
		_, ok = a.AdmitTask("deep")
		require.True(t, ok)
	})
}

func TestShowOnlyRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		w.set(map[string]int{"deep": 2000})
		cfg := w.config()
		cfg.ShowOnly = true
		a := running(t, cfg)
		for range 3 {
			a.AdmitRequest()
			time.Sleep(time.Second)
		}
		_, ok := a.AdmitTask("deep")
		require.True(t, ok)
		_, _, worst := a.Measured()
		require.Equal(t, backpressure.Overflow, worst)
	})
}

func TestRequestsAreRefusedByChannelsAndBreakers(t *testing.T) {
	t.Parallel()
	var w world
	m := telemetry.NewMetrics(prometheus.NewRegistry())
	cfg := w.config()
	cfg.Metrics = m
	a := backpressure.New(cfg) // works before Start
	for percent, want := range map[uint64]time.Duration{0: 0, 80: 0, 89: 0, 90: 15 * time.Second, 94: 15 * time.Second, 95: 30 * time.Second, 100: 30 * time.Second} {
		w.full.Store(percent)
		r, ok := a.AdmitRequest()
		require.Equalf(t, want == 0, ok, "%d %%", percent)
		require.Equalf(t, want, r.RetryAfter, "%d %%", percent)
	}
	w.full.Store(99)
	w.blocked.Store(int64(12 * time.Second))
	r, ok := a.AdmitRequest()
	require.False(t, ok)
	require.Equal(t, backpressure.Refusal{Reason: backpressure.BreakerOpen, RetryAfter: 12 * time.Second}, r)
	w.blocked.Store(int64(time.Millisecond))
	r, _ = a.AdmitRequest()
	require.Equal(t, time.Second, r.RetryAfter, "never less than a second")
	w.blocked.Store(0)
	require.InDelta(t, 4, testutil.ToFloat64(m.BackpressureRefusals.WithLabelValues("channel_saturation")), 0)
	require.InDelta(t, 2, testutil.ToFloat64(m.BackpressureRefusals.WithLabelValues("circuit_breaker")), 0)
}

func TestTiersAreLoggedWhenTheyChangeAndShownAsMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		core, logs := observer.New(zap.DebugLevel)
		m := telemetry.NewMetrics(prometheus.NewRegistry())
		cfg := w.config()
		cfg.Logger, cfg.Metrics = zap.New(core), m
		a := running(t, cfg)
		w.full.Store(85)
		for _, depths := range []map[string]int{{"a": 10}, {"a": 700}, {"a": 700}, nil, {"a": 960}, {"a": 0, "b": 1}, {"b": 1}} {
			if depths == nil {
				w.depths.Store(nil)
			} else {
				w.set(depths)
			}
			settle(a)
		}
		var seen []string
		for _, e := range logs.All() {
			to, _ := e.ContextMap()["to"].(string)
			seen = append(seen, e.Level.String()+" "+to)
		}
		require.Equal(t, []string{"warn ", "warn warning", "error overflow", "info normal"}, seen, "the first is the channel")
		require.Equal(t, 1, testutil.CollectAndCount(m.BackpressureTier), "a deleted namespace has no series")
	})
}

func TestNilAdmitsEverything(t *testing.T) {
	t.Parallel()
	var a *backpressure.Admission
	_, ok := a.AdmitRequest()
	require.True(t, ok)
	_, ok = a.AdmitTask("x")
	require.True(t, ok)
}

func cases() []perfguard.Case {
	prepared := func(depth int) func(tb testing.TB) func() error {
		return func(tb testing.TB) func() error {
			var w world
			w.set(map[string]int{"orders": depth})
			a := backpressure.New(w.config())
			require.NoError(tb, a.Start(tb.Context()))
			tb.Cleanup(func() { require.NoError(tb, a.Stop(context.Background())) })
			require.Eventually(tb, func() bool { a.AdmitTask("orders"); at, _, _ := a.Measured(); return !at.IsZero() }, 5*time.Second, time.Millisecond)
			return func() error {
				a.AdmitRequest()
				a.AdmitTask("orders")
				return nil
			}
		}
	}
	return []perfguard.Case{
		{Name: "admit", Prepare: prepared(5)},
		{Name: "refuse", Prepare: prepared(5000)},
	}
}

func TestAdmissionsDoNotAllocate(t *testing.T) { perfguard.Allocations(t, cases()) }

func BenchmarkAdmit(b *testing.B) { perfguard.Benchmark(b, cases()) }

func BenchmarkAdmitParallel(b *testing.B) {
	run := cases()[0].Prepare(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = run()
		}
	})
}
