package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// dependent creates a task that depends on others, regardless of their outcome.
func dependent(t testing.TB, s *store.Store, p *store.Plan, on ...uuid.UUID) uuid.UUID {
	t.Helper()
	task := newTask(p)
	task.DependsOn, task.Lenient = on, true
	_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
	require.NoError(t, err)
	return task.UUID
}

func watchDependencies(t testing.TB, s *store.Store) {
	t.Helper()
	_, _, err := s.WatchDependencies(t.Context(), store.UpTo(100))
	require.NoError(t, err)
}

func notifyEnds(t testing.TB, s *store.Store) store.EndsNotified {
	t.Helper()
	done, err := s.NotifyEnds(t.Context(), store.UpTo(100))
	require.NoError(t, err)
	return done
}

// held counts the tasks that wait for others.
const held = `select count(*) from tasker.board where wait ->> 'kind' = 'tasks'`

// hold locks the row of a task in another transaction, until release.
func hold(t testing.TB, db *pgtest.DB, task uuid.UUID) (release func()) {
	t.Helper()
	tx, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from tasker.board where task_uuid = $1 and slot = 0 for update`, task)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// untilBlocked waits until n sessions of the database wait for a lock.
func untilBlocked(t testing.TB, db *pgtest.DB, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) >= n
	}, 30*time.Second, 2*time.Millisecond, "no session waits for a lock")
}

// A task that comes to depend on another one while the end of that is being processed is
// notified too.
func TestAnEndIsNotifiedAgainDuringItsNotification(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	end := create(t, s, p, 1)[0]
	first := dependent(t, s, p, end)
	watchDependencies(t, s)
	cancel(t, s, end, "over")

	release := hold(t, db, first)
	done := make(chan error, 1)
	go func() {
		_, err := s.NotifyEnds(context.WithoutCancel(t.Context()), store.UpTo(100))
		done <- err
	}()
	untilBlocked(t, db, 1) // the end has been read, and nothing is committed
	second := dependent(t, s, p, end)
	watchDependencies(t, s)
	release()
	require.NoError(t, <-done)

	notifyEnds(t, s)
	require.Zero(t, db.QueryInt(t, held), "of %s and %s", first, second)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_messages`))
}

// A task is reopened before its end is processed, and ends once more during that: its
// dependents are notified of the later end.
func TestAnEndIsNotifiedAfterAnEarlierOne(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	end := create(t, s, p, 1)[0]
	dependent(t, s, p, end)
	watchDependencies(t, s)
	cancel(t, s, end, "over")
	back, err := s.TakeTasks(t.Context(), []uuid.UUID{end}, store.Taking{Spread: true, Reopen: []int16{int16(workflow.TaskCancelled)}})
	require.NoError(t, err)
	again := change(t, &back.Tasks[0], workflow.Operation{Action: workflow.ActionRunAgain, Step: 0})
	again.Action = &store.Performed{Kind: workflow.ActionRunAgain, Step: 0, Reason: "again"}
	_, err = back.Commit(t.Context(), uuid.Nil, []store.Change{again})
	require.NoError(t, err)

	taken, err := s.TakeTask(t.Context(), end)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := s.NotifyEnds(context.WithoutCancel(t.Context()), store.UpTo(100))
		done <- err
	}()
	untilBlocked(t, db, 1) // it found the task alive and waits for its row
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{change(t, &taken.Tasks[0], workflow.Operation{Action: workflow.ActionCancel, Reason: "over again"})})
	require.NoError(t, err)
	require.NoError(t, <-done)

	notifyEnds(t, s)
	require.Zero(t, db.QueryInt(t, held))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_messages`))
}

// A waiting task loses its messages: the sweep finds it, and it is released.
func TestTasksThatNothingReleasesAreFound(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	ends := create(t, s, p, 3)
	tasks := make([]uuid.UUID, len(ends))
	for i, end := range ends {
		tasks[i] = dependent(t, s, p, end, ends[0])
	}
	sweep := func(dry bool, want ...uuid.UUID) {
		t.Helper()
		var found []uuid.UUID
		var from, beginning store.DependencyPlace
		for more := true; more; more = from != beginning {
			some, err := s.SweepDependencies(t.Context(), from, 2, dry)
			require.NoError(t, err)
			require.Equal(t, len(some.Tasks) > 0 && !dry, len(some.Signals) > 0)
			found, from = append(found, some.Tasks...), some.Next
		}
		require.ElementsMatch(t, want, found)
		report, err := s.CheckIntegrity(t.Context(), rules)
		require.NoError(t, err)
		stranded := want
		if !dry {
			stranded = nil // they are checked again
		}
		require.Len(t, report.Violations, len(stranded))
		for i := range report.Violations {
			require.Contains(t, stranded, report.Violations[i].TaskUUID)
			require.Contains(t, report.Violations[i].Problem, "nothing will release it")
		}
	}
	sweep(true)
	watchDependencies(t, s)
	sweep(true)
	cancel(t, s, ends[1], "over")
	sweep(true)

	db.Exec(t, `update tasker.board set awaited = null where task_uuid = $1`, ends[2])
	sweep(true, tasks[2])
	db.Exec(t, `delete from tasker.task_messages`)
	sweep(true, tasks[1], tasks[2])
	sweep(false, tasks[1], tasks[2])
	sweep(true)
	watchDependencies(t, s)
	cancel(t, s, ends[0], "over")
	cancel(t, s, ends[2], "over")
	require.Equal(t, 3, notifyEnds(t, s).Released)
	sweep(true)

	held := dependent(t, s, p, create(t, s, p, 1)[0])
	db.Exec(t, `delete from tasker.task_dependencies`)
	db.Exec(t, `delete from tasker.task_messages`)
	report, err := s.CheckTask(t.Context(), rules, held)
	require.NoError(t, err)
	require.Equal(t, []store.Violation{{TaskUUID: held, Problem: "the task waits for others, and nothing will release it"}}, report.Violations)
}

// Many orchestrators process dependencies and ends at once, while tasks come to depend on
// ending ones.
func TestDependenciesAreMetWhoeverTellsOfThem(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	const ends, each = 150, 4
	on := create(t, s, p, ends)
	created := make(chan struct{})
	errs := make(chan error, 3)
	for range 3 {
		other, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4})
		require.NoError(t, err)
		defer other.Close()
		go func() { errs <- tellUntilIdle(t.Context(), other, created) }()
	}
	for i := range on {
		for k := range each {
			if k == each/2 {
				cancel(t, s, on[i], "over")
			}
			dependent(t, s, p, on[i], on[(i+1)%ends])
		}
	}
	close(created)
	for range 3 {
		require.NoError(t, <-errs)
	}
	for done := notifyEnds(t, s); done.Messages > 0; done = notifyEnds(t, s) { // messages held by one while the others looked
	}
	require.Zero(t, db.QueryInt(t, held), "tasks that nothing will release")
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.task_dependencies`))
}

