package simulate_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/order/simulate"
)

// recording draws jobs whose expectations are exact.
func recording() *rapid.Generator[[]simulate.Job] {
	return rapid.Custom(func(t *rapid.T) []simulate.Job {
		jobs := make([]simulate.Job, rapid.IntRange(1, 60).Draw(t, "jobs"))
		at := time.Duration(0)
		for i := range jobs {
			at += time.Duration(rapid.IntRange(0, 300).Draw(t, "gap")) * time.Millisecond
			service := time.Duration(rapid.IntRange(1, 5000).Draw(t, "service")) * time.Millisecond
			jobs[i] = simulate.Job{Arrival: at, Service: service, Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), Step: order.Step{
				Priority: rapid.IntRange(-2, 2).Draw(t, "priority"), Begun: rapid.Bool().Draw(t, "begun"), Expected: service,
				Deadline: rapid.Bool().Draw(t, "deadline"), Left: time.Duration(rapid.IntRange(0, 20000).Draw(t, "left")) * time.Millisecond,
			}}
		}
		return jobs
	})
}

func replay(t require.TestingT, l simulate.Line, jobs []simulate.Job) *simulate.Outcome {
	o, err := l.Replay(jobs)
	require.NoError(t, err)
	return o
}

// TestWorkIsConserved: a policy changes who waits, not how much is done, and no permit is
// free while a job waits.
func TestWorkIsConserved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := recording().Draw(t, "recording")
		line := simulate.Line{Permits: rapid.IntRange(1, 4).Draw(t, "permits"), Ageing: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "ageing")}
		for _, line.Policy = range order.Policies() {
			o := replay(t, line, jobs)
			work := time.Duration(0)
			for i := range jobs {
				work += jobs[i].Service
				if o.Waits[i] == 0 {
					continue
				}
				require.GreaterOrEqual(t, o.Waits[i], time.Duration(0))
				for at := range edges(jobs, o, jobs[i].Arrival, jobs[i].Arrival+o.Waits[i]) {
					require.Equal(t, line.Permits, running(jobs, o, at), "%s: job %d waits at %s", line.Policy, i, at)
				}
			}
			require.Equal(t, work, o.Busy)
			shares := 0.0
			for _, tenant := range o.Tenants {
				shares += tenant.Share
			}
			require.InDelta(t, 1, shares, 1e-9)
			require.LessOrEqual(t, o.Fairness, 1+1e-9)
		}
	})
}

// edges are the moments from one to another at which a job begins or ends, and the first.
func edges(jobs []simulate.Job, o *simulate.Outcome, from, to time.Duration) map[time.Duration]bool {
	at := map[time.Duration]bool{from: true}
	for i := range jobs {
		for _, moment := range []time.Duration{jobs[i].Arrival + o.Waits[i], jobs[i].Arrival + o.Waits[i] + jobs[i].Service} {
			if moment >= from && moment < to {
				at[moment] = true
			}
		}
	}
	return at
}

func running(jobs []simulate.Job, o *simulate.Outcome, at time.Duration) (n int) {
	for i := range jobs {
		if begin := jobs[i].Arrival + o.Waits[i]; begin <= at && at < begin+jobs[i].Service {
			n++
		}
	}
	return n
}

// TestOneServerWaitsByLindley: with one permit, FIFO waits follow Lindley's recursion.
func TestOneServerWaitsByLindley(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := recording().Draw(t, "recording")
		claim := time.Duration(rapid.IntRange(0, 20).Draw(t, "claim")) * time.Millisecond
		o := replay(t, simulate.Line{Policy: order.FIFO, Permits: 1, Claim: claim}, jobs)
		for i := 1; i < len(jobs); i++ {
			left := o.Waits[i-1] + jobs[i-1].Service - (jobs[i].Arrival - jobs[i-1].Arrival)
			require.Equal(t, max(left, 0)+claim, o.Waits[i])
		}
	})
}

