package store_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// TestTasksOfNewerProgramsAreLeftUnchanged: those whose plan or progress this program cannot read. Others are taken.
// Readers learn that a newer program can read them.
func TestTasksOfNewerProgramsAreLeftUnchanged(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	readable, newer := plan(t, s, loneYAML), plan(t, s, diamondYAML)
	lone := create(t, s, readable, 3)
	why := map[uuid.UUID]string{lone[0]: "", lone[1]: "progress has version 9", lone[2]: "progress has unknown status 99", create(t, s, newer, 1)[0]: "decode plan"}
	for _, c := range slices.Concat(claim(t, s, readable, 4), claim(t, s, newer, 2)) {
		require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
	}
	db.Exec(t, `update tasker.board set progress = set_byte(progress, 0, 9) where task_uuid = $1 and slot = 0`, lone[1])
	db.Exec(t, `update tasker.board set progress = set_byte(progress, $2, 99) where task_uuid = $1 and slot = 0`, lone[2], workflow.LayoutOfProgress().Header+workflow.LayoutOfProgress().StatusAt)
	db.Exec(t, `update tasker.plans set template = template || '{"rules_version": 2}' where plan_id = $1`, newer.ID)
	older, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	defer older.Close()
	taken, err := older.TakeReported(t.Context(), 10, true)
	require.NoError(t, err)
	defer taken.Release()
	require.Len(t, taken.Tasks, len(why))
	for i := range taken.Tasks {
		task := &taken.Tasks[i]
		require.NoError(t, task.Broken)
		if why[task.UUID] == "" {
			require.NoError(t, task.Unreadable)
			require.NotNil(t, task.Plan)
			continue
		}
		require.ErrorContains(t, task.Unreadable, why[task.UUID])
		_, err := older.Task(t.Context(), task.UUID)
		require.ErrorIs(t, err, store.ErrNewer)
	}
	_, err = older.Tasks(t.Context(), store.TaskFilter{Limit: 10})
	require.ErrorIs(t, err, store.ErrNewer)
}
