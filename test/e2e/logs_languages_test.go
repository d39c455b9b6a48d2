package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/worker"
)

// gateOfLogs names the directory in which handlers in Go find their gates.
const gateOfLogs = "E2E_LOGS_GATE"

// loggedSteps are templates of a handler in each language.
func loggedSteps(language string) string {
	return fmt.Sprintf(`{"name": %[1]q, "namespace_name": "gate", "version": "1.0.0", "steps": [
		{"name": "work", "timeout_seconds": 300, "handler": {"callable": "logs_%[1]s"}, "retry": {"max_attempts": 2, "backoff_base_ms": 1}}]}`, language)
}

// registerLogs registers the handler of testdata/logs.py in Go.
func registerLogs(w *worker.Worker) error {
	return errors.Join(enginetest.RegisterTemplates(w, loggedSteps("go")),
		w.Register("logs_go", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			log := ctx.Logger()
			log.Debug("begins", zap.Int("try", ctx.Attempt()))
			log.Info("charged", zap.Int("cents", 5), zap.String("password", "p"))
			log.Error("no answer", zap.Any("of", map[string]string{"service": "bank", "token": "t"}))
			ctx.Progress(0.5, "half")
			gate := filepath.Join(os.Getenv(gateOfLogs), fmt.Sprintf("open-%d", ctx.Attempt()))
			for _, err := os.Stat(gate); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(gate) {
				if err := lifecycle.Pause(ctx, 20*time.Millisecond); err != nil {
					return nil, err
				}
			}
			log.Warn("the last words")
			if ctx.Attempt() == 1 {
				return nil, worker.Retryable(errors.New("busy"), time.Millisecond)
			}
			return true, nil
		})))
}

// logsOfGate is a worker that keeps all lines of handlers.
const logsOfGate = "[worker]\nlease_seconds = 60\n[worker.logs]\nlevel = \"debug\"\n"

// TestLogsOfThreeLanguages: what a handler logs, in whatever language, can be followed while it runs,
// with its fields and without what is secret. An attempt that fails has its last words; the next one has
// lines of its own.
func TestLogsOfThreeLanguages(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python, needs.Node, needs.TypeScript)
	r := newFleet(t, enginetest.Migrated(t))
	r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	gates := map[string]string{"go": t.TempDir(), "python": t.TempDir(), "node": t.TempDir()}
	for language := range gates {
		_, err := r.clients[0].RegisterTemplate(t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: loggedSteps(language)})
		require.NoError(t, err)
	}
	r.startWorker(binOfWorker(t), logsOfGate, gateOfLogs+"="+gates["go"])
	p := r.workerWith(sessionsOnly + "[worker.logs]\nlevel = \"debug\"\n")
	r.ready()
	process(t, "PYTHONPATH=../../sdk/python/src", "python3", "testdata/logs.py", p.URL, gates["python"])
	process(t, "", "node", "testdata/logs.mjs", filepath.Join(compiledSDK(t), "index.js"), p.URL, gates["node"])
	for language, gate := range gates {
		t.Run(language, func(t *testing.T) { logsOf(t, r, language, gate) })
	}
	r.clean()
}

// visible is how soon a follower has a line, on a busy machine.
const visible = 5 * time.Second

