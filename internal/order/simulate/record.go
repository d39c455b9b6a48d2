package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/order"
)

// Record is one execution of a step as the ledger has it, by the database's clock.
type Record struct {
	Task     string     `json:"task"`
	Template string     `json:"template"`
	Step     string     `json:"step"` // of the template
	Handler  string     `json:"handler"`
	Tenant   string     `json:"tenant,omitempty"`
	Worker   string     `json:"worker"`
	Token    int64      `json:"token"` // of the claim
	Attempt  int        `json:"attempt"`
	Priority int        `json:"priority,omitempty"`
	Begun    bool       `json:"begun,omitempty"` // a step of the task had been claimed before
	Deadline *time.Time `json:"deadline,omitempty"`
	Enqueued time.Time  `json:"enqueued_at"` // when it became claimable
	Claimed  time.Time  `json:"claimed_at"`
	Ended    time.Time  `json:"ended_at"` // reported, or the lease lost
}

func (r *Record) check() error {
	if r.Enqueued.IsZero() || r.Claimed.Before(r.Enqueued) || r.Ended.Before(r.Claimed) {
		return fmt.Errorf("invalid execution of step %q of task %q: want enqueued_at, claimed_at and ended_at in this order", r.Step, r.Task)
	}
	return nil
}

// Predictor foretells the times of handlers from what had ended before.
type Predictor interface {
	Observe(r *Record, took time.Duration)
	// Expect returns 0 where nothing is known.
	Expect(r *Record) time.Duration
}

// Means is a Predictor by the mean of all executions of the same step of a template.
type Means map[[2]string]struct {
	n     int
	total time.Duration
}

// Observe implements Predictor.
func (m Means) Observe(r *Record, took time.Duration) {
	key := [2]string{r.Template, r.Step}
	seen := m[key]
	seen.n, seen.total = seen.n+1, seen.total+took
	m[key] = seen
}

// Expect implements Predictor.
func (m Means) Expect(r *Record) time.Duration {
	seen := m[[2]string{r.Template, r.Step}]
	return seen.total / time.Duration(max(seen.n, 1))
}

// Jobs makes jobs of records, which it sorts: what the predictor knows of one is from those
// that had ended when it was put in line. The permits are those of all the workers that made
// the recording, in equal parts. A worker may claim ahead of a free permit, so a handler
// began once it was claimed and a permit of its worker was free.
func Jobs(records []Record, permits int, p Predictor) ([]Job, error) {
	if permits < 1 {
		return nil, fmt.Errorf("invalid permits %q: want 1 or more", fmt.Sprint(permits))
	}
	for i := range records {
		if err := records[i].check(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(records, func(a, b Record) int { return a.Enqueued.Compare(b.Enqueued) })
	took := times(records, permits)
	ends := inOrder(records, func(a, b *Record) int { return a.Ended.Compare(b.Ended) })
	jobs := make([]Job, len(records))
	for i := range records {
		r := &records[i]
		for ; len(ends) > 0 && !records[ends[0]].Ended.After(r.Enqueued); ends = ends[1:] {
			p.Observe(&records[ends[0]], took[ends[0]])
		}
		jobs[i] = Job{Arrival: r.Enqueued.Sub(records[0].Enqueued), Service: took[i], Tenant: r.Tenant,
			Step: order.Step{Priority: r.Priority, Begun: r.Begun, Expected: p.Expect(r)}}
		if r.Deadline != nil {
			jobs[i].Deadline, jobs[i].Left = true, r.Deadline.Sub(r.Enqueued)
		}
	}
	return jobs, nil
}

// inOrder are the numbers of records in an order.
func inOrder(records []Record, compare func(a, b *Record) int) []int {
	numbers := make([]int, len(records))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return compare(&records[a], &records[b]) })
	return numbers
}

// times are for how long the handlers ran.
func times(records []Record, all int) []time.Duration {
	workers := map[string]permits{}
	for i := range records {
		workers[records[i].Worker] = nil
	}
	each := (all + len(workers) - 1) / max(len(workers), 1)
	took := make([]time.Duration, len(records))
	for _, i := range inOrder(records, func(a, b *Record) int {
		return cmp.Or(a.Claimed.Compare(b.Claimed), cmp.Compare(a.Token, b.Token))
	}) {
		r := &records[i]
		free := workers[r.Worker]
		if free == nil {
			free = make(permits, each)
			workers[r.Worker] = free
		}
		ended := r.Ended.Sub(records[0].Enqueued)
		begun := min(max(r.Claimed.Sub(records[0].Enqueued), free[0]), ended)
		took[i] = ended - begun
		free.hold(ended)
	}
	return took
}
