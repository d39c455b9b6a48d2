package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
)

// environ is an environment made of pairs.
func environ(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, ok := m[name]
		return v, ok
	}
}

// write puts files below a new directory and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// loadText loads text as the one merged file.
func loadText(t *testing.T, text string, env ...string) (*Loaded, error) {
	t.Helper()
	dir := write(t, map[string]string{"tasker.toml": text})
	return Load(Options{Path: filepath.Join(dir, "tasker.toml"), LookupEnv: environ(env...)})
}

// problemsOf expects a ValidationError and returns its problems.
func problemsOf(t *testing.T, err error) []Problem {
	t.Helper()
	var invalid *ValidationError
	require.ErrorAs(t, err, &invalid)
	require.NotEmpty(t, invalid.Problems)
	return invalid.Problems
}

func TestEveryEnvironmentLoadsWithoutFiles(t *testing.T) {
	for _, environment := range []string{"development", "test", "production"} {
		for _, context := range []Context{ContextCommon, ContextOrchestration, ContextWorker, ContextComplete} {
			loaded, err := Load(Options{Context: context, LookupEnv: environ("TASKER_ENV", environment)})
			require.NoError(t, err, "%s %s", environment, context)
			assert.Empty(t, loaded.Warnings, "%s %s", environment, context)
			assert.Equal(t, environment, loaded.Environment)
		}
	}
}

func TestTypedValues(t *testing.T) {
	loaded, err := Load(Options{Environment: "production", LookupEnv: nothingSet})
	require.NoError(t, err)
	o, w := loaded, loaded
	assert.Equal(t, "postgresql://localhost/tasker", o.Common.Database.URL.Reveal())
	assert.Equal(t, o.Common.Database.URL, o.Common.Database.ListenerDSN())
	assert.Equal(t, 50, o.Common.Database.Pool.MaxConnections)
	assert.Equal(t, 30*time.Second, o.Orchestration.ShutdownTimeout)
	assert.Equal(t, deploymode.Hybrid, o.Orchestration.EventSystems.TaskReadiness.DeploymentMode)
	assert.Equal(t, time.Second, o.Orchestration.EventSystems.TaskReadiness.Poller.Interval)
	assert.Equal(t, 10*time.Second, w.Worker.Lease)
	assert.Equal(t, time.Minute, w.Worker.MPSCChannels.HandlerDispatch.HandlerTimeout)
	assert.Equal(t, "127.0.0.1:8081", w.Worker.Web.BindAddress)
	assert.Equal(t, 2*time.Second, w.Worker.EventSystems.Worker.Poller.RelaxedInterval)
	assert.Equal(t, []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute},
		w.Common.Backoff.DefaultBackoff)
	assert.Regexp(t, `^.+-[0-9a-f]{8}$`, w.Worker.WorkerID)
	assert.Equal(t, 60*time.Second, o.Orchestration.Web.MaxWait)
}

func TestLayersOverrideOneAnother(t *testing.T) {
	root := write(t, map[string]string{
		"tasker/base/common.toml":                 "[common.database.pool]\nmax_connections = 40\nmin_connections = 7\n[common.backoff]\ndefault_backoff_seconds = [9]\n",
		"tasker/base/worker.toml":                 "[worker]\nprefetch = 3\nworker_type = \"base\"\n",
		"tasker/environments/test/worker.toml":    "[worker]\nworker_type = \"test\"\n",
		"tasker/environments/staging/common.toml": "[common.database.pool]\nmin_connections = 1\n",
	})
	get := func(l *Loaded, key string) string {
		s, ok := l.Setting(key)
		require.True(t, ok, key)
		return s.Value + " " + strings.ReplaceAll(s.Origin, root, "ROOT")
	}
	loaded, err := Load(Options{Root: root, Environment: "test", LookupEnv: environ("TASKER_WORKER_ID", "w-7")})
	require.NoError(t, err)
	assert.Equal(t, `40 ROOT/tasker/base/common.toml:2`, get(loaded, "common.database.pool.max_connections"))
	assert.Equal(t, `7 ROOT/tasker/base/common.toml:3`, get(loaded, "common.database.pool.min_connections"))
	assert.Equal(t, `[9] ROOT/tasker/base/common.toml:5`, get(loaded, "common.backoff.default_backoff_seconds"), "lists are replaced")
	assert.Equal(t, `"test" ROOT/tasker/environments/test/worker.toml:2`, get(loaded, "worker.worker_type"))
	assert.Equal(t, `3 ROOT/tasker/base/worker.toml:2`, get(loaded, "worker.prefetch"))
	assert.Equal(t, `"w-7" $TASKER_WORKER_ID`, get(loaded, "worker.worker_id"))
	assert.Equal(t, `30000 default`, get(loaded, "worker.mpsc_channels.handler_dispatch.handler_timeout_ms"),
		"a root with its own overlay does not get ours")

	loaded, err = Load(Options{Root: root, Environment: "production", LookupEnv: nothingSet})
	require.NoError(t, err)
	assert.Equal(t, `60000 default of production`, get(loaded, "worker.mpsc_channels.handler_dispatch.handler_timeout_ms"),
		"a root without an overlay gets ours")
	assert.Equal(t, `40 ROOT/tasker/base/common.toml:2`, get(loaded, "common.database.pool.max_connections"),
		"and its own base goes before ours")

	loaded, err = Load(Options{Root: filepath.Join(root, "tasker"), LookupEnv: environ("TASKER_ENV", "staging")})
	require.NoError(t, err, "a folder makes an environment known; base may be given directly")
	assert.Equal(t, "staging", loaded.Environment)
	assert.Equal(t, 1, loaded.Common.Database.Pool.MinConnections)

	_, err = Load(Options{Root: root, Environment: "stagign", LookupEnv: nothingSet})
	assert.Contains(t, problemsOf(t, err)[0].Message, `"stagign"`)
}

