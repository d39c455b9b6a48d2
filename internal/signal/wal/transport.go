package wal

import (
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/signal"
)

// Prefix marks the logical messages that hold a signal.
const Prefix = "tasker"

// NewTransport returns a transport that sends signals as logical messages over exec,
// typically the pool. It is safe for concurrent use when exec is.
func NewTransport(exec pgdial.Execer) signal.Transport {
	return pgdial.Transport{Exec: exec, Statement: Statement}
}

const emitSQL = `select pg_logical_emit_message(true, '` + Prefix + `', m) from unnest($1::bytea[]) as batch(m)`

// Statement returns the one statement that writes a batch into the WAL, as part of the
// transaction that executes it. If one signal is malformed there is none, and the error
// wraps signal.ErrMalformed.
func Statement(batch []signal.Signal) (sql string, args []any, err error) {
	messages := make([][]byte, len(batch))
	for i, s := range batch {
		if messages[i], err = Encode(s); err != nil {
			return "", nil, err
		}
	}
	return emitSQL, []any{messages}, nil
}
