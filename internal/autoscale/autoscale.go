package autoscale

import (
	"math"
	"time"
)

// Load is the work of a callable.
type Load struct {
	Waiting, Running int
	Oldest           time.Duration // how long the oldest waiting step has waited
	Service          time.Duration // mean time of its handler; 0: never measured
	Expected         time.Duration // mean time that those waiting are expected to take; 0: unknown
}

// leastShare bounds how much a step that is late already asks for: what waits is to be done
// within this share of the target at least.
const leastShare = 0.25

// Permits is how many handlers of a callable are to run at the same time so that what waits
// has begun within target: those that run now, which by Little's law are the load that keeps
// coming, and service / time left for each step that waits. The time left is target less the
// age of the oldest step, and a quarter of target at least. The time that they are expected
// to take precedes the one that the handler took of late. Until either is known one step
// counts as a permit, and the others wait for the measurement.
func (l Load) Permits(target time.Duration) float64 {
	running, service := float64(l.Running), l.Service
	if l.Expected > 0 {
		service = l.Expected
	}
	switch {
	case l.Waiting <= 0:
		return running
	case service <= 0:
		return running + 1
	}
	left := max(target-l.Oldest, time.Duration(leastShare*float64(target)), 1)
	return running + float64(l.Waiting)*float64(service)/float64(left)
}

// Workers is how many workers have the permits; perWorker 0, where no worker has ever told,
// means one worker. It is at most math.MaxInt32.
func Workers(permits float64, perWorker int) int {
	switch {
	case permits <= 0:
		return 0
	case perWorker <= 0:
		return 1
	}
	return int(min(math.Ceil(permits/float64(perWorker)), math.MaxInt32))
}

// Damper holds a number up: it rises at once and falls to the greatest value of the last
// Window. A load that comes in waves shorter than the window leaves it steady. It is not
// safe for concurrent use; its zero value with a Window is ready.
type Damper struct {
	Window time.Duration
	past   []sample // values falling, times rising
}

type sample struct {
	at    time.Time
	value int
}

// Add adds the value of a moment, which may not go back, and returns the damped one.
func (d *Damper) Add(now time.Time, value int) int {
	for len(d.past) > 0 && d.past[len(d.past)-1].value <= value {
		d.past = d.past[:len(d.past)-1]
	}
	d.past = append(d.past, sample{now, value})
	for now.Sub(d.past[0].at) >= d.Window && len(d.past) > 1 {
		d.past = d.past[1:]
	}
	return d.past[0].value
}

// Advice says how many workers a namespace should have, and why.
type Advice struct {
	Namespace      string           `json:"namespace"`
	DesiredWorkers int              `json:"desired_workers" doc:"Workers that the namespace should have: damped"`
	NeededWorkers  int              `json:"needed_workers" doc:"The same by this moment alone"`
	Workers        int              `json:"workers" doc:"Live workers that serve the namespace and do not drain"`
	Permits        int              `json:"permits_per_worker" doc:"Handlers that one of them runs at once; 0: none has told yet"`
	NeededPermits  float64          `json:"needed_permits" doc:"Handlers that should run at once"`
	TargetWait     float64          `json:"target_wait_seconds" doc:"Time within which waiting steps should begin"`
	Callables      []CallableAdvice `json:"callables" doc:"The parts of needed_permits"`
}

// CallableAdvice is the part of a callable.
type CallableAdvice struct {
	Callable      string  `json:"callable"`
	Method        string  `json:"method,omitempty"`
	Resolver      string  `json:"resolver,omitempty"`
	Waiting       int     `json:"waiting" doc:"Claimable steps, counted up to one more than overflow_threshold"`
	Running       int     `json:"running" doc:"Steps that workers have in hand"`
	OldestSeconds float64 `json:"oldest_seconds" doc:"Time that the oldest claimable step has waited"`
	Service       float64 `json:"service_seconds" doc:"Mean time of the handler of late; 0: no live worker has run it"`
	Expected      float64 `json:"expected_seconds,omitempty" doc:"Mean time that the waiting steps are expected to take, under the policy shortest_expected; it counts in place of service_seconds"`
	NeededPermits float64 `json:"needed_permits"`
}
