package e2e

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
)

// registerCrash registers a handler that takes a moment, or ends its process.
func registerCrash(w *worker.Worker) error {
	type input struct {
		Kills bool `json:"kills"`
	}
	return errors.Join(enginetest.RegisterTemplates(w, `
name: crash
namespace_name: crash
version: 1.0.0
steps:
  - {name: only, handler: {callable: crash.maybe}}
`), worker.Handle(w, "crash.maybe", func(ctx *worker.StepContext, in input) (bool, error) {
		if in.Kills {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return true, lifecycle.Pause(ctx, 400*time.Millisecond)
	}))
}

// TestStepsThatEndTheirProcessTakeNoOthersAlong: with default attempts, and a worker that is started again under its
// worker_id whenever it has died.
func TestStepsThatEndTheirProcessTakeNoOthersAlong(t *testing.T) {
	t.Parallel()
	const tasks, killers, maxCrashes = 40, 2, 3
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	start := func() *fleet.Process { return r.startTransactions(bin, "TASKER_WORKER_ID=crash-0") }
	p := start()
	r.ready()
	requests := make([]client.TaskRequest, tasks)
	for i := range requests {
		requests[i] = request("crash", fmt.Sprintf(`{"i": %d, "kills": %t}`, i, i%(tasks/killers) == 7))
		requests[i].Namespace = "crash"
	}
	made, err := r.clients[0].CreateTasks(t.Context(), requests)
	require.NoError(t, err)
	require.Equal(t, tasks, made.Created)
	deaths := 0
	pgtest.Eventually(t, 2*time.Minute, func() (bool, string) {
		select {
		case <-p.Done():
			deaths++
			p = start()
		default:
		}
		left := r.db.QueryInt(t, `select count(*) from tasker.board where slot = 0`)
		return left == 0, fmt.Sprintf("%d tasks are left after %d deaths", left, deaths)
	})
	complete, blamed := 0, 0
	for i, result := range made.Results {
		task := r.wait(result.TaskUUID, time.Minute)
		if i%(tasks/killers) == 7 {
			require.Equal(t, "error", task.Status)
			blamed += r.db.QueryInt(t, `select count(*) from tasker.step_attempts where task_uuid = $1 and reason is distinct from 'not_blamed'`, result.TaskUUID)
			continue
		}
		require.Equal(t, "complete", task.Status)
		complete++
	}
	require.Equal(t, []int{tasks - killers, killers * maxCrashes}, []int{complete, blamed})
	t.Logf("%d deaths; %d of %d others complete", deaths, complete, tasks-killers)
	r.clean()
}
