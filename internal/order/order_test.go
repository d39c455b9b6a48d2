package order_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/priorities"
)

func steps() *rapid.Generator[order.Step] {
	return rapid.Custom(func(t *rapid.T) order.Step {
		return order.Step{
			Priority: rapid.IntRange(priorities.Min, priorities.Max).Draw(t, "priority"), Begun: rapid.Bool().Draw(t, "begun"),
			Expected: time.Duration(rapid.Int64().Draw(t, "expected")), Deadline: rapid.Bool().Draw(t, "deadline"),
			Left: time.Duration(rapid.Int64().Draw(t, "left")),
		}
	})
}

// TestLanesFollowThePolicy: of two steps the one that the policy prefers is in no later lane,
// and no lane is out of bounds.
func TestLanesFollowThePolicy(t *testing.T) {
	t.Parallel()
	before := map[order.Policy]func(a, b order.Step) bool{
		order.Priority:         func(a, b order.Step) bool { return a.Priority > b.Priority || a.Priority == b.Priority && a.Begun },
		order.FIFO:             func(order.Step, order.Step) bool { return true },
		order.ShortestExpected: func(a, b order.Step) bool { return a.Expected > 0 && a.Expected <= b.Expected },
		order.DeadlineAware: func(a, b order.Step) bool {
			return a.Deadline && (!b.Deadline || a.Expected == b.Expected && a.Left <= b.Left && a.Left > 0 && a.Expected >= 0)
		},
	}
	for _, p := range order.Policies() {
		rapid.Check(t, func(t *rapid.T) {
			a, b := steps().Draw(t, "a"), steps().Draw(t, "b")
			for _, lane := range []int16{p.Lane(a), p.Lane(b)} {
				if lane <= order.AgedLane || lane > order.MaxLane {
					t.Fatalf("%s: lane %d", p, lane)
				}
			}
			if before[p](a, b) && p.Lane(a) > p.Lane(b) {
				t.Fatalf("%s: %+v is in lane %d, behind %+v in lane %d", p, a, p.Lane(a), b, p.Lane(b))
			}
		})
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	for want, lane := range map[int16]int16{
		201: order.Priority.Lane(order.Step{}),
		200: order.Priority.Lane(order.Step{Begun: true}),
		0:   order.Priority.Lane(order.Step{Priority: 100, Begun: true}),
		181: order.ShortestExpected.Lane(order.Step{Expected: time.Second >> 10}),
		203: order.ShortestExpected.Lane(order.Step{Expected: 2 * time.Second}),
		401: order.DeadlineAware.Lane(order.Step{}),
	} {
		require.Equal(t, want, lane)
	}
	require.EqualValues(t, 201, order.ShortestExpected.Lane(order.Step{Priority: 9}), "unknown")
	require.EqualValues(t, 0, order.DeadlineAware.Lane(order.Step{Deadline: true, Left: -time.Second}), "late")
	_, err := order.ParsePolicy("shortest")
	require.EqualError(t, err, `invalid policy "shortest": want priority, fifo, shortest_expected, deadline_aware`)
}
