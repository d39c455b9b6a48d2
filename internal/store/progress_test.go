package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const retriedYAML = `
name: retried
namespace_name: shapes
version: 1.0.0
steps:
  - name: one
    handler: {callable: one}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 100}
  - name: two
    dependencies: [one]
    handler: {callable: two}
`

// sidedYAML has a step beside the one that saves, so that both have their own rows.
const sidedYAML = `
name: sided
namespace_name: shapes
version: 1.0.0
steps:
  - name: one
    handler: {callable: one}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 100}
  - name: aside
    handler: {callable: aside}
  - name: two
    dependencies: [one, aside]
    handler: {callable: two}
`

// TestProgressStaysWithItsStep through failures and crashes, in the task's row and in its
// own, and reaches no other step.
func TestProgressStaysWithItsStep(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"in the task's row": retriedYAML, "apart": sidedYAML} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p := plan(t, s, yaml)
			id := create(t, s, p, 1)[0]
			next := func(step int) store.Claimed {
				t.Helper()
				dueNow(t, s, db)
				claimed := claim(t, s, p, 10)
				i := slices.IndexFunc(claimed, func(c store.Claimed) bool { return c.Step == step })
				require.GreaterOrEqual(t, i, 0)
				return claimed[i]
			}
			dueNow(t, s, db)
			claimed := claim(t, s, p, 10)
			for _, c := range claimed {
				if c.Step != 0 {
					saveOne(t, s, c, `"aside"`)
					require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
					applyAll(t, s)
				}
			}
			one := claimed[slices.IndexFunc(claimed, func(c store.Claimed) bool { return c.Step == 0 })]
			saveOne(t, s, one, `10`)
			require.Equal(t, []bool{true}, report(t, s, fail(one, true, "no")))
			applyAll(t, s)

			one = next(0)
			require.Equal(t, 2, one.Attempt)
			require.JSONEq(t, `10`, string(onBoard(t, db, one).Cursor))
			require.Contains(t, string(one.Checkpoint), `"cursor": 10`)
			saveOne(t, s, one, `20`)
			require.NoError(t, s.ReleaseLeases(t.Context(), []store.ClaimKey{one.Key()}))
			_, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
			require.NoError(t, err)
			applyAll(t, s)

			one = next(0)
			require.Contains(t, string(one.Checkpoint), `"cursor": 20`)
			require.Equal(t, []bool{true}, report(t, s, succeed(one, `1`)))
			applyAll(t, s)
			require.Equal(t, "10 20 20", inLedger(t, db, id, 0), "each attempt with its checkpoint")

			two := next(len(p.Steps) - 1)
			require.Zero(t, two.Slot, "it moved into the task's row")
			require.Nil(t, two.Checkpoint, "without progress of the previous step")
			require.Nil(t, onBoard(t, db, two))
			task, err := s.Task(t.Context(), id)
			require.NoError(t, err)
			require.Contains(t, string(task.Steps[0].Checkpoint), `"history"`, "an ended step shows its last")
			require.Nil(t, task.Steps[len(p.Steps)-1].Checkpoint)
			require.Equal(t, []bool{true}, report(t, s, succeed(two, `1`)))
			applyAll(t, s)
			require.Equal(t, "20", db.QueryString(t, `select checkpoint ->> 'cursor' from tasker.v_workflow_steps where name = 'one'`))
			require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.v_workflow_steps where name = 'two' and checkpoint is null`))
			noViolations(t, s)
		})
	}
}

// TestSettlementsLeaveCheckpointsAlone: a claim does not know checkpoints saved under it
// since, so the row decides.
func TestSettlementsLeaveCheckpointsAlone(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, chainYAML)
	id := create(t, s, p, 1)[0]
	one := claimLone(t, s, taker(p, 1))
	saveOne(t, s, *one, `1`)
	require.Equal(t, []store.Settled{{}}, settle(t, s, taker(p, 1), settlement(t, p, one, `1`)))
	require.Equal(t, []bool{true}, report(t, s, succeed(*one, `1`)))
	applyAll(t, s)
	require.Equal(t, "1", inLedger(t, db, id, 0))

	two := claimLone(t, s, taker(p, 1))
	require.Nil(t, two.Checkpoint)
	require.True(t, settle(t, s, taker(p, 0), settlement(t, p, two, `2`))[0].Accepted, "without any it settles")
	three := claimLone(t, s, taker(p, 1, "gpu"))
	saveOne(t, s, *three, `3`)
	_, err := s.HandBack(t.Context(), []store.ClaimKey{three.Key()})
	require.NoError(t, err)
	three = claimLone(t, s, taker(p, 1, "gpu"))
	require.NotNil(t, three.Checkpoint)
	require.False(t, settle(t, s, taker(p, 1), settlement(t, p, three, `3`))[0].Accepted)
	requireIntegrity(t, s)
}

// act applies an operator's action to a task, by the rules.
func act(t testing.TB, s *store.Store, task uuid.UUID, kind string, step int, how store.Taking, in workflow.Input) {
	t.Helper()
	taken, err := s.TakeTasks(t.Context(), []uuid.UUID{task}, how)
	require.NoError(t, err)
	defer taken.Release()
	require.Len(t, taken.Tasks, 1)
	x := &taken.Tasks[0]
	progress, effects, err := workflow.Advance(x.Plan.Plan, x.State, x.Progress, rules, in)
	require.NoError(t, err)
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{{Task: x, Progress: progress, Effects: effects, Actor: "ana",
		Action: &store.Performed{Kind: kind, Step: step, Reason: "why"}}})
	require.NoError(t, err)
}

var onSteps = store.Taking{Spread: true, Reopen: []int16{int16(workflow.TaskComplete), int16(workflow.TaskError)}}

// TestOperatorsAndProgress: a reset continues, a step that is run again starts anew.
func TestOperatorsAndProgress(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"in the task's row": retriedYAML, "apart": sidedYAML} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p := plan(t, s, yaml)
			id := create(t, s, p, 1)[0]
			take := func() store.Claimed {
				t.Helper()
				dueNow(t, s, db)
				claimed := claim(t, s, p, 10)
				for _, c := range claimed {
					if c.Step != 0 {
						require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
					}
				}
				i := slices.IndexFunc(claimed, func(c store.Claimed) bool { return c.Step == 0 })
				require.GreaterOrEqual(t, i, 0)
				return claimed[i]
			}
			one := take()
			saveOne(t, s, one, `10`)
			saveOne(t, s, one, `20`)
			require.Equal(t, []bool{true}, report(t, s, fail(one, false, "no")))
			applyAll(t, s)
			task, err := s.Task(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, workflow.TaskError, task.State)
			require.Contains(t, string(task.Steps[0].Checkpoint), `"cursor": 20`, "a permanent failure keeps it for people")

			act(t, s, id, "reset_for_retry", 0, onSteps, workflow.Operation{Action: workflow.ActionReset, Step: 0})
			one = take()
			require.Equal(t, 1, one.Attempt)
			require.Contains(t, string(one.Checkpoint), `"cursor": 20`)
			require.Equal(t, []string{"10"}, onBoard(t, db, one).cursors())

			// Handed back, then called off while waiting: no attempt shows its
			// checkpoint.
			saveOne(t, s, one, `30`)
			_, err = s.HandBack(t.Context(), []store.ClaimKey{one.Key()})
			require.NoError(t, err)
			act(t, s, id, "fail", -1, store.Taking{}, workflow.Operation{Action: workflow.ActionFail, Reason: "stale"})
			require.Equal(t, "20 30", inLedger(t, db, id, 0))
			act(t, s, id, "reset_for_retry", 0, onSteps, workflow.Operation{Action: workflow.ActionReset, Step: 0})
			one = take()
			require.Contains(t, string(one.Checkpoint), `"cursor": 30`)
			require.Equal(t, []bool{true}, report(t, s, succeed(one, `1`)))
			applyAll(t, s)

			act(t, s, id, "run_again", 0, onSteps, workflow.Operation{Action: workflow.ActionRunAgain, Step: 0})
			task, err = s.Task(t.Context(), id)
			require.NoError(t, err)
			require.Nil(t, task.Steps[0].Checkpoint, "the old checkpoint is history")
			one = take()
			require.Nil(t, one.Checkpoint)
			require.Nil(t, onBoard(t, db, one))
			require.Equal(t, []bool{true}, report(t, s, fail(one, false, "no")))
			applyAll(t, s)
			act(t, s, id, "reset_for_retry", 0, onSteps, workflow.Operation{Action: workflow.ActionReset, Step: 0})
			one = take()
			require.Nil(t, one.Checkpoint, "the newest attempt has no checkpoint")
			noViolations(t, s)
		})
	}
}

// TestACheckpointFindsAStepThatHasMoved: an action gives the step in a task's row its own
// row.
func TestACheckpointFindsAStepThatHasMoved(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, retriedYAML)
	id := create(t, s, p, 1)[0]
	one := claim(t, s, p, 1)[0]
	require.Zero(t, one.Slot)
	saveOne(t, s, one, `1`)
	taken, err := s.TakeTasks(t.Context(), []uuid.UUID{id}, store.Taking{Spread: true})
	require.NoError(t, err)
	// It waits for the row, which is empty after the wait.
	answer := make(chan store.SavedCheckpoint, 1)
	go func() {
		saved, err := s.SaveCheckpoints(t.Context(), []store.Checkpoint{point(one, `2`, 2)}, 3, time.Minute)
		if err != nil || len(saved) != 1 {
			t.Error(saved, err)
			saved = make([]store.SavedCheckpoint, 1)
		}
		answer <- saved[0]
	}()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 1, "no session waits"
	})
	_, err = taken.Commit(t.Context(), uuid.Nil, nil)
	require.NoError(t, err)
	require.True(t, (<-answer).Saved)
	require.Equal(t, 1, db.QueryInt(t, `select slot from tasker.board where step_no = 0`))
	require.JSONEq(t, `2`, string(onBoard(t, db, one).Cursor))
	require.Equal(t, []string{"1"}, onBoard(t, db, one).cursors(), "its progress moved with it")
	saveOne(t, s, one, `3`)
	require.Equal(t, 0, db.QueryInt(t, `select count(*) from tasker.board where slot = 0 and checkpoint is not null`))
}
