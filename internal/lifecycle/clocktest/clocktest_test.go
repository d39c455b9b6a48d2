package clocktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle/clocktest"
)

func TestAdvanceFiresInOrder(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clocktest.New(start)
	var fired []string
	c.AfterFunc(2*time.Second, func() { fired = append(fired, "two at "+c.Now().Format("05")) })
	c.AfterFunc(time.Second, func() {
		fired = append(fired, "one at "+c.Now().Format("05"))
		c.AfterFunc(time.Second/2, func() { fired = append(fired, "nested") })
	})
	stopped := c.AfterFunc(time.Second, func() { fired = append(fired, "stopped") })
	require.True(t, stopped.Stop())
	require.False(t, stopped.Stop())
	c.Advance(999 * time.Millisecond)
	require.Empty(t, fired)
	c.Advance(2 * time.Second)
	require.Equal(t, []string{"one at 01", "nested", "two at 02"}, fired)
	require.Equal(t, start.Add(2999*time.Millisecond), c.Now())
	require.Zero(t, c.Armed())
}

func TestTimerChannelHoldsNothingStale(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Time{})
	timer := c.NewTimer(time.Second)
	c.Advance(time.Second)
	require.False(t, timer.Reset(time.Second))
	require.Empty(t, timer.C())
	c.Advance(time.Second)
	require.Len(t, timer.C(), 1)
	require.False(t, timer.Stop())
	require.Empty(t, timer.C())
	require.False(t, timer.Reset(0))
	require.Len(t, timer.C(), 1)
}

func TestWaitArmed(t *testing.T) {
	t.Parallel()
	c := clocktest.New(time.Time{})
	ctx, cancel := context.WithCancel(t.Context())
	go c.NewTimer(time.Hour)
	require.NoError(t, c.WaitArmed(ctx, 1))
	cancel()
	require.ErrorIs(t, c.WaitArmed(ctx, 2), context.Canceled)
}
