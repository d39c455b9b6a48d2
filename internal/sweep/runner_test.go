package sweep_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }

func nothing(context.Context, bool) (sweep.Result, error) { return sweep.Result{}, nil }

func job(run func(ctx context.Context, dry bool) (sweep.Result, error)) sweep.Job {
	return sweep.Job{Name: "test", Interval: time.Minute, Lease: 30 * time.Second, Run: run}
}

func newRunner(t testing.TB, l sweep.Leases, jobs ...sweep.Job) *sweep.Runner {
	t.Helper()
	r, err := sweep.NewRunner(sweep.RunnerConfig{Leases: l, Holder: uuid.New()}, jobs...)
	require.NoError(t, err)
	return r
}

func start(t testing.TB, runners ...*sweep.Runner) {
	t.Helper()
	for _, r := range runners {
		require.NoError(t, r.Start(t.Context()))
	}
}

func stop(t testing.TB, runners ...*sweep.Runner) {
	t.Helper()
	for _, r := range runners {
		require.NoError(t, r.Stop(t.Context()))
	}
}

func TestTheFleetRunsASweepOncePerInterval(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			l := &leases{}
			runners := make([]*sweep.Runner, replicas)
			for i := range runners {
				runners[i] = newRunner(t, l, job(nothing))
			}
			begin := time.Now()
			start(t, runners...)
			time.Sleep(time.Hour)
			stop(t, runners...)
			taken, ended := l.runs()
			require.Len(t, ended, len(taken))
			require.LessOrEqual(t, l.asked, replicas*(2*60+1), "no replica asks more than twice per interval")
			require.Less(t, taken[0].Sub(begin), 5*time.Second, "the first run does not wait for an interval")
			for i := 1; i < len(taken); i++ {
				gap := taken[i].Sub(taken[i-1])
				require.GreaterOrEqual(t, gap, time.Minute)
				require.LessOrEqual(t, gap, time.Minute+33*time.Second)
			}
		})
	}
}

func TestAReplicaThatDiesInARunHoldsTheOthersUpForItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		j := job(nothing)
		j.Lease = 5 * time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		taken, err := l.TakeSweep(ctx, "test", uuid.New(), j.Interval, j.Lease, false) // and never ends it
		require.NoError(t, err)
		require.True(t, taken)
		r := newRunner(t, l, j)
		start(t, r)
		time.Sleep(j.Lease)
		times, _ := l.runs()
		require.Len(t, times, 1)
		time.Sleep(j.Interval)
		times, _ = l.runs()
		require.Len(t, times, 2, "found soon after the end of the lease")
		stop(t, r)
	})
}

func TestNothingEndsTheLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		calls := 0
		l := &leases{broken: func(string) error {
			calls++
			switch calls % 7 {
			case 0:
				return errors.New("could not serialize access due to concurrent update (SQLSTATE 40001)")
			case 3:
				return errors.New("terminating connection due to administrator command (SQLSTATE 57P01)")
			case 5:
				panic("a lease that panics")
			}
			return nil
		}}
		j := job(func(context.Context, bool) (sweep.Result, error) {
			switch runs.Add(1) % 4 {
			case 1:
				return sweep.Result{}, errors.New("deadlock detected (SQLSTATE 40P01)")
			case 2:
				panic("a sweep that panics")
			}
			return sweep.Result{}, nil
		})
		j.Watch = func(context.Context) error { panic("a gauge that panics") }
		r := newRunner(t, l, j)
		start(t, r)
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		h := r.Health()[0]
		require.Zero(t, h.Loop.Restarts)
		require.False(t, h.Loop.Dead())
		require.Greater(t, h.Runs, uint64(6*60/2))
		require.Greater(t, h.Errors, uint64(100))
		stop(t, r)
	})
}

func TestAFailedRunIsRepeatedSoonAndThenLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		var broken atomic.Bool
		broken.Store(true)
		metrics := telemetry.Discard()
		r, err := sweep.NewRunner(sweep.RunnerConfig{Leases: l, Holder: uuid.New(), Metrics: metrics, Jitter: -1}, job(func(context.Context, bool) (sweep.Result, error) {
			if broken.Load() {
				return sweep.Result{Items: map[string]int{"done_before": 1}}, errors.New("no")
			}
			return sweep.Result{}, nil
		}))
		require.NoError(t, err)
		start(t, r)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		taken, ended := l.runs()
		require.GreaterOrEqual(t, len(taken), 2, "not a whole interval later")
		require.Equal(t, sweep.OutcomeError, ended[0].Outcome)
		require.Equal(t, "run the sweep test: no", ended[0].Error)
		require.Equal(t, 1, ended[0].Items["done_before"])

		time.Sleep(time.Hour)
		synctest.Wait()
		taken, _ = l.runs()
		last := len(taken) - 1
		require.GreaterOrEqual(t, taken[last].Sub(taken[last-1]), 54*time.Second)
		require.LessOrEqual(t, taken[last].Sub(taken[last-1]), time.Minute)
		check := r.Check()
		require.Equal(t, deploymode.Degraded, check.Status)
		require.Contains(t, check.Message, "sweep test has failed")

		broken.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, deploymode.Healthy, r.Check().Status)
		require.Empty(t, r.Health()[0].LastError)
		require.Positive(t, testutil.ToFloat64(metrics.SweepLastSuccess.WithLabelValues("test")))
		require.InDelta(t, r.Health()[0].Errors, testutil.ToFloat64(metrics.SweepRuns.WithLabelValues("test", "error")), 0)
		require.InDelta(t, r.Health()[0].Errors, testutil.ToFloat64(metrics.SweepItems.WithLabelValues("test", "done_before")), 0)
		stop(t, r)
	})
}

func TestARunEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		var lasted atomic.Int64
		r := newRunner(t, l, job(func(ctx context.Context, _ bool) (sweep.Result, error) {
			begin := time.Now()
			<-ctx.Done()
			lasted.Store(int64(time.Since(begin)))
			return sweep.Result{}, ctx.Err()
		}))
		_, err := r.RunNow(t.Context(), "test", false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 30*time.Second, lasted.Load())
		_, ended := l.runs()
		require.Equal(t, sweep.OutcomeError, ended[0].Outcome)
	})
}

func TestStopGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		r := newRunner(t, l, job(func(ctx context.Context, _ bool) (sweep.Result, error) {
			<-ctx.Done()
			return sweep.Result{}, ctx.Err()
		}))
		start(t, r)
		time.Sleep(10 * time.Second)
		stop(t, r)
		_, ended := l.runs()
		require.Len(t, ended, 1)
		require.Equal(t, sweep.OutcomeStopped, ended[0].Outcome)
		require.Zero(t, r.Health()[0].Errors, "being stopped is no failure")
		require.ErrorIs(t, r.Start(t.Context()), lifecycle.ErrStopped)
	})
}

func TestALongSweepDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Int32
		long := sweep.Job{Name: "long", Interval: time.Hour, Lease: 30 * time.Minute, Run: func(ctx context.Context, _ bool) (sweep.Result, error) {
			<-ctx.Done()
			return sweep.Result{}, ctx.Err()
		}}
		r := newRunner(t, &leases{}, long, job(func(context.Context, bool) (sweep.Result, error) {
			short.Add(1)
			return sweep.Result{}, nil
		}))
		start(t, r)
		time.Sleep(20 * time.Minute)
		require.GreaterOrEqual(t, short.Load(), int32(18))
		stop(t, r)
	})
}

func TestALongRunIsFollowedByAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		j := job(func(context.Context, bool) (sweep.Result, error) {
			time.Sleep(10 * time.Minute)
			return sweep.Result{}, nil
		})
		j.Lease = 20 * time.Minute
		r := newRunner(t, l, j)
		start(t, r)
		time.Sleep(30 * time.Minute)
		taken, _ := l.runs()
		require.GreaterOrEqual(t, taken[1].Sub(taken[0]), 10*time.Minute+6*time.Second)
		time.Sleep(5 * time.Minute)
		stop(t, r)
	})
}

func TestEveryReplicaWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var watched [2]atomic.Int32
		runners := make([]*sweep.Runner, 2)
		l := &leases{}
		for i := range runners {
			j := job(nothing)
			j.Watch = func(context.Context) error { watched[i].Add(1); return nil }
			runners[i] = newRunner(t, l, j)
		}
		start(t, runners...)
		time.Sleep(10 * time.Minute)
		stop(t, runners...)
		for i := range watched {
			require.GreaterOrEqual(t, watched[i].Load(), int32(9))
		}
	})
}

func TestAStuckRunShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRunner(t, &leases{}, job(func(context.Context, bool) (sweep.Result, error) {
			<-release // ignores its context
			return sweep.Result{}, nil
		}))
		start(t, r)
		time.Sleep(10 * time.Minute)
		require.True(t, r.Loops()[0].Stuck)
		require.Equal(t, deploymode.Unhealthy, r.Check().Status)
		close(release)
		stop(t, r)
	})
}

func TestIncompleteJobsAreRefused(t *testing.T) {
	t.Parallel()
	whole := job(nothing)
	for name, spoil := range map[string]func(j *sweep.Job){
		"name":     func(j *sweep.Job) { j.Name = "" },
		"function": func(j *sweep.Job) { j.Run = nil },
		"interval": func(j *sweep.Job) { j.Interval = 0 },
		"lease":    func(j *sweep.Job) { j.Lease = -1 },
	} {
		j := whole
		spoil(&j)
		_, err := sweep.NewRunner(sweep.RunnerConfig{Leases: &leases{}}, j)
		require.ErrorContains(t, err, "are required", name)
	}
	_, err := sweep.NewRunner(sweep.RunnerConfig{Leases: &leases{}}, whole, whole)
	require.ErrorContains(t, err, "duplicate")
}
