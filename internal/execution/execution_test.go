package execution

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		counts Counts
		status string
		health string
	}{
		{Counts{Total: 4, Ready: 1, Pending: 4}, "has_ready_steps", "healthy"},
		{Counts{Total: 4, Failed: 1, Ready: 1, InProgress: 1}, "blocked_by_failures", "blocked"},
		{Counts{Total: 4, InProgress: 2}, "processing", "healthy"},
		{Counts{Total: 4, Complete: 4}, "all_complete", "healthy"},
		{Counts{Total: 4, BackingOff: 1}, "waiting_for_dependencies", "recovering"},
		{Counts{}, "waiting_for_dependencies", "healthy"},
	} {
		e := Derive(c.counts)
		require.Equal(t, c.status, e.Status, "%+v", c.counts)
		require.Equal(t, c.health, e.Health)
	}
	require.Equal(t, workflow.TaskStepsInProcess, VisibleState(workflow.TaskPending, Counts{InProgress: 1}))
	require.Equal(t, workflow.TaskPending, VisibleState(workflow.TaskPending, Counts{Ready: 1}))
}
