package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestPlansAreReadTogether: a worker that claims steps of many templates reads their
// plans in one statement, and a missing one hides none of the others.
func TestPlansAreReadTogether(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	var ids []int32
	for i := range 30 {
		p := plan(t, s, fmt.Sprintf("name: t%d\nnamespace_name: shapes\nversion: 1.0.0\nsteps:\n  - {name: a, handler: {callable: c}}\n", i))
		ids = append(ids, p.ID, p.ID)
	}
	var reads atomic.Int32
	other, err := store.Open(t.Context(), store.Options{URL: db.DSN, Observe: func(flow string, _ time.Duration, _ error) {
		if flow == "plan" {
			reads.Add(1)
		}
	}})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	require.NoError(t, other.ReadPlans(t.Context(), append(ids, 4711)))
	require.EqualValues(t, 1, reads.Load())
	for _, id := range ids {
		p, err := other.PlanByID(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, id, p.ID)
	}
	require.NoError(t, other.ReadPlans(t.Context(), ids))
	require.EqualValues(t, 1, reads.Load(), "they are remembered")
	_, err = other.PlanByID(t.Context(), 4711)
	require.ErrorIs(t, err, store.ErrNotFound)
}
