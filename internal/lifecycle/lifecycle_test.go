package lifecycle_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func waitForEnd(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestLoopLife(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var runs atomic.Int32
	l := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "x", Run: func(ctx context.Context) error {
		runs.Add(1)
		return waitForEnd(ctx)
	}})
	require.Equal(t, "x", l.Name())
	require.Equal(t, lifecycle.LoopIdle, l.Health().State)
	start, cancel := context.WithCancel(ctx)
	require.NoError(t, l.Start(start))
	require.NoError(t, l.Start(start))
	cancel() // bounds only the starting
	require.Equal(t, lifecycle.LoopRunning, l.Health().State)
	require.NoError(t, l.Stop(ctx))
	require.NoError(t, l.Stop(ctx))
	require.Equal(t, lifecycle.LoopStopped, l.Health().State)
	require.LessOrEqual(t, runs.Load(), int32(1))
	require.ErrorIs(t, l.Start(ctx), lifecycle.ErrStopped)

	never := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "y", Run: waitForEnd})
	require.ErrorIs(t, never.Start(start), context.Canceled)
	require.NoError(t, never.Stop(ctx))
	require.ErrorIs(t, never.Start(ctx), lifecycle.ErrStopped)
}

func TestLoopRestartsWithCappedBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		var restarts atomic.Int32
		core, logs := observer.New(zapcore.DebugLevel)
		l := lifecycle.NewLoop(lifecycle.LoopConfig{
			Name:        "dying",
			RestartBase: time.Second,
			RestartMax:  3 * time.Second,
			OnRestart: func(string) {
				if restarts.Add(1) == 2 {
					panic("counting")
				}
			},
			Logger: zap.New(core),
			Run: func(ctx context.Context) error {
				at = append(at, time.Since(begin))
				switch len(at) {
				case 1:
					panic("boom")
				case 2:
					return nil // as bad as an error
				case 3:
					return errors.New("broken")
				case 4:
					runtime.Goexit()
				case 5:
					time.Sleep(4 * time.Second) // long enough to reset the delay
					return errors.New("broken again")
				}
				return waitForEnd(ctx)
			},
		})
		require.NoError(t, l.Start(t.Context()))
		synctest.Wait()
		h := l.Health()
		require.True(t, h.Dead())
		require.Equal(t, lifecycle.LoopRestarting, h.State)
		require.Equal(t, "panic: boom", h.LastError)
		stack, ok := logs.All()[0].ContextMap()["stack"].(string)
		require.True(t, ok)
		require.Contains(t, stack, "lifecycle_test")

		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{
			0, 1 * time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second, 14 * time.Second,
		}, at)
		require.False(t, l.Health().Dead())
		require.EqualValues(t, 5, l.Health().Restarts)
		require.EqualValues(t, 5, restarts.Load())
		require.NoError(t, l.Stop(t.Context()))
	})
}

func TestLoopStopsDuringBackoffAndIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dying := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "a", Run: func(context.Context) error { panic(1) }})
		release := make(chan struct{})
		stubborn := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "b", Run: func(context.Context) error { <-release; return nil }})
		require.NoError(t, dying.Start(t.Context()))
		require.NoError(t, stubborn.Start(t.Context()))
		synctest.Wait()
		require.True(t, dying.Health().Dead())
		require.NoError(t, dying.Stop(t.Context()))
		require.Equal(t, lifecycle.LoopStopped, dying.Health().State)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, stubborn.Stop(ctx), context.DeadlineExceeded)
		require.Equal(t, lifecycle.LoopStopping, stubborn.Health().State)
		close(release)
		require.NoError(t, stubborn.Stop(t.Context()))
		require.ErrorIs(t, stubborn.Start(t.Context()), lifecycle.ErrStopped)
	})
}

func TestLoopIsStuckWithoutBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "a", Run: waitForEnd, MaxSilence: 10 * time.Second})
		require.NoError(t, l.Start(t.Context()))
		time.Sleep(10 * time.Second)
		require.False(t, l.Health().Stuck)
		l.Beat()
		time.Sleep(10 * time.Second)
		require.False(t, l.Health().Stuck)
		time.Sleep(time.Second)
		require.True(t, l.Health().Dead())
		l.Rest()
		time.Sleep(24 * time.Hour)
		require.False(t, l.Health().Stuck, "it waits for work")
		l.Beat()
		time.Sleep(11 * time.Second)
		require.True(t, l.Health().Stuck)
		require.NoError(t, l.Stop(t.Context()))
	})
}

// journal records calls; abandoned goroutines write to it too.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

type service struct {
	name     string
	log      *journal
	startErr error
	stop     func(ctx context.Context) error
}

func (s service) Name() string { return s.name }
func (s service) Start(context.Context) error {
	s.log.add("start " + s.name)
	return s.startErr
}
func (s service) Stop(ctx context.Context) error {
	s.log.add("stop " + s.name)
	if s.stop != nil {
		return s.stop(ctx)
	}
	return nil
}

func TestStartAllUndoesAfterAFailure(t *testing.T) {
	t.Parallel()
	var log journal
	broken := errors.New("no port")
	err := lifecycle.StartAll(t.Context(), zap.NewNop(), time.Second,
		service{name: "a", log: &log}, service{name: "b", log: &log},
		service{name: "c", log: &log, startErr: broken}, service{name: "d", log: &log})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "starting c")
	require.Equal(t, []string{"start a", "start b", "start c", "stop b", "stop a"}, log.all())

	log.lines = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, lifecycle.StartAll(ctx, zap.NewNop(), time.Second, service{name: "a", log: &log}), context.Canceled)
	require.Empty(t, log.all())
}

func TestStopAllIsBoundedAndTellsEveryone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log journal
		release := make(chan struct{})
		begin := time.Now()
		err := lifecycle.StopAll(t.Context(), zap.NewNop(), time.Second,
			service{name: "a", log: &log},
			service{name: "deaf", log: &log, stop: func(context.Context) error { <-release; return nil }},
			service{name: "slow", log: &log, stop: func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("3 commands left")
			}},
			service{name: "panics", log: &log, stop: func(context.Context) error { panic("no") }})
		require.ErrorContains(t, err, "stopping panics: panic: no")
		require.ErrorContains(t, err, "stopping slow: 3 commands left")
		require.ErrorContains(t, err, "stopping deaf: context deadline exceeded")
		require.Equal(t, []string{"stop panics", "stop slow", "stop deaf", "stop a"}, log.all())
		require.Less(t, time.Since(begin), 3*time.Second)
		close(release)
		synctest.Wait()
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	require.NoError(t, lifecycle.Guard(func() error { return nil }))
	require.Equal(t, cause, lifecycle.Guard(func() error { return cause }))
	err := lifecycle.Guard(func() error { panic(cause) })
	require.ErrorIs(t, err, cause)
	require.NotEqual(t, zap.Skip(), lifecycle.StackField(err))
	require.Equal(t, zap.Skip(), lifecycle.StackField(cause))
}
