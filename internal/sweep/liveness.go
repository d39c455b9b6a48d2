package sweep

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// LivenessConfig configures the sweep of workers without heartbeats.
type LivenessConfig struct {
	Off      bool
	Interval time.Duration
	Stale    time.Duration // without a heartbeat: stale
	// Dead is the age of the last heartbeat from which a worker is dead: its claims are
	// released at once, and it must register anew if it comes back. Never less than
	// Stale.
	Dead  time.Duration
	Batch int // workers, and claims of dead ones, per statement
}

// livenessLease bounds a run.
const livenessLease = 30 * time.Second

type liveness struct {
	store     Store
	publisher signal.Publisher
	metrics   *telemetry.Metrics
	limits    store.LivenessLimits
	bounds    bounds
}

// The actions on workers and their claims.
var (
	markStale   = action{"marked_stale", "would_mark_stale"}
	markActive  = action{"marked_active", "would_mark_active"}
	markDead    = action{"marked_dead", "would_mark_dead"}
	releaseStep = action{"released_steps", "would_release_steps"}
)

func livenessJob(cfg Config) Job {
	c := cfg.Liveness
	l := &liveness{store: cfg.Store, publisher: cfg.Publisher, metrics: cfg.Metrics, bounds: boundsOf(livenessLease),
		limits: store.LivenessLimits{Stale: c.Stale, Dead: max(c.Dead, c.Stale), Batch: c.Batch}}
	return Job{Name: "liveness", Interval: c.Interval, Lease: livenessLease, Run: l.run}
}

func (l *liveness) run(ctx context.Context, dry bool) (res Result, err error) {
	if dry { // it changes nothing, so a second batch would repeat the first
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
