package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestSummarize(t *testing.T) {
	t.Parallel()
	require.Equal(t, Summary{}, Summarize(nil))
	require.Equal(t, Summary{P50: 5 * ms, P95: 5 * ms, P99: 5 * ms, Max: 5 * ms, N: 1}, Summarize([]time.Duration{5 * ms}))

	var d []time.Duration
	for i := range 101 {
		d = append(d, time.Duration(100-i)*ms)
	}
	require.Equal(t, Summary{P50: 50 * ms, P95: 95 * ms, P99: 99 * ms, Max: 100 * ms, N: 101}, Summarize(d))
	require.Equal(t, 100*ms, d[0], "the input keeps its order")
	require.Equal(t, 1500*time.Microsecond, Summarize([]time.Duration{ms, 2 * ms}).P50, "between two values")
}

func TestRate(t *testing.T) {
	t.Parallel()
	s := []Sample{{}, {At: time.Second, Count: 100}, {At: 2 * time.Second, Count: 100}, {At: 4 * time.Second, Count: 500}}
	require.InDelta(t, 100, Rate(s, 0, time.Second), 1e-9)
	require.InDelta(t, 0, Rate(s, time.Second, 2*time.Second), 1e-9)
	require.InDelta(t, 200, Rate(s, 2*time.Second, 3*time.Second), 1e-9, "interpolated")
	require.InDelta(t, 125, Rate(s, -time.Hour, time.Hour), 1e-9, "clipped to the covered span")
	require.InDelta(t, 0, Rate(s, 5*time.Second, 6*time.Second), 1e-9)
	require.InDelta(t, 0, Rate(nil, 0, time.Second), 1e-9)
}

func TestRates(t *testing.T) {
	t.Parallel()
	s := []Sample{{}, {At: time.Second, Count: 100}, {At: 2 * time.Second, Count: 300}, {At: 2500 * ms, Count: 300}}
	require.Equal(t, []Point{{time.Second, 100}, {2 * time.Second, 200}}, Rates(s, time.Second))
	require.Nil(t, Rates(nil, time.Second))
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	// 100/s for 2 s, 10/s until 5 s, 100/s again until 10 s.
	s := []Sample{{}, {At: 2 * time.Second, Count: 200}, {At: 5 * time.Second, Count: 230}, {At: 10 * time.Second, Count: 730}}
	took, ok := Recovery(s, 4*time.Second, time.Second, 99)
	require.True(t, ok)
	require.Equal(t, time.Second, took)
	took, ok = Recovery(s, 6*time.Second, time.Second, 99)
	require.True(t, ok)
	require.Zero(t, took)
	_, ok = Recovery(s, 4*time.Second, time.Second, 101)
	require.False(t, ok)
	_, ok = Recovery(nil, 0, time.Second, 1)
	require.False(t, ok)
}

func TestPaired(t *testing.T) {
	t.Parallel()
	r := Paired([]float64{90, 99, 110}, []float64{100, 100, 100})
	require.InDelta(t, 0.9933, r.Value, 1e-3)
	require.InDelta(t, 0.774, r.Low, 2e-3, "4.303 × 0.1004 ÷ √3 below, as a logarithm")
	require.InDelta(t, 1.275, r.High, 2e-3)
	same := Paired([]float64{2, 4}, []float64{1, 2})
	require.InDelta(t, 2, same.Low, 1e-9, "pairs drift together")
	require.InDelta(t, 2, same.High, 1e-9)
}

func TestPairedSets(t *testing.T) {
	t.Parallel()
	r := PairedSets([][]float64{{45, 180}, {99}, {110, 110}}, [][]float64{{50, 200}, {100}, {200, 50}})
	require.InDelta(t, 0.9933, r.Value, 1e-3)
	require.InDelta(t, 0.774, r.Low, 2e-3, "of three sets, not of five pairs")
}
