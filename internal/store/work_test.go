package store_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// shop is a store with one claim in hand, a table of the user, and a pool for handlers.
type shop struct {
	*store.Store
	db    *pgtest.DB
	plan  *store.Plan
	works *store.WorkPool
	t     *testing.T
}

func newShop(t *testing.T, opts store.Options) *shop {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	db := pgtest.NewMigrated(t, hash, migrate)
	opts.URL = db.DSN
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	db.Exec(t, `create table receipts (step uuid primary key, note text)`)
	works, err := s.OpenWorkPool(store.WorkPoolOptions{MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(func() { _ = works.Close(context.WithoutCancel(t.Context())) })
	return &shop{Store: s, db: db, plan: plan(t, s, diamondYAML), works: works, t: t}
}

// claimOne makes a task and claims its first step.
func (s *shop) claimOne() store.Claimed {
	s.t.Helper()
	create(s.t, s.Store, s.plan, 1)
	claimed := claim(s.t, s.Store, s.plan, 1)
	require.Len(s.t, claimed, 1)
	return claimed[0]
}

// givenBack waits until all connections of the pool are idle: it closes broken ones in
// the background.
func (s *shop) givenBack() {
	s.t.Helper()
	pgtest.Eventually(s.t, patience, func() (bool, string) { return s.works.Stat().Acquired == 0, "a connection is missing" })
}

func (s *shop) begin(c store.Claimed, o store.TxOptions) *store.Work {
	s.t.Helper()
	w, err := s.works.Begin(s.t.Context(), store.WorkOptions{Tx: o, Claim: key(c), Limit: 30 * time.Second, Lease: time.Minute})
	require.NoError(s.t, err)
	s.t.Cleanup(w.Rollback)
	return w
}

func (s *shop) write(w *store.Work) {
	s.t.Helper()
	_, err := w.Tx().Exec(s.t.Context(), `insert into receipts values ($1, 'x')`, uuid.New())
	require.NoError(s.t, err)
}

func (s *shop) receipts() int { return s.db.QueryInt(s.t, `select count(*) from receipts`) }

func (s *shop) state(c store.Claimed) int {
	return s.db.QueryInt(s.t, `select state from tasker.board where task_uuid = $1`, c.TaskUUID)
}

// patience bounds the wait for something that happens soon.
const patience = 60 * time.Second

func TestWorkAndReportAreOne(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]store.Options{"direct": {NotifyAfterCommit: true}, "for a pooler": {NotifyAfterCommit: true, NoPreparedStatements: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workAndReport(t, newShop(t, opts))
		})
	}
}

func workAndReport(t *testing.T, s *shop) {
	ear := listen(t, s.db.DSN)
	c := s.claimOne()
	ear.receives(signal.WorkerTopic("shapes"))
	w := s.begin(c, store.TxOptions{})
	s.write(w)
	accepted, err := w.Report(t.Context(), succeed(c, `{"a":1}`))
	require.NoError(t, err)
	require.True(t, accepted)
	require.Zero(t, s.receipts())
	require.Equal(t, 3, s.state(c), "nothing is visible before the commit")

	lost, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: uuid.New()}, []store.ClaimKey{key(c)}, time.Minute)
	require.NoError(t, err, "a heartbeat waits for no lock")
	require.Empty(t, lost)
	expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Zero(t, expired.Lost)
	ear.receivesNothing()

	w.Announce(store.ReportSignals()...)
	require.NoError(t, w.Commit(t.Context()))
	ear.receives(signal.TopicOrchestration)
	require.Equal(t, 1, s.receipts())
	require.Equal(t, 4, s.state(c))
	require.True(t, s.db.QueryBool(t, `select outcome = 1 and result = '{"a":1}' and lease_until is null and reported_at is not null
		and seq > 0 from tasker.board where task_uuid = $1`, c.TaskUUID))
	applyAll(t, s.Store)
	require.JSONEq(t, `{"a":1}`, string(read(t, s.Store, c.TaskUUID).Steps[0].Result))
	noViolations(t, s.Store)
	require.Zero(t, s.works.Stat().Acquired)
}

