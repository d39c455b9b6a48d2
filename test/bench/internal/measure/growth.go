package measure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
	"github.com/tasker-go/tasker/test/fleet"
)

// beside is how many tasks wait where something else grows.
const beside = 10_000

// grown is the result of one size.
type grown struct {
	rate float64
	// Mean time of a claim in ms, steps per claim, and time per step in µs of
	// claiming, reporting and applying, from the daemons' own metrics.
	claimMS, claimSize, claim, report, apply float64
	orchestratorMB, workerMB                 float64
}

// growth measures with many waiting tasks, many finished ones and many queues.
func (b *Bench) growth(ctx context.Context) error {
	t := b.Report.Table("Growth, one-step tasks with creation going on", "waiting", "finished", "queues", "tasks/s", "ms per claim", "steps per claim",
		"claim µs/step", "report µs/step", "apply µs/step", "orchestrator MB", "worker MB")
	t.Notes = []string{"Waiting and finished tasks are made by INSERT … SELECT straight in the tables; then tasks are created as fast as they end.",
		"Times are from tasker_store_statement_seconds, memory is the peak (VmHWM)."}
	var first, last grown
	for i, waiting := range b.Sizes.Waiting {
		g, err := b.grow(ctx, t, waiting, 0, 1)
		if err != nil {
			return err
		}
		if i == 0 {
			first = g
		}
		last = g
	}
	if first.rate == 0 || first.claim == 0 || first.apply == 0 {
		return fmt.Errorf("nothing was done with %d waiting tasks", b.Sizes.Waiting[0])
	}
	b.Report.Set("growth.waiting.rate_ratio", last.rate/first.rate)
	b.Report.Set("growth.waiting.claim_ratio", last.claim/first.claim)
	b.Report.Set("growth.waiting.apply_ratio", last.apply/first.apply)
	base, err := b.grow(ctx, t, beside, 0, 1)
	if err != nil {
		return err
	}
	for _, finished := range b.Sizes.Finished {
		g, err := b.grow(ctx, t, beside, finished, 1)
		if err != nil {
			return err
		}
		b.Report.Set("growth.finished.rate_ratio", g.rate/base.rate)
	}
	for _, queues := range b.Sizes.Queues {
		if queues == 1 {
			continue // base
		}
		g, err := b.grow(ctx, t, beside, 0, queues)
		if err != nil {
			return err
		}
		b.Report.Set("growth.queues.rate_ratio", g.rate/base.rate)
	}
	return nil
}

// grow measures one size and adds its row.
func (b *Bench) grow(ctx context.Context, t *report.Table, waiting, finished, queues int) (grown, error) {
	b.logf("  %s waiting, %s finished, %d queues", num(float64(waiting)), num(float64(finished)), queues)
	names, mix := namespaces(queues)
	o := rig.FleetOptions{}
	if queues > 1 {
		o.WorkerEnv = []string{"WORKER_NAMESPACES=" + strings.Join(names, ",")}
	}
	s, err := b.fleet(ctx, b.Rig.Stock(), o, mix, 1, 0)
	if err != nil {
		return grown{}, err
	}
	defer s.Close()
	if err := s.board.Register(ctx, names); err != nil {
		return grown{}, err
	}
	if err := s.board.GenerateFinished(ctx, names, finished); err != nil {
		return grown{}, err
	}
	if err := s.board.GenerateWaiting(ctx, names, waiting); err != nil {
		return grown{}, err
	}
	if err := s.Start(ctx, fleet.Worker, 1); err != nil {
		return grown{}, err
	}
	g, err := b.measureGrown(ctx, s, int64(waiting))
	if err != nil {
		return grown{}, err
	}
	b.Report.Set("growth.memory_mb", max(b.Report.Figures["growth.memory_mb"], g.orchestratorMB, g.workerMB))
	t.Add(num(float64(waiting)), num(float64(finished)), queues, num(g.rate), num(g.claimMS), num(g.claimSize), num(g.claim), num(g.report), num(g.apply),
		num(g.orchestratorMB), num(g.workerMB))
	return g, nil
}

func (b *Bench) measureGrown(ctx context.Context, s *ours, waiting int64) (g grown, err error) {
	// Small and frequent additions, the same at every size: so few may wait.
	feed := load.Feed{Backlog: int(waiting), Batch: 2000, Waiting: waiting, Every: 40 * time.Millisecond}
	if _, err := load.Keep(ctx, s, feed, warmUp); err != nil {
		return g, err
	}
	if feed.Waiting, err = s.board.Live(ctx); err != nil {
		return g, err
	}
	before, err := rig.Scrape(ctx, append(s.Orchestrators, s.Workers...))
	if err != nil {
		return g, err
	}
	samples, err := load.Keep(ctx, s, feed, b.Sizes.Steady)
	if err != nil {
		return g, err
	}
	after, err := rig.Scrape(ctx, append(s.Orchestrators, s.Workers...))
	if err != nil {
		return g, err
	}
	g.rate = stats.Rate(samples, 0, b.Sizes.Steady)
	g.perStep(before, after)
	if g.orchestratorMB, err = rig.PeakMB(s.Orchestrators[0].PID()); err != nil {
		return g, err
	}
	g.workerMB, err = rig.PeakMB(s.Workers[0].PID())
	return g, err
}

// perStep derives times from the growth of the metrics.
func (g *grown) perStep(before, after rig.Metrics) {
	grew := func(name string, flows ...string) float64 {
		sum := 0.0
		for _, f := range flows {
			label := fmt.Sprintf("flow=%q", f)
			sum += after.Sum(name, label) - before.Sum(name, label)
		}
		return sum
	}
	const seconds, count = "tasker_store_statement_seconds_sum", "tasker_store_statement_seconds_count"
	steps := after.Sum("tasker_steps_claimed_total") - before.Sum("tasker_steps_claimed_total")
	if steps == 0 {
		return
	}
	const micro = 1e6
	claims := grew(count, "claim", "claim_full")
	g.claimMS = grew(seconds, "claim", "claim_full") * 1000 / max(claims, 1)
	g.claimSize = steps / max(claims, 1)
	g.claim = grew(seconds, "claim", "claim_full") * micro / steps
	g.report = grew(seconds, "report") * micro / steps
	// Undecided results have no apply time yet.
	applied := after.Sum("tasker_step_results_total") - before.Sum("tasker_step_results_total")
	g.apply = grew(seconds, "settle", "report_and_take", "take", "apply") * micro / max(applied, 1)
}

// namespaces are the queues of a number and the workflows in them.
func namespaces(n int) (names []string, mix []load.Workflow) {
	if n == 1 {
		return []string{load.Namespace}, load.Plain
	}
	for i := range n {
		name := fmt.Sprintf("bench_%04d", i)
		names = append(names, name)
		mix = append(mix, load.Workflow{Name: load.OneStep.Name, Namespace: name, Steps: 1})
	}
	return names, mix
}
