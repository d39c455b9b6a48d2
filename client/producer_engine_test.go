package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// orchestrator returns a client of an orchestrator with the template made/thing 1.0.0,
// and its database.
func orchestrator(t *testing.T) (*client.Client, *enginetest.Engine) {
	t.Helper()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("thing.yaml", []byte("name: thing\nnamespace_name: made\nversion: 1.0.0\nsteps: [{name: only, handler: {callable: make}}]\n"))
		if err != nil {
			return err
		}
		return errors.Join(w.RegisterTemplate(tmpl), w.Register("make", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
	})
	return client.New(e.API()), e
}

func thing(n int) client.TaskRequest {
	return client.TaskRequest{Namespace: "made", Name: "thing", Version: "1.0.0", Context: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
		IdempotencyKey: fmt.Sprintf("thing-%d", n)}
}

func TestAProducerAndAnOrchestrator(t *testing.T) {
	t.Parallel()
	c, e := orchestrator(t)
	p := client.NewProducer(t.Context(), c, client.ProducerConfig{BatchTasks: 100})
	var made, conflicts, unknown atomic.Int32
	count := func(got client.TaskOutcome) {
		switch {
		case got.Err == nil:
			made.Add(1)
		case client.IsConflict(got.Err):
			conflicts.Add(1)
		case client.IsNotFound(got.Err):
			unknown.Add(1)
		}
	}
	for n := range 2000 {
		require.NoError(t, p.Add(t.Context(), thing(n), count))
	}
	require.NoError(t, p.Flush(t.Context()))
	require.EqualValues(t, 2000, made.Load())
	require.Equal(t, 2000, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
	elsewhere := thing(2000)
	elsewhere.Name = "nothing"
	for _, r := range []client.TaskRequest{thing(1), elsewhere, thing(2001)} {
		require.NoError(t, p.Add(t.Context(), r, count))
	}
	require.NoError(t, p.Close(t.Context()))
	require.Equal(t, []int32{2001, 1, 1}, []int32{made.Load(), conflicts.Load(), unknown.Load()})
}
