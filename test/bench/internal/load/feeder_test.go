package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// steadySystem finishes up to 1,000 tasks per second of those it has.
type steadySystem struct {
	begin     time.Time
	submitted atomic.Int64
	fail      error
}

func (s *steadySystem) Submit(_ context.Context, n int) error {
	s.submitted.Add(int64(n))
	return s.fail
}

func (s *steadySystem) Finished(context.Context) (int64, error) {
	return min(s.submitted.Load(), time.Since(s.begin).Milliseconds()), nil
}

func TestKeepHoldsTheBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steadySystem{begin: time.Now()}
		samples, err := Keep(t.Context(), s, Feed{Backlog: 500, Batch: 300}, 10*time.Second)
		require.NoError(t, err)
		last := samples[len(samples)-1]
		require.InDelta(t, 10_000, last.Count, 400)
		require.GreaterOrEqual(t, last.At, 10*time.Second)
		require.InDelta(t, 10_400, s.submitted.Load(), 700, "no more than the backlog waits")
		require.InDelta(t, s.submitted.Load()-last.Count, last.Waiting, 300, "except tasks being added")
	})
}

// slowSystem takes 100 ms to add tasks, whatever their number.
type slowSystem struct{ steadySystem }

func (s *slowSystem) Submit(ctx context.Context, n int) error {
	time.Sleep(100 * time.Millisecond)
	return s.steadySystem.Submit(ctx, n)
}

func TestKeepHasBatchesInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowSystem{steadySystem{begin: time.Now()}}
		samples, err := Keep(t.Context(), s, Feed{Backlog: 300, Batch: 50, InFlight: 4}, 10*time.Second)
		require.NoError(t, err)
		require.InDelta(t, 10_000, samples[len(samples)-1].Count, 400, "one after the other they would be 5,000")
	})
}

func TestKeepFollowsARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steadySystem{begin: time.Now()}
		_, err := Keep(t.Context(), s, Feed{Rate: func(time.Duration) float64 { return 500 }}, 10*time.Second)
		require.NoError(t, err)
		require.InDelta(t, 5000, s.submitted.Load(), 50)
	})
}

func TestKeepEndsWithTheErrorOfSubmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steadySystem{begin: time.Now(), fail: errors.New("no room")}
		_, err := Keep(t.Context(), s, Feed{Backlog: 1, Batch: 1}, 10*time.Second)
		require.ErrorContains(t, err, "add 1 tasks: no room")
	})
}

func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steadySystem{begin: time.Now()}
		s.submitted.Store(2000)
		require.NoError(t, Await(t.Context(), s, 2000))
		require.InDelta(t, 2, time.Since(s.begin).Seconds(), 0.1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, Await(ctx, s, 3000), context.DeadlineExceeded)
	})
}
