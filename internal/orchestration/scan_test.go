package orchestration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
)

// TestFullScansAreMadeWithoutAReason: also by an orchestrator that always finds
// reports from its mark, since others may lie behind it.
func TestFullScansAreMadeWithoutAReason(t *testing.T) {
	now := time.Now()
	var b scanBudget
	require.True(t, b.overdue(now))
	b.used(now, time.Millisecond)
	require.False(t, b.overdue(now.Add(fullTakeEvery)))
	require.True(t, b.overdue(now.Add(fullTakeEvery+time.Millisecond)))
}

func TestFullScansCostATwentiethOfTheTime(t *testing.T) {
	now := time.Now()
	var b scanBudget
	require.True(t, b.allows(now))
	const took = 50 * time.Millisecond
	b.used(now, took)
	require.True(t, b.allows(now.Add(took)), "the first may have prepared its statement")
	b.used(now, took)
	end := now.Add(took)
	require.False(t, b.allows(end.Add(20*took-1)))
	require.True(t, b.allows(end.Add(20*took)))
	b.used(now, time.Millisecond)
	require.True(t, b.allows(now.Add(21*time.Millisecond)))

	b.used(now, time.Minute)
	b.used(now, time.Minute)
	require.False(t, b.allows(now.Add(time.Minute+deploymode.LongestHold-1)))
	require.True(t, b.allows(now.Add(time.Minute+deploymode.LongestHold)), "what it cost may have been the fault of an outage")
}

// TestEveryLookFromTheMarkIsFollowedByAFullScan: otherwise a look could use up a signal
// and leave its report to the poller.
func TestEveryLookFromTheMarkIsFollowedByAFullScan(t *testing.T) {
	now := time.Now()
	dear := scanBudget{last: now, took: 20 * time.Millisecond}
	cheap := scanBudget{last: now.Add(-90 * time.Millisecond), took: time.Millisecond}
	for name, c := range map[string]struct {
		budget scanBudget
		found  int
		missed bool
		again  bool
		want   coordinator.Outcome
	}{
		"nothing found, cheap":           {cheap, 0, false, true, coordinator.Outcome{}},
		"nothing found, dear":            {dear, 0, false, false, coordinator.Outcome{RetryIn: 400 * time.Millisecond, Missing: coordinator.MissingUnseen}},
		"something found, cheap":         {cheap, 1, false, false, coordinator.Outcome{Found: 1, RetryIn: 10 * time.Millisecond}},
		"something found, dear":          {dear, 1, false, false, coordinator.Outcome{Found: 1, RetryIn: 400 * time.Millisecond}},
		"anything may be missed, cheap":  {cheap, 1, true, false, coordinator.Outcome{Found: 1, RetryIn: time.Millisecond}},
		"anything may be missed, dear":   {dear, 1, true, false, coordinator.Outcome{Found: 1, RetryIn: 400 * time.Millisecond}},
		"never scanned, something found": {scanBudget{}, 1, false, false, coordinator.Outcome{Found: 1, RetryIn: time.Millisecond}},
	} {
		out := coordinator.Outcome{Found: c.found}
		require.Equal(t, c.again, c.budget.follows(&out, c.missed, now), name)
		require.Equal(t, c.want, out, name)
	}
	locked := coordinator.Outcome{}
	locked.SoonerRetry(skippedRetry, coordinator.MissingLocked)
	require.False(t, dear.follows(&locked, false, now))
	require.Equal(t, coordinator.Outcome{RetryIn: skippedRetry, Missing: coordinator.MissingLocked}, locked)
}
