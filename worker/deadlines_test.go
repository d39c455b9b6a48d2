package worker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tasker-go/tasker/worker/internal/engine"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/telemetry"
)

// TestTheWatchOverTimeLimitsSurvivesAPanic: a panic in the timer's goroutine would end
// the process. One step's end cannot be reported; the others' can, and the watch
// continues.
func TestTheWatchOverTimeLimitsSurvivesAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var panicked atomic.Bool
		core, logs := observer.New(zapcore.ErrorLevel)
		hook := func(e zapcore.Entry) error {
			if e.Message == "step failed" && panicked.CompareAndSwap(false, true) {
				panic("while telling")
			}
			return nil
		}
		always, _ := observer.New(zapcore.DebugLevel)
		log := zap.New(zapcore.NewTee(zapcore.RegisterHooks(always, hook), core))
		release := make(chan struct{})
		metrics := telemetry.Discard()
		r := newRig(t, Config{MaxConcurrent: 2, Logger: log, Metrics: metrics, HeartbeatInterval: time.Second}, func(*StepContext) (any, error) {
			<-release
			return nil, nil
		})
		r.start(t)
		r.offer(2, stepLimited)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		got := r.board.reported()
		require.Len(t, got, 1, "the other step")
		require.Equal(t, engine.TypeTimeout, decodeFailure(t, got[0]).Type)
		require.Equal(t, 1, r.board.number(func(b *fakeBoard) int { return len(b.held) }))
		require.Zero(t, r.board.number(func(b *fakeBoard) int { return b.extended }), "the lease of the unreported step is not extended")
		require.InDelta(t, 1, testutil.ToFloat64(metrics.LoopRestarts.WithLabelValues("worker-deadlines")), 0)
		require.Equal(t, 1, logs.FilterFieldKey("stack").Len())

		close(release)
		release = make(chan struct{})
		synctest.Wait()
		r.offer(1, stepLimited)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 2, "the watch continues")
		close(release)
		r.stop(t)
	})
}

// TestAFailedLookAtTheTimeLimitsIsRepeated: the panic is in the look itself.
func TestAFailedLookAtTheTimeLimitsIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		metrics := telemetry.Discard()
		metrics.HandlersZombie = &panics{Gauge: metrics.HandlersZombie}
		r := newRig(t, Config{MaxConcurrent: 2, Metrics: metrics}, func(*StepContext) (any, error) {
			<-release
			return nil, nil
		})
		r.start(t)
		r.offer(2, stepLimited)
		time.Sleep(5*time.Second + time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 1, "the repeated look")
		close(release)
		r.stop(t)
	})
}

// panics is a gauge that panics once.
type panics struct {
	prometheus.Gauge
	panicked atomic.Bool
}

func (p *panics) Set(v float64) {
	if p.panicked.CompareAndSwap(false, true) {
		panic("while looking")
	}
	p.Gauge.Set(v)
}

// TestATimeoutIsNotWhatTheHandlerReturned: a handler that confirms its end to a process learns that
// another end was recorded.
func TestATimeoutIsNotWhatTheHandlerReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorded := make(chan bool, 3)
		r := newRig(t, Config{MaxConcurrent: 1}, func(ctx *StepContext) (any, error) {
			ctx.OnRecorded(func(accepted bool) { recorded <- accepted })
			time.Sleep(10 * time.Second)
			return 1, nil
		})
		r.start(t)
		r.offer(1, stepLimited)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, engine.TypeTimeout, decodeFailure(t, r.board.reported()[0]).Type)
		require.False(t, <-recorded)
		r.offer(1, stepOnly)
		require.True(t, <-recorded)
		require.Empty(t, recorded)
		r.stop(t)
	})
}
