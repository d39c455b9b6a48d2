package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// asWorker makes the program of these tests a worker daemon instead, whose
// handler works in a transaction.
const asWorker = "E2E_TRANSACTION_WORKER"

func runWorker() int {
	return daemon.Main(daemon.WorkerProgram("transaction-worker", func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("keep.yaml", []byte(`
name: keep
namespace_name: kept
version: 1.0.0
steps:
  - {name: only, handler: {callable: keep}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
`))
		return errors.Join(err, registerHop(w), registerWaits(w), registerOutages(w), registerCrash(w), registerJoin(w), registerLogs(w), registerTalk(w), registerRates(w), w.RegisterTemplate(tmpl), worker.HandleTx(w, "keep", func(c *worker.StepContext, tx pgx.Tx, _ struct{}) (int64, error) {
			if _, err := tx.Exec(c, `insert into kept (task_uuid, token) values ($1, $2)`, c.TaskUUID(), c.Token()); err != nil {
				return 0, err
			}
			_, err := tx.Exec(c, `select pg_sleep(random() * 0.05)`) // takes time: work during which the worker is killed
			return c.Token(), err
		}))
	}), nil, os.Stderr)
}

// binOfWorker is a folder in which the worker is the program of these tests.
func binOfWorker(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, string(fleet.Worker))))
	return bin
}

// startTransactions starts such a worker, with further variables.
func (r *running) startTransactions(bin string, env ...string) *fleet.Process {
	r.t.Helper()
	return r.startWorker(bin, quick, env...)
}

// startWorker is startTransactions with a configuration.
func (r *running) startWorker(bin, config string, env ...string) *fleet.Process {
	r.t.Helper()
	p, err := fleet.Start(fleet.Options{Kind: fleet.Worker, BinDir: bin, WorkDir: r.dir, Name: fmt.Sprintf("transactions-%d", len(r.all)),
		DatabaseURL: r.db.DSN, Mode: "Hybrid", Config: config, Env: append(env, asWorker+"=1")})
	require.NoError(r.t, err)
	r.all = append(r.all, p)
	return p
}

// Workers die while their handlers' transactions are open, being reported and being
// committed: at every moment rows and completions are both there or both absent, and in
// the end every step has completed once.
func TestWorkersKilledWithTransactionsOpen(t *testing.T) {
	t.Parallel()
	kills, tasks := 6, 300
	if testing.Short() {
		kills, tasks = 2, 60
	}
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.db.Exec(t, `create table kept (task_uuid uuid primary key, token bigint not null)`)
	r.start(fleet.Orchestrator, "Hybrid", "")
	victim := r.startTransactions(bin)
	r.startTransactions(bin)
	r.ready()
	requests := make([]client.TaskRequest, tasks)
	for i := range requests {
		requests[i] = request("keep", fmt.Sprintf(`{"i":%d}`, i))
		requests[i].Namespace = "kept"
	}
	made, err := r.clients[0].CreateTasks(t.Context(), requests)
	require.NoError(t, err)
	require.Equal(t, tasks, made.Created)
	const open = `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tasker-worker-transactions' and state <> 'idle'`
	halves := func() int {
		return r.db.QueryInt(t, `select count(*) from (
			select task_uuid from kept union all
			select task_uuid from tasker.board where state = 4 and outcome = 1 and step_no is not null union all
			select task_uuid from tasker.step_attempts where outcome = 1) s group by task_uuid having count(*) <> 2
			union all select 0 limit 1`)
	}
	for range kills {
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			n := r.db.QueryInt(t, open)
			return n > 5, fmt.Sprintf("%d transactions are open", n)
		})
		victim.Kill()
		require.Zero(t, halves())
		victim = r.startTransactions(bin)
	}
	for _, result := range made.Results {
		require.Equal(t, "complete", r.wait(result.TaskUUID, time.Minute).Status)
	}
	require.Zero(t, halves())
	require.Equal(t, tasks, r.db.QueryInt(t, `select count(*) from kept k join tasker.step_attempts a using (task_uuid, token) where a.outcome = 1`))
	r.clean()
	t.Logf("%d workers were killed; %d executions were lost with them", kills, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4`))
}
