package daemon

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
)

// NewEmbedded connects to the database and wires both daemons for one process
// (embedded mode): the worker has its successes settled by the orchestrator at
// once, and each hears the other's signals without the detour over the
// database. Everybody else hears them as usual, and other daemons may work on
// the same database; their signals come over one connection for both. Nothing
// runs before Start; the orchestrator is to be started first and stopped last.
// log must not be nil. docs/embedding.md has a whole program.
func NewEmbedded(ctx context.Context, loaded *config.Loaded, register Register, log *zap.Logger) (*Orchestrator, *Worker, error) {
	near := &neighbours{}
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

// neighbours are the daemons of one process, once they are made; nil stands for
// a daemon alone.
type neighbours struct {
	orchestrator atomic.Pointer[orchestration.Orchestrator]
	worker       atomic.Pointer[worker.Worker]
	// heard is the orchestrator's source of signals, for the worker too; set
	// before the worker is made. Probes go over the orchestrator's pool, which
	// is closed last.
	heard signal.Source
}

// settler is the orchestrator for the worker; nil where there is none.
func (n *neighbours) settler() worker.Settler {
	if n == nil || n.orchestrator.Load() == nil {
		return nil
	}
	return n.orchestrator.Load()
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
