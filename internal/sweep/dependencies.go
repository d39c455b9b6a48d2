package sweep

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// DependenciesConfig configures the sweep of tasks that wait for others and that nothing
// would release. No flow of the engine leaves such a task behind.
type DependenciesConfig struct {
	Off      bool
	Interval time.Duration
	Batch    int // dependencies examined by one transaction
}

// dependenciesLease bounds a run.
const dependenciesLease = time.Minute

type dependencies struct {
	store     Store
	publisher signal.Publisher
	batch     int
	bounds    bounds
	// after is the place where the last run stopped at its bounds.
	after store.DependencyPlace
}

var lookAgain = action{"looked_at_again", "would_look_at_again"}

func dependenciesJob(cfg Config) Job {
	d := &dependencies{store: cfg.Store, publisher: cfg.Publisher, batch: cfg.Dependencies.Batch, bounds: boundsOf(dependenciesLease)}
	return Job{Name: "dependencies", Interval: cfg.Dependencies.Interval, Lease: dependenciesLease, Run: d.run}
}

func (d *dependencies) run(ctx context.Context, dry bool) (res Result, err error) {
	after := d.after
	if dry {
		after = store.DependencyPlace{} // a dry run does not move the place
	}
	name := lookAgain.name(dry)
	res.More, err = d.bounds.repeat(ctx, func() (more bool, err error) {
		found, err := d.store.SweepDependencies(ctx, after, d.batch, dry)
		if err != nil {
			return false, err
		}
		res.count(name, len(found.Tasks))
		for _, id := range found.Tasks {
			res.show(Finding{Subject: id.String(), Action: name, Detail: "it waits for others, and nothing would have released it"})
		}
		if len(found.Signals) > 0 && !d.store.SendsSignals() {
			d.publisher.Publish(found.Signals...)
		}
		if after = found.Next; !dry {
			d.after = after
		}
		return after != store.DependencyPlace{}, nil
	})
	return res, err
}
