package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/fleet"
)

// firstOnline is the first migration that daemons of the version before stand: the commit
// before it is the oldest that an upgrade begins at.
const firstOnline = "internal/store/migrations/00106_failed_plans.sql"

// binariesBefore builds the daemons of the commit before the migration firstOnline.
func binariesBefore(t *testing.T) string {
	t.Helper()
	needs.Tool(t, needs.Git)
	bin := t.TempDir()
	err := fleet.BuildBefore(t.Context(), "../..", firstOnline, t.TempDir(), bin, "orchestrator", "worker")
	if errors.Is(err, fleet.ErrNoHistory) {
		t.Skip("the daemons of the version before come from git, and its history is not here")
	}
	require.NoError(t, err)
	return bin
}

// rollout is a fleet whose daemons are replaced under load.
type rollout struct {
	*running
	bin      string // of the daemons that start
	config   string // further settings of theirs
	name     int
	mu       sync.Mutex
	ready    map[*fleet.Process]*client.Client
	created  atomic.Int64
	failures []string
}

// replace starts a daemon in place of another one, or beside it; the service gets it when
// it is ready, and takes the old one away before that stops.
func (r *rollout) replace(kind fleet.Kind, mode string, old *fleet.Process) *fleet.Process {
	r.t.Helper()
	cfg := r.config + "[common.shutdown]\ndelay_ms = 1000\n"
	if kind == fleet.Worker {
		cfg += quick
	}
	r.name++
	p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: r.bin, WorkDir: r.dir, Name: fmt.Sprintf("%s-%d", kind, r.name),
		DatabaseURL: r.db.DSN, Mode: mode, Config: cfg, Env: r.env})
	require.NoError(r.t, err)
	r.all = append(r.all, p)
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(r.t, p.WaitReady(ctx))
	r.mu.Lock()
	if kind == fleet.Orchestrator {
		r.ready[p] = client.New(client.Config{BaseURL: p.URL, Timeout: 60 * time.Second, MaxRetries: -1})
	}
	r.mu.Unlock()
	if old != nil {
		require.NoError(r.t, old.Signal(os.Interrupt))
		pgtest.Eventually(r.t, time.Minute, func() (bool, string) {
			status, _ := send(r.t, "GET", old.URL+"/health/ready", "")
			return status != 200, "it is ready still"
		})
		r.mu.Lock()
		delete(r.ready, old)
		r.mu.Unlock()
		require.NoError(r.t, old.Stop(ctx))
		require.Zero(r.t, old.ExitCode())
	}
	return p
}

// load creates diamonds, and orders that fail for good, one after the other until ctx ends. Only
// ready daemons get requests, as behind a Service.
func (r *rollout) load(ctx context.Context, i int) {
	for n := i; ctx.Err() == nil; n++ {
		r.mu.Lock()
		var c *client.Client
		for _, c = range r.ready {
			break // any
		}
		r.mu.Unlock()
		req := request("diamond", `{"even_number":6}`)
		if n%4 == 0 {
			req = request("order_fulfillment", fmt.Sprintf(order, "tok_declined", fmt.Sprintf("%d-%d", i, n)))
		}
		req.IdempotencyKey = fmt.Sprintf("%d-%d", i, n)
		task, err := c.CreateTask(context.WithoutCancel(ctx), req)
		if err == nil {
			r.created.Add(1)
			_, err = c.Task(context.WithoutCancel(ctx), task.TaskUUID, 5*time.Second)
		}
		if err != nil {
			r.mu.Lock()
			r.failures = append(r.failures, err.Error())
			r.mu.Unlock()
		}
	}
}

// TestUpgradeAndBack replaces the daemons of a mixed fleet under load: by those of this version after
// the migration, and by the former ones again, which work with the newer schema. In the end
// a change that takes something away refuses them by its version.
func TestUpgradeAndBack(t *testing.T) {
	t.Parallel()
	needs.All(t, "minutes of building the daemons of the version before")
	if fleet.OverBroker() {
		t.Skip("the daemons of the version before have no broker as an event source")
	}
	former := binariesBefore(t)
	r := &rollout{running: newFleet(t, pgtest.New(t)), bin: former, ready: map[*fleet.Process]*client.Client{}}
	event, poll := r.replace(fleet.Orchestrator, "EventDrivenOnly", nil), r.replace(fleet.Orchestrator, "PollingOnly", nil)
	worker := r.replace(fleet.Worker, "Hybrid", nil)
	require.Equal(t, 105, r.db.QueryInt(t, `select max(version_id) from tasker.tasker_schema_version`))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg conc.WaitGroup
	for i := range 4 {
		wg.Go(func() { r.load(ctx, 100_000*i) })
	}
	more := func() { // the fleet as it is does some work
		t.Helper()
		until := r.created.Load() + 100
		pgtest.Eventually(t, time.Minute, func() (bool, string) { return r.created.Load() > until, "tasks are created" })
	}
	more()
	m, err := store.NewMigrator(r.db.DSN)
	require.NoError(t, err)
	applied, err := m.Up(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, applied)
	more()
	r.bin = binDir
	event = r.replace(fleet.Orchestrator, "EventDrivenOnly", event)
	more() // both versions work
	worker = r.replace(fleet.Worker, "Hybrid", worker)
	poll = r.replace(fleet.Orchestrator, "PollingOnly", poll)
	more()
	r.bin = former
	r.replace(fleet.Worker, "Hybrid", worker)
	more()
	r.replace(fleet.Orchestrator, "EventDrivenOnly", event)
	r.replace(fleet.Orchestrator, "PollingOnly", poll)
	more()
	stop()
	wg.Wait()
	require.Empty(t, r.failures, "of %d tasks", r.created.Load())
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		return r.db.QueryInt(t, `select count(*) from tasker.board`) == 0, "tasks are alive"
	})
	created := int(r.created.Load())
	require.Equal(t, created, r.db.QueryInt(t, `select count(distinct task_uuid) from tasker.step_attempts where task_state is not null`), "none is lost")
	require.Zero(t, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where attempt > 1 or outcome = 4`), "no attempt was used by a restart")
	failed := r.db.QueryInt(t, `select count(*) from tasker.step_attempts where task_state > 9`)
	require.Positive(t, failed)
	require.Zero(t, r.db.QueryInt(t, `select count(*) from tasker.step_attempts a join tasker.tasks t using (task_uuid)
		where a.task_state > 9 and a.failed_plan_id is distinct from t.plan_id`), "both versions fill the column")
	found, err := m.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	t.Logf("%d tasks, %d of them failed as they should, 0 failed requests, 0 attempts used by restarts", created, failed)

	// What version 107 would do when it takes something away that version 105 needs.
	r.db.Exec(t, `insert into tasker.schema_changes (version, name, oldest) values (900, 'gone.sql', 106)`)
	r.db.Exec(t, `insert into tasker.tasker_schema_version (version_id, is_applied) values (900, true)`)
	p, err := fleet.Start(fleet.Options{Kind: fleet.Orchestrator, BinDir: former, WorkDir: r.dir, Name: "refused", DatabaseURL: r.db.DSN,
		Config: "[common.database]\nmigrate_on_start = false\n"})
	require.NoError(t, err)
	end, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-p.Done():
	case <-end.Done():
		require.NoError(t, errors.Join(errors.New("the former orchestrator serves"), p.Stop(t.Context())))
	}
	require.NotZero(t, p.ExitCode())
	require.Contains(t, p.Log(), "the database has 900, this program knows only 105")
}
