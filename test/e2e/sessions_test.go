package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// sessionsOnly is a worker daemon for processes in other languages. Its lease outlasts the
// test: what ends is not ended by the lease.
const sessionsOnly = `[worker]
namespaces = ["gate"]
lease_seconds = 60
[worker.mpsc_channels.handler_dispatch]
max_concurrent_handlers = 32
`

// TestTheDaemonOfSessionsIsKilled: eight processes, in Python and in TypeScript, go on with
// their sixteen steps at another daemon. No handler is called twice, and each step has one
// attempt.
func TestTheDaemonOfSessionsIsKilled(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python, needs.Node, needs.TypeScript)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	languages := []string{"python", "node"}
	for _, language := range languages {
		_, err := r.clients[0].RegisterTemplate(t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: fmt.Sprintf(
			`{"name": %[1]q, "namespace_name": "gate", "version": "1.0.0", "steps": [{"name": "wait", "timeout_seconds": 300, "handler": {"callable": "wait_%[1]s"}}]}`, language)})
		require.NoError(t, err)
	}
	for range 2 {
		r.workerWith(sessionsOnly)
	}
	r.ready()
	victim, other := r.all[1], r.all[2]
	dir, addresses := t.TempDir(), victim.URL+","+other.URL
	dist := compiledSDK(t)
	for range 4 {
		process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/gate.py", addresses, dir)
		process(t, "", "node", "testdata/gate.mjs", filepath.Join(dist, "index.js"), addresses, dir)
	}
	var tasks []string
	for _, language := range languages {
		for n := range 8 {
			created, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", language, n))
			require.NoError(t, err)
			tasks = append(tasks, created.TaskUUID)
		}
	}
	pgtest.Eventually(t, time.Minute, func() (bool, string) { n := len(begun(t, dir)); return n == len(tasks), fmt.Sprintf("%d began", n) })

	victim.Kill()
	killed := time.Now()
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		return strings.Contains(get(t, other.URL+"/metrics"), "tasker_worker_session_steps_kept_total 16"), "not all steps are kept"
	})
	t.Logf("8 processes went on with 16 steps at another daemon within %v of the kill", time.Since(killed).Round(time.Millisecond))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o600))
	for _, task := range tasks {
		require.Equal(t, "complete", r.wait(task, time.Minute).Status)
	}
	r.clean()
	require.Equal(t, len(tasks), r.db.QueryInt(t, `select count(*) from tasker.step_attempts`), "one attempt each")
	for file, calls := range begun(t, dir) {
		require.Equal(t, "1\n", calls, file)
	}
	require.Len(t, begun(t, dir), len(tasks), "no step ran in two processes")
}

