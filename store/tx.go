package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/wal"
)

// The driver's types, for packages that pass transactions on without importing the
// driver. They are aliases: pgx.Tx is the same type.
type (
	// Tx is a transaction.
	Tx = pgx.Tx
	// TxOptions say how a transaction begins.
	TxOptions = pgx.TxOptions
	// Pool is a pool of connections.
	Pool = pgxpool.Pool
	// PoolConfig is the configuration of a pool.
	PoolConfig = pgxpool.Config
)

// guest runs statements in a transaction of the caller, on a connection with unknown
// settings: the store's planner settings may be missing, and the pool may use any of
// pgx's modes. So statements are planned for each execution, see docs/data-model.md, and
// types are queried: without them pgx cannot write arrays of UUIDs.
type guest struct {
	tx   pgx.Tx
	mode pgx.QueryExecMode
}

func guestOf(tx pgx.Tx) guest {
	g := guest{tx: tx, mode: pgx.QueryExecModeDescribeExec}
	if c := tx.Conn(); c != nil && c.Config().DescriptionCacheCapacity > 0 {
		g.mode = pgx.QueryExecModeCacheDescribe
	}
	return g
}

// Query implements stmt.Querier.
func (g guest) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return g.tx.Query(ctx, sql, append([]any{g.mode}, args...)...)
}

// exec runs a statement whose rows are of no interest.
func (g guest) exec(ctx context.Context, sql string, args ...any) error {
	_, err := g.tx.Exec(ctx, sql, append([]any{g.mode}, args...)...)
	return err
}

// Announce is how the fleet learns of tasks created in a transaction that the caller
// commits: the engine does not see the commit, so a signal must be part of the
// transaction. It must match what the fleet listens to (common.signals.event_source).
type Announce uint8

const (
	// AnnounceNothing leaves the task to the fleet's pollers, to the heartbeats of
	// orchestrators and to the sweep of signals: it begins later, at the latest after
	// half a minute.
	AnnounceNothing Announce = iota
	// AnnounceNotify makes the commit send a NOTIFY, for the event source notify.
	// PostgreSQL serializes such commits in the whole server, and each waits for the disk
	// (docs/decisions/0009): under load AnnounceNothing is cheaper.
	AnnounceNotify
	// AnnounceWAL writes a logical message into the transaction, for the event sources
	// wal and relay. Its cost is negligible.
	AnnounceWAL
)

// announce makes signals a part of a transaction.
func (g guest) announce(ctx context.Context, how Announce, signals []signal.Signal) error {
	statement := wal.Statement
	switch how {
	case AnnounceWAL:
	case AnnounceNotify:
		statement = notify.StatementWithin
	default:
		return nil
	}
	b := &pgx.Batch{}
	queueStatement(b, signals, statement)
	return g.execAll(ctx, b)
}

// execAll executes the statements of a batch one by one.
func (g guest) execAll(ctx context.Context, b *pgx.Batch) error {
	for _, q := range b.QueuedQueries {
		if err := g.exec(ctx, q.SQL, q.Arguments...); err != nil {
			return err
		}
	}
	return nil
}
