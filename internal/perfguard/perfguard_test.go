package perfguard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a testing.TB that records failures instead of failing.
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
	require.InDelta(t, 2, fewest(twice, 0), 0)
	require.InDelta(t, 0, fewest(func() error { kept[0][0]++; return nil }, 0), 0)
}

func TestMeasuringGoesOnWhileOverTheBudget(t *testing.T) {
	var kept []byte
	calls := 0
	within := func() error { calls++; return nil }
	fewest(within, 0)
	once := calls
	calls = 0
	over := func() error { kept = make([]byte, 64); return within() }
	fewest(over, 0)
	require.Equal(t, 3*once, calls)
	require.Len(t, kept, 64)
	calls = 0
	poolEmptied := func() error {
		if calls < once {
			return over()
		}
		return within()
	}
	require.InDelta(t, 0, fewest(poolEmptied, 0), 0)
	require.Equal(t, 2*once, calls)
}
