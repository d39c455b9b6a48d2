package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/pgcluster"
)

// URLEnv names the environment variable with the connection string of a server
// to use instead of the shared one.
const URLEnv = "TASKER_TEST_DATABASE_URL"

const (
	// startTimeout bounds getting a server, including creating it on a machine busy with
	// compiling other packages.
	startTimeout = 5 * time.Minute
	// opTimeout bounds one statement of a test or of this package. Some fill tables with a
	// million rows, on busy machines.
	opTimeout = 10 * time.Minute
)

// Settings are the settings of the servers made for tests. Data need not survive a power
// failure, everything else is as in production.
func Settings() map[string]string {
	return map[string]string{
		"fsync":                       "off",
		"full_page_writes":            "off",
		"synchronous_commit":          "on",
		"shared_buffers":              "256MB",
		"max_connections":             "400",
		"wal_level":                   "logical",
		"max_replication_slots":       "50",
		"max_wal_senders":             "50",
		"max_wal_size":                "4GB",
		"checkpoint_timeout":          "30min",
		"autovacuum":                  "on",
		"log_min_messages":            "warning",
		"log_min_error_statement":     "panic", // tests provoke errors on purpose
		"log_checkpoints":             "off",
		"log_autovacuum_min_duration": "-1",
	}
}

// server is a server for test databases.
type server struct {
	// dsn and tcpDSN are the connection strings of a database.
	dsn, tcpDSN func(database string) string
	// admin is the database to connect to for making others.
	admin string
	// cluster is set for a private server only.
	cluster *pgcluster.Cluster

	mu   sync.Mutex
	idle []*pgx.Conn // to admin; none are kept on a private server, which tests kill
}

// idleConns bounds the connections that are kept for the next database: a backend takes some
// milliseconds to start.
const idleConns = 4

// joined is the server that this process uses. It stays for the life of the process, unless
// the server is killed.
var joined struct {
	mu     sync.Mutex
	server *server
	alive  func() bool
	apart  *pgcluster.Cluster // set if this process alone uses it
}

// acquire returns the shared server.
func acquire(ctx context.Context) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	joined.mu.Lock()
	defer joined.mu.Unlock()
	if joined.server != nil && joined.alive() {
		return joined.server, nil
	}
	if raw := os.Getenv(URLEnv); raw != "" {
		s, err := external(raw)
		joined.server, joined.alive = s, func() bool { return true }
		return s, err
	}
	c, err := sharedCluster(ctx)
	if err != nil {
		return nil, err
	}
	joined.server = &server{dsn: c.SocketDSN, tcpDSN: c.DSN, admin: pgcluster.Superuser}
	joined.alive = func() bool { return exists(c.PID()) }
	return joined.server, nil
}

// acquireApart makes a server for this process alone, which acquire then returns.
func acquireApart(ctx context.Context) (*server, error) {
	if os.Getenv(URLEnv) != "" {
		return acquire(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := startCluster(ctx, Settings())
	if err != nil {
		return nil, err
	}
	joined.mu.Lock()
	defer joined.mu.Unlock()
	joined.apart, joined.server = c, &server{dsn: c.SocketDSN, tcpDSN: c.DSN, admin: pgcluster.Superuser}
	joined.alive = func() bool { return true }
	return joined.server, nil
}

// stopJoined stops the server of acquireApart.
func stopJoined() error {
	joined.mu.Lock()
	defer joined.mu.Unlock()
	if joined.apart == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return stopCluster(ctx, joined.apart)
}

// startCluster starts a server that goes with this process.
func startCluster(ctx context.Context, settings map[string]string) (*pgcluster.Cluster, error) {
	return pgcluster.Start(ctx, pgcluster.Options{Ephemeral: true, TempDir: dataRoot(), Settings: settings, StartTimeout: startTimeout})
}

// stopCluster stops a server of startCluster at once: its data is not needed any more.
func stopCluster(ctx context.Context, c *pgcluster.Cluster) error {
	return errors.Join(c.StopImmediate(ctx), c.Stop(ctx))
}

// external describes a server named by URLEnv.
func external(raw string) (*server, error) {
	cfg, err := pgx.ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", URLEnv, err)
	}
	dsn := func(database string) string { return withDatabase(raw, database) }
	return &server{dsn: dsn, tcpDSN: dsn, admin: cfg.Database}, nil
}

// withDatabase replaces the database of a connection string of either form.
func withDatabase(dsn, database string) string {
	if u, err := url.Parse(dsn); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		u.Path = "/" + database
		return u.String()
	}
	return dsn + " dbname=" + database // the last one wins
}

// connect returns a connection for administration; give it to release.
func (s *server) connect(ctx context.Context) (*pgx.Conn, error) {
	if conn := s.kept(); conn != nil {
		return conn, nil
	}
	conn, err := pgx.Connect(ctx, s.dsn(s.admin))
	if err != nil {
		return nil, fmt.Errorf("connect to the test server: %w", err)
	}
	return conn, nil
}

// kept returns an idle connection, nil if there is none.
func (s *server) kept() *pgx.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	conn := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return conn
}

// release keeps a connection for the next use, or closes it.
func (s *server) release(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil && !conn.IsClosed() && len(s.idle) < idleConns {
		s.idle = append(s.idle, conn)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// mustAcquire is acquire for a test.
func mustAcquire(t testing.TB) *server {
	t.Helper()
	s, err := acquire(t.Context())
	if err != nil {
		t.Fatalf("this test needs PostgreSQL: %v", err)
	}
	return s
}

// Server is a private server for a test that stops, kills or reconfigures it with the
// cluster's methods.
type Server struct {
	*pgcluster.Cluster
}

// Private starts a server for this test alone and stops it at the test's end. The settings
// are added to Settings and override them. It takes about two seconds: use it only for tests
// that New cannot serve.
func Private(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	all := Settings()
	all["max_connections"], all["shared_buffers"] = "100", "64MB"
	for name, value := range settings {
		all[name] = value
	}
	c, err := startCluster(t.Context(), all)
	if err != nil {
		t.Fatalf("start a private PostgreSQL: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), opTimeout)
		defer cancel()
		if err := stopCluster(ctx, c); err != nil {
			t.Errorf("stop the private PostgreSQL: %v", err)
		}
	})
	return &Server{Cluster: c}
}

func (s *Server) server() *server {
	return &server{dsn: s.SocketDSN, tcpDSN: s.DSN, admin: pgcluster.Superuser, cluster: s.Cluster}
}

// New returns a fresh, empty database on this server. It goes with the server.
func (s *Server) New(t testing.TB) *DB {
	t.Helper()
	return s.server().newDB(t, "")
}

// NewMigrated is like the function NewMigrated, on this server.
func (s *Server) NewMigrated(t testing.TB, name string, migrate Migrate) *DB {
	t.Helper()
	return s.server().newMigrated(t, name, migrate)
}
