package store_test

import (
	"slices"
	"strings"
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
	page, err := older.Tasks(t.Context(), store.TaskFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Tasks, 1)
	require.Len(t, page.Unreadable, len(why)-1, "the list leaves out what it cannot read, and names it")
}

// TestEndsOfTasksOfNewerProgramsHoldUpNoOthers: two tasks that are steps end, and an older program
// cannot read the plan of one. It notifies the step of the other, and a newer one that of the first.
func TestEndsOfTasksOfNewerProgramsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, oneStepYAML)
	newer := plan(t, s, strings.Replace(oneStepYAML, "name: one", "name: newer", 1))
	create(t, s, plan(t, s, parentYAML), 1)
	create(t, s, plan(t, s, strings.NewReplacer("name: parent", "name: other", "name: one", "name: newer").Replace(parentYAML)), 1)
	var children []uuid.UUID
	_, err := s.BeginSteps(t.Context(), store.UpTo(10), beginner(func(made uuid.UUID) { children = append(children, made) }))
	require.NoError(t, err)
	require.Len(t, children, 2)
	for _, child := range children {
		require.NoError(t, endWith(t.Context(), s, child, func(task *store.TakenTask) (store.Change, error) {
			progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, workflow.Operation{Action: workflow.ActionResolve, Step: -1, Reason: "done"})
			return store.Change{Task: task, Progress: progress, Effects: effects, Actor: "operator"}, err
		}))
	}
	db.Exec(t, `update tasker.plans set template = template || '{"rules_version": 2}' where plan_id = $1`, newer.ID)
	older, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	defer older.Close()
	for _, steps := range []int{1, 0} {
		done := notifyEnds(t, older)
		require.Equal(t, []int{steps, steps}, []int{done.Messages, done.Steps})
		require.Len(t, done.Left, 1)
		require.ErrorContains(t, done.Why, "decode plan")
	}
	done := notifyEnds(t, s)
	require.Equal(t, []int{1, 1, 0}, []int{done.Messages, done.Steps, len(done.Left)})
}
