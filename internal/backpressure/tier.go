package backpressure

import (
	"fmt"
	"math"
	"time"
)

// Tier is the depth class of a queue. Its numbers are the values of the metric.
type Tier uint8

// The tiers of a queue.
const (
	Normal Tier = iota
	Warning
	Critical
	Overflow
)

// The lower bounds of the tiers, as shares of the overflow threshold.
const (
	warningShare  = 0.70
	criticalShare = 0.85
	overflowShare = 0.95
)

// String implements fmt.Stringer.
func (t Tier) String() string {
	switch t {
	case Normal:
		return "normal"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	case Overflow:
		return "overflow"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// TierOf returns the tier of a queue; Normal without a positive threshold.
func TierOf(depth, overflow int) Tier {
	switch share := shareOf(depth, overflow); {
	case share >= overflowShare:
		return Overflow
	case share >= criticalShare:
		return Critical
	case share >= warningShare:
		return Warning
	}
	return Normal
}

func shareOf(depth, overflow int) float64 {
	if overflow <= 0 || depth <= 0 {
		return 0
	}
	return float64(depth) / float64(overflow)
}

// refusedShare is the share of new tasks that a queue rejects, 0 to 1.
func refusedShare(depth, overflow int) float64 {
	if TierOf(depth, overflow) == Overflow {
		return 1
	}
	above := (shareOf(depth, overflow) - criticalShare) / (overflowShare - criticalShare)
	return min(max(above, 0), 1)
}

// Bounds of the retry time for rejections because of depth, and its value where nothing
// drains.
const (
	minRetry      = time.Second
	maxRetry      = 300 * time.Second
	criticalRetry = 30 * time.Second
	overflowRetry = 60 * time.Second
)

// leastRate is the rate, in steps per second, below which a queue counts as not draining.
const leastRate = 0.01

// retryAfter is the time to drain a queue down to the end of the normal tier, in whole
// seconds. rate is in steps per second.
func retryAfter(depth, overflow int, rate float64) time.Duration {
	if !(rate >= leastRate) {
		if TierOf(depth, overflow) == Overflow {
			return overflowRetry
		}
		return criticalRetry
	}
	seconds := math.Ceil((float64(depth) - warningShare*float64(overflow)) / rate)
	if seconds >= maxRetry.Seconds() {
		return maxRetry
	}
	return max(time.Duration(seconds)*time.Second, minRetry)
}
