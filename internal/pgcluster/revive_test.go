//go:build unix

package pgcluster

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheLogOfChangesLiesElsewhere(t *testing.T) {
	t.Parallel()
	volume := walVolume(t)
	c := start(t, Options{Ephemeral: true, WALDir: filepath.Join(volume, "log")})
	target, err := os.Readlink(filepath.Join(c.pgdata(), "pg_wal"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(volume, "log"), target)
	entries, err := os.ReadDir(target)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	stop(t, c)
	require.DirExists(t, target, "it is not ours to remove")
}

// walVolume is a directory that the server's user can write to.
func walVolume(t *testing.T) string {
	t.Helper()
	base, err := TempDir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "tasker-pgcluster-test-") //nolint:usetesting // t.TempDir is closed to the server's user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

func TestReviving(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	pid, port := c.PID(), c.Port()
	require.NoError(t, c.Revive(t.Context()))
	require.Equal(t, pid, c.PID(), "it runs: nothing to do")

	died := c.Done()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	select {
	case <-died:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the server has not died")
	}
	require.NoError(t, c.Revive(t.Context()))
	require.NotEqual(t, pid, c.PID())
	require.Equal(t, port, c.Port())
	require.Equal(t, "1", query(t, c.DSN(Superuser), "SELECT '1'"))

	// A server that does not answer is waited for, not restarted.
	pid = c.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Revive(ctx), context.DeadlineExceeded)
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.NoError(t, c.Revive(t.Context()))
	require.Equal(t, pid, c.PID())

	stop(t, c)
	require.Error(t, c.Revive(t.Context()), "for good")
}

// TestAnEphemeralServerEndsAtOnceWithItsOwner: its data is not needed, and an orderly
// shutdown might never end.
func TestAnEphemeralServerEndsAtOnceWithItsOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("these systems have no signal for the death of a parent")
	}
	dir := dataDir(t)
	owner, pid := startOwner(t, dir, ephemeralEnv+"=1")
	t.Cleanup(func() { removeOldSocketDir(dir) }) // as the next start of the cluster does
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait() // killed
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, (&process{pid: pid}).wait(ctx), "the server still runs")
	log, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "received immediate shutdown request")
}