// tellUntilIdle processes messages until all tasks have been created and none is left.
func tellUntilIdle(ctx context.Context, s *store.Store, created <-chan struct{}) error {
	for last := false; ; {
		select {
		case <-created:
			last = true
		default:
		}
		found, _, err := s.WatchDependencies(ctx, store.UpTo(20))
		if err != nil {
			return err
		}
		done, err := s.NotifyEnds(ctx, store.UpTo(20))
		if err != nil || last && found+done.Messages == 0 {
			return err
		}
	}
}

// An operator acts on steps of a waiting task: its steps stay held, and continue when the
// others have ended.
func TestStepsOfATaskThatWaitsAreActedOn(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	end := create(t, s, plan(t, s, oneStepYAML), 1)[0]
	task := dependent(t, s, p, end)
	watchDependencies(t, s)
	taken, err := s.TakeTasks(t.Context(), []uuid.UUID{task}, store.Taking{Spread: true})
	require.NoError(t, err)
	resolve := change(t, &taken.Tasks[0], workflow.Operation{Action: workflow.ActionResolve, Step: 1})
	resolve.Action = &store.Performed{Kind: workflow.ActionResolve, Step: 1, Reason: "by hand"}
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{resolve})
	require.NoError(t, err)
	require.Empty(t, claim(t, s, p, 10))
	require.Equal(t, 1, db.QueryInt(t, held))
	requireIntegrity(t, s)
	cancel(t, s, end, "over")
	require.Equal(t, 1, notifyEnds(t, s).Released)
	claimed := claim(t, s, p, 10)
	require.Len(t, claimed, 1)
	require.Equal(t, 0, claimed[0].Step)
}

// A task is taken for an action on a step while an apply moves its next step into its
// row: that step gets its own row nevertheless.
func TestAStepIsSpreadThatHasJustMovedIn(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	task := create(t, s, p, 1)[0]
	report(t, s, succeed(claim(t, s, p, 1)[0], `1`))
	applyAll(t, s)
	for _, c := range claim(t, s, p, 2) {
		report(t, s, succeed(c, `1`))
	}
	applied, err := s.TakeReported(t.Context(), 10, true)
	require.NoError(t, err)
	inline := make(chan bool, 1)
	go func() {
		taken, err := s.TakeTasks(context.WithoutCancel(t.Context()), []uuid.UUID{task}, store.Taking{Spread: true})
		inline <- err != nil || taken.Tasks[0].Inline
		taken.Release()
	}()
	untilBlocked(t, db, 1)
	_, err = applied.Commit(t.Context(), uuid.Nil, []store.Change{change(t, &applied.Tasks[0], inputsOf(&applied.Tasks[0])...)})
	require.NoError(t, err)
	require.False(t, <-inline)
}
