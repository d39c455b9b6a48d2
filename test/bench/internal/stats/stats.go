// Package stats turns samples into the figures that are shown. It is pure: no clock, no
// input, no output.
package stats

import (
	"math"
	"slices"
	"time"
)

// Summary describes a set of durations.
type Summary struct {
	P50, P95, P99, Max time.Duration
	N                  int
}

// Summarize computes the percentiles of durations, in any order, without changing them.
// No durations give a zero Summary.
func Summarize(durations []time.Duration) Summary {
	if len(durations) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(durations))
	return Summary{
		P50: percentile(sorted, 0.50), P95: percentile(sorted, 0.95), P99: percentile(sorted, 0.99),
		Max: sorted[len(sorted)-1], N: len(sorted),
	}
}

// percentile interpolates between the two nearest values, as percentile_cont
// of SQL does.
func percentile(sorted []time.Duration, p float64) time.Duration {
	at := p * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	part := at - float64(low)
	return sorted[low] + time.Duration(part*float64(sorted[high]-sorted[low]))
}

// Sample is a counter read at a time after the beginning.
type Sample struct {
	At    time.Duration
	Count int64
	// Waiting is the number of items still to be counted, if known.
	Waiting int64
}

// Rate is the growth of the counter per second between two times. Times between samples
// are interpolated; 0 if the samples do not cover any of the span.
func Rate(samples []Sample, from, to time.Duration) float64 {
	if len(samples) < 2 {
		return 0
	}
	from, to = max(from, samples[0].At), min(to, samples[len(samples)-1].At)
	if to <= from {
		return 0
	}
	return (countAt(samples, to) - countAt(samples, from)) / (to - from).Seconds()
}

func countAt(samples []Sample, at time.Duration) float64 {
	i, exact := slices.BinarySearchFunc(samples, at, func(s Sample, at time.Duration) int { return int(s.At - at) })
	if exact || i == 0 {
		return float64(samples[i].Count)
	}
	a, b := samples[i-1], samples[i]
	return float64(a.Count) + float64(b.Count-a.Count)*float64(at-a.At)/float64(b.At-a.At)
}

// Point is one value of a time series.
type Point struct {
	At    time.Duration `json:"at"`
	Value float64       `json:"value"`
}

// Rates are the rates of consecutive windows, each with its end.
func Rates(samples []Sample, window time.Duration) []Point {
	if len(samples) == 0 {
		return nil
	}
	var points []Point
	last := samples[len(samples)-1].At
	for end := samples[0].At + window; end <= last; end += window {
		points = append(points, Point{At: end, Value: Rate(samples, end-window, end)})
	}
	return points
}

// Recovery is how long after a time the rate of a window first reached level again; ok is
// false if it never did.
func Recovery(samples []Sample, after time.Duration, window time.Duration, level float64) (took time.Duration, ok bool) {
	const grain = 250 * time.Millisecond
	if len(samples) == 0 {
		return 0, false
	}
	for end := after + window; end <= samples[len(samples)-1].At; end += grain {
		if Rate(samples, end-window, end) >= level {
			return end - window - after, true
		}
	}
	return 0, false
}
