package orchestration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// Batches shrink until their results fit, and grow again when they are small.
func TestBatchesShrinkWhileResultsAreLarge(t *testing.T) {
	t.Parallel()
	const most, bound = 200, 1000
	taken := func(n, each int) []store.TakenTask {
		tasks := make([]store.TakenTask, n)
		for i := range tasks {
			tasks[i].Reported = []store.TakenStep{{Result: make([]byte, each)}}
		}
		return tasks
	}
	var b batchSize
	require.Equal(t, most, b.next(most))
	b.took(taken(most, 100), bound)
	require.Equal(t, 10, b.next(most), "a tenth of a kilobyte each")
	b.took(taken(10, 100), bound)
	require.Equal(t, 10, b.next(most))
	b.took(taken(10, 0), bound)
	require.Equal(t, 20, b.next(most))
	for range 40 {
		b.took(taken(1, 0), bound)
	}
	require.Equal(t, most, b.next(most))
	b.took(taken(1, 5000), bound)
	require.Equal(t, 1, b.next(most), "at least one is taken")

	var unbounded batchSize
	unbounded.took(taken(most, 100), 0)
	require.Equal(t, most, unbounded.next(most))
}
