package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
)

func options(seed uint64) schedule.Options {
	return schedule.Options{
		Seed: seed, Length: 10 * time.Minute, Kinds: append(schedule.Kinds(), schedule.Particular()...), Calm: 2 * time.Second, Longest: 8 * time.Second,
		Daemons: []string{"orchestrator-a", "orchestrator-b", "worker-a", "worker-b", "worker-c"},
	}
}

func TestTheSeedIsTheSchedule(t *testing.T) {
	first, again := schedule.Draw(options(7)), schedule.Draw(options(7))
	require.Equal(t, first, again)
	require.NotEqual(t, first, schedule.Draw(options(8)))
}

func TestFaultsAreWithinBounds(t *testing.T) {
	for seed := range uint64(200) {
		o := options(seed)
		faults := schedule.Draw(o)
		require.Greater(t, len(faults), 50)
		seen := map[schedule.Kind]int{}
		for i, f := range faults {
			seen[f.Kind]++
			require.Equal(t, i+1, f.N)
			require.GreaterOrEqual(t, f.At, o.Calm)
			require.LessOrEqual(t, f.End(), o.Length-o.Calm)
			require.LessOrEqual(t, f.For, o.Longest)
			if i > 0 {
				require.LessOrEqual(t, faults[i-1].At, f.At, "in order")
			}
			switch f.Kind {
			case schedule.TerminateBackends:
				require.Positive(t, f.Share)
				require.LessOrEqual(t, f.Share, 1.0)
			case schedule.StopServer, schedule.FillWAL, schedule.KillBroker, schedule.FreezeBroker, schedule.StarveBroker, schedule.FillBroker:
				require.Positive(t, f.For)
				require.Empty(t, f.Targets)
			case schedule.RestartServer, schedule.Promote, schedule.WipeBroker:
				require.Empty(t, f.Targets)
			default:
				require.Subset(t, o.Daemons, f.Targets)
				require.NotEmpty(t, f.Targets)
			}
		}
		for _, k := range o.Kinds {
			require.GreaterOrEqual(t, seen[k], 4, "%s is dealt as often as the others", k)
		}
	}
}

func TestFaultsThatStrikeTogetherDoNotMeet(t *testing.T) {
	pairs := 0
	for seed := range uint64(200) {
		faults := schedule.Draw(options(seed))
		for i, f := range faults {
			for _, other := range faults[:i] {
				if other.End() <= f.At {
					continue
				}
				pairs++
				for _, target := range f.Targets {
					require.NotContains(t, other.Targets, target, "%v, %v", f, other)
				}
				require.False(t, f.Kind.OfServer() && other.Kind.OfServer(), "%v, %v", f, other)
				require.False(t, f.Kind.OfBroker() && other.Kind.OfBroker(), "%v, %v", f, other)
			}
		}
	}
	require.Greater(t, pairs, 500, "some strike together")
}
