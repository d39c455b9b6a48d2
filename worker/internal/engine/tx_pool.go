package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store"
)

// TxPool provides the transactions of handlers. The pool is opened when the first one
// begins: most workers need none. It is safe for concurrent use.
type TxPool struct {
	Options store.WorkPoolOptions
	Store   *store.Store // nil over a board in memory
	// Announce is how transactions that the engine does not commit signal their tasks.
	Announce store.Announce

	mu     sync.Mutex
	pool   *store.WorkPool
	closed bool
}

// Check checks that the pool, if it is the program's, leads to the database of a worker.
func (t *TxPool) Check(ctx context.Context, worker uuid.UUID) error {
	if t.Options.Pool == nil {
		return nil
	}
	pool, err := t.open()
	if err != nil {
		return err
	}
	return pool.Check(ctx, worker)
}

func (t *TxPool) open() (*store.WorkPool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.pool != nil:
		return t.pool, nil
	case t.closed:
		return nil, errors.New("the worker has been stopped")
	case t.Store == nil:
		return nil, errors.New("the worker has no database")
	}
	pool, err := t.Store.OpenWorkPool(t.Options)
	t.pool = pool
	return pool, err
}

// Close closes the pool, unless it is the program's.
func (t *TxPool) Close(ctx context.Context) error {
	t.mu.Lock()
	pool := t.pool
	t.closed = true
	t.mu.Unlock()
	if pool == nil {
		return nil
	}
	return pool.Close(ctx)
}

// Stat returns the statistics of the connections; it is cheap.
func (t *TxPool) Stat() store.PoolStat {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool == nil {
		return store.PoolStat{Max: t.Options.MaxConns}
	}
	return t.pool.Stat()
}
