package backpressure

import "time"

// Measured returns the latest measurement: when it was made, in steps per second how fast
// the queues drain, and the tier of the deepest.
func (a *Admission) Measured() (at time.Time, rate float64, worst Tier) {
	if m := a.latest.Load(); m != nil {
		return m.at, m.rate, m.worst
	}
	return time.Time{}, 0, Normal
}
