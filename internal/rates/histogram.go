package rates

import (
	"math/bits"
	"time"
)

// Buckets is the number of buckets of a [Histogram].
const Buckets = 26

// Histogram counts durations in buckets. Bucket i holds those of at most 2^i ms that no bucket before it
// holds, so that the first is up to 1 ms; the last, whose bound would be more than nine hours, holds all longer
// ones too.
type Histogram [Buckets]int64

// BucketOf returns the bucket of a duration. A negative one, of clocks that were set back, counts as 0.
func BucketOf(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	over := uint64((d - 1) / time.Millisecond) // #nosec G115 -- positive
	return min(bits.Len64(over), Buckets-1)
}

// Bound is the longest duration of a bucket. That of the last is only where it begins to be counted
// without a bound.
func Bound(bucket int) time.Duration { return time.Millisecond << bucket }

// Add counts what another histogram has.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// Count is the number of durations.
func (h *Histogram) Count() (n int64) {
	for _, in := range h {
		n += in
	}
	return n
}

// Quantile estimates the duration that a share q of all durations does not exceed, q from 0 to 1: within
// a bucket they are taken as evenly spread, so that it is off by less than the width of one. It is 0
// without durations.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count())
	var before float64
	last := 0
	for i, n := range h {
		if n == 0 {
			continue
		}
		if last = i; before+float64(n) >= rank {
			low := time.Duration(0)
			if i > 0 {
				low = Bound(i - 1)
			}
			return low + time.Duration((rank-before)/float64(n)*float64(Bound(i)-low))
		}
		before += float64(n)
	}
	if before == 0 {
		return 0
	}
	return Bound(last)
}

// Trimmed returns the buckets without the empty ones at the end.
func (h *Histogram) Trimmed() []int64 {
	n := Buckets
	for n > 0 && h[n-1] == 0 {
		n--
	}
	return h[:n:n]
}