func TestWorkIsUndone(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	for name, undo := range map[string]func(t *testing.T, c store.Claimed, w *store.Work){
		"rolled back": func(_ *testing.T, _ store.Claimed, w *store.Work) { w.Rollback() },
		"cut off": func(_ *testing.T, _ store.Claimed, w *store.Work) {
			w.Cut()
			w.Rollback()
		},
		"rolled back after the report": func(t *testing.T, c store.Claimed, w *store.Work) {
			accepted, err := w.Report(t.Context(), succeed(c, `1`))
			require.NoError(t, err)
			require.True(t, accepted)
			w.Rollback()
			fate, err := s.works.Fate(t.Context(), key(c))
			require.NoError(t, err)
			require.Equal(t, store.FateHeld, fate)
		},
		"refused by the fence": func(t *testing.T, c store.Claimed, w *store.Work) {
			r := succeed(c, `1`)
			r.Token++
			accepted, err := w.Report(t.Context(), r)
			require.NoError(t, err)
			require.False(t, accepted)
			w.Rollback()
		},
		"of a cancelled task": func(t *testing.T, c store.Claimed, w *store.Work) {
			cancel(t, s.Store, c.TaskUUID, "no longer wanted")
			accepted, err := w.Report(t.Context(), succeed(c, `1`))
			require.NoError(t, err)
			require.False(t, accepted)
			w.Rollback()
			fate, err := s.works.Fate(t.Context(), key(c))
			require.NoError(t, err)
			require.Equal(t, store.FateLost, fate)
		},
		"of a lost lease": func(t *testing.T, c store.Claimed, w *store.Work) {
			s.db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where task_uuid = $1`, c.TaskUUID)
			expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
			require.NoError(t, err)
			require.Equal(t, 1, expired.Lost)
			accepted, err := w.Report(t.Context(), succeed(c, `1`))
			require.NoError(t, err)
			require.False(t, accepted)
			w.Rollback()
			fate, err := s.works.Fate(t.Context(), key(c))
			require.NoError(t, err)
			require.Equal(t, store.FateLost, fate)
		},
		"of a result that cannot be stored": func(t *testing.T, c store.Claimed, w *store.Work) {
			_, err := w.Report(t.Context(), succeed(c, `"\u0000"`))
			var refused interface{ SQLState() string }
			require.ErrorAs(t, err, &refused)
			w.Rollback()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			c := s.claimOne()
			w := s.begin(c, store.TxOptions{})
			s.write(w)
			undo(t, c, w)
			s.givenBack()
			require.Zero(t, s.receipts())
			require.Zero(t, s.db.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1 and state = 4 and outcome = 1`, c.TaskUUID))
			w.Rollback() // a second time does nothing
			require.Error(t, w.Commit(t.Context()))
			s.db.Exec(t, `delete from tasker.board`)
		})
	}
}

func TestWhatHandlersMayNotDoToTheirTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()
	misuse := func(do func(ctx context.Context, tx store.Tx)) error {
		w := s.begin(c, store.TxOptions{})
		do(t.Context(), w.Tx())
		_, err := w.Report(t.Context(), succeed(c, `1`))
		w.Rollback()
		return err
	}
	var late store.Tx
	require.NoError(t, misuse(func(ctx context.Context, tx store.Tx) {
		require.Error(t, tx.Commit(ctx), "the engine does")
		require.Error(t, tx.Rollback(ctx))
		inner, err := tx.Begin(ctx)
		require.NoError(t, err)
		_, err = inner.Exec(ctx, `insert into nowhere values (1)`)
		require.Error(t, err)
		require.NoError(t, inner.Rollback(ctx), "savepoints are the handler's")
		late = tx
	}))
	_, err := late.Exec(t.Context(), `select 1`)
	require.ErrorIs(t, err, pgx.ErrTxClosed, "the connection is reused by now")

	require.ErrorIs(t, misuse(func(ctx context.Context, tx store.Tx) {
		_, err := tx.Exec(ctx, `insert into nowhere values (1)`)
		require.Error(t, err)
	}), store.ErrWorkFailed)
	require.ErrorIs(t, misuse(func(ctx context.Context, tx store.Tx) {
		_, err := tx.Query(ctx, `select generate_series(1, 100000)`) //nolint:sqlclosecheck // that is the misuse
		require.NoError(t, err)
	}), store.ErrWorkFailed)
	require.ErrorIs(t, misuse(func(ctx context.Context, tx store.Tx) {
		_, err := tx.Exec(ctx, `commit`)
		require.NoError(t, err)
	}), store.ErrWorkEnded)
	require.ErrorIs(t, misuse(func(ctx context.Context, tx store.Tx) {
		require.NoError(t, tx.Conn().Close(ctx))
	}), store.ErrUnavailable)
	require.Equal(t, 3, s.state(c))
	s.givenBack()

	for name, o := range map[string]store.TxOptions{
		"read only": {AccessMode: pgx.ReadOnly}, "deferrable": {DeferrableMode: pgx.Deferrable}, "own end": {CommitQuery: "commit and chain"},
		"own beginning": {BeginQuery: "begin"}, "no level": {IsoLevel: "serializable; drop table receipts"},
	} {
		_, err := s.works.Begin(t.Context(), store.WorkOptions{Tx: o, Claim: key(c), Limit: time.Second})
		require.Error(t, err, name)
	}
}

