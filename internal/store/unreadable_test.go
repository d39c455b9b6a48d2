package store_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestAPlanThatCannotBeReadHoldsUpItsTasksAlone: a newer program may have written it. Its
// tasks are left unchanged, and those of other plans are taken.
func TestAPlanThatCannotBeReadHoldsUpItsTasksAlone(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	readable, newer := plan(t, s, loneYAML), plan(t, s, diamondYAML)
	ids := map[uuid.UUID]bool{create(t, s, readable, 1)[0]: true, create(t, s, newer, 1)[0]: false}
	for _, c := range slices.Concat(claim(t, s, readable, 2), claim(t, s, newer, 2)) {
		require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
	}
	db.Exec(t, `update tasker.plans set template = template || '{"rules_version": 2}' where plan_id = $1`, newer.ID)
	older, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	defer older.Close()
	taken, err := older.TakeReported(t.Context(), 10, true)
	require.NoError(t, err)
	defer taken.Release()
	require.Len(t, taken.Tasks, 2)
	for i := range taken.Tasks {
		task := &taken.Tasks[i]
		require.NoError(t, task.Broken)
		if ids[task.UUID] {
			require.NoError(t, task.Unreadable)
			require.NotNil(t, task.Plan)
		} else {
			require.ErrorContains(t, task.Unreadable, "decode plan")
		}
	}
}
