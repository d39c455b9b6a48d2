package priorities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevels(t *testing.T) {
	t.Parallel()
	want := []int{80, 60, 40, 20, 0, -20, -40, -60, -80, -100}
	for i, priority := range want {
		require.Equal(t, priority, OfLevel(i+1))
	}
	for p := Min; p <= Max; p++ {
		level := LevelOf(p)
		require.True(t, level >= MinLevel && level <= MaxLevel)
		require.LessOrEqual(t, OfLevel(level), p)
		require.True(t, level == MinLevel || p < OfLevel(level-1))
	}
}
