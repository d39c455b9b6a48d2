package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/tasker-go/tasker/store"
)

// TransactionConfig is for handlers that work in a transaction (HandleTx).
type TransactionConfig struct {
	// MaxConnections is how many of them have a connection at once
	// (worker.transactions.max_connections). More wait, in the time of their steps. The connections are beside those of
	// the store, and are opened when first needed.
	MaxConnections int32
	// Pool is a *pgxpool.Pool of the program, to the database of the engine and
	// with a role that may do there what the engine does. It is not closed. It
	// should be of use for nothing that a handler waits for: a handler has one of
	// its connections for as long as it runs. Default: one of the worker's own.
	Pool *store.Pool
}

// works is where transactions of handlers come from. The pool is made when the
// first of them begins: most workers need none. It is safe for concurrent use.
type works struct {
	cfg   TransactionConfig
	store *store.Store // nil over a board in memory
	// announce is how transactions tell of themselves that the engine does not
	// commit.
	announce store.Announce

	mu     sync.Mutex
	pool   *store.WorkPool
	closed bool
}

func (t *works) open() (*store.WorkPool, error) {
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

func (t *works) close(ctx context.Context) error {
	t.mu.Lock()
	pool := t.pool
	t.closed = true
	t.mu.Unlock()
	if pool == nil {
		return nil
	}
	return pool.Close(ctx)
}

func (t *works) stat() store.PoolStat {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool == nil {
		return store.PoolStat{Max: t.cfg.MaxConnections}
	}
	return t.pool.Stat()
}

// TransactionPool is what the connections of handlers that work in a transaction
// are doing; it is cheap.
func (w *Worker) TransactionPool() store.PoolStat {
	p, _ := w.current()
	if p == nil || p.works == nil {
		return store.PoolStat{Max: w.cfg.Transactions.MaxConnections}
	}
	return p.works.stat()
}
