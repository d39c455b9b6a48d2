//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
)

// poolerTries bounds how often a pooler is restarted because another program took the port
// that was free a moment earlier.
const poolerTries = 5

// Pooler is a running PgBouncer.
type Pooler struct {
	dir      string
	port     int
	password string
	proc     *child.Process // nil unless it was started
}

// poolerConfig leads to one server for every database. Start-up parameters that PgBouncer
// does not know are rejected, as in production.
const poolerConfig = `[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = %s
max_client_conn = 500
default_pool_size = %d
logfile = %s
`

// PoolMode is what a client of PgBouncer has a connection to the server for.
type PoolMode string

// The modes that daemons work through.
const (
	PoolTransactions PoolMode = "transaction"
	PoolSessions     PoolMode = "session"
)

// StartPooler starts PgBouncer in front of the server of dsn, with size
// connections to each database. It returns when a connection through it to the database of
// dsn works. ctx bounds the starting.
func StartPooler(ctx context.Context, dsn string, mode PoolMode, size int) (*Pooler, error) {
	path, err := needs.Find(ctx, needs.PgBouncer)
	if err != nil {
		return nil, fmt.Errorf("find PgBouncer: %w", err)
	}
	upstream, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the server's address: %w", err)
	}
	for try := 1; ; try++ {
		p, err := startPooler(ctx, path, upstream, mode, size)
		if err == nil || ctx.Err() != nil || try == poolerTries {
			return p, err
		}
	}
}

// NewPooler is StartPooler for a test, at whose end the pooler stops. Without PgBouncer the
// test is left out, see [needs.Tool].
func NewPooler(t testing.TB, dsn string, mode PoolMode, size int) *Pooler {
	t.Helper()
	needs.Tool(t, needs.PgBouncer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := StartPooler(ctx, dsn, mode, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func startPooler(ctx context.Context, path string, upstream *pgx.ConnConfig, mode PoolMode, size int) (*Pooler, error) {
	base, err := pgcluster.TempDir()
	if err != nil {
		return nil, err
	}
	p := &Pooler{password: upstream.Password}
	if p.dir, err = os.MkdirTemp(base, "tasker-pooler-"); err != nil {
		return nil, fmt.Errorf("make the pooler's directory: %w", err)
	}
	if err := errors.Join(p.configure(ctx, upstream, mode, size), p.launch(ctx, path, upstream.Database)); err != nil {
		log, _ := os.ReadFile(p.file("log"))
		return nil, errors.Join(fmt.Errorf("start PgBouncer: %w\n%s", err, log), p.Stop(ctx))
	}
	return p, nil
}

func (p *Pooler) file(name string) string { return filepath.Join(p.dir, name) }

func (p *Pooler) configure(ctx context.Context, upstream *pgx.ConnConfig, mode PoolMode, size int) (err error) {
	if p.port, err = pgcluster.FreePort(ctx); err != nil {
		return err
	}
	config := fmt.Sprintf(poolerConfig, upstream.Host, upstream.Port, p.port, p.file("users"), mode, size, p.file("log"))
	users := fmt.Sprintf("%q %q\n", upstream.User, upstream.Password)
	err = errors.Join(os.WriteFile(p.file("config"), []byte(config), 0o600), os.WriteFile(p.file("users"), []byte(users), 0o600))
	return errors.Join(err, pgcluster.GiveToServer(p.dir, p.file("config"), p.file("users")))
}

func (p *Pooler) launch(ctx context.Context, path, database string) error {
	output, err := os.OpenFile(p.file("output"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the pooler's output: %w", err)
	}
	defer func() { _ = output.Close() }()       // the child has its own copy
	cmd := exec.Command(path, p.file("config")) //nolint:noctx // outlives the context it is started under
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, output, output
	if err := pgcluster.RunAsServer(cmd); err != nil {
		return err
	}
	if p.proc, err = child.Start(cmd, syscall.SIGINT); err != nil {
		return err
	}
	for {
		err := p.ping(ctx, database)
		if err == nil {
			return nil
		}
		select {
		case <-p.proc.Done():
			return err
		default:
		}
		if late := lifecycle.Pause(ctx, 5*time.Millisecond); late != nil {
			return fmt.Errorf("not ready in time: %w (last answer: %w)", late, err)
		}
	}
}

func (p *Pooler) ping(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.DSN(database))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// DSN is the connection string of a database through the pooler.
func (p *Pooler) DSN(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(pgcluster.Superuser, p.password), Host: "127.0.0.1:" + strconv.Itoa(p.port),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop ends the pooler and all connections through it. The end of ctx makes it end at once.
func (p *Pooler) Stop(ctx context.Context) error {
	if p.proc != nil {
		_ = p.proc.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-p.proc.Done():
		case <-ctx.Done():
			_ = p.proc.Signal(syscall.SIGKILL)
			<-p.proc.Done()
		}
		p.proc = nil
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove the pooler's directory: %w", err)
	}
	return nil
}
