package worker

import (
	"maps"
	"slices"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// Rehearse is for package workertest, through which programs use it: it runs single
// handlers of a worker that was not started. board keeps what handlers save and answers
// what they read; it is a part of the worker's inside.
func (w *Worker) Rehearse(board engine.Board) *engine.Rehearsal {
	c, run := &w.cfg, &runner{cfg: &w.cfg, chain: w.chain, board: board}
	e := engine.New(engine.Config{
		ID: &w.id, Board: board, New: run.newExecution, MaxConcurrent: 1, HandlerTimeout: c.HandlerTimeout,
		Report: engine.Report(c.Report), SaveTimeout: c.Checkpoint.SaveTimeout, MaxHistory: c.Checkpoint.MaxHistory,
		WorkerID: c.WorkerID, Logger: c.Logger, Metrics: c.Metrics,
	})
	run.publishing = newPublishing(e.Context(), w, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	return &engine.Rehearsal{Templates: slices.Collect(maps.Values(w.templates)), Close: e.Close,
		Run: func(plan *store.Plan, claim *store.Claimed) (engine.Played, error) {
			x, played, err := e.Rehearse(plan, claim)
			if err == nil {
				played.Events = eventsOf(x)
			}
			return played, err
		}}
}

// eventsOf lists the events of an execution that ended.
func eventsOf(x *engine.Execution) (list []events.Event) {
	s, ok := x.Step.(*step)
	if !ok {
		return nil
	}
	for i := range s.published {
		list = append(list, s.published[i].event)
	}
	return list
}