// Heartbeats change the row of the step. A transaction with a snapshot cannot change it
// after that.
func TestWorkWithASnapshotIsReportedInSpiteOfHeartbeats(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	worker := store.Daemon{UUID: uuid.New()}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		c := s.claimOne()
		w := s.begin(c, store.TxOptions{IsoLevel: level})
		s.write(w)
		for range 3 {
			lost, err := s.WorkerHeartbeat(t.Context(), worker, []store.ClaimKey{key(c)}, time.Minute)
			require.NoError(t, err)
			require.Empty(t, lost)
		}
		accepted, err := w.Report(t.Context(), succeed(c, `1`))
		require.NoError(t, err)
		require.True(t, accepted)
		require.NoError(t, w.Commit(t.Context()))
		applyAll(t, s.Store)
	}
	c := claim(t, s.Store, s.plan, 1)[0]
	_, err := s.Report(t.Context(), []store.Report{succeed(c, `1`)})
	require.NoError(t, err)
	_, err = s.works.Begin(t.Context(), store.WorkOptions{Tx: store.TxOptions{IsoLevel: pgx.Serializable}, Claim: key(c), Limit: time.Second})
	require.ErrorIs(t, err, store.ErrClaimLost, "its lease cannot be extended any more")
	require.Equal(t, 2, s.receipts())
}

func TestHeartbeatsNeverShortenALease(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()
	left := func() int {
		return s.db.QueryInt(t, `select extract(epoch from lease_until - clock_timestamp())::int from tasker.board where task_uuid = $1`, c.TaskUUID)
	}
	beat := func(lease time.Duration) {
		_, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: uuid.New()}, []store.ClaimKey{key(c)}, lease)
		require.NoError(t, err)
	}
	beat(time.Hour)
	require.Greater(t, left(), 3000)
	beat(time.Second)
	require.Greater(t, left(), 3000)
}

// An action may have given the step its own row in the meantime.
func TestWorkIsReportedWhereTheStepStandsNow(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()
	w := s.begin(c, store.TxOptions{})
	s.write(w)
	taken, err := s.TakeTasks(t.Context(), []uuid.UUID{c.TaskUUID}, store.Taking{Spread: true})
	require.NoError(t, err)
	_, err = taken.Commit(t.Context(), uuid.Nil, nil)
	require.NoError(t, err)
	require.Equal(t, 1, s.db.QueryInt(t, `select slot from tasker.board where task_uuid = $1 and state = 3`, c.TaskUUID))
	accepted, err := w.Report(t.Context(), succeed(c, `1`))
	require.NoError(t, err)
	require.True(t, accepted)
	fate, err := s.works.Fate(t.Context(), key(c))
	require.NoError(t, err)
	require.Equal(t, store.FateOpen, fate)
	require.NoError(t, w.Commit(t.Context()))
	applyAll(t, s.Store)
	require.Equal(t, workflow.StepComplete, read(t, s.Store, c.TaskUUID).Steps[0].State)
}

