package perfguard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a testing.TB that remembers instead of failing.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func TestWithinFailsAboveTheBudgetOnly(t *testing.T) {
	r := &recorder{TB: t}
	Within(r, "statements", "claim", 3, 3)
	Within(r, "statements", "claim", 0, 3)
	require.Empty(t, r.failures)
	Within(r, "statements", "claim", 4, 3)
	require.Len(t, r.failures, 1)
	require.Contains(t, r.failures[0], "claim: 4 statements, the budget is 3")
}

func TestAllocationsAreCounted(t *testing.T) {
	var kept [][]byte
	twice := func() error {
		kept = append(kept[:0], make([]byte, 64), make([]byte, 64))
		return nil
	}
	require.NoError(t, twice())
	require.InDelta(t, 2, fewest(twice), 0)
	require.InDelta(t, 0, fewest(func() error { kept[0][0]++; return nil }), 0)
}
