package orchestration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
