package sweep

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/internal/store"
)

// ratesLease bounds a run of the sweeps of rates.
const ratesLease = time.Minute

// addUp adds up what daemons and creations have counted. A dry run has nothing to say: what is counted is added up, or is
// still to be.
func addUp(cfg *Config) Job {
	s := cfg.Settings.Sweeps.Rates
	begin := func(dry bool) look {
		return func(ctx context.Context, res *Result) (more bool, err error) {
			if dry {
				return false, nil
			}
			added, more, err := cfg.Store.AddUpRates(ctx, s.BatchSize)
			res.count("added_up", added)
			return more, err
		}
	}
	return Job{Name: "rates", Interval: s.Interval, Lease: ratesLease, Wanted: cfg.Store.RatesToAddUp, Run: inBatches(ratesLease, false, begin)}
}

// depths counts what waits and runs of callables, for those who read it as often as they like.
func depths(cfg *Config) Job {
	s := cfg.Settings.Sweeps.Depths
	run := func(ctx context.Context, dry bool) (res Result, err error) {
		found, err := cfg.Store.Depths(ctx, s.Limit)
		if err != nil || dry {
			return res, err
		}
		list := make([]store.CallDepth, len(found))
		for i := range found {
			f := &found[i]
			list[i] = store.CallDepth{Callable: f.ID, Waiting: f.Waiting, Running: f.Running, Oldest: f.Oldest}
		}
		res.count("counted_callables", len(list))
		return res, cfg.Store.KeepDepths(ctx, list)
	}
	return Job{Name: "depths", Interval: s.Interval, Lease: ratesLease, Run: run}
}
