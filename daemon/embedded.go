package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/worker"
)

// NewEmbedded connects to the database and wires both daemons for one process
// (embedded mode): the worker takes the first steps of the tasks that are created
// here, and each hears the other's signals without the detour over the database. Everybody else hears them as usual, and other daemons may work on
// the same database; their signals come over one connection for both. Nothing
// runs before Start; the orchestrator is to be started first and stopped last.
// log must not be nil. docs/embedding.md has a whole program.
func NewEmbedded(ctx context.Context, loaded *config.Loaded, register Register, log *zap.Logger, options ...EmbeddedOption) (*Orchestrator, *Worker, error) {
	near := &neighbours{}
	for _, o := range options {
		if err := o(near, loaded); err != nil {
			return nil, nil, err
		}
	}
	o, err := newOrchestrator(ctx, loaded, near, log.Named("orchestrator"))
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the orchestrator: %w", err)
	}
	near.orchestrator.Store(o.engine)
	near.heard = o.signals.heard
	w, err := newWorker(ctx, loaded, register, near, log.Named("worker"))
	if err != nil {
		o.store.Close()
		return nil, nil, fmt.Errorf("prepare the worker: %w", err)
	}
	near.worker.Store(w.worker)
	o.engine.ServeFirst(w.worker)
	return o, w, nil
}

// EmbeddedOption changes what NewEmbedded builds on.
type EmbeddedOption func(*neighbours, *config.Loaded) error

// WithPool has the engine connect as pool does (a *pgxpool.Pool), in place of
// common.database.url, and has handlers that work in a transaction do so on pool
// itself. The pool must reach the server directly, and stays the caller's: it is
// closed after the daemons have been stopped. Everything else has connections of
// its own, see store.Like for what they have in common with those of the pool.
// common.database.listener_url, a pool that is nil, and with the event sources
// wal and relay one with an AfterConnect, are refused.
func WithPool(pool *store.Pool) EmbeddedOption {
	return func(near *neighbours, loaded *config.Loaded) error {
		switch {
		case pool == nil:
			return errors.New("invalid pool nil: want a pool of connections")
		case loaded.Common.Database.ListenerURL != "":
			return errors.New("invalid common.database.listener_url: want none with a pool of the program's own, as which listeners connect")
		}
		near.pool = pool
		return nil
	}
}

// neighbours are the daemons of one process, once they are made; nil stands for
// a daemon alone.
type neighbours struct {
	orchestrator atomic.Pointer[orchestration.Orchestrator]
	worker       atomic.Pointer[worker.Worker]
	// heard is the orchestrator's source of signals, for the worker too; set
	// before the worker is made. Probes go over the orchestrator's pool, which
	// is closed last.
	heard signal.Source
	pool  *store.Pool // the program's own; nil: the engine connects by itself
}

// refused is what keeps a daemon from starting.
func (n *neighbours) refused(loaded *config.Loaded) error {
	if n.workPool() != nil {
		return loaded.Refused("common.database.url")
	}
	return loaded.Refused()
}

// workPool is the pool for transactions of handlers; nil: the worker makes one.
func (n *neighbours) workPool() *store.Pool {
	if n == nil {
		return nil
	}
	return n.pool
}

// like says how to connect; nil: as the configuration says.
func (n *neighbours) like() *store.PoolConfig {
	if pool := n.workPool(); pool != nil {
		return store.Like(pool)
	}
	return nil
}

// beside has the daemons of the process hear what goes to everybody by sender.
func (n *neighbours) beside(sender signal.Publisher) signal.Publisher {
	return besides{near: n, sender: sender}
}

type besides struct {
	near   *neighbours
	sender signal.Publisher
}

// Publish implements signal.Publisher.
func (b besides) Publish(signals ...signal.Signal) {
	if w := b.near.worker.Load(); w != nil {
		w.Hear(signals...)
	}
	if o := b.near.orchestrator.Load(); o != nil {
		o.Hear(signals...)
	}
	b.sender.Publish(signals...)
}
