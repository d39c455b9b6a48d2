package trial

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// twoSteps is a task of two steps, the second of which waited for its claim from 21 s on.
func twoSteps(claimed float64) check.Facts {
	id := uuid.New()
	return check.Facts{Tasks: []check.Task{{ID: id, Began: at(19)}}, Attempts: []check.Attempt{
		{Task: id, Flow: "linear", Step: "one", Attempt: 1, Outcome: check.Success, Claimed: at(19.5), Reported: at(20), Applied: at(21)},
		{Task: id, Flow: "linear", Step: "two", Attempt: 1, Outcome: check.Success, Claimed: at(claimed), Reported: at(claimed + 1), Applied: at(claimed + 1)},
	}}
}

func waited(claimed float64, strikes ...faults.Strike) []time.Duration {
	var took []time.Duration
	for _, w := range beside(waits(twoSteps(claimed), map[string]workload.Workflow{"linear": workload.Linear}), strikes) {
		took = append(took, w.took())
	}
	return took
}

func TestWaitsAreFromTheEndOfTheStepBefore(t *testing.T) {
	require.Equal(t, []time.Duration{time.Second, 500 * time.Millisecond, 0, 4 * time.Second}, waited(25, strike(schedule.KillBroker, 18, 23)))
}

func TestOnlyWaitsBesideTheBrokerAloneCount(t *testing.T) {
	require.Empty(t, waited(25), "no fault")
	require.Len(t, waited(25, strike(schedule.KillBroker, 18, 23), strike(schedule.Kill, 12, 13)), 1, "another one was felt until 23 s")
	require.Len(t, waited(25, strike(schedule.PartBroker, 18, 23), strike(schedule.Kill, 25.5, 26)), 3, "another one met the last end only")
	require.Empty(t, waited(25, strike(schedule.KillBroker, 1, 2)), "it is long over")
}

func TestAWaitBeyondThePollBoundIsFound(t *testing.T) {
	list := beside(waits(twoSteps(30), map[string]workload.Workflow{"linear": workload.Linear}), []faults.Strike{strike(schedule.WipeBroker, 18, 23)})
	broken := foundByPolls(list)
	require.Len(t, broken, 1)
	require.Equal(t, check.FoundByPolls, broken[0].Rule)
	require.Contains(t, broken[0].What, "attempt 1 of linear/two")
	require.Contains(t, broken[0].What, "waited 9s")
}

func TestWhatFoundTheWork(t *testing.T) {
	f := found{}
	f.since(map[string]float64{`tasker_found_total{by="listener",system="a"}`: 7, `tasker_found_total{by="poller",system="a"}`: 2, "go_goroutines": 9},
		map[string]float64{`tasker_found_total{by="listener",system="a"}`: 1})
	require.Equal(t, found{"listener": 6, "poller": 2}, f)
	well, ill := split([]Vitals{{At: 10 * time.Second, Found: f}, {At: 20 * time.Second, Found: f}}, start, []faults.Strike{strike(schedule.KillBroker, 16, 17)})
	require.Equal(t, f, well)
	require.Equal(t, f, ill)
	require.Equal(t, "75.0 % of 8 by signals, 25.0 % by polls", well.String())
}
