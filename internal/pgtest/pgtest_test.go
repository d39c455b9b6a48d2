package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }

func TestNewIsEmptyAndSeparate(t *testing.T) {
	t.Parallel()
	a, b := pgtest.New(t), pgtest.New(t)
	a.Exec(t, "CREATE TABLE only_in_a (n int)")
	require.Equal(t, int64(2), a.Exec(t, "INSERT INTO only_in_a VALUES ($1), ($2)", 1, 2))
	const tables = "SELECT count(*) FROM pg_tables WHERE tablename = $1"
	require.Equal(t, 1, a.QueryInt(t, tables, "only_in_a"))
	require.Equal(t, 0, b.QueryInt(t, tables, "only_in_a"))
	require.Equal(t, a.Name, a.QueryString(t, "SELECT current_database()"))
	require.True(t, a.QueryBool(t, "SELECT true"))
	require.Nil(t, a.Server(), "the shared server is not for one test to stop")

	var n int
	require.NoError(t, a.Pool(t).QueryRow(t.Context(), "SELECT count(*) FROM only_in_a").Scan(&n))
	require.Equal(t, 2, n)
	conn, err := pgx.Connect(t.Context(), a.TCPDSN)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func TestServerIsSetUpForTests(t *testing.T) {
	t.Parallel()
	if os.Getenv(pgtest.URLEnv) != "" {
		t.Skip("an external server has settings of its own")
	}
	db := pgtest.New(t)
	for name, want := range pgtest.Settings() {
		if name == "max_connections" {
			require.Equal(t, want, db.QueryString(t, "SELECT current_setting($1)", name))
		}
		require.Equal(t, "command line", db.QueryString(t, "SELECT source FROM pg_settings WHERE name = $1", name), name)
	}
	require.Equal(t, "logical", db.QueryString(t, "SHOW wal_level"))
}

func TestDatabaseIsDroppedWhateverHoldsIt(t *testing.T) {
	t.Parallel()
	watcher := pgtest.New(t)
	var name, slot string
	t.Run("holder", func(t *testing.T) {
		db := pgtest.New(t)
		name, slot = db.Name, "slot_"+db.Name
		open, err := pgx.Connect(t.Context(), db.DSN) // and never closed by the test
		require.NoError(t, err)
		t.Cleanup(func() { _ = open.Close(context.WithoutCancel(t.Context())) })
		hold(t, db.DSN, slot)
	})
	require.Equal(t, 0, watcher.QueryInt(t, "SELECT count(*) FROM pg_database WHERE datname = $1", name))
	require.Equal(t, 0, watcher.QueryInt(t, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", slot))
}

// hold starts to stream from a logical replication slot of the database.
func hold(t *testing.T, dsn, slot string) {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), dsn+"&replication=database")
	require.NoError(t, err)
	// Closed only after the database is dropped: cleanups run last in, first out, so this
	// one must not wait for anything.
	t.Cleanup(func() { _ = conn.Conn().Close() })
	_, err = conn.Exec(t.Context(), "CREATE_REPLICATION_SLOT "+slot+" LOGICAL test_decoding").ReadAll()
	if err != nil { // contrib is not installed everywhere
		_, err = conn.Exec(t.Context(), "CREATE_REPLICATION_SLOT "+slot+" LOGICAL pgoutput").ReadAll()
	}
	require.NoError(t, err)
}

func migration(calls *atomic.Int32, sql string) pgtest.Migrate {
	return func(ctx context.Context, dsn string) error {
		calls.Add(1)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, sql)
		return err
	}
}

// uniqueName avoids templates of earlier runs on the same server.
func uniqueName(t *testing.T) string {
	return fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano())
}

func TestMigratedOnce(t *testing.T) {
	t.Parallel()
	name := uniqueName(t)
	var calls atomic.Int32
	migrate := migration(&calls, "CREATE TABLE t (n int); INSERT INTO t VALUES (7)")
	t.Run("users", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				db := pgtest.NewMigrated(t, name, migrate)
				require.Equal(t, 7, db.QueryInt(t, "SELECT n FROM t"))
				db.Exec(t, "UPDATE t SET n = $1", i) // no other session sees it
			})
		}
	})
	require.Equal(t, int32(1), calls.Load())
	db := pgtest.NewMigrated(t, name+"'", migration(&calls, "CREATE TABLE other (n int)"))
	require.Equal(t, 0, db.QueryInt(t, "SELECT count(*) FROM other"))
	require.Equal(t, int32(2), calls.Load(), "another name is another template")
}

