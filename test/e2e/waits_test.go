package e2e

import (
	"errors"
	"fmt"
	"slices"
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

// registerWaits gives a worker a task that waits in every way.
func registerWaits(w *worker.Worker) error {
	noted, _, err := template.Parse("noted.yaml", []byte(`
name: noted
namespace_name: kept
version: 1.0.0
steps:
  - {name: only, handler: {callable: note}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
`))
	waits, _, err2 := template.Parse("waits.yaml", []byte(`
name: waits
namespace_name: kept
version: 1.0.0
steps:
  - {name: nap, type: sleep, wait: {for: 100ms}}
  - {name: sub, type: task, depends_on: [nap], task: {name: noted, version: 1.0.0, context: {of: $.context.i}}}
  - {name: paid, type: wait_for_event, depends_on: [nap], wait: {event: paid, key: $.context.i, timeout: 10m}}
  - {name: last, depends_on: [sub, paid], handler: {callable: note}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
`))
	return errors.Join(err, err2, w.RegisterTemplate(noted), w.RegisterTemplate(waits),
		w.Register("note", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })))
}

// Orchestrators die while they begin waiting steps and notify dependents: no step begins
// twice, and no notification is lost or repeated.
func TestOrchestratorsKilledWhileTasksWait(t *testing.T) {
	t.Parallel()
	kills, tasks := 6, 120
	if testing.Short() {
		kills, tasks = 2, 40
	}
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "EventDrivenOnly", "")
	victim := r.start(fleet.Orchestrator, "Hybrid", "")
	r.startTransactions(bin)
	r.ready()
	c := r.clients[0]
	send := func(i int) {
		// The second one with the id is none.
		for range 2 {
			_, err := c.SendEvent(t.Context(), client.ExternalEvent{Name: "paid", Namespace: "kept", Key: fmt.Sprint(i), ID: fmt.Sprint(i)})
			require.NoError(t, err)
		}
	}
	ids := make([]string, tasks)
	dependents := make([]string, 0, tasks)
	ended := func() int { return r.db.QueryInt(t, `select count(*) from tasker.step_attempts where task_state = 9`) }
	for i := range tasks {
		if i%2 == 0 {
			send(i) // before any step waits
		}
		made, err := c.CreateTask(t.Context(), inKept("waits", fmt.Sprintf(`{"i":%d}`, i)))
		require.NoError(t, err)
		ids[i] = made.TaskUUID
		after := inKept("noted", fmt.Sprintf(`{"after":%d}`, i))
		after.DependsOn = []string{ids[i]}
		dependent, err := c.CreateTask(t.Context(), after)
		require.NoError(t, err)
		dependents = append(dependents, dependent.TaskUUID)
		if i%(tasks/kills) == tasks/kills-1 {
			victim.Kill()
			victim = r.start(fleet.Orchestrator, []string{"Hybrid", "PollingOnly", "EventDrivenOnly"}[i%3], "")
			require.NoError(t, victim.WaitReady(t.Context()))
		}
		if i%2 == 1 {
			send(i)
		}
	}
	for _, id := range slices.Concat(ids, dependents) {
		require.Equal(t, "complete", r.wait(id, time.Minute).Status)
	}
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := ended()
		return n == 3*tasks, fmt.Sprintf("%d tasks have ended", n)
	})
	require.Equal(t, tasks, r.db.QueryInt(t, `select count(distinct parent_task_uuid) from tasker.tasks`))
	require.Equal(t, tasks, r.db.QueryInt(t, `select count(*) from tasker.tasks where parent_task_uuid is not null`))
	require.Equal(t, tasks, r.db.QueryInt(t, `select count(*) from tasker.received_events where delivered = 1`))
	require.Zero(t, r.db.QueryInt(t, `select count(*) from tasker.task_dependencies`))
	r.clean()
}

func inKept(name, context string) client.TaskRequest {
	q := request(name, context)
	q.Namespace = "kept"
	return q
}
