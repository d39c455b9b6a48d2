package board

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestStepsThatPublishDurably(t *testing.T) {
	t.Parallel()
	step := func(modes ...string) *workflow.PlanStep {
		s := &workflow.PlanStep{}
		for _, mode := range modes {
			s.Events = append(s.Events, workflow.Event{EventPublication: &workflow.EventPublication{Condition: "success", DeliveryMode: mode}})
		}
		return s
	}
	require.False(t, publishesDurably(nil))
	require.False(t, publishesDurably(step("fast")))
	require.True(t, publishesDurably(step("fast", "broadcast")))
}
