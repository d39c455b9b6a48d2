package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

func TestWorkerKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "EventDrivenOnly", "")
	victim := r.start(fleet.Worker, "EventDrivenOnly", "")
	r.start(fleet.Worker, "EventDrivenOnly", "")
	r.ready()
	done := submitting(t, r, 300, "victim")
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := r.db.QueryInt(t, `select count(*) from tasker.step_attempts`)
		return n > 50, fmt.Sprintf("%d attempts", n)
	})
	victim.Kill()
	r.awaitAll(<-done)
	r.clean()
	lost := r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4`)
	late := r.db.QueryInt(t, `select coalesce(max(extract(epoch from reported_at - claimed_at)), 0)::int from tasker.step_attempts where outcome = 4`)
	t.Logf("%d steps were lost with the worker and claimable again after their lease, the last after %d s", lost, late)
	require.LessOrEqual(t, late, 9, "the lease is 5 s, not the liveness of workers")
}

// TestAWorkerStartedAgainHasTheClaimsOfItsPredecessor: their leases would last for a
// minute. While it is alive no second one starts under its worker_id.
func TestAWorkerStartedAgainHasTheClaimsOfItsPredecessor(t *testing.T) {
	t.Parallel()
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	launch := func() *fleet.Process {
		p, err := fleet.Start(fleet.Options{Kind: fleet.Worker, BinDir: binDir, WorkDir: r.dir, Name: fmt.Sprintf("worker-%d", len(r.all)),
			DatabaseURL: r.db.DSN, Env: []string{"TASKER_WORKER_ID=payments-0"},
			Config: "[worker]\nlease_seconds = 60\nheartbeat_interval_ms = 1000\n"})
		require.NoError(t, err)
		r.all = append(r.all, p)
		return p
	}
	victim := launch()
	r.ready()
	second := launch()
	select {
	case <-second.Done():
	case <-time.After(time.Minute):
		t.Fatal("a second worker of the same worker_id runs")
	}
	require.NotZero(t, second.ExitCode())
	require.Contains(t, second.Log(), "worker_id is in use")

	done := submitting(t, r, 300, "victim")
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := r.db.QueryInt(t, `select count(*) from tasker.step_attempts`)
		return n > 50, fmt.Sprintf("%d attempts", n)
	})
	victim.Kill()
	killed := time.Now()
	again := launch()
	r.ready2(again)
	r.awaitAll(<-done)
	r.clean()
	require.Contains(t, again.Log(), "took over from a dead worker with the same worker_id")
	t.Logf("all had ended %v after the kill", time.Since(killed).Round(time.Millisecond))
	require.Less(t, time.Since(killed), 50*time.Second)
}

func TestOrchestratorKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newFleet(t, enginetest.Migrated(t))
	victim := r.start(fleet.Orchestrator, "EventDrivenOnly", "")
	r.start(fleet.Worker, "EventDrivenOnly", "")
	r.ready()
	ids := submit(t, r, 200, "orchestrator")
	victim.Kill()
	r.clients = nil
	r.start(fleet.Orchestrator, "EventDrivenOnly", "")
	r.ready2(r.all[2])
	for _, id := range ids {
		require.Equal(t, "complete", r.wait(id, time.Minute).Status)
	}
	r.clean()
}

// ready2 waits for one process: others may be dead on purpose.
func (r *running) ready2(p *fleet.Process) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	require.NoError(r.t, p.WaitReady(ctx))
}

func TestDatabaseRestartsInTheMiddle(t *testing.T) {
	for _, source := range sources("notify", "wal") {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Private(t, nil)
			r := newFleet(t, server.New(t))
			r.start(fleet.Orchestrator, "Hybrid", source)
			r.start(fleet.Worker, "Hybrid", source)
			r.ready()
			ids := submit(t, r, 100, "before")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, server.RestartImmediate(ctx))
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				status, body := send(t, "GET", r.all[0].URL+"/health/ready", "")
				return status == http.StatusOK, body
			})
			ids = append(ids, submit(t, r, 50, "after")...)
			for _, id := range ids {
				require.Equal(t, "complete", r.wait(id, time.Minute).Status)
			}
			r.clean()
		})
	}
}

func TestShutdownIsOrderly(t *testing.T) {
	r := pair(t, "Hybrid", "")
	r.run("diamond", `{"even_number":6}`)
	for _, p := range []*fleet.Process{r.all[1], r.all[0]} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.NoError(t, p.Stop(ctx), p.Log())
		cancel()
		require.Zero(t, p.ExitCode())
	}
	require.Equal(t, 2, r.db.QueryInt(t, `select (select count(*) from tasker.workers where stopped_at is not null)
		+ (select count(*) from tasker.processors where stopped_at is not null)`), "both have signed off")
}

func TestDatabaseDownAtStart(t *testing.T) {
	p, err := fleet.Start(fleet.Options{Kind: fleet.Orchestrator, BinDir: binDir, WorkDir: t.TempDir(), Name: "lonely",
		DatabaseURL: "postgres://user:secret-word@127.0.0.1:1/none"})
	require.NoError(t, err)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return strings.Contains(p.Log(), "the database does not answer; retrying"), p.Log()
	})
	require.NotContains(t, p.Log(), "secret-word")
	require.NotContains(t, p.Log(), "goroutine ")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, p.Stop(ctx), "a signal ends the waiting")
}

func TestModeChangesWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	r := pair(t, "Hybrid", "")
	done := submitting(t, r, 300, "mode")
	for _, mode := range []string{"PollingOnly", "EventDrivenOnly", "Hybrid"} {
		for _, p := range r.all {
			put(t, p.URL+"/v1/admin/deployment-mode", fmt.Sprintf(`{"mode":%q}`, mode))
			require.Contains(t, get(t, p.URL+"/v1/admin/deployment-mode"), mode)
		}
	}
	r.awaitAll(<-done)
	r.clean()
}

func TestReloadChangesTheMode(t *testing.T) {
	r := pair(t, "Hybrid", "")
	r.rewrite(r.all[0], "Hybrid", "PollingOnly")
	require.NoError(t, r.all[0].Signal(syscall.SIGHUP))
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		body := get(t, r.all[0].URL+"/v1/admin/deployment-mode")
		return strings.Contains(body, "PollingOnly"), body
	})
	r.run("diamond", `{"even_number":6}`)
}