func TestFailedMigrationIsTriedAgain(t *testing.T) {
	t.Parallel()
	name := uniqueName(t)
	broken := func(context.Context, string) error { return errors.New("no such luck") }
	said := fatal(t, func(tb testing.TB) { pgtest.NewMigrated(tb, name, broken) })
	require.Contains(t, said, "no such luck")
	var calls atomic.Int32
	pgtest.NewMigrated(t, name, migration(&calls, "SELECT 1"))
	require.Equal(t, int32(1), calls.Load())
}

func TestWrongQueriesFailTheTest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	require.Contains(t, fatal(t, func(tb testing.TB) { db.Exec(tb, "NONSENSE") }), "syntax error")
	require.Contains(t, fatal(t, func(tb testing.TB) { db.QueryInt(tb, "SELECT 1 WHERE false") }), "no rows")
	require.Contains(t, fatal(t, func(tb testing.TB) { db.QueryInt(tb, "SELECT NULL::int") }), "NULL")
}

func TestPrivateServerCanBeKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, map[string]string{"max_connections": "33"})
	var calls atomic.Int32
	db := server.NewMigrated(t, "private", migration(&calls, "CREATE TABLE t (n int)"))
	require.Equal(t, "33", db.QueryString(t, "SHOW max_connections"))
	require.Same(t, server.Cluster, db.Server())
	require.NoError(t, db.Server().Kill(t.Context()))
	require.NoError(t, db.Server().Restart(t.Context()))
	// The first statement on the broken connection finds the fault.
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		conn, err := pgx.Connect(t.Context(), db.DSN)
		if err != nil {
			return false, err.Error()
		}
		return conn.Close(t.Context()) == nil, "connected"
	})
	require.Equal(t, 0, server.New(t).QueryInt(t, "SELECT count(*) FROM pg_tables WHERE tablename = 't'"))
}

// self runs tests of this binary in a process of its own.
func self(t *testing.T, run string, env ...string) (string, error) {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "-test.run", run, "-test.v")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestWithoutPostgreSQLTheTestsFail(t *testing.T) {
	t.Parallel()
	out, err := self(t, "^TestNewIsEmptyAndSeparate$", pgcluster.BinEnv+"=/nowhere", pgtest.URLEnv+"=")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Contains(t, out, "sudo apt-get install -y postgresql")
	require.NotContains(t, out, "SKIP")
}

func TestAnotherServerCanBeUsed(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, nil)
	u := server.DSN("postgres")
	_, rest, _ := strings.Cut(u, "@127.0.0.1:")
	port, _, _ := strings.Cut(rest, "/")
	_, rest, _ = strings.Cut(u, "postgres:")
	_, rest, _ = strings.Cut(rest, "postgres:")
	password, _, _ := strings.Cut(rest, "@")
	for _, dsn := range []string{u, "host=127.0.0.1 port=" + port + " user=postgres password=" + password + " dbname=postgres sslmode=disable"} {
		out, err := self(t, "^(TestNewIsEmptyAndSeparate|TestMigratedOnce)$", pgtest.URLEnv+"="+dsn, pgcluster.BinEnv+"=/nowhere")
		require.NoError(t, err, out)
		require.Contains(t, out, "--- PASS: TestMigratedOnce")
	}
	templates := server.New(t).QueryInt(t, "SELECT count(*) FROM pg_database WHERE datname LIKE 'tmpl%'")
	require.Equal(t, 4, templates, "two names in each of two runs were made on that server")
	left := server.New(t).QueryInt(t, "SELECT count(*) FROM pg_database WHERE datname LIKE 'test%'")
	require.Equal(t, 2, left, "only the two of this test")
}

func TestEventually(t *testing.T) {
	t.Parallel()
	asked := 0
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		asked++
		return asked == 5, "not yet"
	})
	require.Equal(t, 5, asked)

	asked = 0
	said := fatal(t, func(tb testing.TB) {
		pgtest.Eventually(tb, 20*time.Millisecond, func() (bool, string) {
			asked++
			return false, "still at 3 of 4"
		})
	})
	require.Contains(t, said, "still at 3 of 4")
	require.Greater(t, asked, 1)

	asked = 0
	fatal(t, func(tb testing.TB) {
		pgtest.Eventually(tb, 0, func() (bool, string) { asked++; return false, "" })
	})
	require.Equal(t, 1, asked, "called at least once")
}

// recorder is a test that records its failure.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	panic(r)
}

// fatal runs f as a test, which must fail at once, and returns its message.
func fatal(t *testing.T, f func(testing.TB)) (said string) {
	t.Helper()
	r := &recorder{TB: t}
	defer func() {
		if recovered := recover(); recovered != r {
			t.Fatalf("expected a failed test, got %v", recovered)
		}
		said = r.said
	}()
	f(r)
	return ""
}
