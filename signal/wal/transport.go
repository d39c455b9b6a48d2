package wal

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/signal"
)

// Prefix marks the logical messages that hold a signal.
const Prefix = "tasker"

// Execer runs one statement outside of any transaction; *pgxpool.Pool does.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Transport sends signals as logical messages. It is safe for concurrent use
// when its Execer is.
type Transport struct{ exec Execer }

var _ signal.Transport = (*Transport)(nil)

// NewTransport returns a Transport that sends over exec, typically the pool.
func NewTransport(exec Execer) *Transport { return &Transport{exec: exec} }

const emitSQL = `select pg_logical_emit_message(true, '` + Prefix + `', m) from unnest($1::bytea[]) as batch(m)`

// Statement returns the one statement that writes a batch into the WAL, as part of the
// transaction that executes it. If one signal is malformed there is none, and the error
// wraps signal.ErrMalformed.
func Statement(batch []signal.Signal) (sql string, args []any, err error) {
	messages := make([][]byte, len(batch))
	for i, s := range batch {
		if messages[i], err = signal.Encode(s); err != nil {
			return "", nil, err
		}
	}
	return emitSQL, []any{messages}, nil
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
		return fmt.Errorf("emitting %d signals: %w", len(batch), err)
	}
	return nil
}
