package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// followAll follows a scope, and waits until all transactions know.
func followAll(tb testing.TB, s *store.Store, scope store.Scope) store.Seen {
	tb.Helper()
	_, err := s.Follow(tb.Context(), []store.Scope{scope}, time.Minute)
	require.NoError(tb, err)
	before, err := s.Unaware(tb.Context(), nil)
	require.NoError(tb, err)
	require.Eventually(tb, func() bool {
		left, err := s.Unaware(tb.Context(), before)
		return err == nil && len(left) == 0
	}, 30*time.Second, time.Millisecond)
	seen, err := s.SeenNow(tb.Context())
	require.NoError(tb, err)
	return seen
}

// transitions are those of scopes after a moment, in short.
func transitions(tb testing.TB, s *store.Store, after store.Seen, scopes ...store.Scope) (list []string, seen store.Seen) {
	tb.Helper()
	if scopes == nil {
		scopes = []store.Scope{{}}
	}
	found, seen, err := s.Transitions(tb.Context(), store.TransitionQuery{Scopes: scopes, After: after.Snapshot, Limit: 1000})
	require.NoError(tb, err)
	for i := range found {
		list = append(list, inShort(&found[i]))
	}
	return list, seen
}

func inShort(t *store.Transition) string {
	if t.Step != nil {
		return fmt.Sprintf("%s %d %s", t.StepName, t.Attempt, t.Outcome)
	}
	if t.From == 0 {
		return "created " + t.To.String()
	}
	return t.From.String() + " > " + t.To.String()
}

// runOne takes a task through its life by claims, reports and applies.
func runOne(tb testing.TB, s *store.Store, p *store.Plan, outcome func(c store.Claimed) store.Report) {
	tb.Helper()
	claimed, _, err := s.Claim(tb.Context(), taker(p, 10), true)
	require.NoError(tb, err)
	for _, c := range claimed {
		accepted, err := s.Report(tb.Context(), []store.Report{outcome(c)})
		require.NoError(tb, err)
		require.Equal(tb, []bool{true}, accepted)
		applyAll(tb, s)
	}
}

// TestTransitionsTellWhatTheLedgerDoes: creations in every way, ends of attempts and of
// tasks by every statement, and nothing while no client follows.
func TestTransitionsTellWhatTheLedgerDoes(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 3)
	runOne(t, s, p, func(c store.Claimed) store.Report { return succeed(c, `1`) })
	require.Zero(t, db.QueryInt(t, `select count(*)::int from tasker.transitions`), "no client follows")
	followed := db.QueryString(t, `select coalesce(pg_sequence_last_value('tasker.following'), 0)::text`)
	require.Equal(t, "0", followed)

	seen := followAll(t, s, store.Scope{Queue: p.Queue})
	create(t, s, p, 1)
	list, seen := transitions(t, s, seen)
	require.Equal(t, []string{"created pending"}, list)
	runOne(t, s, p, func(c store.Claimed) store.Report { return succeed(c, `1`) })
	list, seen = transitions(t, s, seen)
	require.Equal(t, []string{"only 1 success", "steps_in_process > complete"}, list)

	create(t, s, p, 120) // copied
	list, seen = transitions(t, s, seen)
	require.Len(t, list, 120)
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err := store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, newTask(p))
	require.NoError(t, err)
	list, seen = transitions(t, s, seen)
	require.Empty(t, list, "not committed")
	require.NoError(t, tx.Commit(t.Context()))
	list, _ = transitions(t, s, seen)
	require.Equal(t, []string{"created pending"}, list)
	list, _ = transitions(t, s, seen, store.Scope{Queue: p.Queue + 1}, store.Scope{Task: uuid.Max})
	require.Empty(t, list, "of others")
}

