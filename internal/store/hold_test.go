package store_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// bothWays runs a test over a direct connection and through a pooler in transaction mode,
// where session settings do not work.
func bothWays(t *testing.T, run func(t *testing.T, db *pgtest.DB, open func(hold time.Duration) *store.Store)) {
	opener := func(t *testing.T, o store.Options) func(time.Duration) *store.Store {
		return func(hold time.Duration) *store.Store {
			t.Helper()
			o.HoldTimeout = hold
			s, err := store.Open(t.Context(), o)
			require.NoError(t, err)
			t.Cleanup(s.Close)
			return s
		}
	}
	t.Run("direct", func(t *testing.T) {
		t.Parallel()
		_, db := open(t)
		run(t, db, opener(t, store.Options{URL: db.DSN, MaxConns: 4}))
	})
	t.Run("pooled", func(t *testing.T) {
		t.Parallel()
		_, db := open(t)
		pooler := pgtest.NewPooler(t, db.TCPDSN, pgtest.PoolTransactions, 10)
		run(t, db, opener(t, store.Options{URL: pooler.DSN(db.Name), MaxConns: 4, NoPreparedStatements: true}))
	})
}

// shortHold is the bound in these tests; a frozen process holds a transaction and sends
// nothing.
const shortHold = 300 * time.Millisecond

// reported puts n tasks with a reported first step on the board.
func reported(t *testing.T, s *store.Store, n int) {
	t.Helper()
	p := plan(t, s, diamondYAML)
	create(t, s, p, n)
	reports := make([]store.Report, 0, n)
	for _, c := range claim(t, s, p, n) {
		reports = append(reports, succeed(c, `1`))
	}
	require.Len(t, reports, n)
	report(t, s, reports...)
}

// TestTheFrozenDoNotStopTheFleet: two orchestrators freeze between taking reports and
// applying them, with all locks held.
func TestTheFrozenDoNotStopTheFleet(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, _ *pgtest.DB, open func(time.Duration) *store.Store) {
		frozen, alive := open(shortHold), open(shortHold)
		const tasks = 40
		reported(t, alive, tasks)
		first, err := frozen.TakeReported(t.Context(), tasks/2, true)
		require.NoError(t, err)
		require.NotEmpty(t, first.Tasks)
		t.Cleanup(first.Release)
		second, err := frozen.TakeReported(t.Context(), tasks/2, true)
		require.NoError(t, err)
		require.NotEmpty(t, second.Tasks)
		t.Cleanup(second.Release)

		applied := 0
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			taken, err := alive.TakeReported(t.Context(), tasks, true)
			require.NoError(t, err)
			defer taken.Release()
			if len(taken.Tasks) > 0 {
				applied += len(taken.Tasks)
				_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
				require.NoError(t, err)
			}
			return applied == tasks, fmt.Sprintf("%d of %d tasks have been applied", applied, tasks)
		})
		// The frozen ones change nothing when they resume.
		for _, taken := range []*store.Taken{first, second} {
			_, err := taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
			require.ErrorIs(t, err, store.ErrUnavailable)
		}
		reported(t, frozen, 1)
	})
}

