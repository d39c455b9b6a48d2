package trial

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// steadily is the end of a step every 20 ms, but for a gap.
func steadily(upTo, gapFrom, gapTo float64) pace {
	var attempts []check.Attempt
	for s := 0.0; s < upTo; s += 0.02 {
		if s < gapFrom || s >= gapTo {
			attempts = append(attempts, check.Attempt{Flow: "linear", Step: "one", Outcome: check.Success, Applied: at(s)})
		}
	}
	return paceOf(attempts)
}

func strike(kind schedule.Kind, from, to float64) faults.Strike {
	return faults.Strike{Fault: schedule.Fault{Kind: kind}, Began: at(from), Ended: at(to)}
}

func TestRecoveryIsTheTimeFromTheEndOfTheFault(t *testing.T) {
	p := steadily(40, 10, 15)
	got := recoveries(p, []faults.Strike{strike(schedule.Cut, 10, 13)}, start, at(40))
	require.Len(t, got, 1)
	require.InDelta(t, 2, got[0].Took.Seconds(), 0.2, "the gap is over two seconds after the fault")
	require.InDelta(t, 43.75, got[0].Usual, 0.1, "the gap was never made up for")
	require.Zero(t, got[0].During)
	require.False(t, got[0].Unknown)
}

func TestAFaultThatCostsNothing(t *testing.T) {
	got := recoveries(steadily(40, 50, 50), []faults.Strike{strike(schedule.Kill, 10, 12)}, start, at(40))
	require.Zero(t, got[0].Took)
}

func TestTheNextFaultEndsTheMeasuring(t *testing.T) {
	got := recoveries(steadily(40, 10, 20), []faults.Strike{strike(schedule.Cut, 10, 11), strike(schedule.Slow, 14, 15)}, start, at(40))
	require.Len(t, got, 2)
	require.True(t, got[0].Unknown)
}

func TestFaultsThatStrikeTogetherAreOne(t *testing.T) {
	got := recoveries(steadily(40, 10, 15), []faults.Strike{strike(schedule.Cut, 10, 13), strike(schedule.Kill, 12, 14)}, start, at(40))
	require.Len(t, got, 1)
	require.InDelta(t, 1, got[0].Took.Seconds(), 0.2)
	require.Len(t, got[0].After, 2)
}
