package coordinator_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

func TestStopEndsALookOnTheProcessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := command.NewProcessor(command.Config{Name: "commands", Kinds: []command.Kind{{Name: "sys-look", Workers: 1, Buffer: 10}}})
		require.NoError(t, p.Start(t.Context()))
		w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) { c.Processor = p }).settled()
		w.board.hold(make(chan struct{}))
		w.publish("a", 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		require.ErrorIs(t, w.Stop(ctx), context.DeadlineExceeded)
		begin := time.Now()
		require.NoError(t, w.Stop(t.Context()))
		require.NoError(t, p.Stop(t.Context()))
		require.Zero(t, time.Since(begin), "its context ended with the first Stop")
	})
}

func TestStopWaitsForALookWithinItsTime(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint("patient=", patient), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, deploymode.Hybrid).settled()
				gate := make(chan struct{})
				w.board.hold(gate)
				w.publish("a", 1)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 10*s)
				defer cancel()
				if patient {
					time.AfterFunc(9*s, func() { close(gate) })
					require.NoError(t, w.Stop(ctx))
					require.Zero(t, w.board.left(), "the look was not cut off")
				} else {
					require.ErrorIs(t, w.Stop(ctx), context.DeadlineExceeded)
					synctest.Wait()
					require.NoError(t, w.Stop(t.Context()), "its context has ended")
				}
				open, _, _ := w.source.Counts()
				require.Zero(t, open)
				ready, why := w.Ready()
				require.False(t, ready)
				require.Equal(t, "stopped", why)
				w.Wake(coordinator.ReasonSignal)
				w.WakeIn(0)
				require.ErrorIs(t, w.Start(t.Context()), lifecycle.ErrStopped)
				require.Error(t, w.SetMode(t.Context(), deploymode.PollingOnly))
			})
		})
	}
}

func TestALookThatDoesNotReturnShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.EventDrivenOnly, func(c *coordinator.Config) { c.LookTimeout = 10 * s })
		synctest.Wait()
		stuck := make(chan struct{})
		sys := coordinator.New(config(deploymode.PollingOnly, nil), lookFunc(
			func(context.Context, coordinator.Wake) (coordinator.Outcome, error) { // ignores its context
				<-stuck
				return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
			}))
		require.NoError(t, sys.Start(t.Context()))
		after(2*time.Minute + s)
		require.Equal(t, []string{"sys-looker"}, sys.Health().DeadLoops)
		require.Equal(t, deploymode.Unhealthy, sys.Health().Status)
		ready, why := sys.Ready()
		require.False(t, ready)
		require.Contains(t, why, "sys-looker")
		close(stuck)
		synctest.Wait()
		require.Empty(t, sys.Health().DeadLoops)
		require.NoError(t, sys.Stop(t.Context()))

		// A look that honours its context is ended by the timeout.
		gate := make(chan struct{})
		w.board.hold(gate)
		w.publish("a", 1)
		after(10 * s)
		require.Equal(t, 1, w.Health().ConsecutiveErrors)
	})
}
