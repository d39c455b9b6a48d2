package breaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/breaker"
)

// TestALateCallCountsOnlyWhileNothingElseIsAnswered: expensive calls must not cause the
// refusal of cheap ones.
func TestALateCallCountsOnlyWhileNothingElseIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := settings()
		s.Judge = func(error) breaker.Verdict { return breaker.Late }
		b := newSet(t, breaker.Config{}, map[string]breaker.Settings{breaker.Web: s}).Breaker(breaker.Web)
		late := func(meanwhile func()) {
			t.Helper()
			err := b.Do(t.Context(), func(context.Context) error {
				meanwhile()
				time.Sleep(2 * time.Second)
				return context.DeadlineExceeded
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for range 3 * s.FailureThreshold {
			late(b.Seen)
		}
		require.Equal(t, breaker.Closed, b.State(), "the dependency has answered others")
		b.Seen() // before the calls: says nothing about them
		for range s.FailureThreshold {
			late(func() {})
		}
		require.Equal(t, breaker.Open, b.State(), "nothing was answered")

		// A trial that is late while others are answered decides nothing.
		time.Sleep(s.Timeout)
		late(b.Seen)
		require.Equal(t, breaker.HalfOpen, b.State())
		late(func() {})
		require.Equal(t, breaker.Open, b.State())
	})
}

// TestAPollDoesNotWaitForTheEndOfATimeout: but an operator's decision holds.
func TestAPollDoesNotWaitForTheEndOfATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := settings()
		b := newSet(t, breaker.Config{}, map[string]breaker.Settings{breaker.Web: s}).Breaker(breaker.Web)
		for range s.FailureThreshold {
			time.Sleep(2 * time.Second) // each counts
			require.Error(t, b.Do(t.Context(), func(context.Context) error { return context.DeadlineExceeded }))
		}
		require.Equal(t, breaker.Open, b.State())
		require.Greater(t, b.Wait(), time.Second)
		b.Retry()
		require.LessOrEqual(t, b.Wait(), 250*time.Millisecond)
		time.Sleep(250 * time.Millisecond)
		require.NoError(t, b.Do(t.Context(), func(context.Context) error { return nil }))

		b.Force(breaker.ForcedOpen)
		b.Retry()
		time.Sleep(time.Hour)
		require.ErrorIs(t, b.Do(t.Context(), func(context.Context) error { return nil }), breaker.ErrOpen)
	})
}
