package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return moment
}

func hours(runs []time.Time) (list []int) {
	for _, r := range runs {
		list = append(list, r.Hour())
	}
	return list
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	s, err := Parse("0 * * * *", "UTC")
	require.NoError(t, err)
	long := at(t, "2026-03-21T05:20:00Z") // five runs since one
	for name, tt := range map[string]struct {
		policy Policy
		now    time.Time
		room   int
		runs   []int
		missed int
		next   int
	}{
		"on time":                {Policy{CatchUpSkip, 5, OverlapAllow}, at(t, "2026-03-21T01:00:00Z"), 10, []int{1}, 0, 2},
		"a little late":          {Policy{CatchUpSkip, 5, OverlapAllow}, at(t, "2026-03-21T01:00:59Z"), 10, []int{1}, 0, 2},
		"too late":               {Policy{CatchUpSkip, 5, OverlapAllow}, at(t, "2026-03-21T01:01:01Z"), 10, nil, 1, 2},
		"skip after a stop":      {Policy{CatchUpSkip, 5, OverlapAllow}, long, 10, nil, 5, 6},
		"skip, the last in time": {Policy{CatchUpSkip, 5, OverlapAllow}, at(t, "2026-03-21T05:00:30Z"), 10, []int{5}, 4, 6},
		"one":                    {Policy{CatchUpOne, 5, OverlapAllow}, long, 10, []int{5}, 0, 6},
		"all":                    {Policy{CatchUpAll, 5, OverlapAllow}, long, 10, []int{1, 2, 3, 4, 5}, 0, 6},
		"all, but three":         {Policy{CatchUpAll, 3, OverlapAllow}, long, 10, []int{3, 4, 5}, 2, 6},
		"all, room for two":      {Policy{CatchUpAll, 5, OverlapAllow}, long, 2, []int{1, 2}, 0, 3},
		"all, no room":           {Policy{CatchUpAll, 3, OverlapAllow}, long, 0, nil, 2, 3},
		"all, one at a time":     {Policy{CatchUpAll, 5, OverlapSkip}, long, 10, []int{5}, 4, 6},
		"not due":                {Policy{CatchUpAll, 5, OverlapAllow}, at(t, "2026-03-21T00:30:00Z"), 10, nil, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			due := s.Due(at(t, "2026-03-21T01:00:00Z"), tt.now, tt.policy, tt.room)
			require.Equal(t, tt.runs, hours(due.Runs))
			require.Equal(t, tt.missed, due.Missed)
			require.Equal(t, tt.next, due.Next.Hour())
		})
	}
}

// TestRunsThatAreSecondsLateAreMade: with an interval shorter than Grace several runs are
// due after a pause of seconds, and none of them was missed.
func TestRunsThatAreSecondsLateAreMade(t *testing.T) {
	t.Parallel()
	s, err := Parse("@every 10s", "UTC")
	require.NoError(t, err)
	first := at(t, "2026-03-21T01:00:00Z")
	for name, tt := range map[string]struct {
		policy       Policy
		late         time.Duration
		room         int
		runs, missed int
	}{
		"seconds, skip":             {Policy{CatchUpSkip, 10, OverlapAllow}, 25 * time.Second, 10, 3, 0},
		"seconds, one":              {Policy{CatchUpOne, 10, OverlapAllow}, 25 * time.Second, 10, 3, 0},
		"seconds, all":              {Policy{CatchUpAll, 1, OverlapAllow}, 25 * time.Second, 10, 3, 0},
		"seconds, little room":      {Policy{CatchUpSkip, 10, OverlapAllow}, 25 * time.Second, 2, 2, 0},
		"seconds, one at a time":    {Policy{CatchUpSkip, 10, OverlapSkip}, 25 * time.Second, 10, 1, 2},
		"minutes, skip":             {Policy{CatchUpSkip, 10, OverlapAllow}, 2 * time.Minute, 10, 7, 6},
		"minutes, one for them":     {Policy{CatchUpOne, 10, OverlapAllow}, 2 * time.Minute, 10, 7, 0},
		"minutes, two of them":      {Policy{CatchUpAll, 2, OverlapAllow}, 2 * time.Minute, 10, 9, 4},
		"minutes, one at a time":    {Policy{CatchUpOne, 10, OverlapSkip}, 2 * time.Minute, 10, 1, 0},
		"exactly a minute and less": {Policy{CatchUpSkip, 10, OverlapAllow}, time.Minute, 10, 7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			due := s.Due(first, first.Add(tt.late), tt.policy, tt.room)
			require.Len(t, due.Runs, tt.runs)
			require.Equal(t, tt.missed, due.Missed)
			if tt.room == 2 {
				require.Equal(t, first.Add(20*time.Second), due.Next)
			}
		})
	}
}

