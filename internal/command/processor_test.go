package command_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestProcessorRunsAndCounts(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	p := command.NewProcessor(command.Config{Name: "commands", Metrics: m, Kinds: []command.Kind{{Name: "claim", Workers: 2, Buffer: 1}, {Name: "apply", Workers: 1, Buffer: 1}}})
	ctx := limit(t)
	require.NoError(t, p.Start(ctx))
	require.NoError(t, p.Do(ctx, "claim", func(context.Context) error { return nil }))
	no := errors.New("no")
	require.ErrorIs(t, p.Do(ctx, "claim", func(context.Context) error { return no }), no)
	require.ErrorAs(t, p.Do(ctx, "apply", func(context.Context) error { panic("boom") }), new(*lifecycle.PanicError))
	require.NoError(t, p.Do(ctx, "apply", func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		return nil
	}))
	require.ErrorContains(t, p.Do(ctx, "else", func(context.Context) error { return nil }), `invalid kind "else"`)
	require.NoError(t, p.Stop(ctx))
	require.NoError(t, p.Stop(ctx))
	for labels, want := range map[[2]string]float64{
		{"claim", telemetry.OutcomeOK}: 1, {"claim", telemetry.OutcomeError}: 1,
		{"apply", telemetry.OutcomePanic}: 1, {"apply", telemetry.OutcomeOK}: 1,
	} {
		require.InDelta(t, want, testutil.ToFloat64(m.Commands.WithLabelValues(labels[0], labels[1])), 0, labels)
	}
	require.ErrorIs(t, p.Do(ctx, "claim", func(context.Context) error { return nil }), command.ErrStopped)
	require.ErrorIs(t, p.Start(ctx), lifecycle.ErrStopped)
}

// TestKindsDoNotWaitForEachOther: each has workers and a buffer of its own. Beyond
// them a command is rejected, and the saturation shows the fullest kind.
func TestKindsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.Discard()
		p := command.NewProcessor(command.Config{Name: "q", Timeout: time.Hour, Metrics: m,
			Kinds: []command.Kind{{Name: "slow", Workers: 1, Buffer: 2}, {Name: "other", Workers: 1, Buffer: 1}}})
		require.NoError(t, p.Start(t.Context()))
		g := newGate()
		done := make(chan error, 3)
		pass := func(ctx context.Context) error { g.pass(ctx); return nil }
		for range 3 { // one runs, two wait
			go func() { done <- p.Do(context.Background(), "slow", pass) }()
			synctest.Wait()
		}
		require.InDelta(t, 1, testutil.ToFloat64(m.ChannelSaturation.WithLabelValues("q")), 0)
		require.InDelta(t, 1, p.Saturation(), 0)
		require.ErrorIs(t, p.Do(t.Context(), "slow", pass), command.ErrFull)
		require.NoError(t, p.Do(t.Context(), "other", func(context.Context) error { return nil }))
		require.InDelta(t, 1, testutil.ToFloat64(m.ChannelFull.WithLabelValues("q")), 0)
		require.InDelta(t, 3, testutil.ToFloat64(m.ChannelCapacity.WithLabelValues("q")), 0)

		close(g.open)
		for range 3 {
			require.NoError(t, <-done)
		}
		require.InDelta(t, 0, testutil.ToFloat64(m.ChannelSaturation.WithLabelValues("q")), 0)
		require.NoError(t, p.Stop(t.Context()))
	})
}

// TestACommandThatRunsAtOnceIsNoSaturation: admission looks at any moment, also between
// the place of a command and its run, and would reject requests.
func TestACommandThatRunsAtOnceIsNoSaturation(t *testing.T) {
	t.Parallel()
	p := command.NewProcessor(command.Config{Name: "q", Kinds: []command.Kind{{Name: "look", Workers: 1, Buffer: 1}}})
	var done, saturated atomic.Bool
	var watch sync.WaitGroup
	watch.Go(func() {
		for !done.Load() {
			if p.Saturation() > 0 {
				saturated.Store(true)
			}
		}
	})
	for range 50_000 {
		require.NoError(t, p.Do(t.Context(), "look", func(context.Context) error { return nil }))
	}
	done.Store(true)
	watch.Wait()
	require.False(t, saturated.Load())
	require.NoError(t, p.Stop(t.Context()))
}

func TestCallersWhoLeaveGiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := command.NewProcessor(command.Config{Name: "q", Timeout: time.Hour, Kinds: []command.Kind{{Name: "c", Workers: 1, Buffer: 1}}})
		turn, err := p.Take(t.Context(), "c")
		require.NoError(t, err)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Take(short, "c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		waiting, running := p.Pending()
		require.Equal(t, []int{0, 1}, []int{waiting, running})
		require.NoError(t, turn.Run(t.Context(), func(context.Context) error { return nil }))
		require.NoError(t, p.Stop(t.Context()))
	})
}

// TestProcessorStopEndsWhatIsLeft: commands that wait are rejected, and the running
// one is cancelled when Stop has no time left.
func TestProcessorStopEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := command.NewProcessor(command.Config{Name: "q", Timeout: time.Hour, Kinds: []command.Kind{{Name: "c", Workers: 1, Buffer: 1}}})
		require.NoError(t, p.Start(t.Context()))
		g := newGate()
		ended, rejected := make(chan error, 1), make(chan error, 1)
		go func() {
			_ = p.Do(context.Background(), "c", func(ctx context.Context) error { g.pass(ctx); ended <- ctx.Err(); return nil })
		}()
		synctest.Wait()
		go func() { rejected <- p.Do(context.Background(), "c", func(context.Context) error { return nil }) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Drain(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "0 commands wait, 1 run")
		require.ErrorIs(t, <-rejected, command.ErrStopped)
		require.ErrorIs(t, p.Stop(short), context.DeadlineExceeded)
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, p.Stop(t.Context()))
	})
}

func TestNoBoundOfAProcessorIsInvented(t *testing.T) {
	t.Parallel()
	p := command.NewProcessor(command.Config{Name: "q", Kinds: []command.Kind{{Name: "c"}}})
	err := p.Start(limit(t))
	require.ErrorContains(t, err, "invalid Workers 0")
	require.ErrorContains(t, err, "invalid Buffer 0")
	require.NoError(t, p.Stop(limit(t)))
}

// Every accepted command runs exactly once and within the bounds of its kind, whenever
// the drain comes.
func TestProcessorLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		senders, each := rapid.IntRange(1, 8).Draw(rt, "senders"), rapid.IntRange(1, 30).Draw(rt, "each")
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		after := rapid.IntRange(0, senders*each).Draw(rt, "drain_after")
		p := command.NewProcessor(command.Config{Name: "q", Kinds: []command.Kind{{Name: "c", Workers: workers, Buffer: senders}}})
		ctx := limit(t)
		var succeeded, ran, running atomic.Int64
		reached, done := make(chan struct{}), make(chan struct{}, senders)
		for range senders {
			go func() {
				for range each {
					err := p.Do(ctx, "c", func(context.Context) error {
						if n := running.Add(1); n > int64(workers) {
							panic("too many run at once")
						}
						ran.Add(1)
						running.Add(-1)
						return nil
					})
					if err != nil {
						break
					}
					if succeeded.Add(1) == int64(after) {
						close(reached)
					}
				}
				done <- struct{}{}
			}()
		}
		if after > 0 {
			<-reached
		}
		if err := p.Drain(ctx); err != nil {
			rt.Fatal(err)
		}
		for range senders {
			<-done
		}
		if succeeded.Load() != ran.Load() {
			rt.Fatalf("%d succeeded, %d ran", succeeded.Load(), ran.Load())
		}
	})
}
