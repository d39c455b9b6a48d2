package store_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

// TestViewsReadTheLayoutOfProgress: the views read the bytes that Encode writes.
func TestViewsReadTheLayoutOfProgress(t *testing.T) {
	t.Parallel()
	schema, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	at := func(part int) string {
		return fmt.Sprintf("get_byte(g.progress, %d + %d * s.step_no)", workflow.ProgressHeader+part, workflow.ProgressPerStep)
	}
	require.Contains(t, string(schema), at(workflow.ProgressStatusAt))
	require.Contains(t, string(schema), at(workflow.ProgressAttemptsAt)+" * 256 + "+at(workflow.ProgressAttemptsAt+1))
}