// TestStuckSessionsAreEnded: a process that froze while reading rows leaves an active
// session that no time-out of servers before 17 ends.
func TestStuckSessionsAreEnded(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2, HoldTimeout: shortHold})
	require.NoError(t, err)
	defer s.Close()

	session := func(statements ...string) uint32 {
		conn, err := pgconn.Connect(t.Context(), db.DSN)
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
			defer cancel()
			_ = conn.Close(ctx) // the server has ended it, or ends it with the database
		})
		last := len(statements) - 1
		for _, sql := range statements[:last] {
			require.NoError(t, conn.Exec(t.Context(), sql).Close())
		}
		conn.Frontend().SendQuery(&pgproto3.Query{String: statements[last]})
		require.NoError(t, conn.Frontend().Flush())
		return conn.PID()
	}
	const slot, flood = `select pg_try_advisory_xact_lock(1952543595, -1)`, `select repeat('x', 1000) from generate_series(1, 1000000)`
	reading := session("begin", `set local idle_in_transaction_session_timeout = 100`, slot, flood)
	idle := session("begin", `select pg_try_advisory_xact_lock(1952543595, -2)`)
	user := session("begin", `lock table tasker.board in row exclusive mode`)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return db.QueryInt(t, `select count(*) from pg_stat_activity where pid = any ($1::int[]) and (wait_event = 'ClientWrite' or state = 'idle in transaction')`,
			[]int32{int32(reading), int32(idle), int32(user)}) == 3, "the sessions do not wait for their clients yet"
	})
	ended := 0
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n, err := s.EndStuck(t.Context())
		require.NoError(t, err)
		ended += n
		left := db.QueryInt(t, `select count(*) from pg_stat_activity where pid = any ($1::int[])`, []int32{int32(reading), int32(idle)})
		return left == 0, fmt.Sprintf("%d sessions are there still", left)
	})
	require.GreaterOrEqual(t, ended, 2)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from pg_stat_activity where pid = $1`, int32(user)), "other sessions are not ended")
}

// TestAReportedStepIsNotHeldForHours: a worker freezes between the report of a
// step and the commit of its handler's transaction.
func TestAReportedStepIsNotHeldForHours(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, db *pgtest.DB, open func(time.Duration) *store.Store) {
		s := open(shortHold)
		pool, err := s.OpenWorkPool(store.WorkPoolOptions{MaxConns: 1})
		require.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close(context.WithoutCancel(t.Context())) })
		p := plan(t, s, diamondYAML)
		create(t, s, p, 1)
		c := claim(t, s, p, 1)[0]
		w, err := pool.Begin(t.Context(), store.WorkOptions{Claim: key(c), Limit: time.Hour, Lease: time.Minute})
		require.NoError(t, err)
		t.Cleanup(w.Rollback)
		accepted, err := w.Report(t.Context(), succeed(c, `1`))
		require.NoError(t, err)
		require.True(t, accepted)
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			free := db.QueryInt(t, `select count(*) from (select from tasker.board where task_uuid = $1 for update skip locked) b`, c.TaskUUID)
			return free == 1, "the row of the step is locked"
		})
		require.Error(t, w.Commit(t.Context()))
	})
}

// TestTheBoundsCostNoRoundTrip: taking reports is one exchange with the server,
// committing them another.
func TestTheBoundsCostNoRoundTrip(t *testing.T) {
	t.Parallel()
	for _, unprepared := range []bool{false, true} {
		t.Run(fmt.Sprintf("unprepared=%v", unprepared), func(t *testing.T) {
			t.Parallel()
			_, db := open(t)
			line := newCountedLine(t, db.TCPDSN)
			s, err := store.Open(t.Context(), store.Options{URL: line.dsn, MaxConns: 1, NoPreparedStatements: unprepared})
			require.NoError(t, err)
			defer s.Close()
			apply := func() (take, commit int64) {
				p := plan(t, s, oneStepYAML)
				create(t, s, p, 3)
				for _, c := range claim(t, s, p, 3) {
					report(t, s, succeed(c, `1`))
				}
				before := line.trips.Load()
				taken, err := s.TakeReported(t.Context(), 10, false)
				require.NoError(t, err)
				defer taken.Release()
				require.NotEmpty(t, taken.Tasks)
				between := line.trips.Load()
				_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
				require.NoError(t, err)
				return between - before, line.trips.Load() - between
			}
			apply() // has the statements prepared, or described
			take, commit := apply()
			require.EqualValues(t, 1, take, "exchanges to take")
			require.EqualValues(t, 1, commit, "exchanges to commit")
		})
	}
}

// countedLine passes everything on to a server and counts its answers: each ends
// one exchange. Questions whether a connection still works do not count.
type countedLine struct {
	dsn   string
	trips atomic.Int64
}

func newCountedLine(t *testing.T, dsn string) *countedLine {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	line := &countedLine{dsn: fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", cfg.User, cfg.Password, l.Addr(), cfg.Database)}
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))))
			if err != nil {
				_ = client.Close()
				continue
			}
			group.Go(func() { line.pass(client, server) })
		}
	})
	return line
}

func (l *countedLine) pass(client, server net.Conn) {
	defer func() { _, _ = client.Close(), server.Close() }()
	go func() {
		_, _ = io.Copy(pingFinder{server, l}, client)
		_ = server.Close()
	}()
	from := bufio.NewReader(server)
	for {
		head, err := from.Peek(5)
		if err != nil {
			return
		}
		if head[0] == 'Z' {
			l.trips.Add(1)
		}
		if _, err := io.CopyN(client, from, 1+int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
			return
		}
	}
}

// pingFinder does not count the answers to pings.
type pingFinder struct {
	net.Conn
	line *countedLine
}

// Write implements io.Writer.
func (p pingFinder) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("-- ping")) {
		p.line.trips.Add(-1)
	}
	return p.Conn.Write(b)
}
