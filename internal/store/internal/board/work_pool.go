package board

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// WorkPool provides transactions in which a handler's writes and the end of its step are
// committed together; see Work. A handler holds a connection while it runs, so the pool's
// connections are separate from the store's: however many handlers wait, claims,
// heartbeats and reports do not. It is safe for concurrent use.
type WorkPool struct {
	store *Board
	pool  *pgxpool.Pool
	owned bool

	mu     sync.Mutex
	open   map[*Work]bool
	ended  bool          // no new ones begin
	closed chan struct{} // closed when its own pool is; nil until closing begins
}

// WorkPoolOptions describe a WorkPool.
type WorkPoolOptions struct {
	// Pool is a pool of the caller, not closed here. It must lead to the store's database
	// (see Check), and must not be the store's own. nil: a new pool.
	Pool *pg.Pool
	// MaxConns of a new pool. Required for that.
	MaxConns int32
}

// OpenWorkPool makes a pool; it connects when the first transaction begins. Its
// connections have the store's connection settings. They do not have those for the
// planner: handlers run their own statements.
func (s *Board) OpenWorkPool(o WorkPoolOptions) (*WorkPool, error) {
	p := &WorkPool{store: s, pool: o.Pool, open: map[*Work]bool{}}
	if p.pool != nil {
		if p.pool == s.db.Pool {
			return nil, errors.New("the pool for transactions of handlers is the store's own: claims and reports would wait for handlers")
		}
		return p, nil
	}
	opts := s.db.Opts.Unwatched() // a handler may compute while its connection is silent
	opts.ApplicationName += "-transactions"
	opts.MaxConns, opts.MinConns = o.MaxConns, 0
	if err := settings.Positive("MaxConns", o.MaxConns); err != nil {
		return nil, fmt.Errorf("open the pool for transactions of handlers: %w", err)
	}
	cfg, err := pg.NewPoolConfig(opts)
	if err != nil {
		return nil, err
	}
	// Not bounded by the caller: for the pool's background work.
	if p.pool, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		return nil, fmt.Errorf("open the pool for transactions of handlers: %w", pg.Redact(err))
	}
	p.owned = true
	return p, nil
}

var knowsWorker = pg.Compile(`select exists (select from tasker.workers where worker_uuid = @worker::text::uuid) and not pg_is_in_recovery()`)

// Check verifies that the pool leads to the database in which the store has registered a
// worker. In any other one no report would be accepted, or worse: one of a copy.
func (p *WorkPool) Check(ctx context.Context, worker uuid.UUID) error {
	known, err := stmt.One[bool](ctx, p.pool, knowsWorker.With(pg.Args{"worker": worker.String()}))
	if err != nil {
		return pg.Classify("check the pool for transactions of handlers", err)
	}
	if !known {
		return errors.New("the pool for transactions of handlers leads to another database than the worker's, or to a standby of it")
	}
	return nil
}

// Stat reports the state of the pool; it is cheap.
func (p *WorkPool) Stat() pg.PoolStat { return pg.StatOf(p.pool) }

// closePatience bounds the wait for handlers that have not noticed that their
// transactions are over.
const closePatience = time.Second

// Close cuts the open transactions and closes the connections of a pool made for the
// store. It waits at most a second for handlers; their connections are closed when
// released.
func (p *WorkPool) Close(ctx context.Context) error {
	var group conc.WaitGroup
	for _, w := range p.end() {
		group.Go(w.Cut)
	}
	group.Wait()
	if !p.owned {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	select {
	case <-p.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the pool for transactions of handlers: %d are in use: %w", p.Stat().Acquired, ctx.Err())
	}
}

// end stops new transactions and returns the open ones.
func (p *WorkPool) end() []*Work {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.owned && p.closed == nil {
		p.closed = make(chan struct{})
		go func() {
			defer close(p.closed)
			p.pool.Close()
		}()
	}
	return slices.Collect(maps.Keys(p.open))
}

// add notes a transaction that is open; false: the pool is being closed.
func (p *WorkPool) add(w *Work) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.open[w] = true
	}
	return !p.ended
}

func (p *WorkPool) remove(w *Work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, w)
}

// WorkOptions say for which execution a transaction is.
type WorkOptions struct {
	// Tx are the options of the transaction. Unsuitable ones are rejected, see
	// CheckWorkTx.
	Tx pg.TxOptions
	// Claim is the execution whose end will be reported in it.
	Claim ClaimKey
	// Limit is how long the handler may run.
	Limit time.Duration
	// Lease is how long the worker's claims last without a heartbeat.
	Lease time.Duration
}