// TestAgeingIsABound: once a job has waited for the bound, only older ones go before it, and
// without a bound only the lanes and the arrivals count.
func TestAgeingIsABound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := recording().Draw(t, "recording")
		bound := time.Duration(rapid.IntRange(0, 3000).Draw(t, "bound")) * time.Millisecond
		line := simulate.Line{Permits: rapid.IntRange(1, 4).Draw(t, "permits"), Ageing: bound}
		for _, line.Policy = range order.Policies() {
			o := replay(t, line, jobs)
			for i := range jobs {
				for j := range jobs {
					claimed := jobs[j].Arrival + o.Waits[j]
					if claimed < jobs[i].Arrival || claimed >= jobs[i].Arrival+o.Waits[i] {
						continue // j does not go before i
					}
					waited := claimed - jobs[i].Arrival
					if bound > 0 && waited >= bound {
						require.Less(t, j, i, "%s: job %d has waited for %s", line.Policy, i, waited)
					} else if bound == 0 || o.Waits[j] < bound {
						a, b := line.Policy.Lane(jobs[j].Step), line.Policy.Lane(jobs[i].Step)
						require.True(t, a < b || a == b && j < i, "%s: job %d of lane %d before job %d of lane %d", line.Policy, j, a, i, b)
					}
				}
			}
		}
	})
}

// poisson draws arrivals at a rate, with the service that a function draws.
func poisson(seed uint64, n int, perSecond float64, service func(*rand.Rand) float64) []simulate.Job {
	r := rand.New(rand.NewPCG(seed, 1))
	jobs, at := make([]simulate.Job, n), 0.0
	for i := range jobs {
		at += r.ExpFloat64() / perSecond
		s := time.Duration(service(r) * float64(time.Second))
		jobs[i] = simulate.Job{Arrival: time.Duration(at * float64(time.Second)), Service: s, Step: order.Step{Expected: s}}
	}
	return jobs
}

// TestMeanWaitsOfTheory: the mean waits of M/D/1 and M/M/1 by Pollaczek and Khinchine, and of
// M/M/4 by Erlang's C.
func TestMeanWaitsOfTheory(t *testing.T) {
	t.Parallel()
	exponential := func(r *rand.Rand) float64 { return r.ExpFloat64() }
	constant := func(*rand.Rand) float64 { return 1 }
	const n, load = 300_000, 0.7
	for name, c := range map[string]struct {
		permits int
		service func(*rand.Rand) float64
		want    float64
	}{
		"M/D/1": {1, constant, load / (2 * (1 - load))},
		"M/M/1": {1, exponential, load / (1 - load)},
		"M/M/4": {4, exponential, erlangC(4, 4*load) / (4 * (1 - load))},
	} {
		o := replay(t, simulate.Line{Policy: order.FIFO, Permits: c.permits}, poisson(1, n, load*float64(c.permits), c.service))
		require.InEpsilon(t, c.want, o.Wait.Mean.Seconds(), 0.03, name)
	}
}

// erlangC is the probability of waiting with c servers and an offered load.
func erlangC(c int, offered float64) float64 {
	term, total := 1.0, 0.0
	for k := range c {
		total += term
		term *= offered / float64(k+1)
	}
	last := term * float64(c) / (float64(c) - offered)
	return last / (total + last)
}

// TestShortestFirstWaitsLessInTheMean: with exact expectations and lanes that hold one time
// each, on the same arrivals.
func TestShortestFirstWaitsLessInTheMean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := recording().Draw(t, "recording")
		for i := range jobs {
			jobs[i].Service = time.Second << rapid.IntRange(0, 3).Draw(t, "doublings")
			jobs[i].Expected = jobs[i].Service
		}
		fifo := replay(t, simulate.Line{Policy: order.FIFO, Permits: 1}, jobs)
		shortest := replay(t, simulate.Line{Policy: order.ShortestExpected, Permits: 1}, jobs)
		require.LessOrEqual(t, shortest.Wait.Mean, fifo.Wait.Mean)
	})
}

