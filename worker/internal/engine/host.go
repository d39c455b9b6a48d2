package engine

import (
	"context"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/bus"
	"github.com/tasker-go/tasker/workflow"
)

// Host has the methods of a worker that only the daemons and test kits of this module use.
type Host interface {
	// Offer returns what the worker would claim now of tasks about to be created in its
	// process, for up to want steps; it implements orchestration.Taker. It is safe for
	// concurrent use.
	Offer(want int) (store.ClaimRequest, func(claimed []store.Claimed, lost bool))
	// Adopt takes over claims of other workers, in some namespaces or all (nil), whose
	// handlers continue in processes that are connected to this worker now. learn gets their
	// tokens, the new ones by the former, before any of them begins here. Claims that it does not
	// get are lost, unless locked says that some rows were being changed: then call it again.
	// The errors wrap store.ErrUnavailable; then no claim is adopted, or adopted ones are
	// handed back. It is safe for concurrent use.
	Adopt(ctx context.Context, held []store.HeldClaim, namespaces []string, learn func(tokens map[int64]int64)) (locked bool, err error)
	// Hear receives signals that a daemon of the same process sends, ahead of their way
	// through the database. It never blocks, and does nothing while the worker does not run
	// or only polls.
	Hear(signals ...signal.Signal)
	// Reload applies changed settings to a running worker; see
	// coordinator.EventSystem.Reload.
	Reload(ctx context.Context, next coordinator.Settings) error
	// SetAddress sets where the API of the program listens, as host:port, for operators to
	// find. A running worker reports it with a heartbeat at once; "" means no API. It may be
	// called at any time.
	SetAddress(address string)
	// CheckHandler says why this worker cannot run a step with a handler reference; nil: it
	// can.
	CheckHandler(def workflow.HandlerReference) error
	// TransactionPool returns the statistics of the connections of handlers that work in a
	// transaction; it is cheap.
	TransactionPool() store.PoolStat
	// EventStats returns the counts of events of this worker's steps.
	EventStats() bus.EventStats
	// Known reads the handlers that registered templates name, by the namespaces that the
	// worker serves. The errors wrap store.ErrUnavailable, also while it does not run.
	Known(ctx context.Context) (map[string][]workflow.HandlerReference, error)
	// Rehearse is for package workertest, through which programs use it: it runs single
	// handlers of a worker that was not started. board stores what handlers save and answers
	// their reads; it replaces the store within the worker.
	Rehearse(board Board) *Rehearsal
}
