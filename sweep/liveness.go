package sweep

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/telemetry"
)

// LivenessConfig is about workers that send no heartbeat any more.
type LivenessConfig struct {
	Off      bool
	Interval time.Duration // default 15 s
	Lease    time.Duration // default 30 s
	Stale    time.Duration // without a heartbeat: stale; default 30 s
	// Dead is when a silent worker is given up: what it has claimed goes to
	// others at once, and should it come back it has to register anew. Default
	// 120 s, never less than Stale.
	Dead  time.Duration
	Batch int // workers, and claims of dead ones, per statement; default 100
}

type liveness struct {
	store     Store
	publisher signal.Publisher
	metrics   *telemetry.Metrics
	limits    store.LivenessLimits
	bounds    bounds
}

// The actions on workers, and on what they hold.
var (
	markStale   = action{"marked_stale", "would_mark_stale"}
	markActive  = action{"marked_active", "would_mark_active"}
	markDead    = action{"marked_dead", "would_mark_dead"}
	releaseStep = action{"released_steps", "would_release_steps"}
)

func livenessJob(cfg Config) Job {
	c := cfg.Liveness
	stale := orDefault(c.Stale, 30*time.Second)
	lease := orDefault(c.Lease, 30*time.Second)
	l := &liveness{store: cfg.Store, publisher: cfg.Publisher, metrics: cfg.Metrics, bounds: boundsOf(lease, cfg.Clock),
		limits: store.LivenessLimits{Stale: stale, Dead: max(orDefault(c.Dead, 2*time.Minute), stale), Batch: orDefault(c.Batch, 100)}}
	return Job{Name: "liveness", Interval: orDefault(c.Interval, 15*time.Second), Lease: lease, Run: l.run}
}

func (l *liveness) run(ctx context.Context, dry bool) (res Result, err error) {
	if dry { // it changes nothing, so that a second batch would be the first again
		res.More, err = l.batch(ctx, &res, true)
		return res, err
	}
	res.More, err = l.bounds.repeat(ctx, func() (more bool, err error) { return l.batch(ctx, &res, false) })
	return res, err
}

func (l *liveness) batch(ctx context.Context, res *Result, dry bool) (more bool, err error) {
	found, err := l.store.SweepLiveness(ctx, l.limits, dry)
	if err != nil {
		return false, err
	}
	for _, g := range []struct {
		action  action
		workers []store.WorkerRef
	}{{markStale, found.Stale}, {markActive, found.Recovered}, {markDead, found.Dead}} {
		name := g.action.name(dry)
		res.count(name, len(g.workers))
		for _, w := range g.workers {
			res.show(Finding{Subject: w.UUID.String(), Action: name, Detail: describeWorker(w)})
		}
	}
	res.count(releaseStep.name(dry), found.Released)
	if dry {
		return found.More, nil
	}
	l.metrics.WorkersDied.Add(float64(len(found.Dead)))
	if len(found.Signals) > 0 && !l.store.SendsSignals() {
		l.publisher.Publish(found.Signals...)
	}
	return found.More, nil
}

func describeWorker(w store.WorkerRef) string {
	return fmt.Sprintf("%s on %s, silent for %s", w.ID, w.Hostname, w.HeartbeatAge.Round(time.Second))
}
