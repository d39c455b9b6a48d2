package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A process can stop in the middle of a transaction: frozen by the system, a debugger or
// a hypervisor, or cut off from the network. Its connection stays, its kernel
// acknowledges for it, and the server keeps all its locks. So every transaction that
// spans a round trip to the client begins with its bounds, in the same round trip: they
// are settings of the transaction, which work through a pooler, where session settings do
// not. See docs/decisions/0020 for the list of locks and their holders.

// holdBounds sets the bounds of a transaction: the server's wait for the client, the
// duration of a statement, and that of the transaction, which servers before 17 do not
// know.
const holdBounds = `select set_config(g.name, g.value, true)
from (values ('idle_in_transaction_session_timeout', '%d'), ('statement_timeout', '%d'), ('transaction_timeout', '%d')) g(name, value)
where current_setting(g.name, true) is not null`

// holdStatement is holdBounds with the values of the options.
func holdStatement(o Options) string {
	return fmt.Sprintf(holdBounds, o.HoldTimeout.Milliseconds(), o.StatementTimeout.Milliseconds(), 2*o.StatementTimeout.Milliseconds())
}

// begin begins a transaction with its bounds, in one round trip: without parameters pgx
// sends it as simple text. mode is its isolation and access mode.
func (s *Store) begin(ctx context.Context, db *conn, mode string) (pgx.Tx, error) {
	return db.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin " + mode + "; " + s.hold})
}

// readOnlySnapshot is the mode of several reads that must be consistent.
const readOnlySnapshot = "isolation level repeatable read read only"

// HoldTimeout is how long the server waits for this process in the middle of a
// transaction.
func (s *Store) HoldTimeout() time.Duration { return s.opts.HoldTimeout }

// stuckSessions are those that hold one of the product's advisory locks (apply slots,
// claims and event positions) and wait for their client. The time-out of idle
// transactions ends most of them. It does not cover a client that stopped while it was
// sending a batch or reading rows: such a session is active, waits for the network, and
// only the time-out of the whole transaction applies. An active one gets twice the time:
// a slow statement may just be sending its rows. Sessions of other roles are not touched,
// since ending them may not be allowed.
var stuckSessions = compile(`
select a.pid, pg_terminate_backend(a.pid)
from (select distinct pid from pg_locks
      where locktype = 'advisory' and classid = @class::int::oid and granted
        and database = (select oid from pg_database where datname = current_database())) l
join pg_stat_activity a on a.pid = l.pid
where a.usename = current_user and a.pid <> pg_backend_pid() and a.wait_event_type = 'Client'
  and a.state_change < clock_timestamp() - @held_ms::bigint * interval '1 ms' * case when a.state = 'active' then 2 else 1 end`)

// EndStuck ends the sessions of frozen processes that hold needed locks, and returns
// their number. It reads the server's locks: call it after a lock wait, or every few
// seconds, not in a loop.
func (s *Store) EndStuck(ctx context.Context) (ended int, err error) {
	return execute(ctx, s, "end_stuck", "end the sessions of frozen processes",
		stuckSessions.With(args{"held_ms": s.opts.HoldTimeout.Milliseconds(), "class": int32(turnLock)}))
}
