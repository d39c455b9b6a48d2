//go:build unix

package redistest

import (
	"context"
	"errors"
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
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/redisdial"
)

// patience bounds every wait for the server.
const patience = 20 * time.Second

// Server is a redis-server. Its methods that take a test fail that test.
type Server struct {
	// URL is where it listens, after a restart too.
	URL string

	program string
	dir     string
	args    []string
	proc    *child.Process
}

// Start runs a server until the test ends. Settings are further arguments of redis-server,
// such as "--maxmemory", "1mb". Without Redis the test is left out, see [needs.Tool].
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	needs.Tool(t, needs.Redis)
	s, err := Open(t.Context(), settings...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Open runs a server for a program that is not a test, such as the benchmark, until Close.
func Open(ctx context.Context, settings ...string) (*Server, error) {
	program, err := needs.Find(ctx, needs.Redis)
	if err != nil {
		return nil, fmt.Errorf("find Redis: %w", err)
	}
	dir, err := os.MkdirTemp("", "redis-") // that of a test may be too long for a socket
	if err != nil {
		return nil, fmt.Errorf("make the directory of Redis: %w", err)
	}
	socket := filepath.Join(dir, "socket")
	s := &Server{URL: "unix://" + socket, program: program, dir: dir, args: slices.Concat([]string{"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "",
		"--appendonly", "no", "--loglevel", "warning", "--logfile", filepath.Join(dir, "log")}, settings)}
	if err := s.Run(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the server and removes its files.
func (s *Server) Close() error {
	return errors.Join(s.End(), remove(s.dir))
}

// remove deletes a directory, in which a child that saves may write for a moment after the end of
// the server.
func remove(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := os.RemoveAll(dir)
		if err == nil || lifecycle.Pause(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}

// PID is the id of its process, which changes with a restart.
func (s *Server) PID() int { return s.proc.PID() }

// Restart ends a server that runs, without a chance to save anything, and runs it again with
// nothing in it.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, s.Run(t.Context()))
}

// Run is Restart for a program that is not a test.
func (s *Server) Run(ctx context.Context) error {
	if err := s.End(); err != nil {
		return err
	}
	cmd := exec.Command(s.program, s.args...) //nolint:noctx // End ends it
	var err error
	if s.proc, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it has answered, or its error is returned
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if err = client.Ping(ctx).Err(); err == nil {
			return nil
		}
		select {
		case <-s.proc.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("redis-server ended: %w\n%s", s.proc.Err(), log)
		default:
		}
		if late := lifecycle.Pause(ctx, 5*time.Millisecond); late != nil {
			return fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

// Kill ends the server with all connections. It does nothing where none runs.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, s.End())
}

// End is Kill for a program that is not a test.
func (s *Server) End() error {
	if s.proc == nil {
		return nil
	}
	if err := s.proc.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill redis-server: %w", err)
	}
	<-s.proc.Done()
	s.proc = nil
	return nil
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
	require.NoError(t, s.Signal(sig))
}

// Signal sends a signal to the process of the server.
func (s *Server) Signal(sig syscall.Signal) error { return s.proc.Signal(sig) }

// Clear is Run for a server with persistence: it has nothing in it afterwards.
func (s *Server) Clear(ctx context.Context) error {
	if err := errors.Join(s.End(), remove(filepath.Join(s.dir, "appendonlydir"))); err != nil {
		return err
	}
	return s.Run(ctx)
}

// Starve leaves the server no memory for new data, or all of it again.
func (s *Server) Starve(ctx context.Context, short bool) error {
	limit := "0"
	if short {
		limit = "1"
	}
	return s.do(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.ConfigSet(ctx, "maxmemory", limit).Err()
	})
}

// FillDisk makes saving fail until it is called to end that. A server that was started with
// times to save at (--save) refuses writes meanwhile, as on a disk that is full (MISCONF).
func (s *Server) FillDisk(ctx context.Context, full bool) error {
	snapshot := filepath.Join(s.dir, "dump.rdb") // a directory in its place cannot be replaced by it
	if err := os.RemoveAll(snapshot); err != nil {
		return err
	}
	want := "ok"
	if full {
		want = "err"
		if err := os.Mkdir(snapshot, 0o700); err != nil {
			return err
		}
	}
	return s.do(ctx, func(ctx context.Context, client *redis.Client) error {
		for {
			if err := client.BgSave(ctx).Err(); err != nil && !strings.Contains(err.Error(), "in progress") {
				return err
			}
			info, err := client.Info(ctx, "persistence").Result()
			if err == nil && strings.Contains(info, "rdb_last_bgsave_status:"+want) {
				return nil
			}
			if err = errors.Join(err, lifecycle.Pause(ctx, 20*time.Millisecond)); err != nil {
				return fmt.Errorf("save until the end is %s: %w", want, err)
			}
		}
	})
}

// do calls the server within patience.
func (s *Server) do(ctx context.Context, call func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := s.client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the call tells what fails
	return call(ctx, client)
}

// Wipe removes all keys.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
}

// Client returns a client without retries, which is closed when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client, err := s.client()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func (s *Server) client() (*redis.Client, error) {
	options, err := redisdial.Options(s.URL, "test", patience)
	if err != nil {
		return nil, err
	}
	options.OnConnect = nil // whatever its role
	return redis.NewClient(options), nil
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
