package breaker_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/perfguard"
)

// Under concurrent calls every call is counted once, and in the end the breaker closes.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	var answered atomic.Uint64
	s := newSet(t, breaker.Config{}, map[string]breaker.Settings{breaker.Web: {FailureThreshold: 3, SuccessThreshold: 2, Timeout: time.Millisecond}})
	b := s.Breaker(breaker.Web)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 2000 {
				if n%500 == 0 {
					away.Store(i%2 == 0)
				}
				if b.Do(t.Context(), func(context.Context) error {
					if away.Load() {
						return errAway
					}
					return nil
				}) == nil {
					answered.Add(1)
				}
				b.Wait()
				b.Seen()
				s.Health()
			}
		})
	}
	group.Wait()
	h := b.Health()
	require.EqualValues(t, 8*2000, h.Calls+h.Rejected)
	require.Equal(t, answered.Load(), h.Calls-h.Failures)
	away.Store(false)
	require.Eventually(t, func() bool {
		_ = b.Do(t.Context(), func(context.Context) error { return nil })
		return b.State() == breaker.Closed
	}, 30*time.Second, time.Millisecond)
}

func cases() []perfguard.Case {
	do := func(err error) func(tb testing.TB) func() error {
		return func(tb testing.TB) func() error {
			s := newSet(tb, breaker.Config{}, map[string]breaker.Settings{breaker.Web: settings()})
			ctx := tb.Context()
			return func() error {
				_ = s.Breaker(breaker.Web).Do(ctx, func(context.Context) error { return err })
				return nil
			}
		}
	}
	return []perfguard.Case{
		{Name: "success", Prepare: do(nil)},
		{Name: "ignored", Prepare: do(errBad)},
		{Name: "refused", Allocs: 1, Prepare: do(errAway)},
	}
}

func TestCallsDoNotAllocate(t *testing.T) { perfguard.Allocations(t, cases()) }

func BenchmarkDo(b *testing.B) { perfguard.Benchmark(b, cases()) }

func BenchmarkDoParallel(b *testing.B) {
	run := cases()[0].Prepare(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = run()
		}
	})
}