// The services of the two mixes.
func threeTimes(r *rand.Rand) float64 {
	switch u := r.Float64(); {
	case u < 0.7:
		return 0.05
	case u < 0.9:
		return 0.5
	}
	return 2
}

// heavyTailed is a Pareto of shape 1.3 between 50 ms and 20 s.
func heavyTailed(r *rand.Rand) float64 {
	const shape, least, most = 1.3, 0.05, 20.0
	u := r.Float64()
	return least * math.Pow(1-u*(1-math.Pow(least/most, shape)), -1/shape)
}

// TestShortestFirstAgainstFIFO: 8 permits, a burst of three times what they can do for a
// minute that is drained, and a steady load of 0.9; with a bound of ageing far above the
// waits under FIFO and without one.
func TestShortestFirstAgainstFIFO(t *testing.T) {
	t.Parallel()
	const permits = 8
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	for name, service := range map[string]func(*rand.Rand) float64{"three times": threeTimes, "heavy-tailed": heavyTailed} {
		average, r := 0.0, rand.New(rand.NewPCG(9, 9))
		for range 200_000 {
			average += service(r) / 200_000
		}
		for _, load := range []struct{ load, seconds, mean, p99 float64 }{{3, 60, 0.5, 1.1}, {0.9, 600, 0.75, 1.35}} {
			rate := load.load * permits / average
			for _, ageing := range []time.Duration{0, time.Minute} {
				for seed := range uint64(3) {
					jobs := poisson(seed, int(rate*load.seconds), rate, service)
					fifo := replay(t, simulate.Line{Policy: order.FIFO, Permits: permits}, jobs)
					shortest := replay(t, simulate.Line{Policy: order.ShortestExpected, Permits: permits, Ageing: ageing}, jobs)
					mean, p99 := ratio(shortest.Flow.Mean, fifo.Flow.Mean), ratio(shortest.Flow.P99, fifo.Flow.P99)
					t.Logf("%s, load %.1f, ageing %s, seed %d: mean %.2f, p99 %.2f, longest %.2f; of waits %.2f, %.2f, %.2f", name, load.load, ageing, seed,
						mean, p99, ratio(shortest.Flow.Longest, fifo.Flow.Longest), ratio(shortest.Wait.Mean, fifo.Wait.Mean),
						ratio(shortest.Wait.P99, fifo.Wait.P99), ratio(shortest.Wait.Longest, fifo.Wait.Longest))
					require.LessOrEqual(t, mean, load.mean)
					require.LessOrEqual(t, p99, load.p99)
				}
			}
		}
	}
}

func TestReplayRefusesWhatMeansNothing(t *testing.T) {
	t.Parallel()
	for want, line := range map[string]simulate.Line{
		`invalid permits "0": want 1 or more`:  {},
		`invalid ageing "-1s": want 0 or more`: {Permits: 1, Ageing: -time.Second},
		`invalid claim "-1s": want 0 or more`:  {Permits: 1, Claim: -time.Second},
	} {
		_, err := line.Replay(nil)
		require.EqualError(t, err, want)
	}
	_, err := simulate.Line{Permits: 1}.Replay([]simulate.Job{{Arrival: 2}, {Arrival: 1}})
	require.EqualError(t, err, "invalid job 1: want a service of 0 or more, and jobs in the order of their arrivals")
	o := replay(t, simulate.Line{Permits: 1}, nil)
	require.Zero(t, o.Wait)
}

func BenchmarkReplayOfAMillion(b *testing.B) {
	jobs := poisson(1, 1_000_000, 3*8/0.335, threeTimes)
	for b.Loop() {
		if _, err := (simulate.Line{Policy: order.ShortestExpected, Permits: 8, Ageing: time.Minute}).Replay(jobs); err != nil {
			b.Fatal(err)
		}
	}
}
