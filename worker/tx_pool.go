package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/tasker-go/tasker/store"
)

// TransactionConfig configures handlers that work in a transaction (HandleTx).
type TransactionConfig struct {
	// MaxConnections bounds their connections (worker.transactions.max_connections).
	// Further handlers wait, within their time limits. The connections are separate from
	// the store's and opened on first use.
	MaxConnections int32
	// Pool is a *pgxpool.Pool of the program, to the engine's database and with a role
	// that has the engine's rights there. It is not closed. Handlers must not wait for
	// other uses of it: a handler holds a connection while it runs. Default: a pool of
	// the worker's own.
	Pool *store.Pool
}

// txPool provides the transactions of handlers. The pool is opened when the first one
// begins: most workers need none. It is safe for concurrent use.
type txPool struct {
	cfg   TransactionConfig
	store *store.Store // nil over a board in memory
	// announce is how transactions that the engine does not commit signal their tasks.
	announce store.Announce

	mu     sync.Mutex
	pool   *store.WorkPool
	closed bool
}

func (t *txPool) open() (*store.WorkPool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.pool != nil:
		return t.pool, nil
	case t.closed:
		return nil, errors.New("the worker has been stopped")
	case t.store == nil:
		return nil, errors.New("the worker has no database")
	}
	pool, err := t.store.OpenWorkPool(store.WorkPoolOptions{Pool: t.cfg.Pool, MaxConns: t.cfg.MaxConnections})
	t.pool = pool
	return pool, err
}

func (t *txPool) close(ctx context.Context) error {
	t.mu.Lock()
	pool := t.pool
	t.closed = true
	t.mu.Unlock()
	if pool == nil {
		return nil
	}
	return pool.Close(ctx)
}

func (t *txPool) stat() store.PoolStat {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool == nil {
		return store.PoolStat{Max: t.cfg.MaxConnections}
	}
	return t.pool.Stat()
}

// TransactionPool returns the statistics of the connections of handlers that work in a
// transaction; it is cheap.
func (w *Worker) TransactionPool() store.PoolStat {
	p, _ := w.current()
	if p == nil || p.txPool == nil {
		return store.PoolStat{Max: w.cfg.Transactions.MaxConnections}
	}
	return p.txPool.stat()
}
