package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// warmUp is the part of a steady load that does not count.
const warmUp = 1500 * time.Millisecond

// feedFor keeps a second or two of work waiting.
func feedFor(mix []load.Workflow) load.Feed {
	steps := load.StepsPerTask(mix)
	return load.Feed{Backlog: int(30_000 / steps), Batch: int(10_000 / steps)}
}

// sustain measures the rate of tasks with concurrent creation.
func (b *Bench) sustain(ctx context.Context, mix []load.Workflow, orchestrators, workers int) (float64, error) {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, mix, orchestrators, workers)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	samples, err := load.Keep(ctx, s, feedFor(mix), warmUp+b.Sizes.Steady)
	if err != nil {
		return 0, err
	}
	return stats.Rate(samples, warmUp, warmUp+b.Sizes.Steady), nil
}

// sustainedPlain is the rate of plain tasks with concurrent creation; it is measured
// once.
func (b *Bench) sustainedPlain(ctx context.Context) (float64, error) {
	if b.sustained == 0 {
		rate, err := b.sustain(ctx, load.Plain, 1, 1)
		if err != nil {
			return 0, fmt.Errorf("measure the sustained rate: %w", err)
		}
		b.sustained = rate
	}
	return b.sustained, nil
}

func (b *Bench) steady(ctx context.Context) error {
	t := b.Report.Table("Sustained load, one orchestrator and one worker", "load", "tasks/s", "steps/s")
	t.Notes = []string{"Tasks are created in bulk all the while, on the same machine. Mixed is half one-step, a quarter linear-4, a quarter diamond.",
		"At once: a backlog of linear-4 and diamond is there when the worker starts."}
	plain, err := b.sustainedPlain(ctx)
	if err != nil {
		return err
	}
	t.Add("one-step", num(plain), num(plain))
	mixed, err := b.sustain(ctx, load.Mixed, 1, 1)
	if err != nil {
		return err
	}
	t.Add("mixed", num(mixed), num(mixed*load.StepsPerTask(load.Mixed)))
	d, err := b.drainOurs(ctx, load.Orchestrated, max(b.Sizes.Drain/10, 2000), 1, 1)
	if err != nil {
		return err
	}
	t.Add("linear-4 and diamond at once", num(d.rate()), num(d.steps/d.spent.Seconds()))
	b.Report.Set("sustained.plain.rate", plain)
	b.Report.Set("sustained.mixed.rate", mixed)
	b.Report.Set("orchestrated.steps_rate", d.steps/d.spent.Seconds())
	return nil
}
