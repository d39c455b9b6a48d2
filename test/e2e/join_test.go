package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
)

var (
	joinSteps = flag.Int("join.steps", 40, "parallel steps before a join")
	joinBytes = flag.Int("join.bytes", 900_000, "bytes of the result of each")
)

// joinEnv tells the worker of the tests how many steps of how many bytes are joined.
const joinEnv = "E2E_JOIN"

// registerJoin adds a step that joins many large ones, and a small task beside it.
func registerJoin(w *worker.Worker) error {
	asked := os.Getenv(joinEnv)
	if asked == "" {
		return nil
	}
	var steps, size int
	if _, err := fmt.Sscan(asked, &steps, &size); err != nil {
		return fmt.Errorf("invalid %s %q: want steps and bytes: %w", joinEnv, asked, err)
	}
	plain := worker.HandlerFunc(func(c *worker.StepContext) (any, error) { return c.StepName(), nil })
	return errors.Join(enginetest.RegisterTemplates(w, enginetest.JoinTemplate("join", "joined", steps, "join.part", "join.all"), `
name: beside
namespace_name: join
version: 1.0.0
steps:
  - {name: only, handler: {callable: join.beside}}
`), w.Register("join.all", plain), w.Register("join.beside", plain),
		w.Register("join.part", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return strings.Repeat("x", size), nil })))
}

// TestALargeJoinIsRefusedBesideOthers: a step whose inputs are larger than its worker takes ends with their sum, after one
// attempt and without a loss, and other tasks do not wait for it.
func TestALargeJoinIsRefusedBesideOthers(t *testing.T) {
	t.Parallel()
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	p := r.startTransactions(bin, fmt.Sprintf("%s=%d %d", joinEnv, *joinSteps, *joinBytes))
	r.ready()
	ask := func(name string, n int) client.TaskRequest {
		of := request(name, fmt.Sprintf(`{"n": %d}`, n))
		of.Namespace = "join"
		return of
	}
	create := func(of client.TaskRequest) string {
		made, err := r.clients[0].CreateTasks(t.Context(), []client.TaskRequest{of})
		require.NoError(t, err)
		require.Equal(t, 1, made.Created)
		return made.Results[0].TaskUUID
	}
	joined, beside := create(ask("joined", 0)), 0
	pgtest.Eventually(t, 5*time.Minute, func() (bool, string) {
		beside++
		require.Equal(t, "complete", r.wait(create(ask("beside", beside)), time.Minute).Status)
		return r.db.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1`, joined) == 0, "the join has not ended"
	})
	task := r.wait(joined, time.Minute)
	document, err := json.Marshal(task)
	require.NoError(t, err)
	require.Equal(t, "error", task.Status)
	require.Contains(t, string(document), "InputsTooLarge")
	require.Equal(t, *joinSteps+1, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where task_uuid = $1 and claimed_at is not null`, joined), "one attempt each")
	require.Zero(t, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4`), "lost")
	t.Logf("%d x %d bytes: the join took %s; of %d other tasks 99 %% took at most %s ms from their creation to their end; the worker had at most %d MB",
		*joinSteps, *joinBytes, r.db.QueryString(t, `select (max(applied_at) - min(enqueued_at))::text from tasker.step_attempts where task_uuid = $1`, joined), beside,
		r.db.QueryString(t, `select round((1000 * percentile_cont(0.99) within group (order by extract(epoch from a.applied_at - t.requested_at)))::numeric)::text
			from tasker.step_attempts a join tasker.tasks t using (task_uuid) where a.task_uuid <> $1`, joined), peak(t, p.PID())>>20)
	r.clean()
}
