package orchestration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	b.used(now, time.Second)
	require.True(t, b.allows(now.Add(time.Second)), "the first may have prepared its statement")
	b.used(now, time.Second)
	end := now.Add(time.Second)
	require.False(t, b.allows(end.Add(20*time.Second-1)))
	require.True(t, b.allows(end.Add(20*time.Second)))
	b.used(now, time.Millisecond)
	require.True(t, b.allows(now.Add(21*time.Millisecond)))
}
