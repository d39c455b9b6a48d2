package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/predict"
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
	Class    string     `json:"class,omitempty" sql:"-"`  // by which times are learned, see package predict
	Values   []float64  `json:"values,omitempty" sql:"-"` // of the features
	Enqueued time.Time  `json:"enqueued_at"`              // when it became claimable
	Claimed  time.Time  `json:"claimed_at"`
	Ended    time.Time  `json:"ended_at"` // reported, or the lease lost
}

func (r *Record) check() error {
	if r.Enqueued.IsZero() || r.Claimed.Before(r.Enqueued) || r.Ended.Before(r.Claimed) {
		return fmt.Errorf("invalid execution of step %q of task %q: want enqueued_at, claimed_at and ended_at in this order", r.Step, r.Task)
	}
	return nil
}

// learned foretells the times of handlers as the product does, from what had ended before.
type learned map[[2]string]*predict.Model

func (l learned) of(r *Record) *predict.Model {
	m := l[[2]string{r.Template, r.Step}]
	if m == nil {
		m = predict.New(make([]string, len(r.Values)))
		l[[2]string{r.Template, r.Step}] = m
	}
	return m
}

// expect returns 0 where no time is known, or the known times are not usable.
func (l learned) expect(r *Record) time.Duration {
	m := l.of(r)
	if m.Judge.Distrust {
		return 0
	}
	return m.Expect(r.Class, r.Values).Time
}

// Jobs makes jobs of records, which it sorts: what is expected of one is learned from those
// that had ended when it was put in line. The permits are those of all the workers that made
// the recording, in equal parts. A worker may claim ahead of a free permit, so a handler
// began once it was claimed and a permit of its worker was free.
func Jobs(records []Record, permits int) ([]Job, error) {
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
	jobs, known := make([]Job, len(records)), learned{}
	for i := range records {
		r := &records[i]
		for ; len(ends) > 0 && !records[ends[0]].Ended.After(r.Enqueued); ends = ends[1:] {
			ended := &records[ends[0]]
			known.of(ended).Learn(ended.Ended, ended.Class, ended.Values, took[ends[0]])
		}
		jobs[i] = Job{Arrival: r.Enqueued.Sub(records[0].Enqueued), Service: took[i], Tenant: r.Tenant,
			Step: order.Step{Priority: r.Priority, Begun: r.Begun, Expected: known.expect(r)}}
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

// longestClaim is for how long a claim may hold a permit. A step that stood longer beside a
// free permit waited for something else, such as a limit or the end of a pause.
const longestClaim = 100 * time.Millisecond

// times are for how long permits were held: from when a step was in line and a permit free,
// so that the claim belongs to it.
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
		begun, could := r.Claimed.Sub(records[0].Enqueued), max(r.Enqueued.Sub(records[0].Enqueued), free[0])
		if begun-could <= longestClaim {
			begun = min(could, ended)
		}
		took[i] = ended - begun
		free.hold(ended)
	}
	return took
}
