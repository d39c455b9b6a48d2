package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
)

// NewEmbedded connects to the database and wires both daemons for one process (embedded
// mode): the worker takes the first steps of the tasks that are created here, and each
// receives the other's signals without the detour over the database. All others receive
// them as usual, and other daemons may work on the same database; their signals come over
// one connection for both. Nothing runs before Start; start the orchestrator first and
// stop it last. log must not be nil. docs/use/embedding.md has a whole program.
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
	near.listener = o.signals.listener
	w, err := newWorker(ctx, loaded, register, near, log.Named("worker"))
	if err != nil {
		o.store.Close()
		return nil, nil, fmt.Errorf("prepare the worker: %w", err)
	}
	near.worker.Store(w.worker)
	o.engine.ServeFirst(w.worker.Host())
	return o, w, nil
}

// EmbeddedOption configures NewEmbedded.
type EmbeddedOption func(*neighbours, *config.Loaded) error

// WithPool makes the engine connect as pool does (a *pgxpool.Pool), instead of by
// common.database.url, and run the transactions of handlers on pool itself. The pool must
// reach the server directly, and stays the caller's: it is closed after the daemons have
// been stopped. Everything else has its own connections, see store.Like for their
// settings. common.database.listener_url, a nil pool, and with the event sources wal and
// relay a pool with AfterConnect, are rejected.
func WithPool(pool *store.Pool) EmbeddedOption {
	return func(near *neighbours, loaded *config.Loaded) error {
		switch {
		case pool == nil:
			return errors.New("invalid pool nil: want a connection pool")
		case loaded.Common.Database.ListenerURL != "":
			return errors.New("invalid common.database.listener_url: want none with WithPool, whose settings listeners use")
		}
		near.pool = pool
		return nil
	}
}

// neighbours are the daemons of one process, once created; nil stands for a single
// daemon.
type neighbours struct {
	orchestrator atomic.Pointer[orchestration.Orchestrator]
	worker       atomic.Pointer[worker.Worker]
	// listener is the orchestrator's, also for the worker; set before the worker is
	// created. Probes use the orchestrator's pool, which is closed last.
	listener *listener.Listener
	pool     *store.Pool // the program's; nil: the engine connects by its configuration
}

// refused returns why a daemon cannot start.
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

// like returns how to connect; nil: by the configuration.
func (n *neighbours) like() *store.PoolConfig {
	if pool := n.workPool(); pool != nil {
		return store.Like(pool)
	}
	return nil
}

// beside returns a publisher that also passes the signals to the other daemon of the
// process.
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
		w.Host().Hear(signals...)
	}
	if o := b.near.orchestrator.Load(); o != nil {
		o.Hear(signals...)
	}
	b.sender.Publish(signals...)
}
