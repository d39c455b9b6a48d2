package e2e

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
)

var ratesKills = flag.Int("rates.kills", 3, "workers that are killed during a load")

// registerRates adds handlers that fail now and then, for a chain of four steps.
func registerRates(w *worker.Worker) error {
	return errors.Join(enginetest.RegisterTemplates(w, `
name: counted
namespace_name: rates
version: 1.0.0
steps:
  - {name: a, handler: {callable: rates.now_and_then}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
  - {name: b, dependencies: [a], handler: {callable: rates.now_and_then}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
  - {name: c, dependencies: [a], handler: {callable: rates.now_and_then}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
  - {name: d, dependencies: [b, c], handler: {callable: rates.now_and_then}, retry: {max_attempts: 50, backoff: fixed, backoff_base_ms: 1}}
`), worker.Handle(w, "rates.now_and_then", func(ctx *worker.StepContext, _ struct{}) (int, error) {
		if ctx.Attempt() == 1 && ctx.TaskUUID()[15]%4 == 0 {
			return 0, worker.Retryable(errors.New("now and then"), time.Millisecond)
		}
		return 1, lifecycle.Pause(ctx, time.Millisecond)
	}))
}

// TestRatesAfterKills: during a load with failures workers are killed. The rates have never more than the ledger, and what
// they lack is what the killed workers did from their last heartbeats but one on.
func TestRatesAfterKills(t *testing.T) {
	t.Parallel()
	bin := binOfWorker(t)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	kept := r.startWorker(bin, quick)
	p := r.startWorker(bin, quick)
	r.ready()
	n := 0
	create := func() {
		requests := make([]client.TaskRequest, 50)
		for i := range requests {
			n++
			requests[i] = request("counted", fmt.Sprintf(`{"n": %d}`, n))
			requests[i].Namespace = "rates"
		}
		made, err := r.clients[0].CreateTasks(t.Context(), requests)
		require.NoError(t, err)
		require.Equal(t, len(requests), made.Created)
	}
	for range *ratesKills {
		before := r.db.QueryInt(t, `select count(*) from tasker.step_attempts where worker in (select worker_uuid from tasker.workers where stopped_at is null)`)
		pgtest.Eventually(t, time.Minute, func() (bool, string) { // both work
			create()
			done := r.db.QueryInt(t, `select count(*) from tasker.step_attempts where worker in (select worker_uuid from tasker.workers where stopped_at is null)`)
			return done > before+500, fmt.Sprintf("%d attempts", done-before)
		})
		p.Kill()
		p = r.startWorker(bin, quick)
		require.NoError(t, p.WaitReady(t.Context()))
	}
	pgtest.Eventually(t, 3*time.Minute, func() (bool, string) {
		left := r.db.QueryInt(t, `select count(*) from tasker.board where slot = 0`)
		return left == 0, fmt.Sprintf("%d tasks are left", left)
	})
	for _, daemon := range append([]*fleet.Process{p, kept}, r.all[0]) { // the last have signed off
		require.NoError(t, daemon.Stop(t.Context()))
	}
	s, err := store.Open(t.Context(), store.Options{URL: r.db.DSN})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for more := true; more; {
		_, more, err = s.AddUpRates(t.Context(), 1000)
		require.NoError(t, err)
	}
	differing, err := s.CompareRates(t.Context(), time.Time{}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	missing := int64(0)
	for _, d := range differing {
		require.Greater(t, d.Recorded.Count, d.Counted.Count, "%+v", d)
		missing += d.Recorded.Count - d.Counted.Count
	}
	held := r.db.QueryInt(t, `select count(*) from tasker.step_attempts a join tasker.workers w on w.worker_uuid = a.worker
		where w.stopped_at is null and a.applied_at > w.heartbeat_at - interval '2 seconds'`)
	all := r.db.QueryInt(t, `select count(*) from tasker.step_attempts where step_no >= 0`)
	t.Logf("%d kills, %d attempts: the rates lack %d, of which the killed workers could have held %d", *ratesKills, all, missing, held)
	require.LessOrEqual(t, missing, int64(held))
	r.clean()
}
