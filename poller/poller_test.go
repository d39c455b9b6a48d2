package poller_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/poller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// polls records the times of polls and returns the configured results.
type polls struct {
	mu    sync.Mutex
	begin time.Time
	at    []time.Duration
	found int
	err   error
}

func (p *polls) poll(ctx context.Context) (int, error) {
	if _, ok := ctx.Deadline(); !ok {
		panic("no deadline")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, time.Since(p.begin))
	return p.found, p.err
}

func (p *polls) answer(found int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found, p.err = found, err
}

func (p *polls) take() []time.Duration {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.at
	p.at = nil
	return at
}

const s = time.Second

func config() poller.Config {
	return poller.Config{
		SystemID:        "sys",
		Interval:        s,
		RelaxedInterval: 10 * s,
		Jitter:          -1,
		Backoff:         deploymode.Backoff{Base: s / 2, Max: 6 * s, Multiplier: 2},
		Timeout:         time.Minute,
	}
}

func TestPaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &polls{begin: time.Now(), found: 2}
		cfg := config()
		cfg.Metrics = telemetry.Discard()
		p := poller.New(cfg, rec.poll)
		require.NoError(t, p.Start(t.Context()))
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(3*s + s/2)
		require.Equal(t, []time.Duration{s, 2 * s, 3 * s}, rec.take())

		p.SetPace(deploymode.PaceRelaxed) // at 3.5
		p.SetPace(deploymode.PaceRelaxed)
		time.Sleep(20*s + s/2)
		require.Equal(t, []time.Duration{13*s + s/2, 23*s + s/2}, rec.take())

		p.SetPace(deploymode.PaceOff) // at 24
		time.Sleep(time.Hour)
		require.Empty(t, rec.take())

		p.SetPace(deploymode.PaceTight)
		time.Sleep(s)
		require.NotEmpty(t, rec.take(), "tight within one interval")

		h := p.Health()
		require.Equal(t, deploymode.PaceTight, h.Pace)
		require.Equal(t, 2*h.Cycles, h.Found)
		require.GreaterOrEqual(t, h.Cycles, uint64(6))
		require.InDelta(t, h.Cycles, testutil.ToFloat64(cfg.Metrics.PollingCycles.WithLabelValues("sys")), 0)
		require.InDelta(t, h.Found, testutil.ToFloat64(cfg.Metrics.PollingMessagesFound.WithLabelValues("sys")), 0)
		require.NoError(t, p.Stop(t.Context()))
		require.NoError(t, p.Stop(t.Context()))
		require.ErrorIs(t, p.Start(t.Context()), lifecycle.ErrStopped)
	})
}

func TestRelaxedToTightComesWithinTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &polls{begin: time.Now()}
		cfg := config()
		cfg.Pace = deploymode.PaceRelaxed
		p := poller.New(cfg, rec.poll)
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(2 * s)
		require.Empty(t, rec.take())
		p.SetPace(deploymode.PaceTight)
		time.Sleep(s)
		require.NotEmpty(t, rec.take())
		require.NoError(t, p.Stop(t.Context()))
	})
}

func TestErrorsAreWaitedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &polls{begin: time.Now(), err: errors.New("no database")}
		p := poller.New(config(), rec.poll)
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(6 * s)
		// One interval, then the growing delay, up to the longest that errors may hold up a poll.
		require.Equal(t, []time.Duration{s, 1500 * time.Millisecond, 2500 * time.Millisecond, 4500 * time.Millisecond}, rec.take())
		require.Equal(t, 4, p.Health().ConsecutiveErrors)
		require.Equal(t, "polling sys: no database", p.Health().LastError)

		p.SetPace(deploymode.PaceRelaxed) // does not shorten or lengthen the wait
		rec.answer(0, nil)
		time.Sleep(s)
		require.Equal(t, []time.Duration{6500 * time.Millisecond}, rec.take())
		require.Zero(t, p.Health().ConsecutiveErrors)
		require.Empty(t, p.Health().LastError)
		require.EqualValues(t, 4, p.Health().Errors)
		time.Sleep(10 * s)
		require.Equal(t, []time.Duration{16500 * time.Millisecond}, rec.take())
		require.NoError(t, p.Stop(t.Context()))
	})
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := poller.New(config(), func(context.Context) (int, error) { panic("boom") })
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(2 * s)
		synctest.Wait()
		require.Equal(t, 2, p.Health().ConsecutiveErrors)
		require.False(t, p.Health().Loop.Dead())
		require.NoError(t, p.Stop(t.Context()))
	})
}

func TestNewIntervalsCountAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &polls{begin: time.Now()}
		cfg := config()
		cfg.Pace = deploymode.PaceRelaxed
		p := poller.New(cfg, rec.poll)
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(4 * s)
		p.SetIntervals(s, 10*s) // no change
		time.Sleep(7 * s)
		require.Equal(t, []time.Duration{10 * s}, rec.take())
		p.SetIntervals(2*s, 5*s) // at 11
		time.Sleep(10*s + 1)
		require.Equal(t, []time.Duration{16 * s, 21 * s}, rec.take())
		p.SetPace(deploymode.PaceTight)
		time.Sleep(2 * s)
		rec.take() // within one interval
		time.Sleep(6 * s)
		require.Len(t, rec.take(), 3)
		p.SetIntervals(0, 0) // no change
		time.Sleep(s)
		rec.take()
		time.Sleep(6 * s)
		require.Len(t, rec.take(), 3)
		require.NoError(t, p.Stop(t.Context()))
	})
}

func TestAPollThatNeverEndsIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		cfg := config()
		cfg.Timeout = 10 * s
		p := poller.New(cfg, func(context.Context) (int, error) { <-hang; return 0, nil })
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(80 * s)
		require.False(t, p.Health().Loop.Stuck)
		time.Sleep(2 * s)
		require.True(t, p.Health().Loop.Stuck)
		close(hang)
		synctest.Wait()
		require.False(t, p.Health().Loop.Stuck)
		require.NoError(t, p.Stop(t.Context()))
	})
}

func TestStopEndsARunningPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := poller.New(config(), func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		require.NoError(t, p.Start(t.Context()))
		time.Sleep(2 * s)
		begin := time.Now()
		require.NoError(t, p.Stop(t.Context()))
		require.Zero(t, time.Since(begin))
	})
}

// Gaps between polls stay within the interval of the pace and its jitter.
func TestJitterProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		jitter := rapid.Float64Range(0.01, 1).Draw(rt, "jitter")
		relaxed := rapid.Bool().Draw(rt, "relaxed")
		var gaps []time.Duration
		interval := s
		synctest.Test(t, func(t *testing.T) {
			rec := &polls{begin: time.Now()}
			cfg := config()
			cfg.Jitter = jitter
			if relaxed {
				cfg.Pace, interval = deploymode.PaceRelaxed, cfg.RelaxedInterval
			}
			p := poller.New(cfg, rec.poll)
			if p.Start(t.Context()) != nil {
				return
			}
			time.Sleep(20 * interval)
			at := rec.take()
			for i := 1; i < len(at); i++ {
				gaps = append(gaps, at[i]-at[i-1])
			}
			_ = p.Stop(t.Context())
		})
		if len(gaps) < 18 {
			rt.Fatalf("only %d gaps", len(gaps))
		}
		for _, gap := range gaps {
			low := time.Duration(float64(interval) * (1 - jitter))
			if gap < low-time.Microsecond || gap > interval {
				rt.Fatalf("gap %s with jitter %f of %s", gap, jitter, interval)
			}
		}
	})
}
