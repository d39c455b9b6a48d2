package board

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTheFrontierWaitsForEveryWriter: a transaction of another program that creates a
// task may be open indefinitely, and its rows must not appear behind the frontier.
func TestTheFrontierWaitsForEveryWriter(t *testing.T) {
	t.Parallel()
	var f frontier
	begin := time.Now()
	at := func(after time.Duration, seq int64) generation { return generation{at: begin.Add(after), seq: seq} }
	_, ok := f.step(at(0, 10), []string{"3/7", "4/1"})
	require.False(t, ok)
	for _, later := range []time.Duration{time.Second, 5 * time.Minute, time.Hour, 24 * time.Hour} {
		_, ok = f.step(at(later, 20), []string{"3/7", "5/9"})
		require.False(t, ok, "3/7 is still open after %s", later)
	}
	ended, ok := f.step(at(25*time.Hour, 30), []string{"5/9"})
	require.True(t, ok)
	require.EqualValues(t, 10, ended.seq)
}