// TestTransitionsOfFailures: attempts that run again, the wait for them, and other ends.
func TestTransitionsOfFailures(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, oneStepYAML)
	seen := followAll(t, s, store.Scope{})
	ids := create(t, s, p, 1)
	runOne(t, s, p, func(c store.Claimed) store.Report { return fail(c, true, "not now") })
	list, seen := transitions(t, s, seen)
	require.Equal(t, []string{"created pending", "only 1 failed", "pending > waiting_for_retry"}, list)
	cancel(t, s, ids[0], "not needed")
	list, seen = transitions(t, s, seen)
	require.Equal(t, []string{"waiting_for_retry > cancelled"}, list)
	create(t, s, p, 1)
	runOne(t, s, p, func(c store.Claimed) store.Report { return fail(c, false, "never") })
	list, _ = transitions(t, s, seen)
	require.Equal(t, []string{"created pending", "only 1 error", "steps_in_process > error"}, list)
}

// TestTransitionsOfATaskAreRecordedAlone in a fleet that is busy with others.
func TestTransitionsOfATaskAreRecordedAlone(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	tasks := create(t, s, p, 5)
	seen := followAll(t, s, store.Scope{Task: tasks[2]})
	runOne(t, s, p, func(c store.Claimed) store.Report { return succeed(c, `1`) })
	list, _ := transitions(t, s, seen)
	require.Equal(t, []string{"only 1 success", "steps_in_process > complete"}, list)
	require.Equal(t, 2, db.QueryInt(t, `select count(*)::int from tasker.transitions`))
}

// TestALongTransactionDelaysNoTransition: what is committed later is read later, once.
func TestALongTransactionDelaysNoTransition(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	seen := followAll(t, s, store.Scope{})
	long := beginOn(t, db, pgx.TxOptions{})
	_, err := store.CreateTasksIn(t.Context(), long, store.AnnounceNothing, newTask(p))
	require.NoError(t, err)
	for range 3 {
		create(t, s, p, 1)
		var list []string
		list, seen = transitions(t, s, seen)
		require.Equal(t, []string{"created pending"}, list)
	}
	before := seen
	require.NoError(t, long.Commit(t.Context()))
	list, seen := transitions(t, s, seen)
	require.Equal(t, []string{"created pending"}, list)
	list, _ = transitions(t, s, seen)
	require.Empty(t, list)

	followed, err := s.ForgetTransitions(t.Context(), before.Snapshot)
	require.NoError(t, err)
	require.True(t, followed)
	require.Equal(t, 1, db.QueryInt(t, `select count(*)::int from tasker.transitions`), "the late one was not visible then")
}

// TestAnEraEnds when it is not prolonged.
func TestAnEraEnds(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	all := []store.Scope{{}}
	first, err := s.Follow(t.Context(), all, time.Minute)
	require.NoError(t, err)
	again, err := s.Follow(t.Context(), all, time.Second)
	require.NoError(t, err)
	require.Equal(t, first, again)
	again, err = s.Follow(t.Context(), all, -time.Second)
	require.NoError(t, err)
	require.NotEqual(t, first, again, "it was about to end")
	create(t, s, p, 1)
	require.Zero(t, db.QueryInt(t, `select count(*)::int from tasker.transitions`))
	followed, err := s.ForgetTransitions(t.Context(), "")
	require.NoError(t, err)
	require.False(t, followed)
	require.Zero(t, db.QueryInt(t, `select count(*)::int from tasker.followed`))
	require.Equal(t, "1", db.QueryString(t, `select pg_sequence_last_value('tasker.following')::text`))
}

// TestUnawareTransactionsAreKnown: one that has looked before is listed until its end.
func TestUnawareTransactionsAreKnown(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	early := beginOn(t, db, pgx.TxOptions{})
	_, err := store.CreateTasksIn(t.Context(), early, store.AnnounceNothing, newTask(p))
	require.NoError(t, err)
	_, err = s.Follow(t.Context(), []store.Scope{{}}, time.Minute)
	require.NoError(t, err)
	before, err := s.Unaware(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, before, 1)
	require.NoError(t, early.Commit(t.Context()))
	left, err := s.Unaware(t.Context(), before)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Zero(t, db.QueryInt(t, `select count(*)::int from tasker.transitions`))
}

