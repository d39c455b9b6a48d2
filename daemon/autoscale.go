package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/autoscale"
	"github.com/tasker-go/tasker/internal/store"
)

// autoscaling advises how many workers each namespace should have, over the API and as a
// metric. Each orchestrator computes it from the database by itself. It is safe for
// concurrent use.
type autoscaling struct {
	loads  loads
	limit  int // up to which waiting steps are counted
	desc   *prometheus.Desc
	target time.Duration
	window time.Duration
	sampled[advices]
	dampers map[string]*autoscale.Damper // of read, which runs one at a time
}

// loads reads what callables have to do, and the workers of namespaces.
type loads func(ctx context.Context, alive time.Duration, limit int) ([]store.CallableLoad, []store.NamespaceWorkers, error)

// advices are by namespace; all have one error or none.
type advices struct {
	of  map[string]autoscale.Advice
	err error
}

func newAutoscaling(of loads, c config.Orchestration, limit int, desc *prometheus.Desc) *autoscaling {
	return &autoscaling{loads: of, limit: limit, desc: desc, target: c.Autoscaling.TargetWait, window: c.Autoscaling.ScaleDownAfter,
		sampled: sampled[advices]{now: time.Now}, dampers: map[string]*autoscale.Damper{}}
}

// advise returns the advice for a namespace; the error wraps store.ErrNotFound if there is
// no such namespace.
func (a *autoscaling) advise(ctx context.Context, namespace string) (autoscale.Advice, error) {
	all := a.get(ctx, a.read)
	if all.err != nil {
		return autoscale.Advice{}, all.err
	}
	advice, ok := all.of[namespace]
	if !ok {
		return advice, fmt.Errorf("namespace %q: %w", namespace, store.ErrNotFound)
	}
	return advice, nil
}

func (a *autoscaling) read(ctx context.Context) advices {
	loads, workers, err := a.loads(ctx, rest.FleetLive, a.limit)
	if err != nil {
		return advices{err: err}
	}
	of := make(map[string]autoscale.Advice, len(workers))
	for _, w := range workers {
		of[w.Namespace] = autoscale.Advice{Namespace: w.Namespace, Workers: w.Workers, Permits: w.Permits, TargetWait: a.target.Seconds(),
			Callables: []autoscale.CallableAdvice{}}
	}
	for i := range loads {
		l := &loads[i]
		advice, ok := of[l.Namespace]
		if !ok {
			continue // registered since
		}
		permits := autoscale.Load{Waiting: l.Waiting, Running: l.Running, Oldest: l.Oldest, Service: l.Service, Expected: l.Expected}.Permits(a.target)
		advice.NeededPermits += permits
		advice.Callables = append(advice.Callables, autoscale.CallableAdvice{Callable: l.Handler.Callable, Method: l.Handler.Method,
			Resolver: l.Handler.Resolver, Waiting: l.Waiting, Running: l.Running, OldestSeconds: l.Oldest.Seconds(),
			Service: l.Service.Seconds(), Expected: l.Expected.Seconds(), NeededPermits: permits})
		of[l.Namespace] = advice
	}
	a.damp(of)
	return advices{of: of}
}

// damp completes the advices by those of the last time; namespaces are never deleted.
func (a *autoscaling) damp(of map[string]autoscale.Advice) {
	for name, advice := range of {
		advice.NeededWorkers = autoscale.Workers(advice.NeededPermits, advice.Permits)
		d := a.dampers[name]
		if d == nil {
			d = &autoscale.Damper{Window: a.window}
			a.dampers[name] = d
			d.Add(a.now(), advice.Workers) // what was needed before the start is known by those that live
		}
		advice.DesiredWorkers = d.Add(a.now(), advice.NeededWorkers)
		of[name] = advice
	}
}

// Describe implements prometheus.Collector.
func (a *autoscaling) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector; without an answer it reports nothing.
func (a *autoscaling) Collect(ch chan<- prometheus.Metric) {
	for name, advice := range a.get(context.Background(), a.read).of {
		ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, float64(advice.DesiredWorkers), name)
	}
}
