package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// keyed is a new task with an identity.
func keyed(p *store.Plan, name string) store.NewTask {
	n := newTask(p)
	id := dedup.KeyIdentity("shapes", "diamond", name)
	n.Identity, n.IdempotencyKey = &id, name
	return n
}

func beginOn(t *testing.T, db *pgtest.DB, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := db.Pool(t).BeginTx(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func TestTasksCreatedInATransaction(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	for _, commit := range []bool{true, false} {
		tx := beginOn(t, db, pgx.TxOptions{})
		name := fmt.Sprint(commit)
		delayed := keyed(p, name+"-later")
		delayed.StartIn, delayed.DeadlineIn = time.Hour, 2*time.Hour
		tasks := []store.NewTask{keyed(p, name), delayed, newTask(p), keyed(p, name)}
		answers, err := store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, tasks...)
		require.NoError(t, err)
		for i := range tasks[:3] {
			require.Equal(t, tasks[i].UUID, answers[i].UUID)
			require.False(t, answers[i].Duplicate)
			require.WithinDuration(t, time.Now(), answers[i].RequestedAt, time.Minute)
		}
		require.Equal(t, store.CreatedTask{UUID: tasks[0].UUID, Duplicate: true, State: workflow.TaskPending}, withoutTime(answers[3]), "the first with the identity")
		require.Empty(t, claim(t, s, p, 10))
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
			require.Len(t, claim(t, s, p, 10), 2)
			require.Equal(t, workflow.TaskPending, read(t, s, delayed.UUID).State)
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
			_, err := s.Task(t.Context(), tasks[0].UUID)
			require.ErrorIs(t, err, store.ErrNotFound)
			again, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, name)})
			require.NoError(t, err)
			require.False(t, again[0].Duplicate, "the identity is free again")
		}
	}
	noViolations(t, s)
}

func withoutTime(c store.CreatedTask) store.CreatedTask {
	c.RequestedAt = time.Time{}
	return c
}

// A duplicate must cost the caller nothing: no failed statement, and no lock that blocks
// others.
func TestADuplicateLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	held, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "order-1")})
	require.NoError(t, err)
	db.Exec(t, `create table orders (n int)`)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tx := beginOn(t, db, pgx.TxOptions{IsoLevel: level})
		_, err = tx.Exec(t.Context(), `insert into orders values (1)`)
		require.NoError(t, err)
		answers, err := store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, keyed(p, "order-1"), keyed(p, "next-"+string(level)))
		require.NoError(t, err)
		require.True(t, answers[0].Duplicate)
		require.Equal(t, held[0].UUID, answers[0].UUID)
		require.False(t, answers[1].Duplicate)
		again, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "order-1")})
		require.NoError(t, err)
		require.True(t, again[0].Duplicate, "at once, although the transaction is open: %+v", again[0])
		require.NoError(t, tx.Commit(t.Context()))
	}
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from orders`))

	// Two at once: the second waits for the first and sees it.
	first, second := beginOn(t, db, pgx.TxOptions{}), beginOn(t, db, pgx.TxOptions{})
	one, err := store.CreateTasksIn(t.Context(), first, store.AnnounceNothing, keyed(p, "race"))
	require.NoError(t, err)
	answer := make(chan store.CreatedTask, 1)
	go func() {
		two, err := store.CreateTasksIn(t.Context(), second, store.AnnounceNothing, keyed(p, "race"))
		if err != nil {
			t.Error(err)
			two = make([]store.CreatedTask, 1)
		}
		answer <- two[0]
	}()
	awaitLock(t, db)
	require.NoError(t, first.Commit(t.Context()))
	require.Equal(t, store.CreatedTask{UUID: one[0].UUID, Duplicate: true, State: workflow.TaskPending}, <-answer)
	_, err = second.Exec(t.Context(), `insert into orders values (2)`)
	require.NoError(t, err)
	require.NoError(t, second.Commit(t.Context()))
}

// awaitLock waits until a session waits for a transaction.
func awaitLock(t *testing.T, db *pgtest.DB) {
	t.Helper()
	pgtest.Eventually(t, patience, func() (bool, string) {
		return db.QueryBool(t, `select exists (select from pg_locks l join pg_database d on d.datname = current_database()
			join pg_stat_activity a on a.pid = l.pid and a.datid = d.oid where not l.granted)`), "no session waits"
	})
}

// An identity whose window has passed changes hands in a transaction as well.
func TestAnIdentityThatHasExpiredIsFree(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	_, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "k")})
	require.NoError(t, err)
	db.Exec(t, `update tasker.task_identities set expires_at = now() - interval '1 s'`)
	tx := beginOn(t, db, pgx.TxOptions{})
	answers, err := store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, keyed(p, "k"))
	require.NoError(t, err)
	require.False(t, answers[0].Duplicate)
	require.NoError(t, tx.Commit(t.Context()))
}

// Creations share transactions, so none of them may wait long for a transaction of
// another program.
func TestCreationsGoAroundATransactionThatStaysOpen(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err := store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, keyed(p, "slow"), keyed(p, "slower"))
	require.NoError(t, err)
	tasks := make([]store.NewTask, 100)
	for i := range tasks {
		tasks[i] = keyed(p, fmt.Sprint(i))
	}
	tasks[17], tasks[60] = keyed(p, "slow"), keyed(p, "slower")
	begin := time.Now()
	answers, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	t.Logf("98 of 100 tasks were created around 2 identities locked by others, in %v", time.Since(begin).Round(time.Millisecond))
	require.Less(t, time.Since(begin), 10*time.Second)
	for i := range answers {
		require.Equal(t, i == 17 || i == 60, answers[i].Busy, "%d: %+v", i, answers[i])
		require.False(t, answers[i].Duplicate)
	}
	// The same where the first steps are claimed at once.
	more := []store.NewTask{keyed(p, "a"), keyed(p, "slow"), keyed(p, "b")}
	answers, claimed, err := s.CreateAndClaim(t.Context(), more, store.ClaimRequest{Worker: uuid.New(), Callables: p.Callables, Limit: 3, Lease: time.Minute})
	require.NoError(t, err)
	require.Empty(t, claimed)
	require.True(t, answers[1].Busy)
	require.False(t, answers[0].Busy || answers[2].Busy)

	require.NoError(t, tx.Commit(t.Context()))
	answers, err = s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "slow")})
	require.NoError(t, err)
	require.True(t, answers[0].Duplicate, "the answer is final now")
	noViolations(t, s)
}

// Other locks are waited for without the bound.
func TestCreationsWaitForPartitions(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err := tx.Exec(t.Context(), `lock table tasker.tasks in access exclusive mode`)
	require.NoError(t, err)
	created := make(chan error, 1)
	go func() {
		_, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "k")})
		created <- err
	}()
	pgtest.Eventually(t, patience, func() (bool, string) { // longer than it would for an identity
		return db.QueryBool(t, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
			and clock_timestamp() - query_start > interval '600 ms')`), "it did not wait"
	})
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-created)
}

