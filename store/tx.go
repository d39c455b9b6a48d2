package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/wal"
)

// The driver's types, for packages that hand transactions on and may not know
// the driver. They are aliases: whoever writes pgx.Tx means the same type.
type (
	// Tx is a transaction.
	Tx = pgx.Tx
	// TxOptions say how a transaction begins.
	TxOptions = pgx.TxOptions
	// Pool is a pool of connections.
	Pool = pgxpool.Pool
	// PoolConfig is what a pool is made of.
	PoolConfig = pgxpool.Config
)

// querier is what a look needs of a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// guest runs statements in a transaction that is not the store's own, on a
// connection of which nothing is known: the store's settings for the planner may
// be missing, and the pool may use any of pgx's modes. So statements are planned
// anew for each execution, see docs/data-model.md, and types are asked for:
// without them pgx cannot write arrays of UUIDs.
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

// Query implements querier.
func (g guest) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return g.tx.Query(ctx, sql, append([]any{g.mode}, args...)...)
}

// exec runs a statement whose rows are of no interest.
func (g guest) exec(ctx context.Context, sql string, args ...any) error {
	_, err := g.tx.Exec(ctx, sql, append([]any{g.mode}, args...)...)
	return err
}

// Announce says how those who look for work learn of what was created in a
// transaction that somebody else commits: nobody here sees the commit, so a
// signal has to be a part of the transaction. It must be what the fleet listens
// to (common.signals.event_source).
type Announce uint8

const (
	// AnnounceNothing leaves it to the fleet's pollers, to the heartbeats of
	// orchestrators and to the sweep of signals to find the task: it begins
	// later, at the latest after half a minute.
	AnnounceNothing Announce = iota
	// AnnounceNotify has the commit send a NOTIFY, for the event source notify.
	// PostgreSQL lets such commits happen one at a time in the whole server,
	// and each waits for the disk meanwhile (docs/decisions/0009): under load
	// AnnounceNothing is the cheaper choice.
	AnnounceNotify
	// AnnounceWAL writes a logical message into the transaction, for the event
	// sources wal and relay. It costs nothing worth mentioning.
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
	for _, q := range b.QueuedQueries {
		if err := g.exec(ctx, q.SQL, q.Arguments...); err != nil {
			return err
		}
	}
	return nil
}
