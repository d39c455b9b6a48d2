package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

func TestGroupStopsAllWhateverBecomesOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dying := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "a", Run: func(context.Context) error { panic(1) }})
		release := make(chan struct{})
		stubborn := lifecycle.NewLoop(lifecycle.LoopConfig{Name: "b", Run: func(context.Context) error { <-release; return nil }})
		g := lifecycle.NewGroup("g", dying, stubborn)
		require.NoError(t, g.Start(t.Context()))
		synctest.Wait()
		require.True(t, g.Health()[0].Dead())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Stop(ctx), context.DeadlineExceeded)
		require.Equal(t, lifecycle.LoopStopped, g.Health()[0].State)
		require.Equal(t, lifecycle.LoopStopping, g.Health()[1].State)
		close(release)
		require.NoError(t, g.Stop(t.Context()))
		require.ErrorIs(t, g.Start(t.Context()), lifecycle.ErrStopped)
	})
}
