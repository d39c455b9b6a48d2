//go:build unix

package pgcluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// startStandby runs a standby until the end of the test.
func startStandby(t *testing.T, primary *Cluster, opts Options) *Cluster {
	t.Helper()
	c, err := StartStandby(t.Context(), primary, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		require.NoError(t, c.Stop(ctx))
	})
	return c
}

// bounded is a context with a deadline.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	primary := start(t, Options{Ephemeral: true})
	exec1(t, primary.DSN(Superuser), "CREATE TABLE words AS SELECT 'before' AS word")
	standby := startStandby(t, primary, Options{Ephemeral: true, Settings: map[string]string{"work_mem": "5MB"}})
	require.Equal(t, "on", query(t, standby.DSN(Superuser), "SHOW transaction_read_only"), "the password is the same")
	require.Equal(t, "logical", query(t, standby.DSN(Superuser), "SHOW wal_level"))
	require.Equal(t, "off", query(t, standby.DSN(Superuser), "SHOW fsync"), "the primary's settings are its own")
	require.Equal(t, "5MB", query(t, standby.DSN(Superuser), "SHOW work_mem"))

	require.NoError(t, primary.SetSynchronous(ctx, standby))
	late := startStandby(t, primary, Options{Ephemeral: true})
	require.Empty(t, query(t, late.DSN(Superuser), "SHOW synchronous_standby_names"), "the wish of its primary is not its own")
	dsn := FailoverDSN(Superuser, standby, primary)
	require.Equal(t, itoa(primary.Port()), query(t, dsn, "SELECT current_setting('port')"), "the one that takes writes")
	exec1(t, dsn, "INSERT INTO words VALUES ('acknowledged')")
	require.NoError(t, primary.Kill(ctx))
	require.NoError(t, standby.Promote(ctx))
	require.Equal(t, itoa(standby.Port()), query(t, dsn, "SELECT current_setting('port')"))
	require.Equal(t, "before, acknowledged", query(t, dsn, "SELECT string_agg(word, ', ' ORDER BY word DESC) FROM words"))
	exec1(t, dsn, "INSERT INTO words VALUES ('after')") // without waiting for a standby of its own
	require.ErrorContains(t, standby.Promote(ctx), "recovery is not in progress")

	require.NoError(t, standby.RestartImmediate(ctx))
	require.Equal(t, "3", query(t, dsn, "SELECT count(*)::text FROM words"), "it stays a primary")
	next := startStandby(t, standby, Options{Ephemeral: true})
	require.NoError(t, standby.SetSynchronous(ctx, next))
	exec1(t, dsn, "INSERT INTO words VALUES ('second')")
	require.NoError(t, standby.Kill(ctx))
	require.NoError(t, next.Promote(ctx))
	require.Equal(t, "4", query(t, next.DSN(Superuser), "SELECT count(*)::text FROM words"))
}

func TestCommitsWaitForASynchronousStandby(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	primary := start(t, Options{Ephemeral: true})
	exec1(t, primary.DSN(Superuser), "CREATE TABLE words (word text)")
	standby := startStandby(t, primary, Options{Ephemeral: true})
	require.NoError(t, primary.SetSynchronous(ctx, standby))
	require.NoError(t, standby.Kill(ctx))

	conn, err := pgx.Connect(ctx, primary.DSN(Superuser))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "INSERT INTO words VALUES ('alone')")
		done <- err
	}()
	const waiting = "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	for query(t, primary.DSN(Superuser), waiting) != "1" { // query has a deadline
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
	require.NoError(t, primary.SetSynchronous(ctx))
	exec1(t, primary.DSN(Superuser), "INSERT INTO words VALUES ('free')")
}

func TestStandbyWantsAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	primary := start(t, Options{Ephemeral: true})
	dir := dataDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pgdata"), 0o700))
	_, err := StartStandby(t.Context(), primary, Options{DataDir: dir})
	require.ErrorContains(t, err, "takes an empty directory")
	require.DirExists(t, filepath.Join(dir, "pgdata"))

	stop(t, primary)
	_, err = StartStandby(t.Context(), primary, Options{Ephemeral: true})
	require.ErrorContains(t, err, "copy the database cluster")
}