// TestNoTransitionIsLost: three writers, and a reader that reads page by page. Every
// transition is read once, those of a task in their order.
func TestNoTransitionIsLost(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	seen := followAll(t, s, store.Scope{})
	const each = 60
	var writers sync.WaitGroup
	errs := make(chan error, 3)
	for range 3 {
		writers.Go(func() { errs <- writeTransitions(t, s, p, each) })
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	of, last := map[uuid.UUID][]string{}, map[uuid.UUID]int64{}
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		q := store.TransitionQuery{Scopes: []store.Scope{{}}, After: seen.Snapshot, Limit: 7}
		for {
			page, now, err := s.Transitions(t.Context(), q)
			require.NoError(t, err)
			for i := range page {
				tr := &page[i]
				require.Greater(t, tr.Position, last[tr.Task])
				of[tr.Task], last[tr.Task] = append(of[tr.Task], inShort(tr)), tr.Position
			}
			if seen = now; len(page) < q.Limit {
				break
			}
			q.Upto, q.Past = now.Snapshot, page[len(page)-1].Position
		}
	}
	for range 3 {
		require.NoError(t, <-errs)
	}
	require.Len(t, of, 3*each)
	for _, list := range of {
		require.Equal(t, []string{"created pending", "only 1 success", "steps_in_process > complete"}, list)
	}
	require.Equal(t, 9*each, db.QueryInt(t, `select count(*)::int from tasker.transitions`))
}

func writeTransitions(tb testing.TB, s *store.Store, p *store.Plan, tasks int) error {
	for range tasks {
		_, claimed, err := s.CreateAndClaim(tb.Context(), []store.NewTask{newTask(p)}, taker(p, 1))
		if err != nil {
			return err
		}
		answers, _, err := s.Settle(tb.Context(), taker(p, 1), []store.Settlement{settlement(tb, p, &claimed[0], `1`)})
		if err != nil {
			return err
		}
		if !answers[0].Accepted {
			return fmt.Errorf("the end of %s was not accepted", claimed[0].TaskUUID)
		}
	}
	return nil
}

// heard learns by heartbeats whether transitions are followed, and creates tasks: nothing
// may be signalled, then transitions, then nothing.
func heard(t *testing.T, db *pgtest.DB, o store.Options, transitions func(wanted bool)) {
	t.Helper()
	other, err := store.Open(t.Context(), store.Options{URL: db.DSN})
	require.NoError(t, err)
	defer other.Close()
	o.URL = db.DSN
	s, err := store.Open(t.Context(), o)
	require.NoError(t, err)
	defer s.Close()
	p := plan(t, s, diamondYAML)
	me := store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: "me"}
	_, err = s.ProcessorHeartbeat(t.Context(), me, time.Second, true)
	require.NoError(t, err)
	create(t, s, p, 1)
	transitions(false)
	_, err = other.Follow(t.Context(), []store.Scope{{}}, time.Minute)
	require.NoError(t, err)
	_, err = s.ProcessorHeartbeat(t.Context(), me, time.Second, false)
	require.NoError(t, err)
	create(t, s, p, 1)
	transitions(true)
	_, err = other.Follow(t.Context(), []store.Scope{{}}, -time.Minute)
	require.NoError(t, err)
	_, err = other.ForgetTransitions(t.Context(), "")
	require.NoError(t, err)
	_, err = s.WorkerHeartbeat(t.Context(), me, nil, time.Minute)
	require.NoError(t, err)
	create(t, s, p, 120)
	transitions(false)
}

func TestTransitionsAreNotified(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	hear := listen(t, db.DSN)
	_, err := hear.conn.Exec(t.Context(), "listen "+string(signal.TopicTransitions))
	require.NoError(t, err)
	heard(t, db, store.Options{NotifyAfterCommit: true}, func(wanted bool) {
		hear.receives(signal.WorkerTopic("shapes"))
		if wanted {
			hear.receives(signal.TopicTransitions)
			return
		}
		hear.receivesNothing()
	})
}

func TestTransitionsAreSignalledInTheWAL(t *testing.T) {
	t.Parallel()
	_, db := private(t, store.Options{})
	db.Exec(t, `create publication signals`)
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), `select pg_create_logical_replication_slot('signals', 'pgoutput', true)`)
	require.NoError(t, err)
	heard(t, db, store.Options{SignalsInTransaction: true}, func(wanted bool) {
		list := decoded(t, conn)
		require.NotEmpty(t, list)
		require.Equal(t, wanted, slices.Contains(list, signal.Signal{Topic: signal.TopicTransitions}))
	})
}