func TestRootAndPathFromTheEnvironment(t *testing.T) {
	dir := write(t, map[string]string{
		"base/worker.toml": "[worker]\nprefetch = 3\n",
		"one.toml":         "[worker]\nprefetch = 4\n",
	})
	loaded, err := Load(Options{LookupEnv: environ(envRoot, dir)})
	require.NoError(t, err)
	assert.Equal(t, 3, loaded.Worker.Prefetch)

	one := filepath.Join(dir, "one.toml")
	loaded, err = Load(Options{LookupEnv: environ(envRoot, dir, envPath, one, envEnvironment, "production")})
	require.NoError(t, err)
	assert.Equal(t, 4, loaded.Worker.Prefetch, "the path goes before the root")
	assert.Equal(t, 30*time.Second, loaded.Worker.MPSCChannels.HandlerDispatch.HandlerTimeout, "and takes no overlay")
	assert.Equal(t, "production", loaded.Environment)

	loaded, err = Load(Options{Root: dir, LookupEnv: environ(envPath, one)})
	require.NoError(t, err)
	assert.Equal(t, 3, loaded.Worker.Prefetch, "what the caller names goes before the environment")
}

func TestFilesThatCannotBeRead(t *testing.T) {
	_, err := Load(Options{Path: filepath.Join(t.TempDir(), "none.toml"), LookupEnv: nothingSet})
	assert.Contains(t, problemsOf(t, err)[0].String(), "none.toml")

	_, err = Load(Options{Root: t.TempDir(), LookupEnv: nothingSet})
	assert.Contains(t, problemsOf(t, err)[0].Message, "neither base nor environments")

	_, err = loadText(t, "#"+strings.Repeat("x", maxFileBytes))
	assert.Contains(t, problemsOf(t, err)[0].Message, "larger than")

	_, err = Load(Options{Context: "everything", LookupEnv: nothingSet})
	assert.ErrorContains(t, err, "everything")
}

func TestEnvironmentNameCannotLeaveItsFolder(t *testing.T) {
	root := write(t, map[string]string{"base/common.toml": "", "evil/common.toml": "[common.backoff]\nmax_backoff_seconds = 1\n"})
	_, err := Load(Options{Root: root, LookupEnv: environ(envEnvironment, "../evil")})
	assert.Equal(t, "common.execution.environment", problemsOf(t, err)[0].Key)
}

