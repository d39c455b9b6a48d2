package pgcluster

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
)

// AlreadyRunningError says that a server already runs on the data directory.
type AlreadyRunningError struct {
	// DataDir is the requested directory.
	DataDir string
	// PID of the running server, 0 when only the lock of its owner was seen.
	PID int
	// Owner is the process that runs the server and has the lock; 0: there is none, or it is not known.
	Owner int
}

// Error implements error.
func (e *AlreadyRunningError) Error() string {
	if e.Owner != 0 {
		return fmt.Sprintf("the database in %s is used by another process of Tasker (pid %d); "+
			"end that one first (kill -INT %d) or choose another directory", e.DataDir, e.Owner, e.Owner)
	}
	if e.PID == 0 {
		return fmt.Sprintf("the database in %s is used by another process of Tasker; "+
			"end that one first or choose another directory", e.DataDir)
	}
	return fmt.Sprintf("a PostgreSQL server (pid %d) already runs on %s; stop it first (kill -INT %d) or choose another directory", e.PID, e.DataDir, e.PID)
}

// Cluster is a running PostgreSQL cluster. Its methods are safe for concurrent use; those
// that stop or start the server are serialized.
type Cluster struct {
	opts     Options
	bin      Binaries
	dataDir  string
	password string
	runAs    *account // nil: as the user of this process
	lock     *os.File // nil when attached or detached

	mu        sync.Mutex
	socketDir string
	port      int
	noTCP     bool // another program has the kept port: the server listens on its socket alone
	proc      *process
	gone      bool // stopped for good
}

// Start creates the cluster when its directory is empty, starts the server and
// returns when it accepts connections. It is bounded by ctx and, once the programs are there, by
// Options.StartTimeout. Errors: *NotFoundError, *AlreadyRunningError,
// *UnreachableError, or one that carries the end of the server's log.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	c := &Cluster{opts: opts}
	err := c.prepare(ctx)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(opts.StartTimeout, DefaultStartTimeout))
	defer cancel()
	if err == nil {
		err = c.makeData(ctx)
	}
	if err == nil {
		err = c.launch(ctx)
	}
	if err != nil {
		c.abandon()
		return nil, err
	}
	if opts.Detached {
		c.unlock() // it has no owner; the next process sees postmaster.pid
	}
	return c, nil
}

// prepare does everything that precedes the making of the data.
func (c *Cluster) prepare(ctx context.Context) (err error) {
	if c.runAs, err = serverAccount(); err != nil {
		return err
	}
	if err := c.prepareDir(); err != nil {
		return err
	}
	if c.bin, err = c.chooseBinaries(ctx); err != nil {
		return err
	}
	if err := c.runAs.canReach(c.bin.Dir); err != nil {
		return err
	}
	if c.password, err = loadOrCreatePassword(filepath.Join(c.dataDir, passwordFile), c.opts.Password); err != nil {
		return err
	}
	if err := c.awaitOrphan(ctx); err != nil {
		return err
	}
	if err := c.recoverPidFile(); err != nil {
		return err
	}
	return c.noteOwnership()
}

// tell passes a sentence for the user on.
func (c *Cluster) tell(what string) {
	if c.opts.Tell != nil {
		c.opts.Tell(what)
	}
}

// abandon releases the resources of a failed start.
func (c *Cluster) abandon() {
	c.dropSocketDir()
	if c.opts.Ephemeral && c.dataDir != "" {
		_ = os.RemoveAll(c.dataDir)
	}
	c.unlock()
}

func (c *Cluster) unlock() {
	if c.lock != nil {
		unlockFile(c.lock)
		c.lock = nil
	}
}

// Attach finds the server that runs on a data directory made by Start of any process. The
// error wraps os.ErrNotExist or
// os.ErrProcessDone when none runs there.
func Attach(ctx context.Context, dataDir string) (*Cluster, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	c := &Cluster{dataDir: dir, opts: Options{DataDir: dir, Detached: true}}
	pf, err := readPidFile(c.pgdata())
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", dir, err)
	}
	if !pf.running(c.pgdata()) {
		return nil, fmt.Errorf("attach to %s: server %d is gone: %w", dir, pf.pid, os.ErrProcessDone)
	}
	b, err := os.ReadFile(filepath.Join(dir, passwordFile))
	if err != nil {
		return nil, fmt.Errorf("attach: read password: %w", err)
	}
	c.password, c.port, c.socketDir = string(b), pf.port, pf.socketDir
	c.proc = &process{pid: pf.pid}
	if c.runAs, err = serverAccount(); err != nil {
		return nil, err
	}
	if err := c.ping(ctx); err != nil {
		return nil, fmt.Errorf("attach to %s: %w", dir, err)
	}
	return c, nil
}

// DSN is the connection string of a database over loopback, with the password. A server whose kept port is taken
// does not listen there, see [Options].
func (c *Cluster) DSN(database string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loopbackDSN(database)
}

func (c *Cluster) loopbackDSN(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, c.password),
		Host:     "127.0.0.1:" + strconv.Itoa(c.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketDSN is the connection string of a database over the private Unix
// socket; only this user and root can use it. For a data directory that is kept it is the same at each start. On
// Windows it is that of DSN.
func (c *Cluster) SocketDSN(database string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socketDSN(database)
}

func (c *Cluster) socketDSN(database string) string {
	if !sockets {
		return c.loopbackDSN(database)
	}
	q := url.Values{"host": {c.socketDir}, "port": {strconv.Itoa(c.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(Superuser), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// Port is the loopback port the server listens on.
func (c *Cluster) Port() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.port
}

// PID is the process id of the server, 0 when it does not run.
func (c *Cluster) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		return 0
	}
	return c.proc.pid
}

// DataDir is the absolute directory of the cluster.
func (c *Cluster) DataDir() string { return c.dataDir }

// Options are the options that the cluster was started with.
func (c *Cluster) Options() Options { return c.opts }

// Binaries are the programs the cluster runs on; unknown (zero) for an attached
// cluster until it is restarted.
func (c *Cluster) Binaries() Binaries {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bin
}

// LogFile is the server's log. Above 16 MiB it is renamed to postgres.log.1 at start.
func (c *Cluster) LogFile() string { return filepath.Join(c.dataDir, "postgres.log") }

// CreateDatabase creates an empty database unless it exists already.
func (c *Cluster) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, c.SocketDSN(Superuser))
	if err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	const query = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`
	if err := conn.QueryRow(ctx, query, name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %q: %w", name, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

func (c *Cluster) pgdata() string { return filepath.Join(c.dataDir, "pgdata") }
