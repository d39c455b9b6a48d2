package deploymode

import "time"

// LongestHold bounds how long a memory delays a look for work: of failures, of what a look
// costs, of where work began. What was true then may not be true now.
const LongestHold = 2 * time.Second

// Backoff is a delay that grows with every failure up to a cap.
// The zero value has no delay.
type Backoff struct {
	// Base is the delay after the first failure.
	Base time.Duration
	// Max caps the delay; 0 means Base.
	Max time.Duration
	// Multiplier is the growth per failure; below 1 it counts as 2.
	Multiplier float64
	// Jitter is the share of a delay that chance may take away, 0 to 1. It is
	// taken away, not added, so that Max stays a cap.
	Jitter float64
}

// Delay returns how long to wait after the failure number n, counted from 0.
// random is a number in [0, 1) drawn by the caller; 0 yields the full delay.
func (b Backoff) Delay(n int, random float64) time.Duration {
	limit := max(b.Max, b.Base)
	multiplier := b.Multiplier
	if multiplier < 1 {
		multiplier = 2
	}
	delay := float64(b.Base)
	for i := 0; i < n && delay < float64(limit); i++ {
		delay *= multiplier
		if multiplier == 1 {
			break // it does not grow; do not count to a billion
		}
	}
	delay = min(delay, float64(limit))
	jitter := min(max(b.Jitter, 0), 1)
	random = min(max(random, 0), 1)
	return max(0, time.Duration(delay*(1-jitter*random)))
}
