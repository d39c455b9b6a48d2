package relay

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/signal/internal/pgdial"
)

// lockKey names the advisory lock of the leader. Advisory locks belong to a
// database, so each database has a leader of its own.
const lockKey int64 = 0x7461736b65725f72 // "tasker_r"

// commandTimeout bounds one statement; one that takes longer ends the session.
const commandTimeout = 5 * time.Second

// voice is a direct session with the server. Its lock makes a replica the
// leader, and all that the leader says goes over it. Statements run one after
// the other; it is safe for concurrent use.
type voice struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// idleLimitSQL bounds how long the server waits for the next word of a session,
// in ms. The lock of a leader that froze goes with its session: its kernel would
// answer for it for ever. Servers before 14 do not know the setting, nor have
// they messages in the WAL to relay.
const idleLimitSQL = `select set_config('idle_session_timeout', $1::text, false)
	where current_setting('idle_session_timeout', true) is not null`

// prepareSQL keeps the server from flushing the WAL for each announcement: a NOTIFY holds a lock of the whole
// server while its commit is flushed, and a hint need not survive a crash.
const prepareSQL = `set synchronous_commit = off`

// dial opens a session, bounded by ctx, that may be idle for so long.
func dial(ctx context.Context, dialer *pgdial.Dialer, idle time.Duration) (*voice, error) {
	conn, err := dialer.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting the relay: %w", err)
	}
	if _, err := conn.Exec(ctx, prepareSQL); err != nil {
		pgdial.Close(conn.PgConn())
		return nil, fmt.Errorf("preparing the relay's session: %w", err)
	}
	v := &voice{conn: conn}
	if err := v.limitIdle(ctx, idle); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// limitIdle has the server end the session when it has been idle for so long.
func (v *voice) limitIdle(ctx context.Context, idle time.Duration) error {
	if _, err := v.Exec(ctx, idleLimitSQL, strconv.FormatInt(idle.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("preparing the relay's session: %w", err)
	}
	return nil
}

// tryLock reports whether this session has become the leader's. It does not
// wait on the server: a session that waits for a lock holds a snapshot and so
// keeps the server from removing dead rows.
func (v *voice) tryLock(ctx context.Context) (locked bool, err error) {
	if err := v.QueryRow(ctx, `select pg_try_advisory_lock($1)`, lockKey).Scan(&locked); err != nil {
		return false, fmt.Errorf("trying the relay's lock: %w", err)
	}
	return locked, nil
}

// Exec runs one statement; it is what the transports send over.
func (v *voice) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = v.use(ctx, func(ctx context.Context) error {
		tag, err = v.conn.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// QueryRow runs a query for one row when it is scanned.
func (v *voice) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row(func(dest ...any) error {
		return v.use(ctx, func(ctx context.Context) error { return v.conn.QueryRow(ctx, sql, args...).Scan(dest...) })
	})
}

// row implements pgx.Row.
type row func(dest ...any) error

// Scan implements pgx.Row.
func (r row) Scan(dest ...any) error { return r(dest...) }

// use runs a statement alone. The end of ctx does not cut it short once it
// runs, because that would end the session and with it the leadership; it is
// bounded by commandTimeout.
func (v *voice) use(ctx context.Context, statement func(context.Context) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	return statement(ctx)
}

// close ends the session, which gives the lock back.
func (v *voice) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	pgdial.Close(v.conn.PgConn())
}
