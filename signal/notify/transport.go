package notify

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/signal"
)

// Execer runs one statement outside of any transaction; *pgxpool.Pool does.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Transport sends signals by NOTIFY. It is safe for concurrent use when its
// Execer is.
type Transport struct{ exec Execer }

var _ signal.Transport = (*Transport)(nil)

// NewTransport returns a Transport that sends over exec, typically the pool.
func NewTransport(exec Execer) *Transport { return &Transport{exec: exec} }

// A NOTIFY is a transaction of its own that writes nothing worth keeping:
// without waiting for the disk it arrives a flush earlier.
const notifySQL = `with unhurried as materialized (select set_config('synchronous_commit', 'off', true))
select pg_notify(t, p) from unhurried, unnest($1::text[], $2::text[]) as batch(t, p)`

// Statement is the one statement that sends a batch, for those who send it on
// the way of something else. When one signal is malformed there is none, and
// the error wraps signal.ErrMalformed.
func Statement(batch []signal.Signal) (sql string, args []any, err error) {
	topics, payloads := make([]string, len(batch)), make([]string, len(batch))
	for i, s := range batch {
		if err := s.Validate(); err != nil {
			return "", nil, err
		}
		topics[i], payloads[i] = string(s.Topic), s.Payload
	}
	return notifySQL, []any{topics, payloads}, nil
}

// withinSQL leaves the commit as careful as it is.
const withinSQL = `select pg_notify(t, p) from unnest($1::text[], $2::text[]) as batch(t, p)`

// StatementWithin is Statement for a transaction that does more than that: the
// batch is sent by its commit, which waits for the disk if it would have.
func StatementWithin(batch []signal.Signal) (sql string, args []any, err error) {
	_, args, err = Statement(batch)
	return withinSQL, args, err
}

// Send implements signal.Transport: one statement for the whole batch. When
// one signal is malformed nothing is sent and signal.ErrMalformed is wrapped.
func (t *Transport) Send(ctx context.Context, batch []signal.Signal) error {
	if len(batch) == 0 {
		return nil
	}
	sql, args, err := Statement(batch)
	if err != nil {
		return err
	}
	if _, err := t.exec.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("notifying %d signals: %w", len(batch), err)
	}
	return nil
}
