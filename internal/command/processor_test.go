package command_test

import (
	"context"
	"errors"
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
	p := command.NewProcessor(command.Config{Name: "commands", Buffer: 10, Workers: 2, Metrics: m})
	ctx := limit(t)
	require.NoError(t, p.Start(ctx))
	require.NoError(t, p.Start(ctx))
	for _, c := range []command.Command{
		{Name: "claim", Run: func(context.Context) error { return nil }},
		{Name: "claim", Run: func(context.Context) error { return errors.New("no") }},
		{Name: "apply", Run: func(context.Context) error { panic("boom") }},
		{Name: "apply", Run: func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				return errors.New("no deadline")
			}
			return nil
		}},
	} {
		require.NoError(t, p.Submit(ctx, c))
	}
	require.NoError(t, p.Stop(ctx))
	require.NoError(t, p.Stop(ctx))
	for labels, want := range map[[2]string]float64{
		{"claim", telemetry.OutcomeOK}: 1, {"claim", telemetry.OutcomeError}: 1,
		{"apply", telemetry.OutcomePanic}: 1, {"apply", telemetry.OutcomeOK}: 1,
	} {
		require.InDelta(t, want, testutil.ToFloat64(m.Commands.WithLabelValues(labels[0], labels[1])), 0, labels)
	}
	require.ErrorIs(t, p.Submit(ctx, command.Command{Name: "late"}), command.ErrStopped)
	require.ErrorIs(t, p.Start(ctx), lifecycle.ErrStopped)
}

func TestProcessorBlocksWhenFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.Discard()
		p := command.NewProcessor(command.Config{Name: "q", Buffer: 2, Workers: 1, Timeout: time.Hour, Metrics: m})
		require.NoError(t, p.Start(t.Context()))
		g := newGate()
		var ran atomic.Int32
		c := command.Command{Name: "c", Run: func(ctx context.Context) error {
			g.pass(ctx)
			ran.Add(1)
			return nil
		}}
		for range 3 { // one runs, two wait
			require.NoError(t, p.Submit(t.Context(), c))
			synctest.Wait()
		}
		require.InDelta(t, 1, testutil.ToFloat64(m.ChannelSaturation.WithLabelValues("q")), 0)
		require.InDelta(t, 1, p.Saturation(), 0)

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Submit(short, c), context.DeadlineExceeded)

		blocked := make(chan error, 2)
		go func() { blocked <- p.Submit(context.Background(), c) }()
		synctest.Wait()
		require.Empty(t, blocked)
		require.ErrorContains(t, p.Drain(short), "2 commands waiting, 1 running")
		require.ErrorIs(t, <-blocked, command.ErrStopped, "a waiting sender gets an error")

		close(g.open)
		require.NoError(t, p.Drain(t.Context()))
		require.EqualValues(t, 3, ran.Load())
		require.InDelta(t, 0, testutil.ToFloat64(m.ChannelSaturation.WithLabelValues("q")), 0)
		require.InDelta(t, 2, testutil.ToFloat64(m.ChannelFull.WithLabelValues("q")), 0)
	})
}

func TestProcessorStopEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := command.NewProcessor(command.Config{Name: "q", Buffer: 1, Workers: 1, Timeout: time.Hour})
		require.NoError(t, p.Start(t.Context()))
		g := newGate()
		var ended error
		require.NoError(t, p.Submit(t.Context(), command.Command{Name: "c", Run: func(ctx context.Context) error {
			g.pass(ctx)
			ended = ctx.Err()
			return nil
		}}))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Stop(short), context.DeadlineExceeded)
		require.NoError(t, p.Stop(t.Context()))
		require.ErrorIs(t, ended, context.Canceled)
	})
}

func TestNoBufferOfAProcessorIsInvented(t *testing.T) {
	t.Parallel()
	p := command.NewProcessor(command.Config{Name: "q"})
	require.ErrorContains(t, p.Start(limit(t)), "invalid Buffer 0")
	require.NoError(t, p.Stop(limit(t)))
}

func TestProcessorRunsWhatWasTakenBeforeStart(t *testing.T) {
	t.Parallel()
	p := command.NewProcessor(command.Config{Name: "q", Buffer: 1})
	ran := false
	require.NoError(t, p.Submit(limit(t), command.Command{Name: "c", Run: func(context.Context) error { ran = true; return nil }}))
	require.NoError(t, p.Stop(limit(t)))
	require.True(t, ran)
}

// Every accepted command runs exactly once, whenever the drain comes.
func TestProcessorLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		senders := rapid.IntRange(1, 8).Draw(rt, "senders")
		each := rapid.IntRange(1, 30).Draw(rt, "each")
		after := rapid.IntRange(0, senders*each).Draw(rt, "drain_after")
		p := command.NewProcessor(command.Config{
			Name:    "q",
			Buffer:  rapid.IntRange(1, 5).Draw(rt, "buffer"),
			Workers: rapid.IntRange(1, 4).Draw(rt, "workers"),
		})
		ctx := limit(t)
		if err := p.Start(ctx); err != nil {
			rt.Fatal(err)
		}
		var accepted, ran atomic.Int64
		reached := make(chan struct{})
		done := make(chan struct{}, senders)
		for range senders {
			go func() {
				for range each {
					err := p.Submit(ctx, command.Command{Name: "c", Run: func(context.Context) error { ran.Add(1); return nil }})
					if err != nil {
						break
					}
					if accepted.Add(1) == int64(after) {
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
		if accepted.Load() != ran.Load() {
			rt.Fatalf("accepted %d, ran %d", accepted.Load(), ran.Load())
		}
	})
}
