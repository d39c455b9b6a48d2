package corpus_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// Row 5: each complete step of a task has a row in its audit.
func TestSequenceIsAudited(t *testing.T) {
	t.Parallel()
	e, template := start(t, "mathematical_sequence.yaml", sequence(), nil)
	task := run(e, template, `{"even_number":6}`)
	requireComplete(t, task)
	c := client.New(e.API())
	for i := range task.Steps {
		rows, err := c.StepAudit(t.Context(), task.UUID.String(), task.Steps[i].UUID.String())
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.True(t, rows[0].Success)
		require.Equal(t, "enqueued_for_orchestration", rows[0].ToState)
		require.NotNil(t, rows[0].ExecutionTimeMS)
	}
}
