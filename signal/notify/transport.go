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

// A NOTIFY is a transaction that need not survive a crash: without waiting for the disk
// it arrives one flush earlier.
const notifySQL = `with unhurried as materialized (select set_config('synchronous_commit', 'off', true))
select pg_notify(t, p) from unhurried, unnest($1::text[], $2::text[]) as batch(t, p)`

// Statement returns the one statement that sends a batch, for callers that send it
// with other statements. If one signal is malformed there is none, and the error wraps
// signal.ErrMalformed.
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

// withinSQL does not change the durability of the commit.
const withinSQL = `select pg_notify(t, p) from unnest($1::text[], $2::text[]) as batch(t, p)`

// StatementWithin is Statement for a transaction with other work: its commit sends the
// batch, and waits for the disk if it would have.
func StatementWithin(batch []signal.Signal) (sql string, args []any, err error) {
	_, args, err = Statement(batch)
	return withinSQL, args, err
}

// Send implements signal.Transport: one statement for the whole batch. If one signal is
// malformed, none is sent and the error wraps signal.ErrMalformed.
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
