package enginetest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
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
	require.Eventually(t, func() bool { return e.Worker.Host().EventStats().Durable == 1 }, 30*time.Second, 5*time.Millisecond)
}

// TestEventsOfHandlersOwn: what a handler publishes is there exactly if its success is, after
// the declared events, whichever way the success is recorded.
func TestEventsOfHandlersOwn(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]enginetest.Option{
		"settled by the worker": nil,
		"by an orchestrator":    {func(_ *orchestration.Config, w *worker.Config) { w.Report.Only = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enginetest.Start(t, func(w *worker.Worker) error {
				tmpl, _, err := template.Parse("publishing.yaml", []byte(publishingYAML+`
  - name: pack
    handler: {callable: pack}
    depends_on: [pay]
  - name: ship
    handler: {callable: ship}
    depends_on: [pack]
`))
				return errors.Join(err, w.RegisterTemplate(tmpl),
					w.Register("pay", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) { return 1, ctx.Publish("pay.booked", ctx.Attempt()) })),
					w.Register("pack", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
						err := errors.Join(ctx.Publish("box.taken", ctx.Attempt()), ctx.Publish("box.closed", nil))
						if ctx.Attempt() == 1 {
							return nil, worker.Retryable(errors.New("the box is torn"), time.Millisecond)
						}
						return 2, err
					})),
					w.Register("ship", worker.InTx(func(ctx *worker.StepContext, _ store.Tx) (any, error) { return 3, ctx.Publish("truck.left", "north") })))
			}, options...)
			require.Equal(t, workflow.TaskComplete, e.Run("test", "publishing", `{}`).State)
			require.Equal(t, "pay.done 1, pay.booked 1, box.taken 2, box.closed null, truck.left \"north\"",
				e.DB.QueryString(t, `select string_agg(name || ' ' || payload, ', ' order by position) from tasker.domain_events`))
			require.Equal(t, "pay pay pack pack ship", e.DB.QueryString(t, `select string_agg(step_name, ' ' order by position) from tasker.domain_events`))
			require.Equal(t, "pack/2", e.DB.QueryString(t, `select min(fired_by || '/' || attempt) from tasker.domain_events where name = 'box.taken'`))
		})
	}
}
