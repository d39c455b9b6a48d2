package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// A dead handler must not hold a snapshot for ever, by the server's clock.
func TestWorkIsBoundedByTheServer(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()
	w := s.begin(c, store.TxOptions{})
	var statement, idle string
	require.NoError(t, w.Tx().QueryRow(t.Context(), `select current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')`).Scan(&statement, &idle))
	require.Equal(t, "45s", statement, "the handler's 30 s and a margin")
	require.Equal(t, "45s", idle)
	w.Rollback()

	s.db.Exec(t, `do $$ begin execute format('alter database %I set statement_timeout = ''7s''', current_database()); end $$`)
	strict, err := s.OpenWorkPool(store.WorkPoolOptions{MaxConns: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, strict.Close(t.Context())) }()
	w, err = strict.Begin(t.Context(), store.WorkOptions{Claim: key(c), Limit: 30 * time.Second})
	require.NoError(t, err)
	defer w.Rollback()
	require.NoError(t, w.Tx().QueryRow(t.Context(), `select current_setting('statement_timeout'), current_setting('enable_seqscan')`).Scan(&statement, &idle))
	require.Equal(t, "7s", statement, "the database's setting takes precedence")
	require.Equal(t, "on", idle, "the store's settings for the planner are not for handlers")
}

// A lock on the row means that the transaction in question has not ended.
func TestFateOfACommit(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	fate := func(c store.Claimed) store.Fate {
		t.Helper()
		f, err := s.works.Fate(t.Context(), key(c))
		require.NoError(t, err)
		return f
	}
	c := s.claimOne()
	w := s.begin(c, store.TxOptions{})
	_, err := w.Report(t.Context(), succeed(c, `1`))
	require.NoError(t, err)
	require.Equal(t, store.FateOpen, fate(c), "it may still be committed")
	require.NoError(t, w.Commit(t.Context()))
	require.Equal(t, store.FateReported, fate(c), "on the board")
	applyAll(t, s.Store)
	require.Equal(t, store.FateReported, fate(c), "in the ledger")

	next := claim(t, s.Store, s.plan, 2)
	require.Len(t, next, 2)
	require.Equal(t, store.FateHeld, fate(next[0]), "in a row of its own")
	_, err = s.Report(t.Context(), []store.Report{{ClaimKey: key(next[0]), Error: json.RawMessage(`{}`), Retryable: true, RetryAfter: -1}})
	require.NoError(t, err)
	require.Equal(t, store.FateLost, fate(next[0]), "a failure is none of it")
	_, err = s.HandBack(t.Context(), []store.ClaimKey{key(next[1])})
	require.NoError(t, err)
	require.Equal(t, store.FateLost, fate(next[1]))
	unknown := c
	unknown.TaskUUID = uuid.Must(uuid.NewV7())
	require.Equal(t, store.FateLost, fate(unknown))
}

func TestCutFreesTheRows(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	s.db.Exec(t, `insert into receipts values ('00000000-0000-0000-0000-000000000001', 'y')`)
	// takes time: a statement that runs until it is cut
	for name, statement := range map[string]string{"idle": `select 1`, "busy": `select pg_sleep(60)`} {
		c := s.claimOne()
		w := s.begin(c, store.TxOptions{})
		_, err := w.Tx().Exec(t.Context(), `update receipts set note = 'z'`)
		require.NoError(t, err)
		ended := make(chan error, 1)
		began := make(chan struct{})
		go func() {
			close(began)
			_, err := w.Tx().Exec(context.WithoutCancel(t.Context()), statement)
			ended <- err
		}()
		<-began
		if name == "idle" {
			require.NoError(t, <-ended)
		} else {
			pgtest.Eventually(t, patience, func() (bool, string) {
				return s.db.QueryBool(t, `select exists (select from pg_stat_activity where datname = current_database() and query like '%sleep(60)%' and state = 'active' and pid <> pg_backend_pid())`), "not asleep"
			})
		}
		w.Cut()
		w.Cut() // does nothing more
		if name == "busy" {
			require.Error(t, <-ended)
		}
		s.db.Exec(t, `update receipts set note = note`) // waits for the lock
		w.Rollback()
		require.Equal(t, 1, s.db.QueryInt(t, `select count(*) from receipts where note = 'y'`))
		applyAll(t, s.Store)
	}
}