// TestAFrozenProcess: its step runs again in another process. When it wakes, what it has is
// not taken, and counted.
func TestAFrozenProcess(t *testing.T) {
	needs.Tool(t, needs.Python)
	r, p := processes(t, sessionsOnly+"[worker.sessions]\nreclaim_grace_ms = 2000\nmax_wait_ms = 1000\n", `{"name": "python", "namespace_name": "gate",
		"version": "1.0.0", "steps": [{"name": "wait", "timeout_seconds": 300, "handler": {"callable": "wait_python"}, "retry": {"max_attempts": 3}}]}`)
	dir := t.TempDir()
	frozen := process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/gate.py", p.URL, dir)
	task, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", "python", 1))
	require.NoError(t, err)
	began := func(n int) {
		pgtest.Eventually(t, time.Minute, func() (bool, string) { m := len(begun(t, dir)); return m == n, fmt.Sprintf("%d began", m) })
	}
	began(1)
	require.NoError(t, syscall.Kill(frozen, syscall.SIGSTOP))
	process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/gate.py", p.URL, dir)
	began(2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o600))
	require.Equal(t, "complete", r.wait(task.TaskUUID, time.Minute).Status)
	require.NoError(t, syscall.Kill(frozen, syscall.SIGCONT))
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		return counted(get(t, p.URL+"/metrics"), "tasker_worker_session_reports_rejected_total"), "nothing was rejected"
	})
	r.clean()
	require.Equal(t, 1, r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`), "one recorded result")
	require.Equal(t, 2, r.db.QueryInt(t, `select count(*) from tasker.step_attempts`))
}

// TestAComputingProcess holds the lock of its interpreter for longer than a session lives
// without requests. The step is executed once.
func TestAComputingProcess(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python)
	r, p := processes(t, sessionsOnly+"[worker.sessions]\nreclaim_grace_ms = 1000\nmax_wait_ms = 1000\n", `{"name": "python", "namespace_name": "gate",
		"version": "1.0.0", "steps": [{"name": "compute", "timeout_seconds": 300, "handler": {"callable": "computes_python"}, "retry": {"max_attempts": 3}}]}`)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/computes.py", p.URL, pipe, dir)
	task, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", "python", 1))
	require.NoError(t, err)
	pgtest.Eventually(t, time.Minute, func() (bool, string) { return len(begun(t, dir)) == 1, "it did not begin" })
	const lost = "tasker_worker_sessions_lost_total"
	for n := range 3 { // other processes, killed one after the other: more time passes than a session lives without requests
		victim := process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/gate.py", p.URL, dir)
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			return strings.Contains(get(t, p.URL+"/metrics"), "tasker_worker_sessions 2"), "no session"
		})
		require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			return strings.Contains(get(t, p.URL+"/metrics"), fmt.Sprintf("%s %d", lost, n+1)), "it was not lost"
		})
	}
	open, err := os.OpenFile(pipe, os.O_WRONLY, 0) // #nosec G304 -- of the test
	require.NoError(t, err)
	require.NoError(t, open.Close())
	require.Equal(t, "complete", r.wait(task.TaskUUID, time.Minute).Status)
	r.clean()
	require.Contains(t, get(t, p.URL+"/metrics"), lost+" 3", "the session of the computing process was kept")
	require.Equal(t, 1, r.db.QueryInt(t, `select count(*) from tasker.step_attempts`), "one execution")
	require.Len(t, begun(t, dir), 1)
}

// TestTheDaemonOfSessionsIsStartedAgain under its worker_id, while processes go on with their
// steps, some there and some at another daemon. What a process held that died, too, runs
// again after the grace: long before its lease ends.
func TestTheDaemonOfSessionsIsStartedAgain(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python, needs.Node, needs.TypeScript)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	for _, language := range []string{"python", "node"} {
		_, err := r.clients[0].RegisterTemplate(t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: fmt.Sprintf(
			`{"name": %[1]q, "namespace_name": "gate", "version": "1.0.0", "steps": [{"name": "wait", "timeout_seconds": 300, "handler": {"callable": "wait_%[1]s"},
			"retry": {"max_attempts": 3}}]}`, language)})
		require.NoError(t, err)
	}
	const grace = "[worker.sessions]\nreclaim_grace_ms = 10000\n"
	longLease := strings.Replace(sessionsOnly, "lease_seconds = 60", "lease_seconds = 3600", 1)
	named := strings.Replace(longLease, "[worker]", "[worker]\nworker_id = \"sessions-0\"", 1) + grace
	victim, other := r.workerWith(named), r.workerWith(longLease+grace)
	r.ready()
	dir, dist := t.TempDir(), compiledSDK(t)
	python := func(addresses string) int {
		return process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/gate.py", addresses, dir)
	}
	doomed := python(victim.URL)
	for _, addresses := range []string{victim.URL, victim.URL + "," + other.URL} {
		python(addresses)
		process(t, "", "node", "testdata/gate.mjs", filepath.Join(dist, "index.js"), addresses, dir)
	}
	var tasks []string
	for language, steps := range map[string]int{"python": 6, "node": 4} { // two for each process
		for n := range steps {
			created, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", language, n))
			require.NoError(t, err)
			tasks = append(tasks, created.TaskUUID)
		}
	}
	pgtest.Eventually(t, time.Minute, func() (bool, string) { n := len(begun(t, dir)); return n == len(tasks), fmt.Sprintf("%d began", n) })

	victim.Kill()
	require.NoError(t, syscall.Kill(doomed, syscall.SIGKILL))
	killed := time.Now()
	again := r.workerAt(strings.TrimPrefix(victim.URL, "http://"), named)
	kept := func(p *fleet.Process) int {
		_, after, _ := strings.Cut(get(t, p.URL+"/metrics"), "\ntasker_worker_session_steps_kept_total ")
		text, _, _ := strings.Cut(after, "\n")
		n, _ := strconv.Atoi(text)
		return n
	}
	r.ready2(again)
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		here, there := kept(again), kept(other)
		// A process that knows another daemon goes there, unless this one is back before it has turned.
		return here >= 4 && here+there == 8, fmt.Sprintf("%d and %d steps are kept", here, there)
	})
	t.Logf("4 processes went on with 8 steps, at the daemon started again or at another, within %v of the kill", time.Since(killed).Round(time.Millisecond))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o600))
	for _, task := range tasks {
		require.Equal(t, "complete", r.wait(task, 2*time.Minute).Status)
	}
	r.clean()
	require.Equal(t, len(tasks), r.db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`), "one recorded result each")
	require.Equal(t, len(tasks)+2, r.db.QueryInt(t, `select count(*) from tasker.step_attempts`), "two steps ran again")
	for file, calls := range begun(t, dir) {
		require.Len(t, calls, 2, file) // one line: one process calls no handler twice for a task
	}
	require.Len(t, begun(t, dir), len(tasks)+2, "no step that was kept ran in two processes")
}

