package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const lane = `
name: lane
namespace_name: %s
version: 1.0.0
steps:
  - name: only
    handler: {callable: %s}
`

// TestALongQueueDoesNotStarveAnother lets one long queue use every permit in turn, and
// expects a step of the other to get one.
func TestALongQueueDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	wait := func(ctx *worker.StepContext) (any, error) {
		select {
		case gate <- struct{}{}:
			return 1, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	e := enginetest.Start(t, func(w *worker.Worker) error {
		for _, ns := range []string{"long", "short"} {
			if err := enginetest.RegisterTemplates(w, fmt.Sprintf(lane, ns, "fair."+ns)); err != nil {
				return err
			}
			if err := w.Register("fair."+ns, worker.HandlerFunc(wait)); err != nil {
				return err
			}
		}
		return nil
	})
	var all []uuid.UUID
	for i := range 400 { // each claim takes some tens of them, starting with a random queue
		all = append(all, e.Submit("long", "lane", fmt.Sprintf(`{"i":%d}`, i)))
	}
	short := e.Submit("short", "lane", `{}`)
	done := 0
	claimed := func() bool {
		return e.DB.QueryInt(t, `select count(*) from tasker.board where state = 2 and task_uuid = '`+short.String()+`'`) == 0
	}
	for ; !claimed(); done++ {
		require.Less(t, done, 350, "the short queue waited for the long one to end")
		<-gate
	}
	for range len(all) + 1 - done {
		<-gate
	}
	for _, id := range all {
		require.Equal(t, workflow.TaskComplete, e.Await(id).State)
	}
}

// TestWhatIsUrgentWaitsForNoFullScan: a worker that always finds enough from its marks
// next takes a step of a priority new to it.
func TestWhatIsUrgentWaitsForNoFullScan(t *testing.T) {
	t.Parallel()
	gate, began := make(chan struct{}), make(chan uuid.UUID, 1)
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("lane.yaml", fmt.Appendf(nil, lane, "urgent", "urgent.only"))
		if err != nil {
			return err
		}
		return errors.Join(w.RegisterTemplate(tmpl), w.Register("urgent.only", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			began <- ctx.TaskUUID()
			select {
			case <-gate:
				return 1, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})))
	}, func(_ *orchestration.Config, w *worker.Config) {
		w.MaxConcurrent, w.Mode = 1, deploymode.EventDrivenOnly
		w.Lease, w.HeartbeatInterval = time.Hour, 20*time.Minute // heartbeats only on request
	})
	// synced waits until the worker has received all signals up to now: a signal that
	// requests a heartbeat follows them. The first heartbeat seen may have been under
	// way.
	synced := func() {
		for range 3 {
			before := e.DB.QueryString(t, `select heartbeat_at::text from tasker.workers`)
			e.Bus.Publish(signal.Signal{Topic: signal.TopicControl})
			require.Eventually(t, func() bool { return e.DB.QueryString(t, `select heartbeat_at::text from tasker.workers`) != before },
				30*time.Second, time.Millisecond)
		}
	}
	for i := range 20 {
		e.Submit("urgent", "lane", fmt.Sprintf(`{"i":%d}`, i))
	}
	<-began
	priority := 50
	created, err := e.Orchestrator.Create(t.Context(), orchestration.Request{
		Namespace: "urgent", Name: "lane", Version: "1.0.0", Context: []byte(`{}`), Initiator: "test", Priority: &priority})
	require.NoError(t, err)
	synced()
	place := 0
	for i := range 20 {
		gate <- struct{}{}
		if <-began == created.UUID {
			place = i + 1
		}
	}
	gate <- struct{}{}
	require.LessOrEqual(t, place, 3, "it waits behind less urgent steps")
	require.Positive(t, place)
}
