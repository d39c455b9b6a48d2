package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/client"
)

// stats shows the rates that are kept.
func (a *app) stats() command {
	o, namespace, method, resolver := client.RatesOptions{Last: time.Hour}, "", "", ""
	var since, until *client.Time
	period := func() client.RatesOptions {
		if since != nil {
			o.Last, o.From = 0, since.Time
		}
		if until != nil {
			o.To = until.Time
		}
		return o
	}
	timeFlags := func() flags {
		return all(
			opt(&o.Last, "last", "how far back"),
			opt(&since, "since", "from a `time` (RFC 3339) or an age (24h) on, instead of --last"),
			opt(&until, "until", "before a `time` or an age"),
			opt(&o.Resolution, "resolution", "length of the pieces: 1m, 10m, 1h or 24h; else what suits the time",
				checked("1m, 10m, 1h or 24h", func(string) bool {
					return o.Resolution == time.Minute || o.Resolution == 10*time.Minute || o.Resolution == time.Hour || o.Resolution == 24*time.Hour
				})),
		)
	}
	callableFlags := func() flags {
		return all(a.namespace(&namespace, "the namespace of the callable"), opt(&method, "method", "the method that steps name with it"),
			opt(&resolver, "resolver", "the resolver that steps name with it"), timeFlags())
	}
	series := func(ctx context.Context, c *api, args []string) (*client.CallableSeries, error) {
		return c.CallableSeries(ctx, namespace, args[0], method, resolver, period())
	}
	return command{
		use: "stats", aliases: []string{"rates"}, short: "Show how much was done, how it ended and how long it took",
		long: `Shows what daemons have counted: the attempts of steps by callable, with how long they
waited and ran, and the tasks of namespaces. Rates of minutes are kept for two weeks and
those of hours for three months, unless the configuration says otherwise. They are as old
as a heartbeat and the sweep that adds them up; what waits is as old as its last count.`,
		commands: []command{
			{use: "callables", lists: true, short: "List the callables with attempts, or with steps that wait or run",
				example: "  tasker-ctl stats callables -n payments --last 24h",
				flags:   all(a.namespace(&namespace, "only of this namespace"), timeFlags()),
				run: ask(a, func(ctx context.Context, c *api, _ []string) (*client.CallableRatesList, error) {
					return c.CallableRates(ctx, namespace, period())
				}, func(l *client.CallableRatesList) { listing(a, callableRatesFacts(l))(l.Callables); a.gaps(l.Gaps) })},
			{use: "callable CALLABLE", short: "Show a callable piece by piece of a time",
				example: "  tasker-ctl stats callable charge -n payments --last 24h --resolution 1h",
				flags:   callableFlags(),
				run:     ask(a, series, func(s *client.CallableSeries) { listing(a, pointFacts(s))(s.Points); a.gaps(s.Gaps) })},
			{use: "versions CALLABLE", short: "Show what a callable did for each version of its templates",
				flags: callableFlags(),
				run:   ask(a, series, func(s *client.CallableSeries) { listing(a, versionFacts)(s.Versions); a.gaps(s.Gaps) })},
			{use: "namespaces", lists: true, short: "List how many tasks of namespaces were created and ended",
				flags: all(a.namespace(&namespace, "only this namespace"), timeFlags()),
				run: ask(a, func(ctx context.Context, c *api, _ []string) (*client.NamespaceRatesList, error) {
					return c.NamespaceRates(ctx, namespace, period())
				}, func(l *client.NamespaceRatesList) { listing(a, namespaceRatesFacts)(l.Namespaces); a.gaps(l.Gaps) })},
			{use: "namespace NAMESPACE", short: "Show the tasks of a namespace piece by piece of a time",
				flags: timeFlags(),
				run: ask(a, func(ctx context.Context, c *api, args []string) (*client.NamespaceRatesList, error) {
					return c.NamespaceRates(ctx, args[0], period())
				}, func(l *client.NamespaceRatesList) { listing(a, namespacePointFacts)(l.Points); a.gaps(l.Gaps) })},
		},
	}
}

