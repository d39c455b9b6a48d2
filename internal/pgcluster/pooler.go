package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// ErrNoPooler says that PgBouncer is not installed.
var ErrNoPooler = errors.New("PgBouncer is not installed (scripts/require-pgbouncer installs it)")

// poolerTries bounds how often a pooler is restarted because another program took the port
// that was free a moment earlier.
const poolerTries = 5

// Pooler is a running PgBouncer in transaction mode. For tests.
type Pooler struct {
	dir      string
	port     int
	password string
	proc     *process
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
pool_mode = transaction
max_client_conn = 500
default_pool_size = %d
logfile = %s
`

// StartPooler starts PgBouncer in transaction mode in front of the server of dsn, with size
// connections to each database. It returns when a connection through it to the database of
// dsn works. The error is ErrNoPooler when it is not installed. ctx bounds the starting.
func StartPooler(ctx context.Context, dsn string, size int) (*Pooler, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // not on every PATH
		if _, err := os.Stat(path); err != nil {
			return nil, ErrNoPooler
		}
	}
	upstream, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the server's address: %w", err)
	}
	runAs, err := serverAccount()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		p, err := startPooler(ctx, path, upstream, size, runAs)
		if err == nil || ctx.Err() != nil || try == poolerTries {
			return p, err
		}
	}
}

func startPooler(ctx context.Context, path string, upstream *pgx.ConnConfig, size int, runAs *account) (*Pooler, error) {
	base, err := runAs.tempDir()
	if err != nil {
		return nil, err
	}
	p := &Pooler{password: upstream.Password}
	if p.dir, err = os.MkdirTemp(base, "tasker-pooler-"); err != nil {
		return nil, fmt.Errorf("make the pooler's directory: %w", err)
	}
	if err := errors.Join(p.configure(ctx, upstream, size, runAs), p.launch(ctx, path, upstream.Database, runAs)); err != nil {
		log, _ := os.ReadFile(p.file("log"))
		return nil, errors.Join(fmt.Errorf("start PgBouncer: %w\n%s", err, log), p.Stop(ctx))
	}
	return p, nil
}

func (p *Pooler) file(name string) string { return filepath.Join(p.dir, name) }

func (p *Pooler) configure(ctx context.Context, upstream *pgx.ConnConfig, size int, runAs *account) (err error) {
	if p.port, err = freePort(ctx); err != nil {
		return err
	}
	config := fmt.Sprintf(poolerConfig, upstream.Host, upstream.Port, p.port, p.file("users"), size, p.file("log"))
	users := fmt.Sprintf("%q %q\n", upstream.User, upstream.Password)
	err = errors.Join(os.WriteFile(p.file("config"), []byte(config), 0o600), os.WriteFile(p.file("users"), []byte(users), 0o600))
	return errors.Join(err, runAs.own(p.dir), runAs.own(p.file("config")), runAs.own(p.file("users")))
}

func (p *Pooler) launch(ctx context.Context, path, database string, runAs *account) error {
	output, err := os.OpenFile(p.file("output"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the pooler's output: %w", err)
	}
	defer func() { _ = output.Close() }() // the child has its own copy
	if p.proc, err = startChild(command{path: path, args: []string{p.file("config")}, dir: p.dir, runAs: runAs, output: output, orphaned: syscall.SIGINT}); err != nil {
		return err
	}
	for {
		err := p.ping(ctx, database)
		if err == nil || !p.proc.alive() {
			return err
		}
		if sleepErr := lifecycle.Pause(ctx, 5*time.Millisecond); sleepErr != nil {
			return fmt.Errorf("not ready in time: %w (last answer: %w)", sleepErr, err)
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
		Scheme: "postgres", User: url.UserPassword(Superuser, p.password), Host: "127.0.0.1:" + itoa(p.port),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop ends the pooler and all connections through it. The end of ctx makes it end at once.
func (p *Pooler) Stop(ctx context.Context) error {
	if p.proc != nil {
		if err := p.proc.signal(syscall.SIGTERM); err != nil {
			return err
		}
		if p.proc.wait(ctx) != nil {
			p.proc.end(syscall.SIGKILL)
		}
		p.proc = nil
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove the pooler's directory: %w", err)
	}
	return nil
}
