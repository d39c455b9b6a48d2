package workflow_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestOperations(t *testing.T) {
	t.Parallel()
	result := json.RawMessage(`7`)
	const why, letter = "the vendor said so", workflow.DeadLetterStaleness
	for action, want := range map[string]struct{ onTask, onStep workflow.Input }{
		workflow.ActionCancel:   {workflow.Cancel{Reason: why, DeadLetter: letter}, workflow.Cancel{Reason: why, DeadLetter: letter}},
		workflow.ActionFail:     {workflow.Fail{Reason: why, DeadLetter: letter}, workflow.Fail{Reason: why, DeadLetter: letter}},
		workflow.ActionResolve:  {workflow.ResolveTask{Reason: why}, workflow.Resolve{Step: 2}},
		workflow.ActionReset:    {nil, workflow.Reset{Step: 2}},
		workflow.ActionComplete: {nil, workflow.Complete{Step: 2, Result: result}},
		workflow.ActionRunAgain: {nil, workflow.RunAgain{Step: 2}},
		"release_lease":         {},
		"reprioritise":          {},
		"":                      {},
	} {
		for step, input := range map[int]workflow.Input{-1: want.onTask, 2: want.onStep} {
			got, decides := workflow.Operation{Action: action, Step: step, Reason: why, DeadLetter: letter, Result: result}.Input()
			require.Equal(t, input, got, "%s on %d", action, step)
			require.Equal(t, input != nil, decides, "%s on %d", action, step)
		}
	}
}
