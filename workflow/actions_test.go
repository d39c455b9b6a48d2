package workflow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestOperationsThatDecide(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]struct{ onTask, onStep bool }{
		workflow.ActionCancel:   {true, true},
		workflow.ActionFail:     {true, true},
		workflow.ActionResolve:  {true, true},
		workflow.ActionReset:    {false, true},
		workflow.ActionComplete: {false, true},
		workflow.ActionRunAgain: {false, true},
		"release_lease":         {},
		"reprioritise":          {},
		"":                      {},
	} {
		for step, decides := range map[int]bool{-1: want.onTask, 2: want.onStep} {
			o := workflow.Operation{Action: action, Step: step}
			require.Equal(t, decides, o.Decides(), "%s on %d", action, step)
		}
	}
}
