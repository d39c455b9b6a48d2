package sweep_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/sweep"
)

func TestRunNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		var dryRuns, runs atomic.Int32
		r := newRunner(t, l, job(func(_ context.Context, dry bool) (sweep.Result, error) {
			if dry {
				dryRuns.Add(1)
				return sweep.Result{}, nil
			}
			runs.Add(1)
			time.Sleep(10 * time.Second)
			return sweep.Result{Items: map[string]int{"done": 1}}, nil
		}))
		_, err := r.RunNow(t.Context(), "other", false)
		require.ErrorIs(t, err, sweep.ErrUnknown)

		run, err := r.RunNow(t.Context(), "test", true)
		require.NoError(t, err)
		require.True(t, run.DryRun)
		taken, ended := l.runs()
		require.Empty(t, taken, "a dry run takes no lease")
		require.Empty(t, ended)

		run, err = r.RunNow(t.Context(), "test", false)
		require.NoError(t, err)
		require.Equal(t, sweep.Run{Sweep: "test", Outcome: sweep.OutcomeOK, TookMS: 10_000, Result: sweep.Result{Items: map[string]int{"done": 1}}}, run)
		_, err = r.RunNow(t.Context(), "test", false)
		require.NoError(t, err, "although it is not due")
		require.EqualValues(t, 2, runs.Load())

		begin := time.Now()
		busy := make(chan error)
		go func() { _, err := r.RunNow(t.Context(), "test", false); busy <- err }()
		synctest.Wait()
		_, err = newRunner(t, l, job(nothing)).RunNow(t.Context(), "test", false)
		require.ErrorIs(t, err, sweep.ErrRunning)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.RunNow(brief, "test", true)
		require.ErrorIs(t, err, sweep.ErrRunning)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = r.RunNow(t.Context(), "test", true)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(begin), "it waited for the other in this process")
		require.NoError(t, <-busy)
		require.EqualValues(t, 2, dryRuns.Load())
		require.Equal(t, []string{"test"}, r.Sweeps())
	})
}

func TestDryByConfigurationIsDryForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		j := job(func(_ context.Context, dry bool) (sweep.Result, error) {
			if !dry {
				panic("not dry")
			}
			return sweep.Result{}, nil
		})
		j.DryRun = true
		r := newRunner(t, l, j)
		run, err := r.RunNow(t.Context(), "test", false)
		require.NoError(t, err)
		require.True(t, run.DryRun)
		start(t, r)
		time.Sleep(10 * time.Second)
		stop(t, r)
		_, ended := l.runs()
		require.Len(t, ended, 1)
		require.True(t, ended[0].DryRun)
		require.Equal(t, sweep.OutcomeOK, ended[0].Outcome)
	})
}