// Reports, heartbeats and ends of leases go on around transactions that are
// about to be committed, and none of them waits for another.
func TestWorkBesideTheEngine(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{MaxConns: 8})
	const rounds = 200
	var done atomic.Int64
	beats := make(chan struct{})
	ids := create(t, s.Store, s.plan, rounds)
	claimed := claim(t, s.Store, s.plan, rounds)
	require.Len(t, claimed, len(ids))
	keys := make([]store.ClaimKey, len(claimed))
	for i := range claimed {
		keys[i] = key(claimed[i])
	}
	go func() {
		defer close(beats)
		for done.Load() < rounds {
			_, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: uuid.Nil}, keys, time.Minute)
			if err != nil {
				t.Error(err)
				done.Store(rounds)
			}
		}
	}()
	for i := range claimed {
		w := s.begin(claimed[i], store.TxOptions{})
		s.write(w)
		accepted, err := w.Report(t.Context(), succeed(claimed[i], `1`))
		require.NoError(t, err)
		require.True(t, accepted)
		require.NoError(t, w.Commit(t.Context()))
		done.Add(1)
	}
	<-beats
	require.Equal(t, rounds, s.receipts())
}

// Claims that a worker does not know are found by their tokens.
func TestClaimsAfterAToken(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 2)
	me := uuid.Must(uuid.NewV7())
	take := func() store.Claimed {
		list, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: me, Callables: p.Callables, Limit: 1, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0]
	}
	known := take()
	unknown := take()
	require.Empty(t, claim(t, s, p, 1))
	keys, err := s.ClaimsAfter(t.Context(), me, known.Token)
	require.NoError(t, err)
	require.Equal(t, []store.ClaimKey{unknown.Key()}, keys)
	others, err := s.ClaimsAfter(t.Context(), uuid.Must(uuid.NewV7()), 0)
	require.NoError(t, err)
	require.Empty(t, others)
	_, err = s.HandBack(t.Context(), keys)
	require.NoError(t, err)
	require.Equal(t, 1, take().Attempt, "it did not happen")
}

// TestClaimsAreAdoptedOnce: of several workers that present the same claim one gets it, as
// the same attempt; the former worker's report is rejected and its heartbeat tells it.
func TestClaimsAreAdoptedOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()
	held := []store.HeldClaim{{TaskUUID: c.TaskUUID, Token: c.Token}, {TaskUUID: c.TaskUUID, Token: c.Token + 1000}}
	var group conc.WaitGroup
	adopted := make([][]store.Adopted, 3)
	for i := range adopted {
		group.Go(func() {
			var err error
			adopted[i], _, err = s.Adopt(t.Context(), uuid.New(), held, nil, time.Minute)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	all := slices.Concat(adopted...)
	require.NotEmpty(t, all)
	for i, a := range all { // one after the other may get it, never with the same token
		require.Equal(t, c.Attempt, a.Attempt)
		require.Equal(t, c.Context, a.Context)
		require.Greater(t, a.Token, a.Former)
		require.NotContains(t, all[:i], a)
	}
	require.Len(t, all, 1, "the presented token is over with the first")
	accepted, err := s.Report(t.Context(), []store.Report{{ClaimKey: c.Key(), Success: true}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, accepted, "of the former worker")
	accepted, err = s.Report(t.Context(), []store.Report{{ClaimKey: all[0].Key(), Success: true}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, accepted)
	again, _, err := s.Adopt(t.Context(), uuid.New(), held, nil, time.Minute)
	require.NoError(t, err)
	require.Empty(t, again, "its end is reported")

	another := s.claimOne()
	held = []store.HeldClaim{{TaskUUID: another.TaskUUID, Token: another.Token}}
	for _, c := range []struct {
		namespaces []string
		want       int
	}{{[]string{"elsewhere"}, 0}, {[]string{}, 0}, {[]string{"elsewhere", "shapes"}, 1}} {
		got, locked, err := s.Adopt(t.Context(), uuid.New(), held, c.namespaces, time.Minute)
		require.NoError(t, err)
		require.False(t, locked)
		require.Len(t, got, c.want, c.namespaces)
	}
}
