package autoscale

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPermits(t *testing.T) {
	const target = 10 * time.Second
	for name, c := range map[string]struct {
		loads []Load
		want  float64
	}{
		"nothing":             {nil, 0},
		"only running":        {[]Load{{Running: 7}}, 7},
		"a backlog":           {[]Load{{Waiting: 1000, Running: 8, Service: 100 * time.Millisecond}}, 8 + 10},
		"an old one":          {[]Load{{Waiting: 1000, Service: 100 * time.Millisecond, Oldest: 5 * time.Second}}, 20},
		"one that is late":    {[]Load{{Waiting: 1000, Service: 100 * time.Millisecond, Oldest: time.Hour}}, 40},
		"expected times":      {[]Load{{Waiting: 10, Service: time.Minute, Expected: time.Second}, {Waiting: 10, Expected: time.Second}}, 2},
		"never measured":      {[]Load{{Waiting: 1000}}, 1},
		"the sum of several":  {[]Load{{Waiting: 10, Service: time.Second}, {Running: 2}}, 3},
		"less than one means": {[]Load{{Waiting: 1, Service: time.Second}}, 0.1},
	} {
		permits := 0.0
		for _, l := range c.loads {
			permits += l.Permits(target)
		}
		require.InDelta(t, c.want, permits, 1e-9, name)
	}
}

func TestWorkers(t *testing.T) {
	require.Zero(t, Workers(0, 32))
	require.Equal(t, 1, Workers(0.1, 32))
	require.Equal(t, 2, Workers(33, 32))
	require.Equal(t, 1, Workers(1000, 0), "no worker has told its permits")
}

// A square wave shorter than the window gives one steady number, and a load that has gone
// for the length of the window gives nothing.
func TestDamperOnASquareWave(t *testing.T) {
	d := Damper{Window: 5 * time.Minute}
	now := time.Time{}
	for i := range 600 {
		value := 2
		if i/60%2 == 0 {
			value = 20
		}
		got := d.Add(now, value)
		require.Equal(t, 20, got, "second %d", i)
		now = now.Add(time.Second)
	}
	now = now.Add(5 * time.Minute)
	require.Zero(t, d.Add(now, 0))
}

// The damped number is the greatest of the window.
func TestDamper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Damper{Window: 10 * time.Second}
		var all []sample
		now := time.Time{}
		for range rapid.IntRange(1, 100).Draw(t, "values") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			all = append(all, sample{now, rapid.IntRange(0, 9).Draw(t, "value")})
			want := 0
			for _, s := range all {
				if now.Sub(s.at) < d.Window || s.at.Equal(now) {
					want = max(want, s.value)
				}
			}
			if got := d.Add(now, all[len(all)-1].value); got != want {
				t.Fatalf("got %d, want %d", got, want)
			}
		}
	})
}
