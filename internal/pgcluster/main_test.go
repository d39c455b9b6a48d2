//go:build unix

package pgcluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// ownerEnv makes the test binary play the owner of a cluster: it starts one on
// the directory named, writes the server's pid and waits to be killed.
const (
	ownerEnv     = "TASKER_PGCLUSTER_TEST_OWNER"
	ephemeralEnv = "TASKER_PGCLUSTER_TEST_EPHEMERAL" // not empty: of an ephemeral one
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		playOwner(dir)
	}
	goleak.VerifyTestMain(m)
}

func playOwner(dir string) {
	c, err := Start(context.Background(), Options{DataDir: dir, Settings: fast(), Ephemeral: os.Getenv(ephemeralEnv) != ""})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.PID())
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or the test is
	os.Exit(0)
}

// startOwner starts this binary as the owner of a cluster and returns it with
// the server's pid.
func startOwner(t *testing.T, dir string, env ...string) (*exec.Cmd, int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), ownerEnv+"="+dir), env...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = stdin.Close() })
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	return cmd, pid
}

// fast are settings for clusters that live for seconds.
func fast() map[string]string {
	return map[string]string{"fsync": "off", "shared_buffers": "16MB"}
}

// dataDir returns the path of a data directory that the server's user can
// reach; t.TempDir is closed to it when the tests run as root.
func dataDir(t *testing.T) string {
	t.Helper()
	a, err := serverAccount()
	require.NoError(t, err)
	base, err := a.tempDir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "tasker-pgcluster-test-") //nolint:usetesting // t.TempDir is closed to the server's user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return dir + "/data"
}

// start runs a cluster until the end of the test.
func start(t *testing.T, opts Options) *Cluster {
	t.Helper()
	if opts.Settings == nil {
		opts.Settings = fast()
	}
	opts.NoSync = true
	c, err := Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		require.NoError(t, c.Stop(ctx))
	})
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}

// query returns the one text a query yields.
func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	var s string
	require.NoError(t, conn.QueryRow(ctx, sql).Scan(&s))
	return s
}

func exec1(t *testing.T, dsn, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	require.NoError(t, err)
}

// Done is closed when the present server process has ended. It is nil (and so never ready)
// for an attached or detached cluster.
func (c *Cluster) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return c.proc.done
}
