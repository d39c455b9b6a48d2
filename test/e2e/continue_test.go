package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// registerHop gives a worker a task that continues itself until its counter is 0.
func registerHop(w *worker.Worker) error {
	tmpl, _, err := template.Parse("hop.yaml", []byte(`
name: hop
namespace_name: kept
version: 1.0.0
steps:
  - {name: only, handler: {callable: hop}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
`))
	type input struct{ I, Left int }
	return errors.Join(err, w.RegisterTemplate(tmpl), worker.Handle(w, "hop", func(c *worker.StepContext, in input) (int, error) {
		select {
		case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond): // takes time: work during which the worker is killed
		case <-c.Done():
			return 0, c.Err()
		}
		if in.Left == 0 {
			return 0, nil
		}
		return worker.Continue(in.Left, worker.NextTask{Context: fmt.Appendf(nil, `{"i":%d,"left":%d}`, in.I, in.Left-1)})
	}))
}

// Workers die while handlers end their steps with a next task: every chain continues from
// its state, without a second branch, to its end.
func TestWorkersKilledWhileTheyContinue(t *testing.T) {
	t.Parallel()
	kills, chains, links := 5, 40, 12
	if testing.Short() {
		kills, chains, links = 2, 20, 6
	}
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	victim := r.startTransactions(bin)
	r.startTransactions(bin)
	r.ready()
	requests := make([]client.TaskRequest, chains)
	for i := range requests {
		requests[i] = request("hop", fmt.Sprintf(`{"i":%d,"left":%d}`, i, links))
		requests[i].Namespace = "kept"
	}
	made, err := r.clients[0].CreateTasks(t.Context(), requests)
	require.NoError(t, err)
	require.Equal(t, chains, made.Created)
	next := func() int {
		return r.db.QueryInt(t, `select count(*) from tasker.tasks where continues_task_uuid is not null`)
	}
	for i := range kills {
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			n := next()
			return n >= (i+1)*chains*links/(kills+2), fmt.Sprintf("%d links", n)
		})
		victim.Kill()
		victim = r.startTransactions(bin)
	}
	for i, result := range made.Results {
		id := result.TaskUUID
		for left := links; left > 0; left-- {
			task := r.wait(id, time.Minute)
			require.Equal(t, "complete", task.Status)
			require.Len(t, task.ContinuedBy, 1, "chain %d with %d left", i, left)
			id = task.ContinuedBy[0]
		}
		last := r.wait(id, time.Minute)
		require.Equal(t, "complete", last.Status)
		require.Empty(t, last.ContinuedBy)
	}
	require.Equal(t, chains*links, next())
	require.Equal(t, chains*links, r.db.QueryInt(t, `select count(*) from tasker.step_attempts a join tasker.v_task_continuations c using (task_uuid, token) where a.outcome = 1`))
	chain, err := r.clients[0].Chain(t.Context(), made.Results[0].TaskUUID, links)
	require.NoError(t, err)
	require.Len(t, chain.Tasks, links+1)
	require.False(t, chain.MoreBefore || chain.MoreAfter)
	r.clean()
	t.Logf("%d workers were killed; %d executions were lost with them", kills, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4`))
}