func TestContextLimitsWhatIsRead(t *testing.T) {
	dir := write(t, map[string]string{"all.toml": `
[orchestration]
shutdown_timeout_ms = 5
[worker]
worker_type = "${NOT_SET}"
prefetch = 2
`})
	loaded, err := Load(Options{Context: ContextCommon, Path: dir + "/all.toml", LookupEnv: nothingSet})
	require.NoError(t, err, "values outside the context are not judged")
	assert.Zero(t, loaded.Worker)
	_, ok := loaded.Setting("worker.prefetch")
	assert.False(t, ok)

	_, err = Load(Options{Context: ContextOrchestration, Path: dir + "/all.toml", LookupEnv: nothingSet})
	assert.Len(t, problemsOf(t, err), 1)
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	_, err := loadText(t, `[common.database]
urll = "postgres://u:hunter2@h/d"
[common.database.pool]
max_connections = 0
min_connections = "five"
[common.signals]
event_source = "kafka"
[worker]
worker_type = "${UNSET_VARIABLE}"
`)
	problems := problemsOf(t, err)
	require.Len(t, problems, 5)
	for i, want := range []struct {
		line, column int
		key, rule    string
		in           []string
	}{
		{2, 1, "common.database.urll", "a known key", []string{"unknown key", "did you mean common.database.url?"}},
		{4, 1, "common.database.pool.max_connections", "1–1000", []string{"= 0 must be 1–1000"}},
		{5, 1, "common.database.pool.min_connections", "0–100", []string{"must be an integer", `"five"`}},
		{7, 1, "common.signals.event_source", "one of notify, wal, relay, amqp", []string{`"kafka"`}},
		{9, 1, "worker.worker_type", "a non-empty string", []string{"UNSET_VARIABLE is not set"}},
	} {
		p := problems[i]
		assert.Equal(t, want.line, p.Line, p.Key)
		assert.Equal(t, want.column, p.Column, p.Key)
		assert.Equal(t, want.key, p.Key)
		assert.Equal(t, want.rule, p.Rule)
		assert.True(t, strings.HasSuffix(p.File, "tasker.toml"))
		for _, s := range want.in {
			assert.Contains(t, p.Message, s)
		}
		assert.Contains(t, err.Error(), p.String())
	}
	assert.NotContains(t, err.Error(), "hunter2")
	assert.Contains(t, err.Error(), "5 problems")
}

func TestMalformedTOML(t *testing.T) {
	_, err := loadText(t, "[common]\n\n[common.cache]\nenabled = tru\n")
	problems := problemsOf(t, err)
	require.Len(t, problems, 1)
	assert.Equal(t, 4, problems[0].Line)
	assert.Positive(t, problems[0].Column)
	assert.Contains(t, problems[0].Message, "malformed TOML")
}

func TestDocsTablesAreDropped(t *testing.T) {
	_, err := loadText(t, `
[_docs]
anything = 1
[common.cache]
enabled = false
[common.cache._docs.enabled]
description = "x"
related = ["y"]
[common.cache._docs.enabled.recommendations]
test = { value = "${NOT_SET}" }
[common.cache.redis_docs]
description = "x"
[[worker.web.auth.api_keys]]
key = "k"
permissions = ["tasks:read"]
[worker.web.auth.api_keys._docs]
description = "x"
`)
	require.NoError(t, err)
	_, err = loadText(t, "[common.cache]\nenabled_docs = \"not a table\"\n")
	assert.Equal(t, "common.cache.enabled_docs", problemsOf(t, err)[0].Key)
}

func TestLegacyKeysFillTheirReplacements(t *testing.T) {
	loaded, err := loadText(t, `
[orchestration]
deployment_mode = "polling_only"
[orchestration.polling]
step_result_poll_interval_ms = 250
batch_size = 10
max_messages_per_poll = 100
[orchestration.event_systems.task_readiness]
deployment_mode = "EventDrivenOnly"
`)
	require.NoError(t, err)
	assert.Equal(t, deploymode.PollingOnly, loaded.Orchestration.EventSystems.Orchestration.DeploymentMode)
	assert.Equal(t, deploymode.EventDrivenOnly, loaded.Orchestration.EventSystems.TaskReadiness.DeploymentMode, "the current key wins")
	assert.Equal(t, 250*time.Millisecond, loaded.Orchestration.EventSystems.Orchestration.Poller.Interval)
	require.Len(t, loaded.Warnings, 2)
	require.Len(t, loaded.WithoutEffect, 2)
	assert.Contains(t, loaded.WithoutEffect[0].Message, "orchestration.polling.batch_size has no effect: ignored")

	_, err = loadText(t, "[orchestration.polling]\nstep_result_poll_interval_ms = 0\n")
	p := problemsOf(t, err)[0]
	assert.Equal(t, 2, p.Line, "the problem is where the older key stands")
}

func TestErrorsUnwrapToTheirType(t *testing.T) {
	_, err := loadText(t, "x = 1")
	var invalid *ValidationError
	require.ErrorAs(t, err, &invalid)
	assert.Contains(t, err.Error(), "invalid configuration: ")
}
