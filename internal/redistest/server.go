//go:build unix

package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redisdial"
)

// patience bounds every wait for the server.
const patience = 20 * time.Second

// Server is a redis-server of one test. Its methods fail that test.
type Server struct {
	// URL is where it listens, after a restart too.
	URL string

	dir  string
	args []string
	proc *child.Process
}

// Start runs a server until the test ends. Settings are further arguments of redis-server,
// such as "--maxmemory", "1mb".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	require.NoError(t, err, "scripts/require-redis installs it")
	dir, err := os.MkdirTemp("", "redis-") //nolint:usetesting // that of a test may be too long for a socket
	require.NoError(t, err)
	socket := filepath.Join(dir, "socket")
	s := &Server{URL: "unix://" + socket, dir: dir, args: slices.Concat([]string{"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "",
		"--appendonly", "no", "--loglevel", "warning", "--logfile", filepath.Join(dir, "log")}, settings)}
	t.Cleanup(func() {
		s.Kill(t)
		require.NoError(t, os.RemoveAll(dir))
	})
	s.Restart(t)
	return s
}

// Restart ends a server that runs, without a chance to save anything, and runs it again with
// nothing in it.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	cmd := exec.Command("redis-server", s.args...) //nolint:noctx // Kill ends it
	var err error
	s.proc, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	client := s.Client(t)
	pgtest.Eventually(t, patience, func() (bool, string) {
		select {
		case <-s.proc.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Fatalf("redis-server ended: %v\n%s", s.proc.Err(), log)
		default:
		}
		err := client.Ping(t.Context()).Err()
		return err == nil, fmt.Sprint("redis-server does not answer: ", err)
	})
}

// Kill ends the server with all connections. It does nothing where none runs.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.proc == nil {
		return
	}
	s.signal(t, syscall.SIGKILL)
	<-s.proc.Done()
	s.proc = nil
}

// Freeze stops the process of the server, whose connections stay open, until Thaw.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
}

// Thaw has a frozen server go on.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGCONT)
}

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, s.proc.Signal(sig))
}

// Wipe removes all keys.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
}

// Client returns a client without retries, which is closed when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	options, err := redisdial.Options(s.URL, "test", patience)
	require.NoError(t, err)
	options.OnConnect = nil // whatever its role
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// KillClients ends the connections that have a name, from the side of the server.
func (s *Server) KillClients(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, killed := s.Client(t), int64(0)
	list, err := client.ClientList(ctx).Result()
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name="+name+" ") {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		n, err := client.ClientKillByFilter(ctx, "ID", id).Result()
		require.NoError(t, err)
		killed += n
	}
	require.Positive(t, killed, "no connection is named %s", name)
}
