package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/bus"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// Host is for the daemons of this module and for package workertest, which run a worker in
// their process: what they ask of it is no part of the SDK.
func (w *Worker) Host() engine.Host { return host{w} }

type host struct{ *Worker }

// Offer implements engine.Host.
func (h host) Offer(want int) (store.ClaimRequest, func(claimed []store.Claimed, lost bool)) {
	p, _ := h.current()
	if p == nil {
		return store.ClaimRequest{}, func([]store.Claimed, bool) {}
	}
	return p.engine.Offer(want)
}

// Adopt implements engine.Host.
func (h host) Adopt(ctx context.Context, held []store.HeldClaim, namespaces []string, learn func(tokens map[int64]int64)) (locked bool, err error) {
	p, _ := h.current()
	if p == nil {
		return false, fmt.Errorf("adopt claims: %w", store.ErrUnavailable)
	}
	return p.engine.Adopt(ctx, held, namespaces, learn)
}

// Known implements engine.Host.
func (h host) Known(ctx context.Context) (map[string][]workflow.HandlerReference, error) {
	p, _ := h.current()
	if p == nil {
		return nil, fmt.Errorf("read the known handlers: %w", store.ErrUnavailable)
	}
	return p.engine.Known(ctx)
}

// Hear implements engine.Host.
func (h host) Hear(signals ...signal.Signal) {
	p, _ := h.current()
	if p == nil || !p.system.Mode().Listens() {
		return
	}
	topics := topicset.Of(p.engine.Topics())
	for _, s := range signals {
		if topics.Has(s.Topic) && !p.engine.Receive(s) {
			p.system.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
}

// Reload implements engine.Host.
func (h host) Reload(ctx context.Context, next coordinator.Settings) error {
	p, s := h.current()
	if p == nil || s != stateRunning {
		return errors.New("apply the settings: the worker is not running")
	}
	return p.system.Reload(ctx, next)
}

// SetAddress implements engine.Host.
func (h host) SetAddress(address string) {
	h.mu.Lock()
	h.address = address
	p := h.parts
	h.mu.Unlock()
	if p != nil {
		p.engine.BeatSoon()
	}
}

// CheckHandler implements engine.Host.
func (h host) CheckHandler(def workflow.HandlerReference) error {
	return lifecycle.Guard(func() error {
		_, err := h.chain.resolve("", def)
		return err
	})
}

// TransactionPool implements engine.Host.
func (h host) TransactionPool() store.PoolStat {
	p, _ := h.current()
	if p == nil {
		return store.PoolStat{Max: h.cfg.Transactions.MaxConnections}
	}
	return p.engine.TxPool()
}

// EventStats implements engine.Host.
func (h host) EventStats() bus.EventStats {
	s := bus.EventStats{Bus: h.bus.Stats()}
	if p, _ := h.current(); p != nil {
		c := &p.publishing.count
		s.Durable, s.Fast, s.Broadcast = c.durable.Load(), c.fast.Load(), c.broadcast.Load()
		s.FastFailed, s.DurableFailed = c.undelivered.Load(), c.failed.Load()
	}
	return s
}

// Rehearse implements engine.Host.
func (h host) Rehearse(board engine.Board) *engine.Rehearsal {
	c, run := &h.cfg, &runner{cfg: &h.cfg, chain: h.chain, board: board}
	e := engine.New(engine.Config{
		ID: &h.id, Board: board, New: run.newExecution, MaxConcurrent: 1, HandlerTimeout: c.HandlerTimeout,
		Report: engine.Report(c.Report), SaveTimeout: c.Checkpoint.SaveTimeout, MaxHistory: c.Checkpoint.MaxHistory,
		WorkerID: c.WorkerID, Logger: c.Logger, Metrics: c.Metrics,
	})
	run.publishing = newPublishing(e.Context(), h.Worker, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	return &engine.Rehearsal{Templates: slices.Collect(maps.Values(h.templates)), Close: e.Close,
		Run: func(plan *store.Plan, claim *store.Claimed) (engine.Played, error) {
			x, played, err := e.Rehearse(plan, claim)
			if err == nil {
				played.Events = eventsOf(x)
			}
			return played, err
		}}
}
