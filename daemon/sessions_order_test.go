package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/worker"
)

// TestASessionGetsTheMostUrgentStepFirst: the daemon claims no more for a session than it can hold, so 1,000 waiting
// tasks of ten priorities come in their order, from a worker and from an orchestrator.
func TestASessionGetsTheMostUrgentStepFirst(t *testing.T) {
	t.Parallel()
	for _, served := range []string{"worker", "orchestrator"} {
		t.Run(served, func(t *testing.T) {
			t.Parallel()
			loaded := loadToo(t, enginetest.Migrated(t), "")
			own := &loaded.Orchestration.Sessions
			own.Enabled, own.Namespaces, own.ReclaimGrace = served == "orchestrator", []string{"none"}, longGrace
			loaded.Worker.Sessions.ReclaimGrace = longGrace
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			t.Cleanup(cancel)
			p := &pair{t: t, ctx: ctx}
			var err error
			p.orchestrator, err = newOrchestrator(ctx, loaded, nil, zap.NewNop())
			require.NoError(t, err)
			p.start(p.orchestrator)
			p.rest = "http://" + p.orchestrator.Addr().String()
			daemon := p.rest
			if served == "worker" { // without handlers of its own, as cmd/worker
				p.worker, err = newWorker(ctx, loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
				require.NoError(t, err)
				p.start(p.worker)
				daemon = "http://" + p.worker.Addr().String()
			}
			p.inOrder(t, daemon)
		})
	}
}

// inOrder runs 1,000 tasks of ten priorities in one session with one permit, and before that ten of ten in each of some:
// what the daemon claims as a session is opened comes in their order too.
func (p *pair) inOrder(t *testing.T, daemon string) {
	t.Helper()
	numbers, runs := 0, 0
	run := func(tasks int) {
		// Of its own handler: a claim that is under way as the session before ends is handed back a little later.
		runs++
		name, callable := fmt.Sprintf("urgent%d", runs), fmt.Sprintf("rush%d", runs)
		p.template(name, callable)
		const priorities = 10
		requests := make([]client.TaskRequest, tasks)
		for i := range requests {
			numbers++
			requests[i] = client.TaskRequest{Namespace: "none", Name: name, Version: "1.0.0", Priority: new(i % priorities),
				Context: json.RawMessage(fmt.Sprintf(`{"n":%d}`, numbers)), Initiator: "test", SourceSystem: "test", Reason: "order"}
		}
		rand.Shuffle(tasks, func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		created, err := client.New(client.Config{BaseURL: p.rest}).CreateTasks(p.ctx, requests)
		require.NoError(t, err)
		require.Equal(t, tasks, created.Created)
		s := p.sessionAt(t, daemon, 1, callable)
		inversions, before := 0, priorities
		var came []int
		for range tasks {
			step := s.step()
			if step.Priority > before {
				inversions++
			}
			before = step.Priority
			came = append(came, before)
			s.succeed(step, `1`)
		}
		require.Zero(t, inversions, "%v", came)
		s.call(http.MethodDelete, s.base, nil, http.StatusOK, nil)
	}
	for range 10 {
		run(10)
	}
	run(1000)
}
