//go:build unix

package pgcluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestClusterServesAndKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	// An interrupted earlier attempt must not be in the way.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pgdata.new", "half"), 0o700))

	c := start(t, Options{DataDir: dir})
	require.Equal(t, dir, c.DataDir())
	require.NotZero(t, c.Port())
	require.FileExists(t, c.LogFile())
	for setting, want := range map[string]string{
		"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20", "max_connections": "200",
		"listen_addresses": "127.0.0.1", "server_encoding": "UTF8", "fsync": "off", "data_checksums": query(t, c.DSN(Superuser), "SHOW data_checksums"),
	} {
		require.Equal(t, want, query(t, c.DSN(Superuser), "SHOW "+setting), setting)
	}
	require.NoError(t, c.CreateDatabase(t.Context(), `odd "name"`))
	require.NoError(t, c.CreateDatabase(t.Context(), `odd "name"`), "it exists already")
	require.Equal(t, `odd "name"`, query(t, c.SocketDSN(`odd "name"`), "SELECT current_database()"))
	exec1(t, c.SocketDSN(Superuser), "CREATE TABLE kept AS SELECT 'still here' AS word")

	pid, socketDir, address := c.PID(), c.socketDir, c.SocketDSN("x")
	stop(t, c)
	require.False(t, processAlive(pid))
	left, err := os.ReadDir(socketDir)
	require.NoError(t, err, "no other user can take its place")
	require.Empty(t, left)
	require.Zero(t, c.PID())
	stop(t, c) // twice is harmless

	c = start(t, Options{DataDir: dir})
	require.Equal(t, "still here", query(t, c.DSN(Superuser), "SELECT word FROM kept"))
	require.Equal(t, address, c.SocketDSN("x"))
}

func TestLoopbackAsksForThePassword(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	for _, user := range []*url.Userinfo{url.User(Superuser), url.UserPassword(Superuser, "guess")} {
		u, err := url.Parse(c.DSN(Superuser))
		require.NoError(t, err)
		u.User = user
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = pgx.Connect(ctx, u.String())
		cancel()
		require.ErrorContains(t, err, "28P01", "invalid password")
	}
	require.Equal(t, "1", query(t, c.DSN(Superuser), "SELECT '1'"))
}

func TestServerIsUnprivilegedAndInItsOwnGroup(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	group, err := syscall.Getpgid(c.PID())
	require.NoError(t, err)
	require.Equal(t, c.PID(), group, "Ctrl-C must not reach it")
	info, err := os.Stat(c.pgdata())
	require.NoError(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.NotZero(t, st.Uid)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestEphemeralLeavesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	done := c.Done()
	stop(t, c)
	<-done
	require.NoDirExists(t, c.DataDir())
	require.Error(t, c.Restart(t.Context()))
}

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	c := start(t, Options{DataDir: dataDir(t)})
	_, err := Start(t.Context(), Options{DataDir: c.DataDir()})
	var running *AlreadyRunningError
	require.ErrorAs(t, err, &running)
	require.Equal(t, c.PID(), running.PID)
	require.Equal(t, os.Getpid(), running.Owner)
	require.EqualError(t, err, fmt.Sprintf("the database in %s is used by another process of Tasker (pid %d); "+
		"end that one first (kill -INT %[2]d) or choose another directory", c.DataDir(), os.Getpid()))
	require.Equal(t, "1", query(t, c.SocketDSN(Superuser), "SELECT '1'"), "the first one is unharmed")
}

func TestTakenPortIsExplained(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	require.True(t, ok)
	_, err = Start(t.Context(), Options{Ephemeral: true, Port: addr.Port})
	require.ErrorIs(t, err, errPortTaken)
	require.ErrorContains(t, err, strconv.Itoa(addr.Port))
}

func TestBadSettingIsExplained(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	_, err := Start(t.Context(), Options{DataDir: dir, Settings: map[string]string{"no_such_setting": "1"}})
	require.ErrorContains(t, err, "no_such_setting", "the server's own words")
	start(t, Options{DataDir: dir}) // and all resources were released
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := dataDir(t)
	_, err := Start(ctx, Options{DataDir: dir})
	require.ErrorIs(t, err, context.Canceled)
	start(t, Options{DataDir: dir})
}

func TestCrashAndRecovery(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	dsn := c.DSN(Superuser)
	exec1(t, dsn, "CREATE TABLE steps (n int)")
	crashes := map[string]func() error{
		"immediate": func() error { return c.RestartImmediate(t.Context()) },
		"kill -9":   func() error { return orElse(c.Kill(t.Context()), func() error { return c.Restart(t.Context()) }) },
		"running":   func() error { return c.Restart(t.Context()) },
	}
	rows := 0
	for name, crash := range crashes {
		exec1(t, dsn, "INSERT INTO steps VALUES (1)")
		rows++
		pid := c.PID()
		require.NoError(t, crash(), name)
		require.NotEqual(t, pid, c.PID())
		require.Equal(t, dsn, c.DSN(Superuser), "clients can reconnect")
		require.Equal(t, strconv.Itoa(rows), query(t, dsn, "SELECT count(*)::text FROM steps"), name)
	}
	require.NoError(t, c.Kill(t.Context()))
	require.NoError(t, c.Kill(t.Context()), "a dead one cannot be killed")
}

