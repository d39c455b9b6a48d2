package enginetest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

const publishingYAML = `
name: publishing
namespace_name: test
version: 1.0.0
steps:
  - name: pay
    handler: {callable: pay}
    publishes_events: [{name: pay.done, schema: {}}]
`

// TestEveryReplicaLearnsOfEvents: the one that has published them, and the others by
// signal.
func TestEveryReplicaLearnsOfEvents(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("publishing.yaml", []byte(publishingYAML))
		return errors.Join(err, w.RegisterTemplate(tmpl), w.Register("pay", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
	})
	other := e.AnotherOrchestrator()
	here, there := e.Orchestrator.NewEvents(), other.NewEvents()
	e.Run("test", "publishing", `{}`)
	for _, news := range []<-chan struct{}{here, there} {
		select {
		case <-news:
		case <-time.After(30 * time.Second):
			require.Fail(t, "no notification")
		}
	}
	require.Equal(t, 1, e.DB.QueryInt(t, `select count(*)::int from tasker.domain_events`))
}

// TestEventsOfStepsInATransaction: events are published after the commit of the handler,
// even if the engine could have settled the step.
func TestEventsOfStepsInATransaction(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("publishing.yaml", []byte(publishingYAML))
		return errors.Join(err, w.RegisterTemplate(tmpl), w.Register("pay", worker.InTx(func(ctx *worker.StepContext, tx store.Tx) (any, error) {
			_, err := tx.Exec(ctx, `select 1`)
			return 7, err
		})))
	})
	e.Run("test", "publishing", `{}`)
	require.Equal(t, "pay.done 7", e.DB.QueryString(t, `select string_agg(name || ' ' || payload, ',') from tasker.domain_events`))
	require.Eventually(t, func() bool { return e.Worker.EventStats().Durable == 1 }, 30*time.Second, 5*time.Millisecond)
}
