package simulate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/order/simulate"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

func executed(worker string, enqueued, claimed, ended float64) simulate.Record {
	return simulate.Record{Template: "t", Step: "s", Worker: worker, Token: int64(claimed * 1000), Enqueued: at(enqueued), Claimed: at(claimed), Ended: at(ended)}
}

// TestExpectationsAreOfThePast: an execution that ended later is not known yet, and eight of
// one size say nothing of another until a regression has been closer than their median.
func TestExpectationsAreOfThePast(t *testing.T) {
	t.Parallel()
	records := []simulate.Record{executed("w", 15, 15, 17), executed("w", 17, 17, 19)}
	for i := range 8 {
		records = append(records, executed("w", 2*float64(i), 2*float64(i), 2*float64(i)+2))
	}
	jobs, err := simulate.Jobs(records, 1)
	require.NoError(t, err)
	for _, j := range jobs[:9] {
		require.Zero(t, j.Expected)
	}
	require.InEpsilon(t, 2*time.Second, jobs[9].Expected, 0.05)

	records = nil
	for i := range 200 {
		size := float64(1 + i*37%100)
		r := executed("w", 100*float64(i), 100*float64(i), 100*float64(i)+size)
		r.Values = []float64{size}
		records = append(records, r)
	}
	jobs, err = simulate.Jobs(records, 1)
	require.NoError(t, err)
	for i, j := range jobs[100:] { // of 1 to 100 seconds; the median is 50
		require.Less(t, max(j.Service, j.Expected), 2*min(j.Service, j.Expected), i)
	}
}

// TestClaimsAheadAreNoWork: the time in which a claim made ahead waits at its worker is
// waiting.
func TestClaimsAheadAreNoWork(t *testing.T) {
	t.Parallel()
	soon := at(5)
	records := []simulate.Record{executed("a", 0, 0, 2), executed("a", 0, 0, 3), executed("a", 0, 0, 5), executed("b", 0, 0, 4)}
	records[2].Deadline, records[2].Token = &soon, 9
	records[3].Token = 8
	jobs, err := simulate.Jobs(records, 3) // two at each worker
	require.NoError(t, err)
	for i, want := range []time.Duration{2e9, 3e9, 3e9, 4e9} {
		require.Equal(t, want, jobs[i].Service)
	}
	require.Equal(t, order.Step{Deadline: true, Left: 5 * time.Second}, jobs[2].Step)
	require.Zero(t, replay(t, simulate.Line{Policy: order.DeadlineAware, Permits: 1}, jobs).Late)
	require.Equal(t, 1, replay(t, simulate.Line{Policy: order.FIFO, Permits: 1}, jobs).Late)
}

// TestAClaimHoldsItsPermit: but what stands long beside a free permit waits for something else.
func TestAClaimHoldsItsPermit(t *testing.T) {
	t.Parallel()
	jobs, err := simulate.Jobs([]simulate.Record{executed("w", 0, 0.05, 1), executed("w", 0, 1.02, 2), executed("w", 3, 3.2, 4)}, 1)
	require.NoError(t, err)
	for i, want := range []time.Duration{1e9, 1e9, 8e8} {
		require.Equal(t, want, jobs[i].Service)
	}
}

// TestAReplayOfFIFOIsItsRecording: the records of a replay of FIFO, replayed, wait as they
// did.
func TestAReplayOfFIFOIsItsRecording(t *testing.T) {
	t.Parallel()
	jobs := poisson(3, 5000, 3*8/0.335, threeTimes)
	o := replay(t, simulate.Line{Policy: order.FIFO, Permits: 8}, jobs)
	records := make([]simulate.Record, len(jobs))
	for i, j := range jobs {
		records[i] = simulate.Record{Template: "t", Step: "s", Token: int64(i), Enqueued: epoch.Add(j.Arrival), Claimed: epoch.Add(j.Arrival),
			Ended: epoch.Add(j.Arrival + o.Waits[i] + j.Service)}
	}
	again, err := simulate.Jobs(records, 8)
	require.NoError(t, err)
	require.Equal(t, o.Waits, replay(t, simulate.Line{Policy: order.FIFO, Permits: 8}, again).Waits)
}

func TestRecordsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	_, err := simulate.Jobs([]simulate.Record{executed("a", 1, 0, 2)}, 1)
	require.EqualError(t, err, `invalid execution of step "s" of task "": want enqueued_at, claimed_at and ended_at in this order`)
	_, err = simulate.Jobs(nil, 0)
	require.EqualError(t, err, `invalid permits "0": want 1 or more`)
	jobs, err := simulate.Jobs(nil, 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
}
