package relay

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/signal/pgdial"
)

// lockKey names the advisory lock of the leader. Advisory locks belong to a
// database, so each database has a leader of its own.
const lockKey int64 = 0x7461736b65725f72 // "tasker_r"

// commandTimeout bounds one statement; beyond it the session ends.
const commandTimeout = 5 * time.Second

// session is a direct session with the server. Its lock makes a replica the leader, and
// the leader sends all signals over it. Statements run one after the other; it is safe
// for concurrent use.
type session struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// idleLimitSQL sets how long the server lets a session be idle, in ms. The kernel of a
// frozen leader would keep its session, and with it the lock, for ever. Servers before
// 14 have neither the setting nor messages in the WAL to relay.
const idleLimitSQL = `select set_config('idle_session_timeout', $1::text, false)
	where current_setting('idle_session_timeout', true) is not null`

// prepareSQL keeps the server from flushing the WAL for each announcement: a NOTIFY
// holds a server-wide lock while its commit is flushed, and a hint need not survive a
// crash.
const prepareSQL = `set synchronous_commit = off`

// dial opens a session, bounded by ctx, that may be idle for at most idle.
func dial(ctx context.Context, dialer *pgdial.Dialer, idle time.Duration) (*session, error) {
	conn, err := dialer.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting the relay: %w", err)
	}
	if _, err := conn.Exec(ctx, prepareSQL); err != nil {
		pgdial.Close(conn.PgConn())
		return nil, fmt.Errorf("preparing the relay's session: %w", err)
	}
	s := &session{conn: conn}
	if err := s.limitIdle(ctx, idle); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// limitIdle makes the server end the session once it has been idle for idle.
func (s *session) limitIdle(ctx context.Context, idle time.Duration) error {
	if _, err := s.Exec(ctx, idleLimitSQL, strconv.FormatInt(idle.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("preparing the relay's session: %w", err)
	}
	return nil
}

// tryLock reports whether this session is now the leader's. It does not wait on the
// server: a session that waits for a lock holds a snapshot and so keeps the server from
// removing dead rows.
func (s *session) tryLock(ctx context.Context) (locked bool, err error) {
	if err := s.QueryRow(ctx, `select pg_try_advisory_lock($1)`, lockKey).Scan(&locked); err != nil {
		return false, fmt.Errorf("trying the relay's lock: %w", err)
	}
	return locked, nil
}

// Exec runs one statement; the transports use it.
func (s *session) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = s.use(ctx, func(ctx context.Context) error {
		tag, err = s.conn.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// QueryRow runs a query for one row when it is scanned.
func (s *session) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row(func(dest ...any) error {
		return s.use(ctx, func(ctx context.Context) error { return s.conn.QueryRow(ctx, sql, args...).Scan(dest...) })
	})
}

// row implements pgx.Row.
type row func(dest ...any) error

// Scan implements pgx.Row.
func (r row) Scan(dest ...any) error { return r(dest...) }

// use runs a statement exclusively. The end of ctx does not interrupt it once it runs,
// because that would end the session and with it the leadership; it is bounded by
// commandTimeout.
func (s *session) use(ctx context.Context, statement func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	return statement(ctx)
}

// close ends the session, which releases the lock.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	pgdial.Close(s.conn.PgConn())
}
