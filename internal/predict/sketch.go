package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// RelativeError bounds the error of quantiles of times between MinTime and MaxTime.
const RelativeError = 0.05

// Times outside of these bounds count as the bounds. They bound the buckets of a sketch.
const (
	MinTime = 10 * time.Microsecond
	MaxTime = 30 * 24 * time.Hour
)

// maxWeight is when the counts of a sketch are halved, so that newer times weigh more.
const maxWeight = 4096

// Sketch counts times in buckets whose bounds grow by a constant factor, so that every
// quantile has a bounded relative error. With γ = (1+α)/(1-α), bucket i has the times in
// (γ^(i-1), γ^i] and stands for 2γ^i/(γ+1). It is the DDSketch of Masson, Rim and Lee, "A
// fast and fully-mergeable quantile sketch with relative-error guarantees" (VLDB 2019),
// with times bounded instead of buckets collapsed. The zero value is empty.
type Sketch struct {
	counts map[int]uint32
	n      uint32
}

var (
	gamma     = (1 + RelativeError) / (1 - RelativeError)
	logGamma  = math.Log(gamma)
	minBucket = bucketOf(MinTime)
	maxBucket = bucketOf(MaxTime)
)

func bucketOf(d time.Duration) int {
	d = min(max(d, MinTime), MaxTime)
	return int(math.Ceil(math.Log(d.Seconds()) / logGamma))
}

// Add counts a time.
func (s *Sketch) Add(d time.Duration) {
	if s.counts == nil {
		s.counts = map[int]uint32{}
	}
	s.counts[bucketOf(d)]++
	s.n++
	s.fade()
}

// Merge counts what another sketch has counted.
func (s *Sketch) Merge(o *Sketch) {
	if s.counts == nil {
		s.counts = map[int]uint32{}
	}
	for i, c := range o.counts {
		s.counts[i] += c
	}
	s.n += o.n
	s.fade()
}

func (s *Sketch) fade() {
	for s.n > maxWeight {
		s.n = 0
		for i, c := range s.counts {
			if c /= 2; c == 0 {
				delete(s.counts, i)
			} else {
				s.counts[i] = c
				s.n += c
			}
		}
	}
}

// N is the weight of what it has counted.
func (s *Sketch) N() int { return int(s.n) }

// Quantile returns a time that is within RelativeError of the quantile q, and 0 of nothing.
// The quantile of n times is the one with ⌊q(n-1)⌋ smaller or equal ones before it.
func (s *Sketch) Quantile(q float64) time.Duration {
	if s.n == 0 {
		return 0
	}
	rank, seen := uint32(min(max(q, 0), 1)*float64(s.n-1)), uint32(0)
	for _, i := range slices.Sorted(maps.Keys(s.counts)) {
		if seen += s.counts[i]; seen > rank {
			return ofSeconds(2 * math.Exp(float64(i)*logGamma) / (gamma + 1))
		}
	}
	return MaxTime
}

func ofSeconds(s float64) time.Duration {
	return min(max(time.Duration(min(s, MaxTime.Seconds())*float64(time.Second)), MinTime), MaxTime)
}

// MarshalJSON writes the buckets and their counts in turn, by bucket.
func (s Sketch) MarshalJSON() ([]byte, error) {
	flat := make([]int64, 0, 2*len(s.counts))
	for _, i := range slices.Sorted(maps.Keys(s.counts)) {
		flat = append(flat, int64(i), int64(s.counts[i]))
	}
	return json.Marshal(flat)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Sketch) UnmarshalJSON(data []byte) error {
	var flat []int64
	if err := json.Unmarshal(data, &flat); err != nil {
		return err
	}
	if len(flat)%2 != 0 {
		return errors.New("invalid sketch: want pairs of bucket and count")
	}
	*s = Sketch{counts: make(map[int]uint32, len(flat)/2)}
	for p := 0; p < len(flat); p += 2 {
		i, c := int(flat[p]), flat[p+1]
		if _, twice := s.counts[i]; twice || i < minBucket || i > maxBucket || c < 1 || c > maxWeight-int64(s.n) {
			return fmt.Errorf("invalid sketch: bucket %d with count %d", i, c)
		}
		s.counts[i] = uint32(c)
		s.n += uint32(c)
	}
	return nil
}
