package command_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func double(_ context.Context, items []int) ([]int, error) {
	out := make([]int, len(items))
	for i, item := range items {
		out[i] = 2 * item
	}
	return out, nil
}

func TestBatchesFormByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var sizes recorder[int]
		b := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 3, MaxPending: 100}, func(ctx context.Context, items []int) ([]int, error) {
			sizes.add(len(items))
			g.pass(ctx)
			return double(ctx, items)
		})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				got, err := b.Do(t.Context(), i)
				if err != nil || got != 2*i {
					t.Errorf("item %d: %d, %v", i, got, err)
				}
			})
			synctest.Wait() // the first is in flight, the others gather
		}
		require.Equal(t, []int{1}, sizes.all())
		require.Equal(t, 5, b.Pending())
		close(g.open)
		wg.Wait()
		require.Equal(t, []int{1, 3, 2}, sizes.all())
		require.NoError(t, b.Stop(t.Context()))
		_, err := b.Do(t.Context(), 1)
		require.ErrorIs(t, err, command.ErrStopped)
	})
}

func TestBatcherErrors(t *testing.T) {
	t.Parallel()
	whole, own := errors.New("whole"), errors.New("own")
	for name, c := range map[string]struct {
		flush func(items []int) ([]int, error)
		want  []error // for the items 1, 2
	}{
		"of the whole batch": {func([]int) ([]int, error) { return nil, whole }, []error{whole, whole}},
		"of some items":      {func([]int) ([]int, error) { return []int{10, 0}, &command.BatchError{Errs: []error{nil, own}} }, []error{nil, own}},
		"wrong shape":        {func([]int) ([]int, error) { return []int{1}, nil }, []error{command.ErrBatchShape, command.ErrBatchShape}},
		"wrong shape too": {func([]int) ([]int, error) { return []int{1}, &command.BatchError{Errs: []error{nil, own}} },
			[]error{command.ErrBatchShape, command.ErrBatchShape}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				b := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 5000}, func(ctx context.Context, items []int) ([]int, error) {
					if items[0] == 0 {
						g.pass(ctx) // blocks the flush, so that the others share a batch
						return []int{0}, nil
					}
					return c.flush(items)
				})
				var results recorder[error]
				go func() { _, _ = b.Do(t.Context(), 0) }()
				synctest.Wait()
				for i := 1; i <= 2; i++ {
					go func() {
						got, err := b.Do(t.Context(), i)
						if err == nil && got != 10 {
							t.Errorf("got %d", got)
						}
						results.add(err)
					}()
					synctest.Wait()
				}
				close(g.open)
				synctest.Wait()
				got := results.all()
				require.Len(t, got, 2)
				for _, want := range c.want {
					if want == nil {
						require.Contains(t, got, nil)
					} else {
						require.True(t, errors.Is(got[0], want) || errors.Is(got[1], want), "%v", got)
					}
				}
				require.NoError(t, b.Stop(t.Context()))
			})
		})
	}
	e := &command.BatchError{Errs: []error{nil, own}}
	require.ErrorIs(t, e, own)
	require.ErrorContains(t, e, "1 of 2 items failed: own")
}

func TestBatcherPanicGoesToTheItems(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 5000}, func(ctx context.Context, items []int) ([]int, error) {
		if calls.Add(1) == 1 {
			panic("boom")
		}
		return double(ctx, items)
	})
	_, err := b.Do(limit(t), 1)
	require.ErrorContains(t, err, "panic: boom")
	got, err := b.Do(limit(t), 2)
	require.NoError(t, err)
	require.Equal(t, 4, got)
	require.NoError(t, b.Stop(limit(t)))
}

// hostile is an error that panics when it is read.
type hostile struct{}

func (hostile) Error() string { return "hostile" }

func (hostile) As(any) bool { panic("looked at") }

// TestBatcherGoesOnAfterAPanicOnTheWayBack: an error of the flush that panics when read
// fails only its own batch, and all callers of that batch get an error.
func TestBatcherGoesOnAfterAPanicOnTheWayBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.ErrorLevel)
		metrics := telemetry.NewMetrics(prometheus.NewRegistry())
		g := newGate()
		var told recorder[error]
		b := command.NewAsyncBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 5000, Logger: zap.New(core), Metrics: metrics},
			func(ctx context.Context, items []int) ([]int, error) {
				if items[0] == 1 {
					return nil, hostile{}
				}
				g.pass(ctx)
				return double(ctx, items)
			}, func(answers []command.Answer[int, int]) {
				for _, a := range answers {
					told.add(a.Err)
				}
			})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // never reached, unless the test fails
		defer cancel()
		var group sync.WaitGroup
		do := func(item int, check func(int, error)) {
			group.Go(func() { check(b.Do(ctx, item)) })
			synctest.Wait()
		}
		failed := func(_ int, err error) {
			var panicked *lifecycle.PanicError
			if !errors.As(err, &panicked) {
				t.Errorf("%v is not the panic", err)
			}
		}
		do(0, func(int, error) {}) // blocks the flush, so that the others share a batch
		do(1, failed)
		if err := b.Add(ctx, 2); err != nil {
			t.Error(err)
		}
		do(3, failed)
		close(g.open)
		group.Wait()
		do(4, func(got int, err error) {
			if got != 8 || err != nil {
				t.Errorf("the next batch: %d, %v", got, err)
			}
		})
		group.Wait()
		if errs := told.all(); len(errs) != 1 || errs[0] == nil {
			t.Errorf("got %v for added items", errs)
		}
		if err := b.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		require.InDelta(t, 1, testutil.ToFloat64(metrics.Commands.WithLabelValues("b", telemetry.OutcomePanic)), 0)
		require.Equal(t, 1, logs.FilterFieldKey("stack").Len())
	})
}

func TestBatcherCallerThatGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var flushed recorder[int]
		b := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 5000, FlushTimeout: time.Minute}, func(ctx context.Context, items []int) ([]int, error) {
			deadline, ok := ctx.Deadline()
			if !ok || time.Until(deadline) != time.Minute {
				t.Errorf("deadline %v", deadline)
			}
			g.pass(ctx)
			for _, item := range items {
				flushed.add(item)
			}
			return double(ctx, items)
		})
		gone, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		do := func(ctx context.Context, item int) {
			_, err := b.Do(ctx, item)
			errs <- err
		}
		go do(gone, 1) // in flight
		synctest.Wait()
		go do(gone, 2) // pending
		go do(t.Context(), 3)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-errs, context.Canceled)
		require.ErrorIs(t, <-errs, context.Canceled)
		close(g.open)
		require.NoError(t, <-errs)
		require.Equal(t, []int{1, 3}, flushed.all(), "items in flight are flushed, pending ones are dropped")
		require.NoError(t, b.Stop(t.Context()))
	})
}

func TestBatcherIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var done recorder[int]
		b := command.NewAsyncBatcher(command.BatcherConfig{Name: "b", MaxBatch: 2, MaxPending: 2},
			func(ctx context.Context, items []int) ([]int, error) { g.pass(ctx); return double(ctx, items) },
			func(answers []command.Answer[int, int]) {
				for _, a := range answers {
					if a.Err != nil || a.Result != 2*a.Item {
						t.Errorf("item %d: %d, %v", a.Item, a.Result, a.Err)
					}
					done.add(a.Item)
				}
				if answers[0].Item == 1 {
					panic("a panicking callback must not affect the others")
				}
			})
		require.NoError(t, b.Add(t.Context(), 1))
		synctest.Wait()
		require.NoError(t, b.Add(t.Context(), 2))
		require.NoError(t, b.Add(t.Context(), 3))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Add(short, 4), context.DeadlineExceeded)
		added := make(chan error, 1)
		go func() { added <- b.Add(t.Context(), 5) }()
		synctest.Wait()
		require.Empty(t, added)
		close(g.open)
		require.NoError(t, <-added)
		require.NoError(t, b.Stop(t.Context()))
		require.Equal(t, []int{1, 2, 3, 5}, done.all())
	})
}

func TestBatcherStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 1, FlushTimeout: time.Hour},
			func(ctx context.Context, items []int) ([]int, error) {
				g.pass(ctx)
				return make([]int, len(items)), ctx.Err()
			})
		errs := make(chan error, 3)
		for i := range 3 { // in flight, pending, waiting for a place
			go func() { _, err := b.Do(t.Context(), i); errs <- err }()
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, b.Stop(short), "1 items waiting")
		require.ErrorIs(t, <-errs, command.ErrStopped)
		require.ErrorIs(t, <-errs, context.Canceled)
		require.ErrorIs(t, <-errs, context.Canceled)
		require.NoError(t, b.Stop(t.Context()))
	})
}

// Every item is answered once with its own result, batches and flights stay within
// their bounds, and a single flight keeps the order.
func TestBatcherProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := command.BatcherConfig{
			Name:        "b",
			MaxBatch:    rapid.IntRange(1, 7).Draw(rt, "batch"),
			MaxPending:  rapid.IntRange(1, 20).Draw(rt, "pending"),
			MaxInFlight: rapid.IntRange(1, 3).Draw(rt, "flights"),
		}
		callers := rapid.IntRange(1, 12).Draw(rt, "callers")
		each := rapid.IntRange(1, 20).Draw(rt, "each")
		var flights, bad atomic.Int32
		var flushed recorder[int]
		b := command.NewBatcher(cfg, func(ctx context.Context, items []int) ([]int, error) {
			if n := flights.Add(1); int(n) > cfg.MaxInFlight || len(items) == 0 || len(items) > cfg.MaxBatch {
				bad.Add(1)
			}
			defer flights.Add(-1)
			for _, item := range items {
				flushed.add(item)
			}
			return double(ctx, items)
		})
		ctx := limit(t)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for i := range each {
					item := caller*1000 + i
					if got, err := b.Do(ctx, item); err != nil || got != 2*item {
						bad.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if err := b.Stop(ctx); err != nil {
			rt.Fatal(err)
		}
		latest := map[int]int{}
		for _, item := range flushed.all() {
			caller, i := item/1000, item%1000
			if i != latest[caller] {
				bad.Add(1) // each caller waits for its answer, so its items come in order
			}
			latest[caller] = i + 1
		}
		if bad.Load() > 0 || len(flushed.all()) != callers*each {
			rt.Fatalf("%d mistakes, %d of %d flushed", bad.Load(), len(flushed.all()), callers*each)
		}
	})
}

