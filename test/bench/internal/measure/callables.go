package measure

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// callables has a worker offer ever more callables, of which one or all are called.
func (b *Bench) callables(ctx context.Context) error {
	t := b.Report.Table("Callables that a worker offers, drain of one-step tasks", "callables", "of these called", "tasks", "tasks/s",
		"ms per claim", "steps per claim", "claim µs/step", "submit → handler p50 ms")
	t.Notes = []string{"Times of claims are from tasker_store_statement_seconds; submit → handler is idle, one task at a time."}
	var first, idle, spread grown
	for _, n := range []struct{ offered, called, tasks int }{
		{1, 1, b.Sizes.Drain / 2}, {100, 1, b.Sizes.Drain / 2}, {1000, 1, b.Sizes.Drain / 2},
		{100, 100, b.Sizes.Drain / 10}, {1000, 1000, b.Sizes.Drain / 10}} {
		b.logf("  %d callables, %d called", n.offered, n.called)
		g, err := b.offer(ctx, t, n.offered, n.called, n.tasks)
		if err != nil {
			return fmt.Errorf("%d callables, %d called: %w", n.offered, n.called, err)
		}
		switch {
		case n.offered == 1:
			first = g
		case n.called == 1:
			idle = g
		default:
			spread = g
		}
	}
	b.Report.Set("callables.claim_ratio", idle.claim/first.claim)
	b.Report.Set("callables.rate_ratio", idle.rate/first.rate)
	b.Report.Set("callables.spread_ratio", spread.rate/first.rate)
	return nil
}

// offer measures one number of callables and adds its row.
func (b *Bench) offer(ctx context.Context, t *report.Table, offered, called, tasks int) (g grown, err error) {
	all := load.Callables(offered)
	o := rig.FleetOptions{WorkerEnv: []string{"WORKER_NAMESPACES=" + all[0].Namespace, fmt.Sprintf("%s=%d", load.CallablesEnv, offered)}}
	s, err := b.fleet(ctx, b.Rig.Stock(), o, all[:called], 1, 0)
	if err != nil {
		return g, err
	}
	defer s.Close()
	templates, err := load.CallableTemplates(offered)
	if err != nil {
		return g, err
	}
	if err := s.board.RegisterTemplates(ctx, templates); err != nil {
		return g, err
	}
	d, err := s.drain(ctx, tasks, 1)
	if err != nil {
		return g, err
	}
	metrics, err := rig.Scrape(ctx, s.Workers)
	if err != nil {
		return g, err
	}
	g.rate = d.rate()
	g.perStep(rig.Metrics{}, metrics)
	r := &latencyRun{b: b, api: s.server(), board: s.board}
	ids, err := r.tasks(ctx, s.board, all[0], b.Sizes.Latency, warmTasks)
	if err != nil {
		return g, err
	}
	starts, err := s.board.Starts(ctx, ids)
	if err != nil {
		return g, err
	}
	t.Add(offered, called, num(float64(tasks)), num(g.rate), num(g.claimMS), num(g.claimSize), num(g.claim), ms(stats.Summarize(starts).P50))
	return g, nil
}
