package simulate

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/tasker-go/tasker/internal/order"
)

// Job is one execution of a step in a line.
type Job struct {
	order.Step               // as it was when the step was put in line
	Arrival    time.Duration // when that was, from the begin of the recording
	Service    time.Duration // for how long it holds a permit
	Tenant     string
}

// Line is how the jobs of a line are claimed and worked on.
type Line struct {
	Policy  order.Policy
	Permits int           // steps that are worked on at once
	Ageing  time.Duration // steps that have waited for it go first, the oldest of them before the others; 0: off
	Claim   time.Duration // for how long a claim holds the permit before the step begins
}

// Replay works on the jobs, which are in the order of their arrivals. A permit that is free
// takes the first step of the smallest lane at once.
func (l Line) Replay(jobs []Job) (*Outcome, error) {
	switch {
	case l.Permits < 1:
		return nil, fmt.Errorf("invalid permits %q: want 1 or more", fmt.Sprint(l.Permits))
	case l.Ageing < 0:
		return nil, fmt.Errorf("invalid ageing %q: want 0 or more", l.Ageing)
	case l.Claim < 0:
		return nil, fmt.Errorf("invalid claim %q: want 0 or more", l.Claim)
	}
	for i := range jobs {
		if jobs[i].Service < 0 || i > 0 && jobs[i].Arrival < jobs[i-1].Arrival {
			return nil, fmt.Errorf("invalid job %d: want a service of 0 or more, and jobs in the order of their arrivals", i)
		}
	}
	w := waiting{line: l, jobs: jobs, taken: make([]bool, len(jobs))}
	free := make(permits, l.Permits) // when each is free
	if len(jobs) > 0 {
		for i := range free {
			free[i] = jobs[0].Arrival
		}
	}
	waits := make([]time.Duration, len(jobs))
	var now time.Duration
	for range jobs {
		now = max(now, free[0])
		if w.count == 0 {
			now = max(now, jobs[w.arrived].Arrival)
		}
		w.arrive(now)
		i := w.take(now)
		begin := now + l.Claim
		waits[i] = begin - jobs[i].Arrival
		free.hold(begin + jobs[i].Service)
	}
	return l.outcome(jobs, waits), nil
}

// waiting are the jobs that have arrived and are not claimed. Those of a lane stand in the
// order of their arrivals, so lanes need no sorting.
type waiting struct {
	line    Line
	jobs    []Job
	taken   []bool
	arrived int // how many jobs have
	count   int // how many of them wait
	oldest  int // no job before it waits
	lanes   [order.MaxLane + 1][]int32
	filled  [(order.MaxLane + 64) / 64]uint64 // a bit per lane that is not empty
}

func (w *waiting) arrive(now time.Duration) {
	for ; w.arrived < len(w.jobs) && w.jobs[w.arrived].Arrival <= now; w.arrived++ {
		lane := w.line.Policy.Lane(w.jobs[w.arrived].Step)
		w.lanes[lane] = append(w.lanes[lane], int32(w.arrived)) // #nosec G115 -- a recording is bounded
		w.filled[lane/64] |= 1 << (lane % 64)
		w.count++
	}
}

// take removes the job that is claimed next. Aged ones go by their arrivals, as all wait for
// the same bound, and stay behind in their lanes, where they are passed over.
func (w *waiting) take(now time.Duration) int {
	w.count--
	for w.taken[w.oldest] {
		w.oldest++
	}
	if i := w.oldest; w.line.Ageing > 0 && now-w.jobs[i].Arrival >= w.line.Ageing {
		w.taken[i] = true
		return i
	}
	for n := 0; ; {
		if w.filled[n] == 0 {
			n++
			continue
		}
		lane := n*64 + bits.TrailingZeros64(w.filled[n])
		i := w.lanes[lane][0]
		if w.lanes[lane] = w.lanes[lane][1:]; len(w.lanes[lane]) == 0 {
			w.lanes[lane] = nil
			w.filled[n] &^= 1 << (lane % 64)
		}
		if !w.taken[i] {
			w.taken[i] = true
			return int(i)
		}
	}
}

// permits are the times at which each is free, as a heap: the first is the earliest.
type permits []time.Duration

// hold holds the first permit until a time.
func (p permits) hold(until time.Duration) {
	at := 0
	for child := 1; child < len(p); child = 2*at + 1 {
		if child+1 < len(p) && p[child+1] < p[child] {
			child++
		}
		if p[child] >= until {
			break
		}
		p[at], at = p[child], child
	}
	p[at] = until
}
