package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/test/fleet"
)

// binDir is where TestMain puts the daemons.
var binDir string

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		os.Exit(runWorker())
	}
	os.Exit(fleet.Main("../..", func(dir string) int {
		binDir = dir
		return overSource(brokertest.With(pgtest.With(pgtest.Waiting(m))).Run)
	}, "orchestrator", "worker"))
}

// quick shortens waits.
const quick = `
[worker]
lease_seconds = 5
heartbeat_interval_ms = 1000
[worker.mpsc_channels.handler_dispatch]
handler_timeout_ms = 4000
`

// often is the poll interval of orchestrators and workers that only poll, so that the
// tests wait less.
var often = map[fleet.Kind]string{
	fleet.Orchestrator: "\n[orchestration.event_systems.orchestration.poller]\ninterval_ms = 100\n" +
		"[orchestration.event_systems.task_readiness.poller]\ninterval_ms = 100\n",
	fleet.Worker: "\n[worker.event_systems.worker.poller]\ninterval_ms = 100\n",
}

// running is a fleet on its own database.
type running struct {
	t       *testing.T
	db      *pgtest.DB
	dir     string
	all     []*fleet.Process
	clients []*client.Client
	env     []string // of the daemons
}

func newFleet(t *testing.T, db *pgtest.DB) *running {
	r := &running{t: t, db: db, dir: t.TempDir()}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, p := range r.all {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				_ = p.Stop(ctx) // the shutdown tests check its end
				if t.Failed() {
					t.Logf("log of %s:\n%s", p.Name, p.Log())
				}
			}()
		}
		wg.Wait()
	})
	return r
}

func (r *running) start(kind fleet.Kind, mode, source string) *fleet.Process {
	r.t.Helper()
	cfg := ""
	if kind == fleet.Worker {
		cfg = quick
	}
	if mode == "PollingOnly" {
		cfg += often[kind]
	}
	p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: binDir, WorkDir: r.dir, Name: fmt.Sprintf("%s-%d", kind, len(r.all)),
		DatabaseURL: r.db.DSN, Mode: mode, EventSource: source, Config: cfg, Env: r.env})
	require.NoError(r.t, err)
	r.all = append(r.all, p)
	if kind == fleet.Orchestrator {
		r.clients = append(r.clients, client.New(client.Config{BaseURL: p.URL, Timeout: 30 * time.Second}))
	}
	return p
}

func (r *running) ready() *running {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for _, p := range r.all {
		require.NoError(r.t, p.WaitReady(ctx))
	}
	return r
}

// pair is the smallest fleet.
func pair(t *testing.T, mode, source string) *running {
	return pairWith(t, mode, source)
}

// databaseFor is on a server of its own for the sources that read the WAL: their slots wait for all
// transactions of a server, and those of other tests may be long.
func databaseFor(t *testing.T, source string) *pgtest.DB {
	if source == "wal" || source == "relay" {
		return pgtest.Private(t, nil).NewMigrated(t, "e2e", enginetest.Migrate)
	}
	return enginetest.Migrated(t)
}

// pairWith is pair with variables for both daemons.
func pairWith(t *testing.T, mode, source string, env ...string) *running {
	r := newFleet(t, databaseFor(t, source))
	r.env = env
	if source == "redis" {
		r.env = append(r.env, "REDIS_URL="+redistest.Start(t).URL)
	}
	r.start(fleet.Orchestrator, mode, source)
	r.start(fleet.Worker, mode, source)
	return r.ready()
}

func request(name, context string) client.TaskRequest {
	return client.TaskRequest{Name: name, Namespace: "examples", Version: "1.0.0", Context: json.RawMessage(context),
		Initiator: "e2e", SourceSystem: "test", Reason: "end to end"}
}

// run submits a task and waits for its end.
func (r *running) run(name, context string) *client.Task {
	r.t.Helper()
	task, err := r.clients[0].CreateTask(r.t.Context(), request(name, context))
	require.NoError(r.t, err)
	return r.wait(task.TaskUUID, 30*time.Second)
}

func (r *running) wait(id string, limit time.Duration) *client.Task {
	r.t.Helper()
	var task *client.Task
	deadline := time.Now().Add(limit)
	for {
		var err error
		task, err = r.clients[0].Task(r.t.Context(), id, 5*time.Second)
		require.NoError(r.t, err)
		if task.Terminal() {
			return task
		}
		require.True(r.t, time.Now().Before(deadline), "task %s has not ended: %s", id, task.Status)
	}
}

// results are the results of the complete steps by name.
func (r *running) results(id string) map[string]string {
	r.t.Helper()
	steps, err := r.clients[0].Steps(r.t.Context(), id)
	require.NoError(r.t, err)
	results := map[string]string{}
	for _, s := range steps {
		require.Equal(r.t, "complete", s.CurrentState, s.Name)
		var result client.StepResult
		require.NoError(r.t, json.Unmarshal(s.Results, &result), s.Name)
		require.True(r.t, result.Success, s.Name)
		results[s.Name] = string(result.Result)
	}
	return results
}

// clean asserts that the records of every task obey the rules.
func (r *running) clean() {
	r.t.Helper()
	require.Zero(r.t, r.db.QueryInt(r.t, `select count(*) from tasker.board where slot = 0`), "live tasks")
	require.Zero(r.t, r.db.QueryInt(r.t, `select count(*) from tasker.board where step_no is not null`), "live steps")
	violations, checked := integrity(r.t, r.db.DSN)
	require.Empty(r.t, violations)
	require.Equal(r.t, r.db.QueryInt(r.t, `select count(*) from tasker.tasks`), checked)
	require.Zero(r.t, r.db.QueryInt(r.t, `select count(*) from (select from tasker.step_attempts where token is not null group by token having count(*) > 1) d`),
		"one token, one execution")
}
