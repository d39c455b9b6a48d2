package e2e

import (
	"cmp"
	"errors"
	"flag"
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
		Takes int  `json:"takes_ms"` // 0: 400
	}
	return errors.Join(enginetest.RegisterTemplates(w, `
name: crash
namespace_name: crash
version: 1.0.0
steps:
  - {name: only, handler: {callable: crash.maybe}, timeout_seconds: 60}
`), worker.Handle(w, "crash.maybe", func(ctx *worker.StepContext, in input) (bool, error) {
		if in.Kills {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return true, lifecycle.Pause(ctx, time.Duration(cmp.Or(in.Takes, 400))*time.Millisecond)
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

var lostTakes = flag.Duration("lost.takes", time.Second, "how long each handler runs on a node that is lost")

// TestALostNodeDelaysNothingTwice: a node is lost with 40 long handlers, which another worker executes side by side: none of
// them is suspected, and none uses an attempt.
func TestALostNodeDelaysNothingTwice(t *testing.T) {
	t.Parallel()
	const tasks = 40
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	start := func() *fleet.Process { return r.startWorker(bin, quick+"max_concurrent_handlers = 40\n") }
	lost := start()
	r.ready()
	requests := make([]client.TaskRequest, tasks)
	for i := range requests {
		requests[i] = request("crash", fmt.Sprintf(`{"i": %d, "takes_ms": %d}`, i, lostTakes.Milliseconds()))
		requests[i].Namespace = "crash"
	}
	_, err := r.clients[0].CreateTasks(t.Context(), requests)
	require.NoError(t, err)
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := r.db.QueryInt(t, `select count(*) from tasker.board where state = 3`)
		return n == tasks, fmt.Sprintf("%d steps are under way", n)
	})
	lost.Kill()
	ends := r.db.QueryString(t, `select max(lease_until)::text from tasker.board where state = 3`)
	start()
	pgtest.Eventually(t, 3*time.Minute, func() (bool, string) {
		left := r.db.QueryInt(t, `select count(*) from tasker.board where slot = 0`)
		return left == 0, fmt.Sprintf("%d tasks are left", left)
	})
	require.Equal(t, tasks, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1 and attempt = 1`), "complete, with their first attempts")
	require.Zero(t, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome <> 1 and reason is distinct from 'not_blamed'`))
	t.Logf("%d handlers of %s: all were done %s after the lease of the lost node", tasks, *lostTakes,
		r.db.QueryString(t, `select (max(applied_at) - $1::text::timestamptz)::text from tasker.step_attempts where outcome = 1`, ends))
	r.clean()
}
