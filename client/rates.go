package client

import (
	"context"
	"time"
)

// RatesPeriod is the time that rates are of.
type RatesPeriod struct {
	At                Time       `json:"at" format:"date-time" doc:"When they were read, by the database's clock"`
	From              Time       `json:"from" format:"date-time" doc:"Where the time begins: at a multiple of the resolution"`
	To                Time       `json:"to" format:"date-time"`
	ResolutionSeconds int        `json:"resolution_seconds" doc:"60, 600, 3600 or 86400"`
	DepthsSeenAt      *Time      `json:"depths_seen_at,omitempty" format:"date-time" doc:"When waiting and running steps were last counted; absent: never"`
	Gaps              []RatesGap `json:"gaps" nullable:"false" doc:"Daemons of that time which ended without signing off: what they did from their last heartbeat on may be missing in the rates. The newest 100"`
}

// RatesGap is a daemon whose last counts may be missing.
type RatesGap struct {
	Kind string `json:"kind" doc:"orchestrator or worker"`
	ID   string `json:"id"`
	From Time   `json:"from" format:"date-time" doc:"Its last heartbeat"`
}

// Durations says how long something took. Quantiles are estimates from buckets, each twice as wide as the one before.
type Durations struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds,omitempty" doc:"The longest; absent for waiting"`
}

// AttemptRates are the attempts of steps in a time.
type AttemptRates struct {
	Success   int64     `json:"success"`
	Failed    int64     `json:"failed" doc:"Failed, and the step runs again"`
	Error     int64     `json:"error" doc:"Failed for good"`
	LeaseLost int64     `json:"lease_lost" doc:"Their workers were lost"`
	Cancelled int64     `json:"cancelled"`
	Waiting   Durations `json:"waiting" doc:"From when they could begin to their claims"`
	Running   Durations `json:"running" doc:"From the claims to the reports"`
}

// Attempts is the number of all of them.
func (r *AttemptRates) Attempts() int64 {
	return r.Success + r.Failed + r.Error + r.LeaseLost + r.Cancelled
}

// Depth is how much waits and runs, as last seen.
type Depth struct {
	Waiting       int     `json:"waiting" doc:"Steps; of each priority up to sweeps.depths.limit are counted"`
	Running       int     `json:"running"`
	OldestSeconds float64 `json:"oldest_seconds" doc:"How long the first of the waiting ones had waited"`
}

// CallableRates are the attempts of a callable in a time, and what waits for it.
type CallableRates struct {
	Namespace string `json:"namespace"`
	Callable  string `json:"callable"`
	Method    string `json:"method,omitempty"`
	Resolver  string `json:"resolver,omitempty"`
	AttemptRates
	Depth Depth `json:"depth"`
}

// CallableRatesList has the callables with attempts in a time, or with steps that wait or run.
type CallableRatesList struct {
	RatesPeriod
	Callables []CallableRates `json:"callables" nullable:"false"`
	Truncated bool            `json:"truncated,omitempty" doc:"There are more callables than an answer has"`
}

// CallableSeries is what a callable did, piece by piece of a time, and for each version of its templates.
type CallableSeries struct {
	RatesPeriod
	Points   []CallablePoint   `json:"points" nullable:"false" doc:"Of each piece of the time in which something happened"`
	Versions []CallableVersion `json:"versions" nullable:"false" doc:"Of the whole time"`
}

// CallablePoint is what a callable did from a time on.
type CallablePoint struct {
	At Time `json:"at" format:"date-time"`
	AttemptRates
	Depth *Depth `json:"depth,omitempty" doc:"The most that was seen; absent: nothing waited or ran when the fleet looked, or it did not look"`
}

// CallableVersion is what a callable did for a step of a version of a template.
type CallableVersion struct {
	Task    string `json:"task"`
	Version string `json:"version"`
	Step    string `json:"step"`
	AttemptRates
}

// TaskRates are tasks in a time: how many were created, and how others ended.
type TaskRates struct {
	Created     int64   `json:"created"`
	Completed   int64   `json:"completed"`
	Failed      int64   `json:"failed"`
	Cancelled   int64   `json:"cancelled"`
	Resolved    int64   `json:"resolved" doc:"Resolved manually"`
	MeanSeconds float64 `json:"mean_seconds" doc:"From the request to the end, of those that ended"`
}

// NamespaceRates are the tasks of a namespace in a time, and what waits there.
type NamespaceRates struct {
	Namespace string `json:"namespace"`
	TaskRates
	Depth Depth `json:"depth"`
}

// NamespaceRatesList has the rates of namespaces.
type NamespaceRatesList struct {
	RatesPeriod
	Namespaces []NamespaceRates `json:"namespaces" nullable:"false"`
	Points     []NamespacePoint `json:"points,omitempty" doc:"Of each piece of the time in which something happened, where one namespace is asked for"`
}

// NamespacePoint is what happened in a namespace from a time on.
type NamespacePoint struct {
	At Time `json:"at" format:"date-time"`
	TaskRates
	Depth Depth `json:"depth" doc:"The most that was seen"`
}

// RatesOptions select the time of rates; zero values are the last hour in pieces that suit it.
type RatesOptions struct {
	Last       time.Duration // before To; not with From
	From, To   time.Time
	Resolution time.Duration // a minute, ten minutes, an hour or a day
}

func (o RatesOptions) parameters() parameters {
	q := parameters{"last_seconds": int(o.Last / time.Second), "resolution": int(o.Resolution / time.Second)}
	for name, at := range map[string]time.Time{"from": o.From, "to": o.To} {
		if !at.IsZero() {
			q[name] = &Time{Time: at}
		}
	}
	return q
}

// CallableRates returns how the callables of a namespace, or of all with "", did in a time.
func (c *Client) CallableRates(ctx context.Context, namespace string, o RatesOptions) (*CallableRatesList, error) {
	q := o.parameters()
	q["namespace"] = namespace
	return get[CallableRatesList](ctx, c, q, "v1", "metrics", "callables")
}

// CallableSeries returns how a callable did, piece by piece of a time. method and resolver are those that steps give it;
// "" for none.
func (c *Client) CallableSeries(ctx context.Context, namespace, callable, method, resolver string, o RatesOptions) (*CallableSeries, error) {
	q := o.parameters()
	q["namespace"], q["callable"], q["method"], q["resolver"] = namespace, callable, method, resolver
	return get[CallableSeries](ctx, c, q, "v1", "metrics", "callable")
}

// NamespaceRates returns how many tasks of a namespace were created and ended in a time, also piece by piece; or those
// of all with "".
func (c *Client) NamespaceRates(ctx context.Context, namespace string, o RatesOptions) (*NamespaceRatesList, error) {
	q := o.parameters()
	q["namespace"] = namespace
	return get[NamespaceRatesList](ctx, c, q, "v1", "metrics", "namespaces")
}
