package backpressure

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTiersBeginWhereTheyAreDocumentedTo(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]Tier{
		-5: Normal, 0: Normal, 6999: Normal, 7000: Warning, 8499: Warning, 8500: Critical,
		9499: Critical, 9500: Overflow, 10000: Overflow, 10001: Overflow, math.MaxInt: Overflow,
	} {
		require.Equalf(t, want, TierOf(depth, 10000), "depth %d", depth)
	}
	require.Equal(t, Normal, TierOf(1_000_000, 0), "no threshold, no tiers")
	require.Equal(t, Normal, TierOf(1_000_000, -1))
}

func TestTheRefusedShareGrowsThroughTheCriticalTier(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]float64{0: 0, 8500: 0, 8600: .1, 9000: .5, 9400: .9, 9500: 1, 20000: 1} {
		require.InDeltaf(t, want, refusedShare(depth, 10000), 1e-9, "depth %d", depth)
	}
}

func TestRetryAfterIsTheTimeToDrain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		depth int
		rate  float64
		want  time.Duration
	}{
		{9000, 100, 20 * time.Second},
		{9001, 100, 21 * time.Second}, // rounded up
		{9000, 1e9, time.Second},
		{9000, math.Inf(1), time.Second},
		{9000, 1, 300 * time.Second},
		{9000, 0, 30 * time.Second},
		{9000, math.NaN(), 30 * time.Second},
		{9500, 0, 60 * time.Second},
		{10001, 0.001, 60 * time.Second},
	} {
		require.Equalf(t, c.want, retryAfter(c.depth, 10000, c.rate), "depth %d at %v/s", c.depth, c.rate)
	}
}

// checkTiers holds for every depth, threshold and rate.
func checkTiers(t require.TestingT, depth, more, overflow int, rate float64) {
	tier, share := TierOf(depth, overflow), refusedShare(depth, overflow)
	require.True(t, share >= 0 && share <= 1)
	require.LessOrEqual(t, tier, Overflow)
	switch tier {
	case Overflow:
		require.InDelta(t, 1, share, 0)
	case Normal, Warning:
		require.Zero(t, share)
	}
	if deeper := depth + more; more >= 0 && deeper >= depth {
		require.GreaterOrEqual(t, TierOf(deeper, overflow), tier)
		require.GreaterOrEqual(t, refusedShare(deeper, overflow), share)
		if (rate >= leastRate) || TierOf(deeper, overflow) == tier {
			require.GreaterOrEqual(t, retryAfter(deeper, overflow, rate), retryAfter(depth, overflow, rate))
		}
	}
	retry := retryAfter(depth, overflow, rate)
	require.True(t, retry >= minRetry && retry <= maxRetry, "retry after %v", retry)
	require.Zero(t, retry%time.Second)
}

func TestTiersProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		checkTiers(t, rapid.IntRange(-10, 30_000).Draw(t, "depth"), rapid.IntRange(0, 5_000).Draw(t, "more"),
			rapid.IntRange(-1, 20_000).Draw(t, "overflow"), rapid.Float64().Draw(t, "rate"))
	})
}

func FuzzTiers(f *testing.F) {
	f.Add(0, 1, 10000, 0.0)
	f.Add(8500, 1, 10000, 12.5)
	f.Add(math.MaxInt, 0, 1, math.Inf(1))
	f.Add(math.MinInt, math.MaxInt, math.MinInt, math.NaN())
	f.Fuzz(func(t *testing.T, depth, more, overflow int, rate float64) {
		checkTiers(t, depth, more, overflow, rate)
	})
}

func TestTheMeterKnowsASteadyRateFromTheSecondReadingOn(t *testing.T) {
	t.Parallel()
	m, now := meter{window: 30 * time.Second}, time.Unix(1000, 0)
	m.read(500, now)
	require.Zero(t, m.rate())
	for i := range 100 {
		now = now.Add(time.Second)
		m.read(uint64(500+200*(i+1)), now)
		require.InDelta(t, 200, m.rate(), 1e-6)
	}
}

func TestTheMeterFollowsAChangeWithinAFewWindows(t *testing.T) {
	t.Parallel()
	m, now, total := meter{window: 30 * time.Second}, time.Unix(1000, 0), uint64(0)
	run := func(seconds int, rate uint64) {
		for range seconds {
			now, total = now.Add(time.Second), total+rate
			m.read(total, now)
		}
	}
	m.read(0, now)
	run(300, 100)
	run(30, 0)
	require.InDelta(t, 100/math.E, m.rate(), 3)
	run(300, 0)
	require.Less(t, m.rate(), leastRate)
}

func TestTheMeterBeginsAnew(t *testing.T) {
	t.Parallel()
	m, now := meter{window: 30 * time.Second}, time.Unix(1000, 0)
	m.read(0, now)
	m.read(100, now.Add(time.Second))
	m.read(50, now.Add(2*time.Second)) // another process
	require.Zero(t, m.rate())
	m.read(60, now.Add(3*time.Second))
	require.InDelta(t, 10, m.rate(), 1e-9)
	m.read(70, now.Add(time.Hour)) // a gap of an hour gives no rate
	require.Zero(t, m.rate())
	m.read(1000, now.Add(time.Hour)) // no time has passed
	require.Zero(t, m.rate())
}

func TestTheMeterStaysBetweenTheRatesItHasSeen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, now, total := meter{window: 30 * time.Second}, time.Unix(1000, 0), uint64(0)
		m.read(total, now)
		low, high := math.Inf(1), 0.0
		for range rapid.IntRange(1, 40).Draw(t, "readings") {
			gap := time.Duration(rapid.IntRange(1, 20_000).Draw(t, "gap")) * time.Millisecond
			ended := rapid.Uint64Range(0, 100_000).Draw(t, "ended")
			now, total = now.Add(gap), total+ended
			m.read(total, now)
			rate := float64(ended) / gap.Seconds()
			low, high = min(low, rate), max(high, rate)
			require.True(t, m.rate() >= low*(1-1e-9) && m.rate() <= high*(1+1e-9), "%v is not within %v and %v", m.rate(), low, high)
		}
	})
}
