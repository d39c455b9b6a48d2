package pg

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// overLine opens a store over a line, with time-outs that no test waits for.
func overLine(t *testing.T, conns int32) (*DB, *pgtest.Line) {
	t.Helper()
	db := pgtest.New(t)
	line := pgtest.NewLine(t, db.TCPDSN)
	cfg, err := pgx.ParseConfig(db.TCPDSN)
	require.NoError(t, err)
	_, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	url := strings.Replace(db.TCPDSN, address, line.Address(), 1)
	require.NotEqual(t, db.TCPDSN, url)
	s, err := Open(t.Context(), Options{URL: url, MaxConns: conns, AcquireTimeout: time.Hour, ConnectTimeout: time.Hour, StatementTimeout: time.Hour})
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s, line
}

// TestCallsDoNotHangBeyondAnOutage: neither those on connections from before nor those that
// wait for one. Without the recovery each would wait for its deadline, here of an hour.
func TestCallsDoNotHangBeyondAnOutage(t *testing.T) {
	t.Parallel()
	s, line := overLine(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func(ctx context.Context) error {
		return s.Call(ctx, "ask", "ask", func(ctx context.Context, db *Conn) error {
			_, err := db.Exec(ctx, "select 1")
			return err
		})
	}
	require.NoError(t, ask(ctx))

	dropped := make(chan struct{}, 100)
	s.RememberPlaces(func() { dropped <- struct{}{} })
	const callers = 3 // the sessions of an orchestrator share its store
	back := make(chan time.Duration, callers)
	var group conc.WaitGroup
	defer group.Wait()
	defer cancel()
	for range callers {
		group.Go(func() {
			_ = s.Server().Recover(ctx, func(away time.Duration) { back <- away }) // ends with the test
		})
	}
	gone, leave := context.WithCancel(ctx) // one more ends early, whether it leads or not
	group.Go(func() { _ = s.Server().Recover(gone, func(time.Duration) {}) })
	leave()

	line.Die()
	const calls = 6 // on both connections, and behind them
	ended := make(chan error, calls)
	for range calls {
		group.Go(func() { ended <- ask(ctx) })
	}
	short, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	require.ErrorIs(t, ask(short), ErrUnavailable) // this one notices
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		s.lines.mu.Lock()
		defer s.lines.mu.Unlock()
		// Those of the pool and two probes, of which the line has the first for half a second.
		return len(s.lines.open) >= 4 && line.Silent() >= 3, "no probes besides the connections of the pool"
	})
	select {
	case away := <-back:
		t.Fatalf("recovered after %v, while nothing answers", away)
	case err := <-ended:
		t.Fatalf("a call ended with %v, while nothing answers", err)
	default:
	}
	line.Revive()
	for range callers {
		select {
		case away := <-back:
			require.Positive(t, away)
		case <-ctx.Done():
			t.Fatal("the end of the outage was not noticed by all")
		}
	}
	require.NotEmpty(t, dropped, "what was remembered is forgotten")
	for range calls {
		if err := <-ended; err != nil {
			require.ErrorIs(t, err, ErrUnavailable)
		}
	}
	require.NoError(t, ask(ctx))
}

// TestALostConnectionIsNoOutage: but what was remembered of places may be wrong.
func TestALostConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	s, _ := overLine(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	places, all := 0, 0
	s.RememberPlaces(func() { places++ })
	s.Remember(func() { all++ })
	err := s.Call(ctx, "break", "break", func(ctx context.Context, db *Conn) error {
		_, err := db.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	})
	require.Error(t, err)
	require.Equal(t, 1, places)
	require.NoError(t, s.awaitBreak(ctx))
	away, err := s.recoverOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, away)
	require.Zero(t, all, "the server is the same")
}

// TestARejectedConnectionIsAnAnswer: a server that has too many connections is not away.
func TestARejectedConnectionIsAnAnswer(t *testing.T) {
	t.Parallel()
	s, _ := overLine(t, 1)
	name := s.Pool.Config().ConnConfig.Database
	admin := s.Pool.Config().ConnConfig.Copy()
	admin.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), admin)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	_, err = conn.Exec(t.Context(), "alter database "+pgx.Identifier{name}.Sanitize()+" allow_connections false")
	require.NoError(t, err)
	require.Error(t, s.probe.Ping(t.Context()))
	require.True(t, s.answers(t.Context()))
}

func TestRecoverEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, _ := overLine(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Server().Recover(ctx, nil), context.Canceled)
}

// TestConnectionsThatAreBeingMadeOutliveAnOutage: what is dialled once the server is back has not
// heard anything yet when the end of the outage is noticed.
func TestConnectionsThatAreBeingMadeOutliveAnOutage(t *testing.T) {
	t.Parallel()
	l := newLines()
	dial := l.dialing(func(context.Context, string, string) (net.Conn, error) {
		server, client := net.Pipe()
		t.Cleanup(func() { _ = server.Close() })
		return client, nil
	})
	connect := func(heard bool) *line {
		conn, err := dial(t.Context(), "tcp", "somewhere")
		require.NoError(t, err)
		made, is := conn.(*line)
		require.True(t, is)
		if heard {
			made.heard.Store(l.at(time.Now()))
		}
		return made
	}
	open := func(one *line) bool { return one.SetDeadline(time.Time{}) == nil }
	idle, dialled := connect(true), connect(false)
	unanswered := time.Now()
	busy := connect(true)
	fresh := connect(false)
	end := time.Now()
	after := connect(false)

	l.closeDead(unanswered)
	require.False(t, open(idle))
	require.False(t, open(dialled))
	require.True(t, open(busy))
	require.True(t, open(fresh))
	l.closeUnheard(end)
	require.False(t, open(fresh), "it had the time of a probe")
	require.True(t, open(busy))
	require.True(t, open(after))
}
