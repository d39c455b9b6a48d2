package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
)

func TestFullScans(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var f fullScans
	require.True(t, f.overdue(begin))
	require.Zero(t, f.wait(begin, partPause))

	f.ends(begin, begin.Add(time.Millisecond), false, nil) // cheap
	now := f.ended
	require.Equal(t, 20*time.Millisecond, f.wait(now, emptyPause), "the share is more than the pause")
	require.Equal(t, partPause, f.wait(now, partPause))
	require.Zero(t, f.wait(now.Add(partPause), partPause))
	require.False(t, f.overdue(now.Add(fullScanEvery-1)))
	require.True(t, f.overdue(now.Add(fullScanEvery)))

	f.ends(begin, begin.Add(50*time.Millisecond), false, nil) // expensive, but only once
	require.Equal(t, 20*time.Millisecond, f.wait(f.ended, emptyPause))
	f.ends(begin, begin.Add(50*time.Millisecond), false, nil) // expensive
	require.Equal(t, time.Second, f.wait(f.ended, emptyPause))

	f.ends(begin, begin.Add(time.Second), true, nil)
	require.Zero(t, f.wait(f.ended, partPause), "however expensive: it left work behind")
}

// TestNoScanDelaysTheNextForLong: what it cost may have been the fault of an outage.
func TestNoScanDelaysTheNextForLong(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var f fullScans
	for range 3 {
		f.ends(begin, begin.Add(5*time.Second), false, nil)
	}
	require.Equal(t, deploymode.LongestHold, f.wait(f.ended, emptyPause))
	require.True(t, f.overdue(f.ended.Add(deploymode.LongestHold)))

	end := begin.Add(5 * time.Second)
	f.ends(begin, end, false, errors.New("no answer"))
	require.Equal(t, emptyPause, f.wait(end, emptyPause), "how long a failed one took says nothing")
	require.False(t, f.overdue(end), "the marks are looked at first: the scan may be slow for ever")
}
