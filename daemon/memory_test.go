package daemon

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSoftLimit(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 128<<20, softLimit(0))
	require.EqualValues(t, 128<<20, softLimit(48<<20), "twice the live bytes, and the margin")
	require.EqualValues(t, 130<<20, softLimit(49<<20))
	require.EqualValues(t, 1032<<20, softLimit(500<<20), "a large daemon does not collect all the time")
	require.Positive(t, softLimit(math.MaxUint64))
}

// Not parallel: the settings belong to the process.
func TestTheUsersSettingsOfTheCollectorWin(t *testing.T) {
	before, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(1<<40)
	defer func() {
		debug.SetGCPercent(before)
		debug.SetMemoryLimit(limit)
	}()
	now := func() (percent int, limit int64) {
		percent = debug.SetGCPercent(77)
		debug.SetGCPercent(percent)
		return percent, debug.SetMemoryLimit(-1)
	}
	env := map[string]string{"GOGC": "77", "GOMEMLIMIT": "1TiB"}
	tuneMemory(func(key string) string { return env[key] }).follow()
	percent, limited := now()
	require.Equal(t, 77, percent)
	require.EqualValues(t, 1<<40, limited)

	clear(env)
	tuneMemory(func(key string) string { return env[key] })
	percent, limited = now()
	require.Equal(t, gcPercent, percent)
	require.GreaterOrEqual(t, limited, int64(memoryFloor))
	require.Less(t, limited, int64(1<<40))
}
