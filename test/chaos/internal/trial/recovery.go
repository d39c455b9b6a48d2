package trial

import (
	"slices"
	"time"

	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// Recovery is the time from the end of faults that struck together until normal work:
// until the first half second with at least nine tenths of the usual rate.
type Recovery struct {
	After []string // the faults
	Took  time.Duration
	// Unknown: the next fault struck before.
	Unknown bool
	// Rates in tasks' worth of steps per second. Usual is the rate of orders, constant
	// over the run, so the rate before any fault; During is the lowest of any half
	// second.
	Usual, During float64
}

const (
	// rateSpan is the span of a rate.
	rateSpan = 500 * time.Millisecond
	// backToSpeed is the share of the usual rate that counts as back.
	backToSpeed = 0.9
)

// pace is when work was done, in order: ends of steps, each weighted by its share of the
// task's width.
type pace struct {
	at     []time.Time
	weight []float64 // of all up to here
}

func paceOf(attempts []check.Attempt) pace {
	flows := map[string]workload.Workflow{}
	for _, w := range workload.Workflows() {
		flows[w.Name] = w
	}
	done := slices.DeleteFunc(slices.Clone(attempts), func(a check.Attempt) bool { return a.Outcome == check.LeaseLost })
	slices.SortFunc(done, func(a, b check.Attempt) int { return a.Applied.Compare(b.Applied) })
	var p pace
	sum := 0.0
	for _, a := range done {
		sum += flows[a.Flow].Weight(a.Step)
		p.at, p.weight = append(p.at, a.Applied), append(p.weight, sum)
	}
	return p
}

// rate is the work per second in a span that begins at a time.
func (p pace) rate(from time.Time, span time.Duration) float64 {
	upTo := func(t time.Time) float64 {
		i, _ := slices.BinarySearchFunc(p.at, t, time.Time.Compare)
		if i == 0 {
			return 0
		}
		return p.weight[i-1]
	}
	return (upTo(from.Add(span)) - upTo(from)) / span.Seconds()
}

// total is all work.
func (p pace) total() float64 {
	if len(p.weight) == 0 {
		return 0
	}
	return p.weight[len(p.weight)-1]
}

// group is faults that struck together.
type group struct {
	names        []string
	began, ended time.Time
}

func groups(strikes []faults.Strike) []group {
	strikes = slices.SortedFunc(slices.Values(strikes), func(a, b faults.Strike) int { return a.Began.Compare(b.Began) })
	var list []group
	for _, s := range strikes {
		if n := len(list); n > 0 && s.Began.Before(list[n-1].ended) {
			list[n-1].names = append(list[n-1].names, s.String())
			if s.Ended.After(list[n-1].ended) {
				list[n-1].ended = s.Ended
			}
			continue
		}
		list = append(list, group{[]string{s.String()}, s.Began, s.Ended})
	}
	return list
}

// recoveries measures the time after each group of faults. end is when orders ended.
func recoveries(p pace, strikes []faults.Strike, start, end time.Time) []Recovery {
	const step = 50 * time.Millisecond
	var list []Recovery
	usual := p.total() / end.Sub(start).Seconds()
	all := groups(strikes)
	for i, g := range all {
		r := Recovery{After: g.names, Usual: usual, During: usual}
		limit := end
		if i+1 < len(all) {
			limit = all[i+1].began
		}
		for at := g.began; at.Before(g.ended); at = at.Add(step) {
			r.During = min(r.During, p.rate(at, rateSpan))
		}
		at := g.ended
		for ; p.rate(at, rateSpan) < backToSpeed*usual; at = at.Add(step) {
			if at.Add(rateSpan).After(limit) {
				r.Unknown = true
				break
			}
		}
		r.Took = at.Sub(g.ended)
		list = append(list, r)
	}
	return list
}