func TestPoolsOfOthers(t *testing.T) {
	t.Parallel()
	s, stranger := newShop(t, store.Options{}), pgtest.New(t)
	_, err := s.OpenWorkPool(store.WorkPoolOptions{Pool: s.Execer()})
	require.Error(t, err, "the store's own")
	for name, mode := range map[string]pgx.QueryExecMode{
		"statements": pgx.QueryExecModeCacheStatement, "describe": pgx.QueryExecModeCacheDescribe, "twice": pgx.QueryExecModeDescribeExec,
		"exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol,
	} {
		cfg, err := pgxpool.ParseConfig(s.db.DSN)
		require.NoError(t, err)
		cfg.ConnConfig.DefaultQueryExecMode = mode
		if mode == pgx.QueryExecModeSimpleProtocol {
			cfg.ConnConfig.StatementCacheCapacity, cfg.ConnConfig.DescriptionCacheCapacity = 0, 0
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err, name)
		works, err := s.OpenWorkPool(store.WorkPoolOptions{Pool: pool})
		require.NoError(t, err, name)
		id := uuid.New()
		require.ErrorContains(t, works.Check(t.Context(), id), "another database", name)
		_, err = s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: id}, nil, time.Minute)
		require.NoError(t, err, name)
		require.NoError(t, works.Check(t.Context(), id), name)

		c := s.claimOne()
		w, err := works.Begin(t.Context(), store.WorkOptions{Claim: key(c), Limit: time.Second})
		require.NoError(t, err, name)
		s.write(w)
		task := newTask(s.plan)
		created, err := store.CreateTasksIn(t.Context(), w.Tx(), store.AnnounceNotify, task)
		require.NoError(t, err, name)
		require.Equal(t, task.UUID, created[0].UUID)
		accepted, err := w.Report(t.Context(), succeed(c, `1`))
		require.NoError(t, err, name)
		require.True(t, accepted, name)
		require.NoError(t, w.Commit(t.Context()), name)
		require.NoError(t, works.Close(t.Context()))
		require.NoError(t, pool.Ping(t.Context()), "it is not ours to close")
		pool.Close()
		s.db.Exec(t, `delete from tasker.board`)
	}
	works, err := s.OpenWorkPool(store.WorkPoolOptions{Pool: stranger.Pool(t)})
	require.NoError(t, err)
	require.Error(t, works.Check(t.Context(), uuid.New()))
}

func TestClosingThePoolCutsOffWhatIsOpen(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()
	w := s.begin(c, store.TxOptions{})
	s.write(w)
	require.ErrorContains(t, s.works.Close(t.Context()), "1 are in use")
	_, err := w.Report(t.Context(), succeed(c, `1`))
	require.Error(t, err)
	w.Rollback()
	require.NoError(t, s.works.Close(t.Context()))
	_, err = s.works.Begin(t.Context(), store.WorkOptions{Claim: key(c), Limit: time.Second})
	require.Error(t, err)
	require.Zero(t, s.receipts())
}

// A statement that removes a task from the board without reading reports (a quarantine)
// records the result nevertheless.
func TestFateOfACommitThatWasCalledOff(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	voided := s.claimOne()
	w := s.begin(voided, store.TxOptions{})
	_, err := w.Report(t.Context(), succeed(voided, `1`))
	require.NoError(t, err)
	require.NoError(t, w.Commit(t.Context()))
	cancel(t, s.Store, voided.TaskUUID, "before the result is applied")
	fate, err := s.works.Fate(t.Context(), key(voided))
	require.NoError(t, err)
	require.Equal(t, store.FateReported, fate, "it was committed, whatever the end of the task")
}
