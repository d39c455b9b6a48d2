//go:build unix

package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgcluster"
)

// sharedBase returns a directory for a shared server of this test's own.
func sharedBase(t *testing.T) string {
	t.Helper()
	dir, _, err := pgcluster.SuggestDataDir(filepath.Join(os.TempDir(), "tasker-shared-test-"+randomHex()))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func current(t *testing.T, base string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(base, "current"))
	require.NoError(t, err)
	return filepath.Join(base, string(b))
}

// leave unregisters this process, as its end would.
func leave(t *testing.T, instance string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(instance, "clients", strconv.Itoa(os.Getpid()))))
}

func gone(path string) func() (bool, string) {
	return func() (bool, string) {
		_, err := os.Lstat(path)
		return os.IsNotExist(err), path + " is still there"
	}
}

func TestUnusedServerStopsByItself(t *testing.T) {
	t.Parallel()
	base := sharedBase(t)
	c, err := joinOrStart(t.Context(), base, 2*time.Second)
	require.NoError(t, err)
	instance, pid := current(t, base), c.PID()
	cfg, err := pgx.ParseConfig(c.SocketDSN("x"))
	require.NoError(t, err)

	// A dead process is no user.
	require.NoError(t, os.WriteFile(filepath.Join(instance, "clients", "999999999"), nil, 0o600))
	leave(t, instance)
	Eventually(t, time.Minute, gone(instance))
	Eventually(t, time.Minute, gone(cfg.Host))
	Eventually(t, time.Minute, func() (bool, string) {
		return syscall.Kill(pid, 0) != nil, "the server still runs"
	})

	again, err := joinOrStart(t.Context(), base, 2*time.Second)
	require.NoError(t, err)
	require.NotEqual(t, instance, current(t, base))
	require.NotEqual(t, pid, again.PID())
	leave(t, current(t, base))
	Eventually(t, time.Minute, gone(current(t, base)))
}

func TestServerIsSharedUntilItDies(t *testing.T) {
	t.Parallel()
	base := sharedBase(t)
	pids := make(chan int, 4)
	t.Run("together", func(t *testing.T) {
		for i := range cap(pids) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				c, err := joinOrStart(t.Context(), base, 2*time.Second)
				require.NoError(t, err)
				pids <- c.PID()
			})
		}
	})
	first := <-pids
	for range cap(pids) - 1 {
		require.Equal(t, first, <-pids)
	}

	dead := current(t, base)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	var c *pgcluster.Cluster
	Eventually(t, time.Minute, func() (bool, string) {
		var err error
		if c, err = joinOrStart(t.Context(), base, 2*time.Second); err != nil {
			return false, err.Error()
		}
		return c.PID() != first, "attached to the dead server"
	})
	Eventually(t, time.Minute, gone(dead))
	leave(t, current(t, base))
	Eventually(t, time.Minute, gone(current(t, base)))
}

func TestWhoComesWhileItStopsStartsAnother(t *testing.T) {
	t.Parallel()
	base := sharedBase(t)
	_, err := joinOrStart(t.Context(), base, time.Hour)
	require.NoError(t, err)
	instance := current(t, base)
	// The watchdog's first action. It then also stops the server.
	require.NoError(t, os.Rename(filepath.Join(instance, "clients"), filepath.Join(instance, "closing")))
	_, err = joinOrStart(t.Context(), base, 2*time.Second)
	require.NoError(t, err)
	require.NotEqual(t, instance, current(t, base))
	Eventually(t, time.Minute, gone(instance))
	leave(t, current(t, base))
	Eventually(t, time.Minute, gone(current(t, base)))
}

func TestHalfBuiltTemplateIsReplaced(t *testing.T) {
	t.Parallel()
	s := mustAcquire(t)
	name := randomHex()
	built, err := s.template(t.Context(), name, nothing)
	require.NoError(t, err)
	// Back to the moment before the final name was given, with leftovers inside.
	conn, err := s.connect(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), "ALTER DATABASE "+quote(built)+" RENAME TO "+quote(built+"_building"))
	require.NoError(t, err)
	again, err := s.template(t.Context(), name, nothing)
	require.NoError(t, err)
	require.Equal(t, built, again)
	left, err := databaseExists(t.Context(), conn, built+"_building")
	require.NoError(t, err)
	require.False(t, left)
}

// TestEachDayHasItsTemplates: a template that was made before midnight has no table for the
// last of the days that tests expect after it.
func TestEachDayHasItsTemplates(t *testing.T) {
	t.Parallel()
	evening := time.Date(2026, 11, 27, 23, 59, 0, 0, time.UTC)
	require.Equal(t, templateKey("a", evening), templateKey("a", evening.Add(59*time.Second)))
	require.NotEqual(t, templateKey("a", evening), templateKey("a", evening.Add(time.Minute)))
	require.NotEqual(t, templateKey("a", evening), templateKey("b", evening))
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:p@h:1/a?sslmode=disable":   "postgres://u:p@h:1/b?sslmode=disable",
		"postgresql://h":                         "postgresql://h/b",
		"host=h user=u dbname=a sslmode=disable": "host=h user=u dbname=a sslmode=disable dbname=b",
	} {
		require.Equal(t, want, withDatabase(dsn, "b"))
		cfg, err := pgx.ParseConfig(want)
		require.NoError(t, err)
		require.Equal(t, "b", cfg.Database)
	}
}

func nothing(context.Context, string) error { return nil }