// workerWith starts a worker daemon with a configuration of its own.
func (r *running) workerWith(config string) *fleet.Process {
	r.t.Helper()
	return r.workerAt("", config)
}

// workerAt starts it at an address.
func (r *running) workerAt(address, config string) *fleet.Process {
	r.t.Helper()
	p, err := fleet.Start(fleet.Options{Kind: fleet.Worker, BinDir: binDir, WorkDir: r.dir, Name: fmt.Sprintf("worker-%d", len(r.all)),
		DatabaseURL: r.db.DSN, Config: config, Address: address})
	require.NoError(r.t, err)
	r.all = append(r.all, p)
	return p
}

func taskOf(namespace, name string, n int) client.TaskRequest {
	return client.TaskRequest{Name: name, Namespace: namespace, Version: "1.0.0", Context: fmt.Appendf(nil, `{"n": %d}`, n),
		Initiator: "e2e", SourceSystem: "test", Reason: "test"}
}

// begun returns the calls of handlers by process and task.
func begun(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "began-*"))
	require.NoError(t, err)
	calls := make(map[string]string, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file) // #nosec G304 -- of the test
		require.NoError(t, err)
		calls[filepath.Base(file)] = string(text)
	}
	return calls
}

// process runs a program until the end of the test.
func process(t *testing.T, env string, program ...string) (pid int) {
	t.Helper()
	var out bytes.Buffer
	run := exec.CommandContext(context.WithoutCancel(t.Context()), program[0], program[1:]...) // #nosec G204 -- our own
	run.Env = append(os.Environ(), env, "PYTHONDONTWRITEBYTECODE=1")
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
		if t.Failed() && out.Len() > 0 {
			t.Logf("%v:\n%s", program, out.String())
		}
	})
	return run.Process.Pid
}

// compiledSDK returns the directory of the compiled sdk/typescript.
func compiledSDK(t *testing.T) string {
	t.Helper()
	dist := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dist, "package.json"), []byte(`{"type": "module"}`), 0o600))
	compiler := needs.Path(t, needs.TypeScript)
	out, err := exec.CommandContext(t.Context(), "node", compiler, "-p", "../../sdk/typescript", "--outDir", dist).CombinedOutput() // #nosec G204 -- our own
	require.NoError(t, err, "%s", out)
	return dist
}
