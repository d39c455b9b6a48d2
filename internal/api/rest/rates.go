package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// RatesStore has the rates.
type RatesStore interface {
	CallOverview(ctx context.Context, p store.Period, namespaces []string, limit int, alive time.Duration) (store.CallOverview, error)
	CallSeries(ctx context.Context, p store.Period, namespace string, of workflow.HandlerReference, limit int, alive time.Duration) (store.CallSeries, error)
	NamespaceRates(ctx context.Context, p store.Period, namespaces []string, series bool, limit int, alive time.Duration) (store.NamespaceOverview, error)
}

// ratesRoutes show what was counted of callables and namespaces. They read sums alone: what waits, too, is as it was last
// seen, so that a page that refreshes reads no queue.
type ratesRoutes struct{ *orchestratorAPI }

func (r *ratesRoutes) add() {
	op := operation{tag: "metrics"}
	add(r.api, op.at(http.MethodGet, "/v1/metrics/callables", "list-callable-rates", "Show how often callables were called, how that ended and how long it took"), r.callables)
	add(r.api, op.at(http.MethodGet, "/v1/metrics/callable", "get-callable-rates", "Show the same of one callable, piece by piece of a time"), r.callable)
	add(r.api, op.at(http.MethodGet, "/v1/metrics/namespaces", "list-namespace-rates", "Show how many tasks of namespaces were created and how they ended"), r.namespaces)
}

const (
	maxRates      = 5000        // callables, namespaces or versions of an answer
	maxRatePoints = 1500        // of a series
	aliveForRates = time.Minute // a daemon without a heartbeat for so long may have left counts unwritten
	lastOfRates   = time.Hour   // without a time in the request
	fewPieces     = 200         // of a series, whose resolution is not given
	fewSums       = 30          // that are added up for each line of a list
	longestRates  = 366 * 24 * time.Hour
)

// timeOfRates selects the time of rates.
type timeOfRates struct {
	Last       number    `query:"last_seconds" within:"0,31622400,0" doc:"How long before to; 3600 when absent, and from is"`
	From       time.Time `query:"from" format:"date-time" doc:"From then on, instead of last_seconds"`
	To         time.Time `query:"to" format:"date-time" doc:"Before then; now when absent"`
	Resolution number    `query:"resolution" within:"0,86400,0" doc:"Length of the pieces in seconds: 60, 600, 3600 or 86400; when absent, or 0, what suits the time"`
}

// period is the time, whose pieces are so long that there are at most so many of them, if that is not given.
func (in *timeOfRates) period(pieces int) (store.Period, error) {
	p := store.Period{From: in.From, To: in.To, Last: time.Duration(in.Last) * time.Second, Grain: time.Duration(in.Resolution) * time.Second}
	if p.From.IsZero() {
		p.Last = cmp.Or(p.Last, lastOfRates)
	} else if p.Last > 0 {
		return p, badRequest("want from or last_seconds, not both")
	}
	length := p.Last
	if !p.From.IsZero() {
		end := p.To
		if end.IsZero() {
			end = time.Now()
		}
		length = end.Sub(p.From)
	}
	if length <= 0 || length > longestRates {
		return p, badRequest("the time of rates must end behind its beginning, and within 366 days of it")
	}
	if p.Grain != 0 && !slices.Contains(store.RateGrains, p.Grain) {
		return p, badRequest("resolution must be 60, 600, 3600 or 86400")
	}
	for _, g := range store.RateGrains {
		if in.Resolution == 0 && (p.Grain == 0 || length > time.Duration(pieces)*p.Grain) {
			p.Grain = g
		}
	}
	if length/p.Grain > maxRatePoints {
		return p, badRequest("that are more than 1500 pieces: want a larger resolution, or a shorter time")
	}
	return p, nil
}

func periodOf(r *store.ReadRates, grain time.Duration, gaps []store.RatesGap) client.RatesPeriod {
	return client.RatesPeriod{At: client.Time{Time: r.At}, From: client.Time{Time: r.Since}, To: client.Time{Time: r.Till}, ResolutionSeconds: int(grain / time.Second),
		DepthsSeenAt: instant(r.DepthsSeen), Gaps: each(gaps, func(g *store.RatesGap) client.RatesGap {
			return client.RatesGap{Kind: g.Kind, ID: g.ID, From: client.Time{Time: g.From}}
		})}
}

// inNamespace is the namespace that a request is about; nil: all.
func inNamespace(name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	return []string{name}, checkNamespace(name)
}

func (r *ratesRoutes) callables(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Of this namespace alone"`
	timeOfRates
}) (*client.CallableRatesList, error) {
	p, err := in.period(fewSums)
	if err != nil {
		return nil, err
	}
	of, err := inNamespace(in.Namespace)
	if err != nil {
		return nil, err
	}
	o, err := r.store.CallOverview(ctx, p, of, maxRates+1, aliveForRates)
	list := &client.CallableRatesList{RatesPeriod: periodOf(&o.ReadRates, p.Grain, o.Gaps), Truncated: len(o.Calls) > maxRates}
	list.Callables = each(o.Calls[:min(len(o.Calls), maxRates)], func(c *store.CallRates) client.CallableRates {
		return client.CallableRates{Namespace: c.Namespace, Callable: c.Handler.Callable, Method: c.Handler.Method, Resolver: c.Handler.Resolver,
			AttemptRates: attemptsOf(&c.CallFigures), Depth: client.Depth{Waiting: c.Depth, Running: c.InRun, OldestSeconds: c.Oldest.Seconds()}}
	})
	return list, err
}

