package simulate

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/order"
)

// Outcome is what a replay comes to.
type Outcome struct {
	Policy  order.Policy `json:"policy"`
	Steps   int          `json:"steps"`
	Wait    Spread       `json:"wait"` // from the arrival to the begin of the handler
	Flow    Spread       `json:"flow"` // from the arrival to its end
	Late    int          `json:"late"` // ended after their deadlines
	Tenants []Tenant     `json:"tenants"`
	// Fairness is Jain's index of the tenants' stretches: 1 where all are alike, 1/n where
	// one of n bears all.
	Fairness float64 `json:"fairness"`
	// Busy is for how long permits were held, and End when the last one became free.
	Busy time.Duration `json:"-"`
	End  time.Duration `json:"-"`
	// Waits are those of the jobs, in their order.
	Waits []time.Duration `json:"-"`
}

// Tenant is the part of one tenant.
type Tenant struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
	Wait  Spread `json:"wait"`
	Flow  Spread `json:"flow"`
	// Share is the tenant's of all the time that permits were held, WaitShare of all waiting.
	Share     float64 `json:"share"`
	WaitShare float64 `json:"wait_share"`
	// Stretch is by how much longer the tenant's steps took than they would have without
	// waiting.
	Stretch float64 `json:"stretch"`
}

// Spread are times. Percentiles are times that occurred (nearest rank).
type Spread struct{ Mean, P50, P95, P99, Longest time.Duration }

// MarshalJSON writes seconds.
func (s Spread) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Mean    float64 `json:"mean_seconds"`
		P50     float64 `json:"p50_seconds"`
		P95     float64 `json:"p95_seconds"`
		P99     float64 `json:"p99_seconds"`
		Longest float64 `json:"longest_seconds"`
	}{s.Mean.Seconds(), s.P50.Seconds(), s.P95.Seconds(), s.P99.Seconds(), s.Longest.Seconds()})
}

// spreadOf sorts the times.
func spreadOf(times []time.Duration) Spread {
	n := len(times)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(times)
	rank := func(share float64) time.Duration { return times[max(int(math.Ceil(share*float64(n))), 1)-1] }
	return Spread{mean(times), rank(0.5), rank(0.95), rank(0.99), times[n-1]}
}

// mean of times, whose sum may be beyond what a Duration holds.
func mean(times []time.Duration) time.Duration {
	return time.Duration(sum(times) / float64(len(times)))
}

func sum(times []time.Duration) (total float64) {
	for _, t := range times {
		total += float64(t)
	}
	return total
}

func (l Line) outcome(jobs []Job, waits []time.Duration) *Outcome {
	o := &Outcome{Policy: l.Policy, Steps: len(jobs), Waits: waits, Tenants: []Tenant{}, Fairness: 1}
	type part struct{ wait, flow, service []time.Duration }
	parts, all := map[string]*part{}, part{}
	for i := range jobs {
		j, wait := &jobs[i], waits[i]
		p := parts[j.Tenant]
		if p == nil {
			p = &part{}
			parts[j.Tenant] = p
		}
		for _, p := range []*part{p, &all} {
			p.wait, p.flow, p.service = append(p.wait, wait), append(p.flow, wait+j.Service), append(p.service, j.Service)
		}
		if j.Deadline && wait+j.Service > j.Left {
			o.Late++
		}
		o.Busy += l.Claim + j.Service
		o.End = max(o.End, j.Arrival+wait+j.Service)
	}
	o.Wait, o.Flow = spreadOf(all.wait), spreadOf(all.flow)
	stretches, squares := 0.0, 0.0
	for name, p := range parts {
		t := Tenant{Name: name, Steps: len(p.wait), Wait: spreadOf(p.wait), Flow: spreadOf(p.flow),
			Share: ratio(sum(p.service), sum(all.service)), WaitShare: ratio(sum(p.wait), sum(all.wait)),
			Stretch: ratio(sum(p.flow), sum(p.service))}
		stretches, squares = stretches+t.Stretch, squares+t.Stretch*t.Stretch
		o.Tenants = append(o.Tenants, t)
	}
	if squares > 0 {
		o.Fairness = stretches * stretches / (float64(len(parts)) * squares)
	}
	slices.SortFunc(o.Tenants, func(a, b Tenant) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name))
	})
	return o
}

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
