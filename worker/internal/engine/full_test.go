package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestFullKeysAreAskedForLessAndLess: up to every 2 s, and soon again once something was found or the time is known.
func TestFullKeysAreAskedForLessAndLess(t *testing.T) {
	t.Parallel()
	var f fullKeys
	for _, want := range []time.Duration{store.LimitedPatience, 500 * time.Millisecond, time.Second, longestFull, longestFull} {
		require.Equal(t, want, f.patience(store.LimitedPatience, 0))
	}
	require.Equal(t, store.LimitedPatience, f.patience(store.LimitedPatience, 1), "found")
	require.Equal(t, store.LimitedPatience, f.patience(store.LimitedPatience, 0))
	require.Equal(t, 500*time.Millisecond, f.patience(store.LimitedPatience, 0))
	require.Equal(t, 10*time.Millisecond, f.patience(10*time.Millisecond, 0), "a token comes then")
	require.Equal(t, store.LimitedPatience, f.patience(store.LimitedPatience, 0))
	require.Negative(t, f.patience(-1, 0), "nothing waits")
}