// ErrClaimLost says that the caller has lost the claim.
var ErrClaimLost = errors.New("the claim is lost")

// workMargin is how much longer than its handler a transaction may last, by the
// server's clock: for the report, the commit, and clocks that differ.
const workMargin = 15 * time.Second

// Begin begins a transaction for a handler. ctx also bounds the wait for a free
// connection. The error wraps ErrUnavailable if the database cannot be reached.
func (p *WorkPool) Begin(ctx context.Context, o WorkOptions) (*Work, error) {
	if err := CheckWorkTx(o.Tx); err != nil {
		return nil, err
	}
	db, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, pg.Classify("wait for a connection for the transaction of a handler", err)
	}
	w := &Work{pool: p, db: db}
	if err := p.begin(ctx, w, o); err != nil {
		db.Release() // closes a connection in a transaction
		return nil, pg.Classify("begin the transaction of a handler", err)
	}
	if !p.add(w) {
		w.Rollback()
		return nil, errors.New("begin the transaction of a handler: the pool is closed")
	}
	return w, nil
}

func (p *WorkPool) begin(ctx context.Context, w *Work, o WorkOptions) (err error) {
	begin := "begin"
	if o.Tx.IsoLevel != "" {
		begin += " isolation level " + string(o.Tx.IsoLevel)
	}
	if o.Tx.IsoLevel != "" && o.Tx.IsoLevel != pgx.ReadCommitted && o.Tx.IsoLevel != pgx.ReadUncommitted {
		if err := p.store.extendLease(ctx, o.Claim, o.Limit+workMargin+o.Lease); err != nil {
			return err
		}
	}
	// One round trip: without parameters pgx sends it as simple text.
	w.tx, err = w.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin + "; " + fmt.Sprintf(guardWork, max((o.Limit+workMargin).Milliseconds(), 1))})
	if err == nil {
		w.handed = &workTx{Tx: w.tx}
	}
	return err
}

// guardWork bounds a transaction by the server's clock, in case this process cannot: it
// is frozen, or the network is cut. Otherwise the rows a handler has written would stay
// locked, and its snapshot would keep the dead rows of the whole database from being
// vacuumed. Limits of the database, the role or the pool take precedence.
// transaction_timeout exists from PostgreSQL 17 on; before, each statement is bounded,
// and each pause between two.
const guardWork = `select set_config(g.name, '%d', true)
from (values ('statement_timeout'), ('idle_in_transaction_session_timeout'), ('transaction_timeout')) g(name)
where current_setting(g.name, true) = '0'`

// CheckWorkTx rejects options with which no step can be reported: read only, or custom
// statements for begin and commit.
func CheckWorkTx(o pg.TxOptions) error {
	levels := []pgx.TxIsoLevel{"", pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted}
	switch {
	case !slices.Contains(levels, o.IsoLevel):
		return fmt.Errorf("invalid isolation level %q", o.IsoLevel)
	case o.AccessMode == pgx.ReadOnly:
		return errors.New("the transaction of a handler cannot be read only: the end of the step is written in it")
	case o.DeferrableMode == pgx.Deferrable:
		return errors.New("the transaction of a handler cannot be deferrable: it writes")
	case o.BeginQuery != "" || o.CommitQuery != "":
		return errors.New("the transaction of a handler begins and ends by the engine's own statements")
	}
	return nil
}

// extendLease gives a claim a lease for the whole time of its handler; no heartbeat
// shortens it. It is for transactions with a snapshot: PostgreSQL does not let them
// change a row that has changed since, so the first heartbeat would make the report at
// their end fail. The price: a step whose worker dies waits that long, or until the
// worker counts as dead, which ends the lease.
// Index: the primary key.
var extendLease = pg.Compile(`
update tasker.board set lease_until = greatest(lease_until, clock_timestamp() + @lease_ms::bigint * interval '1 ms')
where task_uuid = any (array[@task::uuid]) and slot in (@slot::smallint, @own_slot::smallint) and step_no = @step::smallint and lease_until is not null and token = @token::bigint`)

// extendLease returns ErrClaimLost if the claim does not hold.
func (s *Board) extendLease(ctx context.Context, k ClaimKey, lease time.Duration) error {
	return s.db.Call(ctx, "extend_lease", "extend the lease of a claim", func(ctx context.Context, db *pg.Conn) error {
		extended, err := pg.Run(ctx, db, extendLease.With(k.args().And(pg.Args{"lease_ms": lease.Milliseconds()})))
		if err == nil && extended == 0 {
			return ErrClaimLost
		}
		return err
	})
}
