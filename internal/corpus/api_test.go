package corpus_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
)

// serve has an engine answer over HTTP, until the test ends.
func serve(t *testing.T, e *enginetest.Engine) *client.Client {
	t.Helper()
	defaults, err := config.Defaults()
	require.NoError(t, err)
	web := rest.Configure(defaults.Orchestration.Web)
	web.Address = "127.0.0.1:0"
	s, err := rest.NewOrchestrator(web,
		rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: e.Orchestrator}, Store: e.Store, ID: "test"})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Stop(context.Background()))
	})
	return client.New(client.Config{BaseURL: "http://" + s.Addr().String(), HTTP: &http.Client{Transport: transport}})
}

// Row 5: each complete step of a task has a row in its audit.
func TestSequenceIsAudited(t *testing.T) {
	t.Parallel()
	e, template := start(t, "mathematical_sequence.yaml", sequence(), nil)
	task := run(e, template, `{"even_number":6}`)
	requireComplete(t, task)
	c := serve(t, e)
	for i := range task.Steps {
		rows, err := c.StepAudit(t.Context(), task.UUID.String(), task.Steps[i].UUID.String())
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.True(t, rows[0].Success)
		require.Equal(t, "enqueued_for_orchestration", rows[0].ToState)
		require.NotNil(t, rows[0].ExecutionTimeMS)
	}
}