func attemptsOf(f *store.CallFigures) client.AttemptRates {
	running := howLong(f.Running, f.RunningMS)
	running.Max = float64(f.LongestMS) / 1000
	return client.AttemptRates{Success: f.Succeeded, Failed: f.Failed, Error: f.FailedForGood, LeaseLost: f.Lost, Cancelled: f.Cancelled,
		Waiting: howLong(f.Waiting, f.WaitingMS), Running: running}
}

func howLong(buckets []int, ms int64) client.Durations {
	var h rates.Histogram
	for i, n := range buckets {
		h[i] = int64(n)
	}
	d := client.Durations{Count: h.Count(), P50: h.Quantile(0.5).Seconds(), P95: h.Quantile(0.95).Seconds(), P99: h.Quantile(0.99).Seconds()}
	if d.Count > 0 {
		d.Mean = float64(ms) / 1000 / float64(d.Count)
	}
	return d
}

func (r *ratesRoutes) callable(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Of the callable"`
	Callable  string `query:"callable" doc:"As steps name it"`
	Method    string `query:"method" doc:"That steps give it; absent: none"`
	Resolver  string `query:"resolver" doc:"That steps give it; absent: none"`
	timeOfRates
}) (*client.CallableSeries, error) {
	p, err := in.period(fewPieces)
	if err != nil {
		return nil, err
	}
	if in.Namespace == "" || in.Callable == "" {
		return nil, badRequest("want the namespace and the name of a callable")
	}
	of := workflow.HandlerReference{Callable: in.Callable, Method: in.Method, Resolver: in.Resolver}
	if err := errors.Join(checkNamespace(in.Namespace), filterText("callable", in.Callable), filterText("method", in.Method), filterText("resolver", in.Resolver)); err != nil {
		return nil, noCallable(in.Namespace, in.Callable)
	}
	o, err := r.store.CallSeries(ctx, p, in.Namespace, of, maxRates, aliveForRates)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noCallable(in.Namespace, in.Callable)
	}
	series := &client.CallableSeries{RatesPeriod: periodOf(&o.ReadRates, p.Grain, o.Gaps), Points: pointsOf(&o)}
	series.Versions = each(o.Versions, func(v *store.CallVersion) client.CallableVersion {
		return client.CallableVersion{Task: v.Task, Version: v.Version, Step: v.Step, AttemptRates: attemptsOf(&v.CallFigures)}
	})
	return series, err
}

func noCallable(namespace, callable string) error {
	return notFound(fmt.Sprintf("Callable not found: no step of namespace %q has the callable %q with this method and resolver", clip(namespace, 64), clip(callable, 64)))
}

// pointsOf merges what a callable did with what waited for it.
func pointsOf(o *store.CallSeries) []client.CallablePoint {
	points := each(o.Points, func(p *store.CallPoint) client.CallablePoint {
		return client.CallablePoint{At: client.Time{Time: p.At}, AttemptRates: attemptsOf(&p.CallFigures)}
	})
	for _, d := range o.Depths {
		at, found := slices.BinarySearchFunc(points, d.At, func(p client.CallablePoint, t time.Time) int { return p.At.Compare(t) })
		if !found {
			points = slices.Insert(points, at, client.CallablePoint{At: client.Time{Time: d.At}})
		}
		points[at].Depth = &client.Depth{Waiting: d.Waiting, Running: d.Running, OldestSeconds: d.Oldest.Seconds()}
	}
	return points
}

func (r *ratesRoutes) namespaces(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Of this namespace alone, and piece by piece"`
	timeOfRates
}) (*client.NamespaceRatesList, error) {
	pieces := fewSums
	if in.Namespace != "" {
		pieces = fewPieces
	}
	p, err := in.period(pieces)
	if err != nil {
		return nil, err
	}
	of, err := inNamespace(in.Namespace)
	if err != nil {
		return nil, err
	}
	o, err := r.store.NamespaceRates(ctx, p, of, of != nil, maxRates, aliveForRates)
	if err == nil && of != nil && len(o.Namespaces) == 0 {
		return nil, noNamespace(in.Namespace)
	}
	return &client.NamespaceRatesList{RatesPeriod: periodOf(&o.ReadRates, p.Grain, o.Gaps),
		Namespaces: each(o.Namespaces, func(n *store.NamespaceRates) client.NamespaceRates {
			return client.NamespaceRates{Namespace: n.Namespace, TaskRates: tasksOf(&n.TaskFigures), Depth: client.Depth{Waiting: n.Waiting, Running: n.Running, OldestSeconds: n.Oldest.Seconds()}}
		}),
		Points: each(o.Points, func(p *store.NamespacePoint) client.NamespacePoint {
			return client.NamespacePoint{At: client.Time{Time: p.At}, TaskRates: tasksOf(&p.TaskFigures),
				Depth: client.Depth{Waiting: p.Waiting, Running: p.Running, OldestSeconds: p.Oldest.Seconds()}}
		})}, err
}

func tasksOf(f *store.TaskFigures) client.TaskRates {
	t := client.TaskRates{Created: f.Created, Completed: f.Completed, Failed: f.Failed, Cancelled: f.Cancelled, Resolved: f.Resolved}
	if ended := f.Completed + f.Failed + f.Cancelled + f.Resolved; ended > 0 {
		t.MeanSeconds = float64(f.EndedMS) / 1000 / float64(ended)
	}
	return t
}