func orElse(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

func TestDoneTellsThatTheServerDied(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	done := c.Done()
	select {
	case <-done:
		t.Fatal("it still runs")
	default:
	}
	require.NoError(t, syscall.Kill(c.PID(), syscall.SIGQUIT)) // from outside
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Done was not closed")
	}
	require.NoError(t, c.Restart(t.Context()))
}

func TestStopOutOfTimeStopsAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Ephemeral: true})
	pid := c.PID()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// The server may win the race against the context, then there is no error.
	if err := c.Stop(ctx); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.False(t, processAlive(pid))
	require.NoDirExists(t, c.DataDir())
}

func TestStalePidFile(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	c := start(t, Options{DataDir: dir})
	exec1(t, c.SocketDSN(Superuser), "CREATE TABLE kept AS SELECT 'recovered' AS word")
	oldSocket, address := c.socketDir, c.SocketDSN("x")
	require.NoError(t, c.Kill(t.Context()))
	require.FileExists(t, filepath.Join(oldSocket, ".s.PGSQL."+strconv.Itoa(c.Port())+".lock"), "it was killed")
	c.unlock() // as if our process had died as well

	t.Run("its number is a stranger's now", func(t *testing.T) {
		stranger := exec.CommandContext(t.Context(), "/bin/sleep", "600")
		stranger.SysProcAttr = &syscall.SysProcAttr{Credential: c.runAs.credential()}
		require.NoError(t, stranger.Start())
		t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
		pf, err := readPidFile(c.pgdata())
		require.NoError(t, err)
		pf.lines[0] = strconv.Itoa(stranger.Process.Pid)
		lock := filepath.Join(oldSocket, ".s.PGSQL."+strconv.Itoa(c.Port())+".lock")
		require.NoError(t, os.WriteFile(lock, []byte(strings.Join(pf.lines, "\n")), 0o600))
		require.NoError(t, os.WriteFile(pidFilePath(c.pgdata()), []byte(strings.Join(pf.lines, "\n")), 0o600))
		if runtime.GOOS != "linux" {
			return // there a living process of that number is taken for the server
		}
		again := start(t, Options{DataDir: dir})
		require.Equal(t, "recovered", query(t, again.DSN(Superuser), "SELECT word FROM kept"))
		require.Equal(t, address, again.SocketDSN("x"))
		require.NoError(t, again.Kill(t.Context()))
	})
	t.Run("its number is unused", func(t *testing.T) {
		again := start(t, Options{DataDir: dir})
		require.Equal(t, "recovered", query(t, again.DSN(Superuser), "SELECT word FROM kept"))
		require.Equal(t, address, again.SocketDSN("x"))
	})
}

func TestServerDoesNotOutliveItsOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a child at its parent's death")
	}
	dir := dataDir(t)
	owner, pid := startOwner(t, dir)
	socketDir, err := os.ReadFile(filepath.Join(dir, socketFile))
	require.NoError(t, err)
	require.DirExists(t, string(socketDir))
	require.True(t, processAlive(pid))
	_, err = Start(t.Context(), Options{DataDir: dir})
	var running *AlreadyRunningError
	require.ErrorAs(t, err, &running)
	require.Equal(t, pid, running.PID)

	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	server := &process{pid: pid}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, server.wait(ctx), "the server still runs")
	require.NoFileExists(t, pidFilePath(filepath.Join(dir, "pgdata")), "it was shut down, not killed")
	start(t, Options{DataDir: dir})
}

// TestAStartAfterAKill needs no help, and has the same address: of the owner, whose server ends a moment later;
// of one whose server takes longer; and of both.
func TestAStartAfterAKill(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a child at its parent's death")
	}
	dir := dataDir(t)
	c := start(t, Options{DataDir: dir})
	address := c.SocketDSN("x")
	stop(t, c)
	// For the server, before its owner is killed.
	for _, signals := range [][]syscall.Signal{{}, {syscall.SIGSTOP}, {syscall.SIGKILL}} {
		owner, pid := startOwner(t, dir)
		for _, s := range signals {
			require.NoError(t, syscall.Kill(pid, s))
		}
		require.NoError(t, owner.Process.Kill())
		_ = owner.Wait() // killed
		c := start(t, Options{DataDir: dir, Tell: func(what string) {
			require.Equal(t, "Waiting for the PostgreSQL of an earlier run to end.", what)
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}})
		require.Equal(t, address, c.SocketDSN("x"), signals)
		require.Equal(t, "1", query(t, c.SocketDSN(Superuser), "SELECT '1'"), signals)
		stop(t, c)
	}
}

func TestDetachedAndAttach(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	_, err := Attach(t.Context(), dir)
	require.ErrorIs(t, err, os.ErrNotExist)

	c, err := Start(t.Context(), Options{DataDir: dir, Detached: true, Settings: fast(), NoSync: true})
	require.NoError(t, err)
	a, err := Attach(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, c.PID(), a.PID())
	require.Equal(t, c.DSN("x"), a.DSN("x"))
	require.Equal(t, c.SocketDSN("x"), a.SocketDSN("x"))

	_, err = Start(t.Context(), Options{DataDir: dir})
	var running *AlreadyRunningError
	require.ErrorAs(t, err, &running)

	pid := c.PID()
	stop(t, a)
	require.False(t, processAlive(pid))
	_, err = Attach(t.Context(), dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
