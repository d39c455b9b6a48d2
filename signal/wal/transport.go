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

const emitSQL = `select pg_logical_emit_message(true, 'tasker', m) from unnest($1::bytea[]) as batch(m)`

// Send implements signal.Transport: one statement for the whole batch. When
// one signal is malformed nothing is sent and signal.ErrMalformed is wrapped.
func (t *Transport) Send(ctx context.Context, batch []signal.Signal) error {
	if len(batch) == 0 {
		return nil
	}
	messages := make([][]byte, len(batch))
	for i, s := range batch {
		m, err := signal.Encode(s)
		if err != nil {
			return err
		}
		messages[i] = m
	}
	if _, err := t.exec.Exec(ctx, emitSQL, messages); err != nil {
		return fmt.Errorf("emitting %d signals: %w", len(batch), err)
	}
	return nil
}
