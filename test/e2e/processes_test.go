package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// processGrace is worker.sessions.reclaim_grace_ms.
const processGrace = 3 * time.Second

// TestAProcessIsKilledInABatch: its four steps run again in another process within the grace
// and a second, by the clock of the database, from their checkpoints. No item is worked on
// twice.
func TestAProcessIsKilledInABatch(t *testing.T) {
	needs.Tool(t, needs.Python)
	const items = 40
	bound := processGrace + 20*time.Second // of a busy machine
	if measuring() {
		bound = processGrace + time.Second
	}
	r, p := processes(t, sessionsOnly, `{"name": "batch", "namespace_name": "gate", "version": "1.0.0", "steps": [
		{"name": "divide", "type": "batchable", "handler": {"callable": "divide", "initialization": {"worker_template_name": "work"}},
		 "batch_config": {"batch_size": 10, "parallelism": 4, "cursor_field": "id", "worker_template": "work", "failure_strategy": "fail_fast"}},
		{"name": "work", "type": "batch_worker", "dependencies": ["divide"], "timeout_seconds": 300, "handler": {"callable": "work"}}]}`)
	dir := t.TempDir()
	victim := process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/batch.py", p.URL, dir)
	request := taskOf("gate", "batch", 1)
	request.Context = fmt.Appendf(nil, `{"items": %d}`, items)
	task, err := r.clients[0].CreateTask(t.Context(), request)
	require.NoError(t, err)
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := len(begun(t, dir))
		return n == 4, fmt.Sprintf("%d are in their middle", n)
	})
	process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/batch.py", p.URL, dir)
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		return strings.Contains(get(t, p.URL+"/metrics"), "tasker_worker_sessions 2"), "no second session"
	})

	killed := r.db.QueryString(t, `select clock_timestamp()::text`)
	require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
	require.Equal(t, "complete", r.wait(task.TaskUUID, time.Minute).Status)
	again := time.Duration(r.db.QueryInt(t, `select (extract(epoch from max(a.claimed_at) - $1::timestamptz) * 1000)::int from tasker.step_attempts a where `+ranAgain, killed)) * time.Millisecond
	t.Logf("4 steps of a process ran again within %v of its kill; the grace is %v", again, processGrace)
	require.LessOrEqual(t, again, bound)
	require.Equal(t, 4, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where attempt = 1 and error->>'error_type' = 'ExecutorLost'`))
	require.Equal(t, 4, r.db.QueryInt(t, `select count(*) from tasker.step_attempts a where attempt = 1 and result = '{"from": 5}' and `+ranAgain), "from their checkpoints")
	for item := range items {
		workers, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("item-%d", item))) // #nosec G304 -- of the test
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(workers), "\n"), "item %d", item)
	}
	r.clean()
}

// ranAgain are successes of steps that were lost with a process, which used no attempt.
const ranAgain = `a.outcome = 1 and exists (select from tasker.step_attempts l where l.task_uuid = a.task_uuid and l.step_no = a.step_no and l.outcome = 4)`

// TestALateResultIsRejected: a process is frozen for longer than its step may take, and its
// session lives. The step runs again elsewhere; the result that the process sends when it
// wakes is answered with 409 and counted.
func TestALateResultIsRejected(t *testing.T) {
	needs.Tool(t, needs.Python)
	r, p := processes(t, sessionsOnly+"[worker.sessions]\nreclaim_grace_ms = 60000\nmax_wait_ms = 60000\n", `{"name": "late", "namespace_name": "gate",
		"version": "1.0.0", "steps": [{"name": "late", "timeout_seconds": 2, "handler": {"callable": "late"}, "retry": {"max_attempts": 2, "backoff_base_ms": 1}}]}`)
	dir := t.TempDir()
	frozen := process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/late.py", p.URL, dir)
	task, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", "late", 1))
	require.NoError(t, err)
	pgtest.Eventually(t, time.Minute, func() (bool, string) { return len(begun(t, dir)) > 0, "it has not begun" })
	require.NoError(t, syscall.Kill(frozen, syscall.SIGSTOP))
	process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/late.py", p.URL, dir)
	require.Equal(t, "complete", r.wait(task.TaskUUID, time.Minute).Status)
	require.Contains(t, get(t, p.URL+"/metrics"), "tasker_worker_session_reports_rejected_total 0\n")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o600))
	require.NoError(t, syscall.Kill(frozen, syscall.SIGCONT))
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		log, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("log-%d", frozen))) // #nosec G304 -- of the test
		require.NoError(t, err)
		return strings.Contains(string(log), "the end of a step was rejected") && strings.Contains(string(log), "'status': 409"), string(log)
	})
	require.Contains(t, get(t, p.URL+"/metrics"), "tasker_worker_session_reports_rejected_total 1\n")
	require.Equal(t, 1, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1 and attempt = 2 and result = '{"attempt": 2}'`))
	require.Equal(t, 2, r.db.QueryInt(t, `select count(*) from tasker.step_attempts`))
	r.clean()
}

// processes starts an orchestrator with a template, and a worker daemon for processes.
func processes(t *testing.T, config, template string) (*running, *fleet.Process) {
	t.Helper()
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	_, err := r.clients[0].RegisterTemplate(t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: template})
	require.NoError(t, err)
	p := r.workerWith(config)
	r.ready()
	return r, p
}
