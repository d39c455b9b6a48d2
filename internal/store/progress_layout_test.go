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
	layout := workflow.LayoutOfProgress()
	at := func(part int) string {
		return fmt.Sprintf("get_byte(g.progress, %d + %d * s.step_no)", layout.Header+part, layout.PerStep)
	}
	require.Contains(t, string(schema), at(layout.StatusAt))
	require.Contains(t, string(schema), at(layout.AttemptsAt)+" * 256 + "+at(layout.AttemptsAt+1))
}