func TestSignalsRideInTheTransaction(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	ear := listen(t, db.DSN)
	for _, how := range []store.Announce{store.AnnounceNothing, store.AnnounceNotify} {
		tx := beginOn(t, db, pgx.TxOptions{})
		later := newTask(p)
		later.StartIn = time.Hour
		_, err := store.CreateTasksIn(t.Context(), tx, how, newTask(p), later)
		require.NoError(t, err)
		var careful string
		require.NoError(t, tx.QueryRow(t.Context(), `show synchronous_commit`).Scan(&careful))
		require.Equal(t, "on", careful, "the caller's commit stays as careful as it was")
		ear.receivesNothing()
		require.NoError(t, tx.Commit(t.Context()))
		if how == store.AnnounceNotify {
			ear.receives(signal.TopicDue)
			ear.receives(signal.WorkerTopic("shapes"))
		}
		ear.receivesNothing()
	}
	// A duplicate needs no signal.
	_, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "k")})
	require.NoError(t, err)
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err = store.CreateTasksIn(t.Context(), tx, store.AnnounceNotify, keyed(p, "k"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	ear.receivesNothing()

	slot := "s_" + db.Name
	db.Exec(t, `select pg_create_logical_replication_slot($1, 'test_decoding')`, slot)
	t.Cleanup(func() { db.Exec(t, `select pg_drop_replication_slot($1)`, slot) })
	tx = beginOn(t, db, pgx.TxOptions{})
	_, err = store.CreateTasksIn(t.Context(), tx, store.AnnounceWAL, newTask(p))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from pg_logical_slot_get_changes($1, null, null) where data like 'message: transactional: 1 prefix: tasker%'`, slot))
	ear.receivesNothing()
}

func TestPlansAreFoundByWayOfATransaction(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	plans := store.NewTxPlans()
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err := plans.On(tx).PlanNamed(t.Context(), "shapes", "nothing", "1.0.0")
	require.ErrorIs(t, err, store.ErrNotFound)
	found, err := plans.On(tx).PlanNamed(t.Context(), "shapes", "diamond", "1.0.0")
	require.NoError(t, err, "the transaction can continue")
	require.Equal(t, p.ID, found.ID)
	require.NoError(t, tx.Rollback(t.Context()))
	again, err := plans.On(tx).PlanNamed(t.Context(), "shapes", "diamond", "1.0.0")
	require.NoError(t, err, "from memory")
	require.Same(t, found, again)
}
