//go:build unix

package pgtest_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// startStandby runs a standby until the end of the test.
func startStandby(t *testing.T, primary *pgcluster.Cluster, opts pgcluster.Options) *pgtest.Standby {
	t.Helper()
	c, err := pgtest.StartStandby(t.Context(), primary, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, c.Stop(ctx))
	})
	return c
}

// bounded is a context with a deadline.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// text is the result of a query for one text.
func text(t *testing.T, dsn, sql string) (s string) {
	t.Helper()
	conn, err := pgx.Connect(bounded(t), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(bounded(t)) }()
	require.NoError(t, conn.QueryRow(bounded(t), sql).Scan(&s))
	return s
}

// serverDir is a directory that the server's user can write to.
func serverDir(t *testing.T) string {
	t.Helper()
	base, err := pgcluster.TempDir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "tasker-standby-test-") //nolint:usetesting // t.TempDir is closed to the server's user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

func exec1(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(bounded(t), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(bounded(t)) }()
	_, err = conn.Exec(bounded(t), sql)
	require.NoError(t, err)
}

func TestStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	primary := pgtest.Private(t, nil).Cluster
	exec1(t, primary.DSN(pgcluster.Superuser), "CREATE TABLE words AS SELECT 'before' AS word")
	standby := startStandby(t, primary, pgcluster.Options{Ephemeral: true, Settings: map[string]string{"work_mem": "5MB"}})
	require.Equal(t, "on", text(t, standby.DSN(pgcluster.Superuser), "SHOW transaction_read_only"), "the password is the same")
	require.Equal(t, "logical", text(t, standby.DSN(pgcluster.Superuser), "SHOW wal_level"))
	require.Equal(t, "off", text(t, standby.DSN(pgcluster.Superuser), "SHOW fsync"), "the primary's settings are its own")
	require.Equal(t, "5MB", text(t, standby.DSN(pgcluster.Superuser), "SHOW work_mem"))

	require.NoError(t, pgtest.SetSynchronous(ctx, primary, standby))
	log := filepath.Join(serverDir(t), "log")
	late := startStandby(t, primary, pgcluster.Options{Ephemeral: true, WALDir: log})
	require.DirExists(t, filepath.Join(log, "archive_status"), "its WAL lies there")
	require.Empty(t, text(t, late.DSN(pgcluster.Superuser), "SHOW synchronous_standby_names"), "the wish of its primary is not its own")
	dsn := pgtest.FailoverDSN(pgcluster.Superuser, standby.Cluster, primary)
	require.Equal(t, strconv.Itoa(primary.Port()), text(t, dsn, "SELECT current_setting('port')"), "the one that takes writes")
	exec1(t, dsn, "INSERT INTO words VALUES ('acknowledged')")
	require.NoError(t, primary.Kill(ctx))
	require.NoError(t, standby.Promote(ctx))
	require.Equal(t, strconv.Itoa(standby.Port()), text(t, dsn, "SELECT current_setting('port')"))
	require.Equal(t, "before, acknowledged", text(t, dsn, "SELECT string_agg(word, ', ' ORDER BY word DESC) FROM words"))
	exec1(t, dsn, "INSERT INTO words VALUES ('after')") // without waiting for a standby of its own
	require.ErrorContains(t, standby.Promote(ctx), "recovery is not in progress")

	require.NoError(t, standby.RestartImmediate(ctx))
	require.Equal(t, "3", text(t, dsn, "SELECT count(*)::text FROM words"), "it stays a primary")
	next := startStandby(t, standby.Cluster, pgcluster.Options{Ephemeral: true})
	require.NoError(t, pgtest.SetSynchronous(ctx, standby.Cluster, next))
	exec1(t, dsn, "INSERT INTO words VALUES ('second')")
	require.NoError(t, standby.Kill(ctx))
	require.NoError(t, next.Promote(ctx))
	require.Equal(t, "4", text(t, next.DSN(pgcluster.Superuser), "SELECT count(*)::text FROM words"))
}

func TestCommitsWaitForASynchronousStandby(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	primary := pgtest.Private(t, nil).Cluster
	exec1(t, primary.DSN(pgcluster.Superuser), "CREATE TABLE words (word text)")
	standby := startStandby(t, primary, pgcluster.Options{Ephemeral: true})
	require.NoError(t, pgtest.SetSynchronous(ctx, primary, standby))
	require.NoError(t, standby.Kill(ctx))

	conn, err := pgx.Connect(ctx, primary.DSN(pgcluster.Superuser))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "INSERT INTO words VALUES ('alone')")
		done <- err
	}()
	const waiting = "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	for text(t, primary.DSN(pgcluster.Superuser), waiting) != "1" { // query has a deadline
		require.NoError(t, lifecycle.Pause(ctx, 10*time.Millisecond), "it does not wait")
	}
	select {
	case err := <-done:
		t.Fatalf("acknowledged without the standby: %v", err)
	default:
	}
	require.NoError(t, standby.Restart(ctx), "it follows again")
	require.NoError(t, <-done)
	require.NoError(t, conn.Close(ctx))

	require.NoError(t, standby.Kill(ctx))
	require.NoError(t, pgtest.SetSynchronous(ctx, primary))
	exec1(t, primary.DSN(pgcluster.Superuser), "INSERT INTO words VALUES ('free')")
}

func TestStandbyWantsAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	primary := pgtest.Private(t, nil).Cluster
	dir := filepath.Join(serverDir(t), "data")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pgdata"), 0o700))
	_, err := pgtest.StartStandby(t.Context(), primary, pgcluster.Options{DataDir: dir})
	require.ErrorContains(t, err, "want a directory without data")
	require.DirExists(t, filepath.Join(dir, "pgdata"))

	require.NoError(t, primary.Stop(bounded(t)))
	_, err = pgtest.StartStandby(t.Context(), primary, pgcluster.Options{Ephemeral: true})
	require.ErrorContains(t, err, "connect to PostgreSQL")
}