func logsOf(t *testing.T, r *running, language, gate string) {
	t.Helper()
	task, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", language, 1))
	require.NoError(t, err)
	followed := make(chan *client.LogLine, 100)
	go func() {
		defer close(followed)
		for line, err := range r.clients[0].FollowTaskLogs(t.Context(), task.TaskUUID, client.LogOptions{}) {
			if err != nil {
				return // next tells
			}
			if line.Text != "progress" { // the daemon's own, which may overtake those of a process
				followed <- line
			}
		}
	}()
	next := func(within time.Duration) *client.LogLine {
		t.Helper()
		select {
		case line := <-followed:
			require.NotNil(t, line, "it ends early")
			return line
		case <-time.After(within):
			require.Fail(t, "no line")
			return nil
		}
	}
	for attempt := 1; attempt <= 2; attempt++ {
		within := time.Minute // until the handler is called
		for n, want := range []client.LogLine{
			{Level: "debug", Text: "begins", Fields: json.RawMessage(fmt.Sprintf(`{"try": %d}`, attempt))},
			{Level: "info", Text: "charged", Fields: json.RawMessage(`{"cents": 5, "password": "****"}`)},
			{Level: "error", Text: "no answer", Fields: json.RawMessage(`{"of": {"service": "bank", "token": "****"}}`)},
			{Level: "warn", Text: "the last words"},
		} {
			if n == 3 {
				pgtest.Eventually(t, visible, func() (bool, string) {
					said := r.stepOf(t, task.TaskUUID).Progress
					return said != nil && said.Fraction == 0.5 && said.Message == "half", fmt.Sprintf("it is %+v", said)
				})
				require.NoError(t, os.WriteFile(filepath.Join(gate, fmt.Sprintf("open-%d", attempt)), nil, 0o600))
			}
			got := next(within)
			within = visible
			require.WithinDuration(t, time.Now(), got.At, visible)
			require.Equal(t, []any{want.Level, want.Text, "work", attempt}, []any{got.Level, got.Text, got.StepName, got.Attempt})
			if want.Fields == nil {
				require.Empty(t, got.Fields)
			} else {
				require.JSONEq(t, string(want.Fields), string(got.Fields))
			}
		}
	}
	require.Equal(t, "complete", r.wait(task.TaskUUID, time.Minute).Status)
	_, more := <-followed
	require.False(t, more, "a line after the last")
}

// stepOf returns the only step of a task.
func (r *running) stepOf(t *testing.T, task string) *client.Step {
	t.Helper()
	steps, err := r.clients[0].Steps(t.Context(), task)
	require.NoError(t, err)
	require.Len(t, steps, 1)
	step, err := r.clients[0].Step(t.Context(), task, steps[0].StepUUID)
	require.NoError(t, err)
	return step
}

// TestLogsOfAKilledProcess: what a handler logged 2 s before its process is killed is there, all of it.
func TestLogsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python, needs.Node, needs.TypeScript)
	r, p := processes(t, sessionsOnly, `{"name": "python", "namespace_name": "gate", "version": "1.0.0", "steps": [
		{"name": "work", "timeout_seconds": 300, "handler": {"callable": "many_python"}}]}`)
	_, err := r.clients[0].RegisterTemplate(t.Context(), client.TemplateSource{Actor: "test", Reason: "test", Source: `{"name": "node", "namespace_name": "gate",
		"version": "1.0.0", "steps": [{"name": "work", "timeout_seconds": 300, "handler": {"callable": "many_node"}}]}`})
	require.NoError(t, err)
	dist := compiledSDK(t)
	for _, language := range []string{"python", "node"} {
		dir := t.TempDir()
		run := []string{"python3", "testdata/logs.py", p.URL, dir}
		if language == "node" {
			run = []string{"node", "testdata/logs.mjs", filepath.Join(dist, "index.js"), p.URL, dir}
		}
		pid := process(t, "PYTHONPATH=../../sdk/python/src", run...)
		task, err := r.clients[0].CreateTask(t.Context(), taskOf("gate", language, 1))
		require.NoError(t, err)
		pgtest.Eventually(t, time.Minute, func() (bool, string) { return len(begun(t, dir)) == 1, "it has not logged all of its lines" })
		<-time.After(2 * time.Second) // takes time: that is when lines are promised to be there
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		page, err := r.clients[0].TaskLogs(t.Context(), task.TaskUUID, client.LogOptions{Limit: 5000})
		require.NoError(t, err)
		require.Len(t, page.Lines, 1000, language)
		for n := range page.Lines {
			require.Equal(t, fmt.Sprintf("line %d", n), page.Lines[n].Text)
		}
	}
}
