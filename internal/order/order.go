package order

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/internal/priorities"
)

// Policy is how the steps that wait in one line, those of a callable, are put in order.
type Policy string

// The policies. Under each of them the bound of ageing holds.
const (
	// Priority: higher priorities first, and within one the steps of tasks that have begun
	// before the first steps of new ones, so that begun tasks finish. The default.
	Priority Policy = "priority"
	// FIFO: in the order in which the steps became claimable, whatever their priority.
	FIFO Policy = "fifo"
	// ShortestExpected: steps expected to take the shortest time first. Those of which
	// nothing is known are taken for steps of a second.
	ShortestExpected Policy = "shortest_expected"
	// DeadlineAware: steps with the least time left between the expected end of the handler
	// and the deadline of the task first, steps without a deadline last.
	DeadlineAware Policy = "deadline_aware"
)

// Policies are all policies.
func Policies() []Policy { return []Policy{Priority, FIFO, ShortestExpected, DeadlineAware} }

// ParsePolicy returns the policy of a name.
func ParsePolicy(name string) (Policy, error) {
	if p := Policy(name); slices.Contains(Policies(), p) {
		return p, nil
	}
	names := make([]string, 0, len(Policies()))
	for _, p := range Policies() {
		names = append(names, string(p))
	}
	return "", fmt.Errorf("invalid policy %q: want %s", name, strings.Join(names, ", "))
}

// Lanes of a line; the smallest is claimed first, and within one it goes by the order in
// which steps became claimable.
const (
	// AgedLane is for the steps that have waited behind others for as long as the bound of
	// ageing.
	AgedLane int16 = -1
	// MaxLane is the last lane.
	MaxLane = 2*(priorities.Max-priorities.Min) + 1

	// middleLane is the one of new tasks of priority 0, of all steps under FIFO, and of
	// steps expected to take a second.
	middleLane = MaxLane - 2*(0-priorities.Min)
	// lanesPerDoubling: two, so that the times of one lane differ by a factor of 1.41.
	lanesPerDoubling = 2
)

// Step is what is known of a step when it is put in line.
type Step struct {
	Priority int
	Begun    bool          // a step of its task has begun
	Expected time.Duration // of the handler; 0: unknown
	Deadline bool          // the task has one
	Left     time.Duration // until the deadline
}

// Lane returns the lane of a step. An unknown policy, one of a newer version, is FIFO.
func (p Policy) Lane(s Step) int16 {
	switch p {
	case Priority, "":
		lane := 2 * (priorities.Max - min(max(s.Priority, priorities.Min), priorities.Max))
		if !s.Begun {
			lane++
		}
		return int16(lane) // #nosec G115 -- at most MaxLane
	case ShortestExpected:
		if s.Expected > 0 {
			return laneOfTime(s.Expected)
		}
	case DeadlineAware:
		if !s.Deadline {
			return MaxLane
		}
		return min(laneOfTime(s.Left-s.Expected), MaxLane-1)
	case FIFO:
	}
	return middleLane
}

// laneOfTime is the lane of a time by its order of magnitude: 0 for none, the middle one for
// a second.
func laneOfTime(d time.Duration) int16 {
	if d <= 0 {
		return 0
	}
	lane := middleLane + lanesPerDoubling*math.Log2(d.Seconds())
	return int16(min(max(math.Round(lane), 0), MaxLane)) // #nosec G115 -- within bounds
}

// Predictor knows how long handlers take. It is safe for concurrent use and does not wait.
type Predictor interface {
	// Expect returns the expected time of a handler, or why there is none.
	Expect(q Question) (time.Duration, Missing)
}

// Question is what may be known of a step before it is executed. The values are those of the
// features, nil where they are not available.
type Question struct {
	Namespace, Template, Step, Class string
	Features                         []string
	Values                           []float64
}

// Missing is why a Predictor is not followed, "" where it is.
type Missing string

// The reasons.
const (
	MissingAsked      Missing = "asked"      // for the first time, or anew: the answer is for later steps
	MissingFull       Missing = "full"       // there is no room to ask
	MissingUnknown    Missing = "unknown"    // it does not know
	MissingInvalid    Missing = "invalid"    // the answer makes no sense
	MissingLate       Missing = "late"       // the deadline is over
	MissingFailed     Missing = "failed"     // there was no answer
	MissingRefused    Missing = "refused"    // its circuit breaker is open
	MissingDistrusted Missing = "distrusted" // its latest answers were not usable
)
