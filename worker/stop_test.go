package worker

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

func TestStopWaitsAndHandsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 2, Prefetch: 3}, func(*StepContext) (any, error) {
			time.Sleep(10 * time.Second)
			return 1, nil
		})
		r.start(t)
		r.offer(9, stepOnly)
		begin := time.Now()
		r.stop(t) // within the default of 30 s
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.Len(t, r.board.handed, 3, "the prefetched steps")
		require.Equal(t, 1, r.board.handBacks)
		require.Zero(t, r.Health().LeasesLost)
		require.Len(t, r.board.reported(), 2)
		require.Empty(t, r.board.released)
		require.Len(t, r.board.claimable, 7)
		require.Contains(t, r.sent.topics(), signal.WorkerTopic("tests"), "handed-back steps are signalled")
		require.Equal(t, 1, r.board.stopped)
		require.Equal(t, "stopped", r.Health().State)
		require.NoError(t, r.Stop(t.Context()), "a second time is harmless")
		require.ErrorContains(t, r.Start(t.Context()), "stopped")
	})
}

// TestADrainingWorkerClaimsNothing: not for a signal, not by its poller, and not for the permits
// that its own handlers leave.
func TestADrainingWorkerClaimsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, Config{MaxConcurrent: 2, HandlerTimeout: time.Hour, ShutdownTimeout: time.Hour, Mode: deploymode.Hybrid},
			func(*StepContext) (any, error) { <-release; return 1, nil })
		r.start(t)
		r.offer(2, stepOnly)
		stopped := make(chan error, 1)
		go func() { stopped <- r.Stop(t.Context()) }()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "draining", r.Health().State)
		claims := func(b *fakeBoard) int { return len(b.claims) }
		before := r.board.number(claims)
		r.offer(3, stepOnly)
		time.Sleep(5 * time.Minute) // several polls
		release <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, r.board.reported(), 1)
		close(release)
		require.NoError(t, <-stopped)
		require.Len(t, r.board.reported(), 2)
		require.Equal(t, before, r.board.number(claims))
		require.Len(t, r.board.claimable, 3)
	})
}

func TestStopEndsHandlersAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 10, HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrShutdown) {
				return nil, errors.New("wrong cause")
			}
			if ctx.StepName() == "limited" {
				return "saved at the last moment", nil
			}
			// What an HTTP client returns.
			return nil, &url.Error{Op: http.MethodGet, URL: "x", Err: ctx.Err()}
		})
		r.board.plan.Steps[stepLimited].TimeoutSeconds = 3600
		r.start(t)
		r.offer(2, stepOnly)
		r.offer(1, stepLimited)
		r.offer(1, stepOnce)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		require.NoError(t, r.Stop(ctx))
		require.Equal(t, 8*time.Second, time.Since(begin), "the deadline less the margin")
		got := r.board.reported()
		require.Len(t, got, 1, "ending because of the shutdown is not a failure")
		require.True(t, got[0].Success)
		require.Len(t, r.board.handed, 2, "a repeatable step is handed back")
		require.Len(t, r.board.released, 1, "another one is left to the rules")
	})
}

func TestStopLeavesHandlersThatIgnoreIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, Config{HandlerTimeout: time.Hour}, func(*StepContext) (any, error) {
			<-release
			return 1, nil
		})
		r.start(t)
		r.offer(2, stepOnly)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		err := r.Stop(ctx)
		require.ErrorContains(t, err, "2 handlers still run")
		require.LessOrEqual(t, time.Since(begin), 10*time.Second)
		require.Len(t, r.board.released, 2)
		require.Contains(t, r.sent.topics(), signal.TopicDue)
		require.Equal(t, 1, r.board.stopped)
		require.Equal(t, err, r.Stop(t.Context()))
		close(release)
		synctest.Wait()
		require.Empty(t, r.board.reported(), "nothing is reported after the end")
	})
}

func TestSecondStopForces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{HandlerTimeout: time.Hour, ShutdownTimeout: time.Minute}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		r.start(t)
		r.offer(1, stepOnly)
		first := make(chan error, 1)
		begin := time.Now()
		go func() { first <- r.Stop(t.Context()) }()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "draining", r.Health().State)
		require.NoError(t, r.Stop(t.Context()))
		require.NoError(t, <-first)
		require.Equal(t, time.Second, time.Since(begin))
		require.Len(t, r.board.handed, 1)
	})
}

func TestStopWithTheDatabaseAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return 1, nil })
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.refuse = func(*store.Report) error { return store.ErrUnavailable } })
		r.offer(4, stepOnly)
		r.board.set(func(b *fakeBoard) { b.down = store.ErrUnavailable })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		err := r.Stop(ctx)
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.ErrorContains(t, err, "4 outcomes not saved")
		require.LessOrEqual(t, time.Since(begin), 5*time.Second)
		require.Len(t, r.board.released, 4, "it was tried")
	})
}

func TestStopWithACancelledContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{HandlerTimeout: time.Hour}, func(ctx *StepContext) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		r.start(t)
		r.offer(1, stepOnly)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		require.NoError(t, r.Stop(ctx))
		require.LessOrEqual(t, time.Since(begin), 2*releaseTime)
		require.Len(t, r.board.handed, 1, "releasing gets a moment")
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return 1, nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		r.offer(1, stepOnly)
		cancel()
		require.NoError(t, <-done)
		require.Len(t, r.board.reported(), 1)
	})
}

func TestRunEndsWhenTheListenerFailsForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return 1, nil })
		var reported error
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context()) }()
		synctest.Wait()
		broken := errors.New("the listener failed")
		r.onFatal(func(err error) { reported = err })(broken)
		require.ErrorIs(t, <-done, broken)
		require.Equal(t, broken, reported)
		require.Equal(t, 1, r.board.stopped)
	})
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	w, err := New(Config{DatabaseURL: "postgres://unused"})
	require.NoError(t, err)
	ready, reason := w.Ready()
	require.False(t, ready)
	require.Equal(t, "the worker is idle", reason)
	require.Error(t, w.SetMode(t.Context(), deploymode.PollingOnly))
	require.NoError(t, w.Stop(t.Context()))
	require.ErrorContains(t, w.Start(t.Context()), "stopped")
}

func TestFailedStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, func(*StepContext) (any, error) { return 1, nil })
		r.board.set(func(b *fakeBoard) { b.down = store.ErrUnavailable })
		require.ErrorIs(t, r.Start(t.Context()), store.ErrUnavailable)
		r.board.set(func(b *fakeBoard) { b.down = nil })
		r.start(t) // a second try
		r.offer(1, stepOnly)
		require.Len(t, r.board.reported(), 1)
		require.Error(t, r.Start(t.Context()))
		r.stop(t)
	})
}

// TestAHandlerHandsBackWhenTheDatabaseAnswersAgain: an outage uses no attempt of a step that
// no handler has begun.
func TestAHandlerHandsBackWhenTheDatabaseAnswersAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0 // one after the other
		r := newRig(t, Config{}, func(c *StepContext) (any, error) {
			if calls++; calls == 1 {
				return nil, HandBack(errors.New("no process takes it"))
			}
			return c.Attempt(), nil
		})
		r.start(t)
		r.board.set(func(b *fakeBoard) { b.deafHandBack = store.ErrUnavailable })
		r.offer(1, stepOnly)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, r.board.reported(), "the handler has done nothing")
		r.board.set(func(b *fakeBoard) { b.deafHandBack = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		reported := r.board.reported()
		require.Len(t, reported, 1)
		require.JSONEq(t, `1`, string(reported[0].Result), "the first attempt")
		r.stop(t)
	})
}

func TestHandingBackIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConcurrent: 1, Prefetch: 3}, func(*StepContext) (any, error) {
			time.Sleep(5 * time.Second)
			return 1, nil
		})
		r.start(t)
		r.offer(4, stepOnly)
		r.board.set(func(b *fakeBoard) { b.deafHandBack = store.ErrUnavailable })
		done := make(chan error, 1)
		go func() { done <- r.Stop(t.Context()) }()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, r.board.number(func(b *fakeBoard) int { return len(b.handed) }))
		r.board.set(func(b *fakeBoard) { b.deafHandBack = nil })
		require.ErrorIs(t, <-done, store.ErrUnavailable, "the error is reported nevertheless")
		require.Len(t, r.board.handed, 3)
		require.Len(t, r.board.reported(), 1)
	})
}
