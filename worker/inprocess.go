package worker

import (
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// For daemons that run in the process of the worker.

// Offer returns what the worker would claim now of tasks about to be created in its
// process, for up to want steps; it implements orchestration.Taker. It is safe for
// concurrent use.
func (w *Worker) Offer(want int) (store.ClaimRequest, func(claimed []store.Claimed, lost bool)) {
	p, _ := w.current()
	if p == nil {
		return store.ClaimRequest{}, func([]store.Claimed, bool) {}
	}
	return p.engine.Offer(want)
}

// Hear receives signals that a daemon of the same process sends, ahead of their way
// through the database. It never blocks, and does nothing while the worker does not run
// or only polls.
func (w *Worker) Hear(signals ...signal.Signal) {
	p, _ := w.current()
	if p == nil || !p.system.Mode().Listens() {
		return
	}
	topics := signal.NewTopicSet(p.queues.Topics())
	for _, s := range signals {
		if topics.Has(s.Topic) {
			p.engine.Receive(s)
			p.system.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
}

// TransactionPool returns the statistics of the connections of handlers that work in a
// transaction; it is cheap.
func (w *Worker) TransactionPool() store.PoolStat {
	p, _ := w.current()
	if p == nil {
		return store.PoolStat{Max: w.cfg.Transactions.MaxConnections}
	}
	return p.txPool.Stat()
}
