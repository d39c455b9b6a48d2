package pg

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// A process can stop in the middle of a transaction: frozen by the system, a debugger or
// a hypervisor, or cut off from the network. Its connection stays, its kernel
// acknowledges for it, and the server keeps all its locks. So every transaction that
// spans a round trip to the client begins with its bounds, in the same round trip: they
// are settings of the transaction, which work through a pooler, where session settings do
// not. See docs/inside/decisions/0020 for the list of locks and their holders.

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

// Begin begins a transaction with its bounds, in one round trip: without parameters pgx
// sends it as simple text. mode is its isolation and access mode.
func (s *DB) Begin(ctx context.Context, db *Conn, mode string) (pgx.Tx, error) {
	return db.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin " + mode + "; " + s.Hold})
}

// ReadOnlySnapshot is the mode of several reads that must be consistent.
const ReadOnlySnapshot = "isolation level repeatable read read only"

// HoldTimeout is how long the server waits for this process in the middle of a
// transaction.
func (s Server) HoldTimeout() time.Duration { return s.db.Opts.HoldTimeout }

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

// Guest runs statements in a transaction of the caller, on a connection with unknown
// settings: the store's planner settings may be missing, and the pool may use any of
// pgx's modes. So statements are planned for each execution, see docs/inside/data-model.md, and
// types are queried: without them pgx cannot write arrays of UUIDs.
type Guest struct {
	tx   pgx.Tx
	mode pgx.QueryExecMode
}

// GuestOf returns how statements run in a transaction of the caller.
func GuestOf(tx pgx.Tx) Guest {
	g := Guest{tx: tx, mode: pgx.QueryExecModeDescribeExec}
	if c := tx.Conn(); c != nil && c.Config().DescriptionCacheCapacity > 0 {
		g.mode = pgx.QueryExecModeCacheDescribe
	}
	return g
}

// Query implements stmt.Querier.
func (g Guest) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return g.tx.Query(ctx, sql, append([]any{g.mode}, args...)...)
}

// Exec runs a statement whose rows are of no interest.
func (g Guest) Exec(ctx context.Context, c stmt.Call) error {
	_, err := g.tx.Exec(ctx, c.SQL, append([]any{g.mode}, c.Args...)...)
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
	// (docs/inside/decisions/0009): under load AnnounceNothing is cheaper.
	AnnounceNotify
	// AnnounceWAL writes a logical message into the transaction, for the event sources
	// wal and relay. Its cost is negligible.
	AnnounceWAL
	// AnnounceBoth does both, while a fleet moves from one to the other.
	AnnounceBoth
)

// Announce makes signals a part of a transaction.
func (g Guest) Announce(ctx context.Context, how Announce, signals []signal.Signal) error {
	b := &pgx.Batch{}
	if how == AnnounceWAL || how == AnnounceBoth {
		queueStatement(b, signals, wal.Statement)
	}
	if how == AnnounceNotify || how == AnnounceBoth {
		queueStatement(b, signals, notify.StatementWithin)
	}
	return g.ExecAll(ctx, b)
}

// ExecAll executes the statements of a batch one by one.
func (g Guest) ExecAll(ctx context.Context, b *pgx.Batch) error {
	for _, q := range b.QueuedQueries {
		if err := g.Exec(ctx, stmt.Call{SQL: q.SQL, Args: q.Arguments}); err != nil {
			return err
		}
	}
	return nil
}

// queueSignals adds the signals of a transaction to it, if signals travel in the WAL. A
// listener then receives them exactly on commit, and none of a rollback.
func (s *DB) queueSignals(b *pgx.Batch, signals []signal.Signal) {
	if s.Opts.SignalsInTransaction {
		queueStatement(b, signals, wal.Statement)
	}
}

// queueNotify adds the signals as a transaction of their own; see NotifyAfterCommit.
func (s *DB) queueNotify(b *pgx.Batch, signals []signal.Signal) {
	if s.Opts.NotifyAfterCommit {
		queueStatement(b, signals, notify.Statement)
	}
}

// publish passes the signals of a commit on; see Options.Publish.
func (s *DB) publish(signals []signal.Signal) {
	if s.Opts.Publish != nil && len(signals) > 0 {
		s.Opts.Publish(signals...)
	}
}

// queueStatement skips signals that cannot be sent: the engine's topics are never too
// long, and a hint must not fail its flow.
func queueStatement(b *pgx.Batch, signals []signal.Signal, statement func([]signal.Signal) (string, []any, error)) {
	sendable := slices.DeleteFunc(slices.Clone(signals), func(s signal.Signal) bool { return s.Validate() != nil })
	if len(sendable) == 0 {
		return
	}
	if sql, args, err := statement(sendable); err == nil {
		b.Queue(sql, args...)
	}
}

// Transact runs the statements that fill adds as one transaction, in one round
// trip, and sends its signals the configured way.
func (s *DB) Transact(ctx context.Context, db *Conn, signals []signal.Signal, fill func(b *pgx.Batch)) error {
	b := &pgx.Batch{}
	if !s.Opts.NotifyAfterCommit || len(signals) == 0 {
		fill(b)
		s.queueSignals(b, signals)
		if err := db.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		s.publish(signals)
		return nil
	}
	b.Queue("begin")
	fill(b)
	return s.Commit(ctx, db, b, signals)
}

// Commit ends the transaction of b and sends its signals in the same round trip. Once the
// Commit is answered the flow has succeeded, regardless of the signals: they are hints.
func (s *DB) Commit(ctx context.Context, db *Conn, b *pgx.Batch, signals []signal.Signal) error {
	s.queueSignals(b, signals)
	committed := false
	b.Queue("commit").Exec(func(pgconn.CommandTag) error {
		committed = true
		return nil
	})
	s.queueNotify(b, signals)
	err := db.SendBatch(ctx, b).Close()
	if err == nil || committed {
		s.publish(signals)
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = db.Exec(undo, "rollback") // the pool closes a connection that is not idle
	return err
}

// Notify sends the signals of a transaction that has been committed already.
func (s *DB) Notify(ctx context.Context, db *Conn, signals []signal.Signal) error {
	s.publish(signals)
	b := &pgx.Batch{}
	s.queueNotify(b, signals)
	if b.Len() == 0 {
		return nil
	}
	return db.SendBatch(ctx, b).Close()
}

// WithTransitions adds the signal of transitions to those of a transaction that records some.
func (s Server) WithTransitions(signals []signal.Signal) []signal.Signal {
	return s.db.WithTransitions(signals)
}

// SendsSignals reports whether the store itself sends the signals of its commits; if not,
// the caller publishes them afterwards.
func (s Server) SendsSignals() bool {
	return s.db.Opts.SignalsInTransaction || s.db.Opts.NotifyAfterCommit || s.db.Opts.Publish != nil
}