// TestALongStopIsNotWalkedThrough: years of minutes cost no more than the wanted runs.
func TestALongStopIsNotWalkedThrough(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"* * * * *", "@every 1s", "0 3 * * *", "* * 1 1 *"} {
		s, err := Parse(expression, "Europe/Berlin")
		require.NoError(t, err)
		now := at(t, "2026-03-21T05:20:30Z")
		begin := time.Now()
		due := s.Due(s.After(now.AddDate(-40, 0, 0), now.AddDate(-40, 0, 0)), now, Policy{CatchUpAll, MaxCatchUp, OverlapAllow}, MaxCatchUp)
		require.Len(t, due.Runs, MaxCatchUp, expression)
		require.Positive(t, due.Missed)
		require.Less(t, time.Since(begin), 10*time.Second, expression)
		require.True(t, slices.IsSortedFunc(due.Runs, time.Time.Compare))
		require.True(t, due.Next.After(now))
		last := due.Runs[MaxCatchUp-1]
		require.Equal(t, due.Next, s.After(last, last), "no run is missing at the end")
	}
}

// TestLatestAreTheLast compares the backward search with a walk from the beginning.
func TestLatestAreTheLast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s *Spec
		if rapid.Bool().Draw(t, "every") {
			s = &Spec{every: time.Duration(rapid.IntRange(1, 5000).Draw(t, "seconds")) * time.Second, zone: time.UTC}
		} else {
			s, _ = draw(t)
		}
		start := drawMoment(t, s).Truncate(time.Second)
		first := s.First(start)
		now := start.Add(time.Duration(rapid.Int64Range(0, int64(60*time.Hour)).Draw(t, "later")))
		n := rapid.IntRange(1, 8).Draw(t, "n")
		var all []time.Time
		for run := first; !run.After(now); run = s.After(first, run) {
			all = append(all, run)
		}
		want := all[max(len(all)-n, 0):]
		got, more := s.latest(first, now, n)
		if !slices.EqualFunc(got, want, time.Time.Equal) || more != (len(all) > n) {
			t.Fatalf("from %s to %s, %d: %v (%v), want %v of %d", first, now, n, got, more, want, len(all))
		}
	})
}

// TestNoRunIsMadeTwice: for any policy, room and times of the looks, runs rise and follow
// the previous due time.
func TestNoRunIsMadeTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t)
		p := Policy{CatchUp(rapid.IntRange(1, 3).Draw(t, "catch up")), rapid.IntRange(1, 20).Draw(t, "max"), Overlap(rapid.IntRange(1, 2).Draw(t, "overlap"))}
		now := drawMoment(t, s)
		next, last := s.First(now), now
		for range 20 {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(9*time.Hour)).Draw(t, "pause")))
			if next.After(now) {
				continue
			}
			due := s.Due(next, now, p, rapid.IntRange(0, 5).Draw(t, "room"))
			for _, run := range due.Runs {
				if !run.After(last) || run.After(now) || run.Before(next) {
					t.Fatalf("%s: run %s at %s, due since %s, after %s", r.text, run, now, next, last)
				}
				last = run
			}
			if !due.Next.After(last) || due.Next.Before(next) {
				t.Fatalf("%s: due again at %s, before %s, last run %s", r.text, due.Next, next, last)
			}
			next = due.Next
		}
	})
}

func TestSpread(t *testing.T) {
	t.Parallel()
	run := at(t, "2026-03-21T01:00:00Z")
	require.Zero(t, Spread([16]byte{1}, run, 0))
	seen := map[time.Duration]bool{}
	for i := range 200 {
		d := Spread([16]byte{byte(i)}, run, 10*time.Second)
		require.True(t, d >= 0 && d <= 10*time.Second && d%time.Second == 0)
		require.Equal(t, d, Spread([16]byte{byte(i)}, run.In(time.FixedZone("x", 3600)), 10*time.Second))
		seen[d] = true
	}
	require.Len(t, seen, 11)
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range CatchUpNames() {
		c, known := ParseCatchUp(name)
		require.True(t, known)
		require.Equal(t, name, c.String())
	}
	for _, name := range OverlapNames() {
		o, known := ParseOverlap(name)
		require.True(t, known)
		require.Equal(t, name, o.String())
	}
	_, known := ParseCatchUp("some")
	require.False(t, known)
	require.Equal(t, "unknown schedule.Overlap 0", Overlap(0).String())
}
