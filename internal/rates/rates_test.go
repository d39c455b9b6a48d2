package rates_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/workflow"
)

// TestBuckets checks that each duration is in the first bucket whose bound it does not exceed.
func TestBuckets(t *testing.T) {
	t.Parallel()
	require.Equal(t, 0, rates.BucketOf(-time.Hour))
	require.Equal(t, 0, rates.BucketOf(time.Millisecond))
	require.Equal(t, 1, rates.BucketOf(time.Millisecond+1))
	require.Equal(t, 25, rates.BucketOf(1000*time.Hour))
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(20*time.Hour)).Draw(t, "d"))
		b := rates.BucketOf(d)
		require.True(t, b == rates.Buckets-1 || d <= rates.Bound(b), "%v in bucket %d", d, b)
		require.True(t, b == 0 || d > rates.Bound(b-1), "%v in bucket %d", d, b)
	})
}

// TestQuantiles compares estimates with the sorted durations: they are in the same bucket.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	require.Zero(t, new(rates.Histogram).Quantile(0.5))
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.SliceOfN(rapid.IntRange(1, 1<<24), 1, 50).Draw(t, "ms")
		var h rates.Histogram
		for _, d := range ms {
			h[rates.BucketOf(time.Duration(d)*time.Millisecond)]++
		}
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		estimate := h.Quantile(q)
		atMost := 0
		for _, d := range ms {
			if rates.BucketOf(time.Duration(d)*time.Millisecond) <= rates.BucketOf(estimate) {
				atMost++
			}
		}
		require.GreaterOrEqual(t, float64(atMost)+1e-6, q*float64(len(ms)), "%v of %v", estimate, ms)
	})
}

// TestCounts compares a counter, part of whose counts are given back, with counts of the same attempts in one place.
func TestCounts(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 59, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		c := rates.NewCounter(1000)
		want, ended, runningMS := map[rates.CallKey]int64{}, map[rates.TaskKey]int64{}, int64(0)
		for range rapid.IntRange(0, 20).Draw(t, "batches") {
			var attempts []rates.Attempt
			for range rapid.IntRange(0, 5).Draw(t, "attempts") {
				at := begin.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
				ran := time.Duration(rapid.IntRange(0, 100).Draw(t, "ran")) * time.Millisecond
				a := rates.Attempt{Callable: 1, Plan: rapid.Int32Range(1, 2).Draw(t, "plan"), Step: 3, Outcome: workflow.OutcomeSuccess,
					Enqueued: at, Claimed: at, Reported: at.Add(ran), Applied: at}
				attempts = append(attempts, a)
				want[rates.CallKey{Callable: 1, Plan: a.Plan, Step: 3, Outcome: a.Outcome, Minute: at.Unix() / 60}]++
				runningMS += ran.Milliseconds()
			}
			end := rates.End{Plan: 1, State: workflow.TaskComplete, Requested: begin, Ended: begin}
			ended[rates.TaskKey{Plan: 1, State: workflow.TaskComplete, Minute: begin.Unix() / 60}]++
			c.Count(attempts, []rates.End{end})
			if rapid.Bool().Draw(t, "return") {
				c.Return(c.Take())
			}
		}
		calls, tasks := c.Take()
		got, sum := map[rates.CallKey]int64{}, int64(0)
		for i := range calls {
			got[calls[i].CallKey] = calls[i].Count
			require.Equal(t, calls[i].Count, calls[i].Running.Count())
			sum += calls[i].RunningMS
		}
		require.Equal(t, want, got)
		require.Equal(t, runningMS, sum)
		gotEnded := map[rates.TaskKey]int64{}
		for _, task := range tasks {
			gotEnded[task.TaskKey] = task.Count
		}
		require.Equal(t, ended, gotEnded)
		calls, tasks = c.Take()
		require.Empty(t, calls)
		require.Empty(t, tasks)
	})
}

// TestFullCounter checks that a counter without room says how much it left out, and goes on with the keys that it has.
func TestFullCounter(t *testing.T) {
	t.Parallel()
	c := rates.NewCounter(1)
	at := time.Unix(0, 0)
	attempt := func(plan int32) []rates.Attempt {
		return []rates.Attempt{{Callable: 1, Plan: plan, Applied: at, Outcome: workflow.OutcomeSuccess}}
	}
	c.Count(attempt(1), nil)
	c.Count(attempt(2), []rates.End{{Plan: 1, Requested: at, Ended: at}})
	c.Count(attempt(1), nil)
	require.EqualValues(t, 2, c.TakeDropped())
	calls, tasks := c.Take()
	require.Len(t, calls, 1)
	require.EqualValues(t, 2, calls[0].Count)
	require.Empty(t, tasks)
	c.Count(attempt(2), nil)
	c.Return(calls, []rates.Task{{TaskKey: rates.TaskKey{Plan: 9}, Count: 3}})
	c.Drop(nil, []rates.Task{{Count: 1}, {Count: 2}})
	require.EqualValues(t, 8, c.TakeDropped())
	require.Zero(t, c.TakeDropped())
}