// gaps says what may be missing.
func (a *app) gaps(gaps []client.RatesGap) {
	for i := range gaps {
		a.printf("%s %s ended without signing off: what it did from %s on may be missing\n", gaps[i].Kind, gaps[i].ID, gaps[i].From.Format(time.DateTime+"Z"))
	}
}

// attemptFacts are the columns of attempts.
func attemptFacts(r *client.AttemptRates, over float64) facts {
	list := facts{{"ATTEMPTS", r.Attempts()}}
	if over > 0 {
		list = append(list, fact{"PER SECOND", fmt.Sprintf("%.2f", float64(r.Attempts())/over)})
	}
	return append(list, fact{"FAILED", r.Failed}, fact{"ERROR", r.Error}, fact{"LOST", r.LeaseLost}, fact{"WAITED P50", short(r.Waiting, r.Waiting.P50)},
		fact{"WAITED P95", short(r.Waiting, r.Waiting.P95)}, fact{"RAN P50", short(r.Running, r.Running.P50)}, fact{"RAN P95", short(r.Running, r.Running.P95)},
		fact{"RAN P99", short(r.Running, r.Running.P99)})
}

// short writes a duration of which there is one.
func short(d client.Durations, seconds float64) string {
	if d.Count == 0 {
		return ""
	}
	return brief(seconds)
}

// brief writes seconds with two digits that count.
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond} {
		if d >= 10*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(100 * time.Microsecond).String()
}

// callableCell names what steps call.
func callableCell(name, method, resolver string) string {
	if method != "" {
		name += "." + method
	}
	if resolver != "" {
		name += " by " + resolver
	}
	return name
}

func callableRatesFacts(l *client.CallableRatesList) func(r *client.CallableRates) facts {
	over := l.To.Sub(l.From.Time).Seconds()
	return func(r *client.CallableRates) facts {
		list := append(facts{{"NAMESPACE", r.Namespace}, {"CALLABLE", callableCell(r.Callable, r.Method, r.Resolver)}}, attemptFacts(&r.AttemptRates, over)...)
		return append(list, depthFacts(&r.Depth)...)
	}
}

func depthFacts(d *client.Depth) facts {
	oldest := ""
	if d.Waiting > 0 {
		oldest = brief(d.OldestSeconds)
	}
	return facts{{"WAITING", d.Waiting}, {"RUNNING", d.Running}, {"OLDEST", oldest}}
}

func pointFacts(s *client.CallableSeries) func(p *client.CallablePoint) facts {
	return func(p *client.CallablePoint) facts {
		list := append(facts{{"AT", p.At}}, attemptFacts(&p.AttemptRates, float64(s.ResolutionSeconds))...)
		if p.Depth == nil {
			return append(list, fact{"WAITING", ""}, fact{"RUNNING", ""}, fact{"OLDEST", ""})
		}
		return append(list, depthFacts(p.Depth)...)
	}
}

func versionFacts(v *client.CallableVersion) facts {
	return append(facts{{"TASK", v.Task}, {"VERSION", v.Version}, {"STEP", v.Step}}, attemptFacts(&v.AttemptRates, 0)...)
}

func taskRatesFacts(r *client.TaskRates, d *client.Depth) facts {
	mean := ""
	if r.Completed+r.Failed+r.Cancelled+r.Resolved > 0 {
		mean = brief(r.MeanSeconds)
	}
	return append(facts{{"CREATED", r.Created}, {"COMPLETED", r.Completed}, {"FAILED", r.Failed}, {"CANCELLED", r.Cancelled},
		{"RESOLVED", strconv.FormatInt(r.Resolved, 10)}, {"MEAN", mean}}, depthFacts(d)...)
}

func namespaceRatesFacts(r *client.NamespaceRates) facts {
	return append(facts{{"NAMESPACE", r.Namespace}}, taskRatesFacts(&r.TaskRates, &r.Depth)...)
}

func namespacePointFacts(p *client.NamespacePoint) facts {
	return append(facts{{"AT", p.At}}, taskRatesFacts(&p.TaskRates, &p.Depth)...)
}