func BenchmarkBatcherAlone(b *testing.B) {
	out := make([]int, 1)
	batcher := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 5000}, func(_ context.Context, items []int) ([]int, error) { return out[:len(items)], nil })
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = batcher.Do(ctx, 1)
	}
	_ = batcher.Stop(ctx)
}

func BenchmarkBatcherCrowd(b *testing.B) {
	out := make([]int, 500)
	batcher := command.NewBatcher(command.BatcherConfig{Name: "b", MaxBatch: 500, MaxPending: 5000}, func(_ context.Context, items []int) ([]int, error) { return out[:len(items)], nil })
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(200)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = batcher.Do(ctx, 1)
		}
	})
	_ = batcher.Stop(ctx)
}

// TestAFlushThatTakesLongStopsNoOthers: those that come later are flushed beside it after a second, one flush at a time,
// and form one line again once it has ended.
func TestAFlushThatTakesLongStopsNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		b := command.NewBatcher(command.BatcherConfig{Name: "test", MaxBatch: 1, MaxPending: 100, Patience: time.Second},
			func(_ context.Context, items []int) ([]int, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				if items[0] < 0 {
					time.Sleep(time.Minute)
				}
				time.Sleep(10 * time.Millisecond)
				return items, nil
			})
		begin := time.Now()
		require.NoError(t, b.Add(t.Context(), -1))
		for i := range 50 { // while nothing answers the first
			got, err := b.Do(t.Context(), i)
			require.NoError(t, err)
			require.Equal(t, i, got)
		}
		require.Equal(t, time.Second+50*10*time.Millisecond, time.Since(begin), "they wait for a second, and then for themselves")
		require.Equal(t, int32(2), most.Load())
		time.Sleep(time.Minute)
		most.Store(0)
		for i := range 50 {
			require.NoError(t, b.Add(t.Context(), i))
		}
		require.NoError(t, b.Stop(t.Context()))
		require.Equal(t, int32(1), most.Load())
	})
}

// TestOneFlushGoesPastSilentOnes: not more, and each ends by its deadline.
func TestOneFlushGoesPastSilentOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := command.NewBatcher(command.BatcherConfig{Name: "test", MaxBatch: 1, MaxPending: 100, Patience: time.Second, FlushTimeout: 5 * time.Second},
			func(ctx context.Context, _ []int) ([]int, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		begin := time.Now()
		for i := range 4 {
			require.NoError(t, b.Add(t.Context(), i))
		}
		require.NoError(t, b.Stop(t.Context()))
		require.Equal(t, 11*time.Second, time.Since(begin), "at 0 and 1 s, and when these have ended")
	})
}

// TestSmallItemsGoFirst: large ones wait behind them, in their order, and a flush has as many as fit and at least one.
func TestSmallItemsGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var flushes [][]int
		b := command.NewBatcher(command.BatcherConfig{Name: "test", MaxBatch: 4, MaxPending: 100}, func(_ context.Context, items []int) ([]int, error) {
			flushes = append(flushes, slices.Clone(items))
			time.Sleep(time.Second)
			return items, nil
		})
		b.SmallFirst(func(item int) int { return item }, 100, 250)
		require.NoError(t, b.Add(t.Context(), 1))
		synctest.Wait()
		for _, item := range []int{900, 100, 101, 102, 2, 3, 4, 5, 6, 7, 8} {
			require.NoError(t, b.Add(t.Context(), item))
		}
		require.Equal(t, 11, b.Pending())
		require.NoError(t, b.Stop(t.Context()))
		require.Equal(t, [][]int{{1}, {2, 3, 4, 900}, {5, 6, 7, 100}, {8, 101, 102}}, flushes)
	})
}

// TestAFlushThatTakesLongIsWaitedFor where the batcher has no patience: items stay in order.
func TestAFlushThatTakesLongIsWaitedFor(t *testing.T) {
	t.Parallel()
	silent, begun := make(chan struct{}), make(chan struct{}, 2)
	b := command.NewBatcher(command.BatcherConfig{Name: "test", MaxBatch: 1, MaxPending: 100},
		func(_ context.Context, items []int) ([]int, error) {
			begun <- struct{}{}
			<-silent
			return items, nil
		})
	require.NoError(t, b.Add(t.Context(), 1))
	<-begun
	require.NoError(t, b.Add(t.Context(), 2))
	require.Equal(t, 1, b.Pending())
	close(silent)
	require.NoError(t, b.Stop(t.Context()))
	require.Len(t, begun, 1)
}
