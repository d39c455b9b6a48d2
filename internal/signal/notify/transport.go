package notify

import (
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/signal"
)

// NewTransport returns a transport that sends by NOTIFY over exec, typically the pool. It
// is safe for concurrent use when exec is.
func NewTransport(exec pgdial.Execer) signal.Transport {
	return pgdial.Transport{Exec: exec, Statement: Statement}
}

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
