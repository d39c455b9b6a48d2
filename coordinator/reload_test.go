package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
)

func TestReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := launch(t, deploymode.Hybrid).settled()
		switches := w.Health().ModeSwitches
		require.NoError(t, w.Reload(t.Context(), coordinator.Settings{Mode: deploymode.Hybrid, PollInterval: s, RelaxedPollInterval: 2 * s}))
		require.Equal(t, switches, w.Health().ModeSwitches, "the mode is as it was")
		before := w.Health().Poller.Cycles
		after(10 * s)
		require.Equal(t, before+5, w.Health().Poller.Cycles, "polled at the new interval")

		require.NoError(t, w.Reload(t.Context(), coordinator.Settings{Mode: deploymode.PollingOnly, PollInterval: 500 * time.Millisecond, RelaxedPollInterval: 2 * s}))
		require.Equal(t, deploymode.PollingOnly, w.Mode())
		after(s)
		before = w.Health().Poller.Cycles
		after(10 * s)
		require.Equal(t, before+20, w.Health().Poller.Cycles)
		require.Error(t, w.Reload(t.Context(), coordinator.Settings{Mode: "Sometimes"}))
		require.Equal(t, deploymode.PollingOnly, w.Mode())
	})
}

// TestReloadWithoutASource: the effective mode does not change.
func TestReloadWithoutASource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sys := coordinator.New(config(deploymode.Hybrid, nil), &board{})
		require.NoError(t, sys.Start(t.Context()))
		require.Equal(t, deploymode.PollingOnly, sys.Mode())
		require.NoError(t, sys.Reload(t.Context(), coordinator.Settings{Mode: deploymode.Hybrid}))
		require.Equal(t, deploymode.PollingOnly, sys.Mode())
		require.NoError(t, sys.Stop(t.Context()))
	})
}
