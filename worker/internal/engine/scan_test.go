package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFullScans(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var f fullScans
	require.True(t, f.overdue(begin))
	require.Zero(t, f.wait(begin, partPause))

	f.made(begin, begin.Add(time.Millisecond), false) // cheap
	now := f.ended
	require.Equal(t, 20*time.Millisecond, f.wait(now, emptyPause), "the share is more than the pause")
	require.Equal(t, partPause, f.wait(now, partPause))
	require.Zero(t, f.wait(now, 0))
	require.Zero(t, f.wait(now.Add(partPause), partPause))
	require.False(t, f.overdue(now.Add(fullScanEvery-1)))
	require.True(t, f.overdue(now.Add(fullScanEvery)))

	f.made(begin, begin.Add(time.Second), false) // expensive, but only once
	require.Zero(t, f.wait(f.ended, 0))
	f.made(begin, begin.Add(time.Second), false) // expensive
	now = f.ended
	require.Equal(t, 20*time.Second, f.wait(now, 0), "however eager")
	require.False(t, f.overdue(now.Add(20*time.Second-1)))
	require.True(t, f.overdue(now.Add(20*time.Second)))

	f.made(begin, begin.Add(time.Second), true)
	require.Zero(t, f.wait(f.ended, partPause), "however expensive: it left work behind")
}
