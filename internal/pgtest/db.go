package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/internal/pgcluster"
)

// DB is one database that belongs to one test.
type DB struct {
	// DSN connects to the database; it is a URL. On the shared and private
	// servers it goes through a Unix socket, which is fastest.
	DSN string
	// TCPDSN connects over TCP, for tests that put a proxy in between.
	TCPDSN string
	// Name is the name of the database.
	Name string

	server *server
	mu     sync.Mutex
	conn   *pgx.Conn // of Exec and the Query methods; made when first needed
}

// New returns a fresh, empty database, dropped when the test ends. Remaining connections are
// ended then.
func New(t testing.TB) *DB {
	t.Helper()
	return mustAcquire(t).newDB(t, "")
}

// newDB creates a database from a template ("" for an empty one).
func (s *server) newDB(t testing.TB, template string) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), opTimeout)
	defer cancel()
	name := "test_" + randomHex()
	if err := s.create(ctx, name, template); err != nil {
		t.Fatalf("create a test database: %v", err)
	}
	db := &DB{DSN: s.dsn(name), TCPDSN: s.tcpDSN(name), Name: name, server: s}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), opTimeout)
		defer cancel()
		db.closeConn(ctx)
		if s.cluster != nil {
			return // the whole server is removed
		}
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("drop test database %s: %v", name, err)
		}
	})
	return db
}

// create makes a database. Both strategies of CREATE DATABASE take 26 to 32 ms
// for a schema of 40 tables, one at a time or four at once (PostgreSQL 15, two
// cores), so the server's default stays: it forces no checkpoint. A template that has a
// connection (autovacuum makes some) is busy only briefly, so that is retried.
func (s *server) create(ctx context.Context, name, template string) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer s.release(conn)
	sql := "CREATE DATABASE " + quote(name)
	if template != "" {
		sql += " TEMPLATE " + quote(template)
	}
	return retry(ctx, func() error {
		_, err := conn.Exec(ctx, sql)
		return err
	}, "55006")
}

// drop removes a database with its connections and replication slots.
func (s *server) drop(ctx context.Context, name string) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer s.release(conn)
	return retry(ctx, func() error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
		if err == nil || !isCode(err, "55006") {
			return err
		}
		// FORCE does not end walsenders that use a slot of the database.
		const end = `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active`
		if _, endErr := conn.Exec(ctx, end, name); endErr != nil {
			return errors.Join(err, endErr)
		}
		return err
	}, "55006")
}

// Pool returns a pool of connections to the database (at most 10), closed when
// the test ends.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatalf("read DSN of the test database: %v", err)
	}
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open a pool on the test database: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Exec runs a statement and fails the test when the server rejects it. It returns the number
// of rows affected.
func (db *DB) Exec(t testing.TB, sql string, args ...any) int64 {
	t.Helper()
	var tag pgconn.CommandTag
	db.with(t, func(ctx context.Context, conn *pgx.Conn) (err error) {
		tag, err = conn.Exec(ctx, sql, args...)
		return err
	})
	return tag.RowsAffected()
}

// QueryInt returns the one integer a query yields; NULL and no row fail the test.
func (db *DB) QueryInt(t testing.TB, sql string, args ...any) int {
	t.Helper()
	return queryOne[int](t, db, sql, args)
}

// QueryString returns the one text a query yields; NULL and no row fail the test.
func (db *DB) QueryString(t testing.TB, sql string, args ...any) string {
	t.Helper()
	return queryOne[string](t, db, sql, args)
}

// QueryBool returns the one boolean a query yields; NULL and no row fail the test.
func (db *DB) QueryBool(t testing.TB, sql string, args ...any) bool {
	t.Helper()
	return queryOne[bool](t, db, sql, args)
}

func queryOne[T any](t testing.TB, db *DB, sql string, args []any) (v T) {
	t.Helper()
	db.with(t, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&v)
	})
	return v
}

// Server is the cluster below the database, to be stopped and started by the
// test; nil unless the database was made by Private.
func (db *DB) Server() *pgcluster.Cluster { return db.server.cluster }

// with runs f on the database's own connection. A broken connection (the test may have
// killed the server) is made anew for the next call.
func (db *DB) with(t testing.TB, f func(context.Context, *pgx.Conn) error) {
	t.Helper()
	// Not the test's context: cleanups query as well.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), opTimeout)
	defer cancel()
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.conn == nil || db.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, db.DSN)
		if err != nil {
			t.Fatalf("connect to the test database: %v", err)
		}
		db.conn = conn
	}
	if err := f(ctx, db.conn); err != nil {
		t.Fatalf("query the test database: %v", err)
	}
}

func (db *DB) closeConn(ctx context.Context) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.conn != nil {
		_ = db.conn.Close(ctx)
		db.conn = nil
	}
}

// retry repeats f while it fails with one of the SQLSTATEs, until ctx ends.
func retry(ctx context.Context, f func() error, codes ...string) error {
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
		err := f()
		if err == nil || !isCode(err, codes...) {
			return err
		}
		t := time.NewTimer(delay) // takes time: between two attempts
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w (gave up: %w)", err, context.Cause(ctx))
		}
	}
}

func isCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	for _, c := range codes {
		if pgErr.Code == c {
			return true
		}
	}
	return false
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func randomHex() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
