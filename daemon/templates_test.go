package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
)

// TestErrorsOfTemplatesComeBeforeTheirHints: an operator who reads the log from its
// beginning sees the error first, and at its level the possible cause.
func TestErrorsOfTemplatesComeBeforeTheirHints(t *testing.T) {
	t.Parallel()
	db, dir := enginetest.Migrated(t), t.TempDir()
	for file, step := range map[string]string{
		"a_fine.yaml":   "{name: only, bogus: 1, handler: {callable: x}}",
		"b_broken.yaml": "{name: only, handlr: {callable: x}}",
	} {
		text := "name: " + file[:1] + "\nnamespace_name: keys\nversion: 1.0.0\nsteps:\n  - " + step + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	nothing := func(*worker.Worker) error { return nil }
	for name, tt := range map[string]struct {
		program Program
		config  string
	}{
		"worker":       {WorkerProgram("worker", nothing), "[common.task_templates]\nsearch_paths = [\"" + dir + "/none.yaml\"]\n"},
		"orchestrator": {OrchestratorProgram(), "[common.task_templates]\nsearch_paths = [\"" + dir + "/*.yaml\"]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded := loadToo(t, db, tt.config)
			loaded.Worker.TemplatePath = dir
			core, logs := observer.New(zapcore.InfoLevel)
			log := zap.New(core)
			r := &runner{program: tt.program, loaded: loaded, log: log, levels: info(t), status: log, since: time.Now(), overdue: time.Minute}
			require.Equal(t, exitFailure, r.run())
			var logged []observer.LoggedEntry // of templates
			for _, e := range logs.All() {
				if strings.Contains(stringOf(e), ".yaml:") {
					logged = append(logged, e)
				}
			}
			require.Len(t, logged, 1, "errors and hints at one level, and nothing before them")
			require.Equal(t, zapcore.ErrorLevel, logged[0].Level)
			text := stringOf(logged[0])
			failed, hint := strings.Index(text, "steps[0].handler is required"), strings.Index(text, `did you mean "handler"?`)
			require.Positive(t, failed, text)
			require.Greater(t, hint, failed, "the hint follows the error: %s", text)
			require.NotContains(t, text, "bogus", "a file without errors")
		})
	}
}

// stringOf is the text of a log entry with its error and its problem.
func stringOf(e observer.LoggedEntry) string {
	var b strings.Builder
	b.WriteString(e.Message)
	for _, f := range e.Context {
		switch v := f.Interface.(type) {
		case error:
			b.WriteString(" " + v.Error())
		case interface{ String() string }:
			b.WriteString(" " + v.String())
		}
	}
	return b.String()
}

// TestWorkersHearOfANewNamespace: a worker of all namespaces runs the tasks of one that came
// with a template over the API, and does not wait for its next heartbeat to learn of it.
func TestWorkersHearOfANewNamespace(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", func(l *config.Loaded) {
		l.Worker.Namespaces, l.Worker.Lease, l.Worker.HeartbeatInterval = []string{"*"}, 10*time.Hour, time.Hour
	})
	ofWork := client.New(client.Config{BaseURL: "http://" + p.worker.Addr().String()})
	pgtest.Eventually(t, time.Minute, func() (bool, string) { // or the scan after it connects finds the namespace
		health, err := ofWork.DetailedHealth(p.ctx)
		require.NoError(t, err)
		for _, s := range health.EventSystems {
			if s.Listener != nil && s.Listener.State == "listening" {
				return true, ""
			}
		}
		return false, "the worker does not listen yet"
	})
	c := client.New(client.Config{BaseURL: p.rest})
	_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Reason: "test", Actor: "test",
		Source: `{name: one, namespace_name: brand_new, version: 1.0.0, steps: [{name: only, handler: {callable: ok}}]}`})
	require.NoError(t, err)
	task, err := c.CreateTask(p.ctx, client.TaskRequest{Name: "one", Namespace: "brand_new", Version: "1.0.0", Context: json.RawMessage(`{}`),
		Initiator: "test", SourceSystem: "test", Reason: "test"})
	require.NoError(t, err)
	p.ended(t, task.TaskUUID, "complete")
}
