package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
)

func TestVariablesOverrideFiles(t *testing.T) {
	loaded, err := loadText(t, `
[common.database]
url = "postgres://file/db"
[worker]
namespaces = ["file"]
`,
		"DATABASE_URL", "postgres://env/db", "PGMQ_DATABASE_URL", "postgres://queues/db", "REDIS_URL", "redis://r:1",
		"WORKER_NAMESPACES", " billing, ,orders ", "TASKER_TEMPLATE_PATH", "/etc/tasks", "TASKER_WORKER_ID", "w-1",
		"TASKER_WORKER_GRPC_BIND_ADDRESS", "127.0.0.1:0", "TASKER_LOG_LEVEL", "warning", "TASKER_LOG_FORMAT", "json",
		"TASKER_JWT_PUBLIC_KEY_PATH", "/k.pem", "TASKER_MESSAGING_BACKEND", "rabbitmq", "TASKER_WEB_BIND_ADDRESS", "127.0.0.1:0",
	)
	require.NoError(t, err)
	assert.Equal(t, "postgres://env/db", loaded.Common.Database.URL.Reveal())
	assert.Equal(t, []string{"billing", "orders"}, loaded.Worker.Namespaces)
	assert.Equal(t, "/etc/tasks", loaded.Worker.TemplatePath)
	assert.Equal(t, "w-1", loaded.Worker.WorkerID)
	assert.Equal(t, "127.0.0.1:0", loaded.Worker.Web.BindAddress)
	assert.Equal(t, "127.0.0.1:0", loaded.Orchestration.Web.BindAddress)
	assert.Equal(t, "warn", loaded.Common.Telemetry.LogLevel)
	assert.Equal(t, "json", loaded.Common.Telemetry.LogFormat)
	for key, want := range map[string]string{
		"common.pgmq_database.url": `"postgres://queues/db"`, "common.cache.redis.url": `"redis://r:1"`,
		"worker.grpc.bind_address": `"127.0.0.1:0"`, "orchestration.grpc.bind_address": `"127.0.0.1:0"`,
		"worker.web.auth.jwt_public_key_path": `"/k.pem"`, "common.queues.backend": `"rabbitmq"`,
	} {
		s, _ := loaded.Setting(key)
		assert.Equal(t, want, s.Value, key)
	}
}

func TestEmptyVariablesCountAsUnset(t *testing.T) {
	loaded, err := loadText(t, "[common.database]\nurl = \"postgres://file/db\"", "DATABASE_URL", "", "WORKER_NAMESPACES", "", "TASKER_ENV", "")
	require.NoError(t, err)
	assert.Equal(t, "postgres://file/db", loaded.Common.Database.URL.Reveal())
	assert.Equal(t, "development", loaded.Environment)
}

func TestVariableValuesAreTakenAsTheyAre(t *testing.T) {
	loaded, err := loadText(t, "", "DATABASE_URL", "host=h password=a${b")
	require.NoError(t, err, "a password may contain ${")
	assert.Equal(t, "host=h password=a${b", loaded.Common.Database.URL.Reveal())
}

func TestBadVariablesNameTheVariable(t *testing.T) {
	_, err := loadText(t, "", "TASKER_WEB_BIND_ADDRESS", "nowhere", "DATABASE_URL", "hunter2")
	problems := problemsOf(t, err)
	require.Len(t, problems, 3, "the address is wrong for both daemons")
	assert.Equal(t, "$DATABASE_URL", problems[0].File)
	assert.Equal(t, "$TASKER_WEB_BIND_ADDRESS", problems[1].File)
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestDatabaseURLFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	const dsn = "postgres://u:hunter2@h/db"
	good := file("good", dsn+"\r\n")
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"alone":        {[]string{"DATABASE_URL_FILE", good}, ""},
		"both equal":   {[]string{"DATABASE_URL_FILE", good, "DATABASE_URL", dsn}, ""},
		"both differ":  {[]string{"DATABASE_URL_FILE", good, "DATABASE_URL", "postgres://u:hunter3@h/db"}, "both set and differ"},
		"missing":      {[]string{"DATABASE_URL_FILE", filepath.Join(dir, "none")}, "reading the secret file"},
		"empty":        {[]string{"DATABASE_URL_FILE", file("empty", "\n")}, "is empty"},
		"too large":    {[]string{"DATABASE_URL_FILE", file("large", string(make([]byte, maxSecretBytes+1)))}, "larger than"},
		"not a DSN":    {[]string{"DATABASE_URL_FILE", file("bad", "hunter2")}, "PostgreSQL"},
		"empty is off": {[]string{"DATABASE_URL_FILE", "", "DATABASE_URL", dsn}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := loadText(t, "", c.env...)
			if c.want == "" {
				require.NoError(t, err)
				assert.Equal(t, dsn, loaded.Common.Database.URL.Reveal())
				return
			}
			assert.Contains(t, problemsOf(t, err)[0].Message, c.want)
			assert.NotContains(t, err.Error(), "hunter")
		})
	}
}

func TestDeploymentModeVariables(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want deploymode.Mode
	}{
		"none":                 {nil, deploymode.Hybrid},
		"ours":                 {[]string{"TASKER_DEPLOYMENT_MODE", "PollingOnly"}, deploymode.PollingOnly},
		"older":                {[]string{"DEPLOYMENT_MODE", "EventDrivenOnly"}, deploymode.EventDrivenOnly},
		"ours goes first":      {[]string{"TASKER_DEPLOYMENT_MODE", "PollingOnly", "DEPLOYMENT_MODE", "EventDrivenOnly"}, deploymode.PollingOnly},
		"entry point standard": {[]string{"DEPLOYMENT_MODE", "standard"}, deploymode.Hybrid},
		"entry point migrate":  {[]string{"DEPLOYMENT_MODE", "migrate-only"}, deploymode.Hybrid},
		"entry point none":     {[]string{"DEPLOYMENT_MODE", "no-migrate"}, deploymode.Hybrid},
		"entry point safe":     {[]string{"DEPLOYMENT_MODE", "safe"}, deploymode.Hybrid},
		"emergency":            {[]string{"DEPLOYMENT_MODE", "emergency"}, deploymode.Hybrid},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := loadText(t, "", c.env...)
			require.NoError(t, err)
			assert.Equal(t, c.want, loaded.Orchestration.EventSystems.Orchestration.DeploymentMode)
			assert.Equal(t, c.want, loaded.Orchestration.EventSystems.TaskReadiness.DeploymentMode)
			assert.Equal(t, c.want, loaded.Worker.EventSystems.Worker.DeploymentMode)
		})
	}
	_, err := loadText(t, "", "TASKER_DEPLOYMENT_MODE", "migrate-only")
	problems := problemsOf(t, err)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].Message, `"migrate-only" must be one of Hybrid`)
}

func TestExpand(t *testing.T) {
	lookup := environ("A", "1", "B_2", "two", "EMPTY", "")
	for in, want := range map[string]string{
		"plain":               "plain",
		"${A}":                "1",
		"x${A}y${B_2}z":       "x1ytwoz",
		"${NONE:-def}":        "def",
		"${NONE:-}":           "",
		"${EMPTY:-def}":       "def",
		"${EMPTY}":            "",
		"${A:-def}":           "1",
		"$${A}":               "${A}",
		"a$b {c}":             "a$b {c}",
		"${NONE:-a:-b ${x}":   "a:-b ${x",
		"{namespace}_{name}":  "{namespace}_{name}",
		"${NONE:-$HOME}/path": "$HOME/path",
	} {
		got, _, err := expand(in, lookup)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for in, want := range map[string]string{
		"${NONE}": "NONE is not set", "${": "not closed", "${A": "not closed", "${}": "must be ${NAME}",
		"${1A}": "must be", "${A-b}": "must be", "${ A }": "must be",
	} {
		_, _, err := expand(in, lookup)
		require.Error(t, err, in)
		assert.Contains(t, err.Error(), want, in)
	}
	_, used, err := expand("${A}${NONE:-x}${B_2}", lookup)
	require.NoError(t, err)
	assert.Equal(t, []string{"A", "B_2"}, used)
}

func TestPlaceholdersOnlyMatterWhereInEffect(t *testing.T) {
	root := write(t, map[string]string{
		"base/worker.toml":              "[worker]\nworker_type = \"${NOT_SET}\"\n",
		"environments/test/worker.toml": "[worker]\nworker_type = \"fixed\"\n",
	})
	_, err := Load(Options{Root: root, Environment: "test", LookupEnv: nothingSet})
	require.NoError(t, err, "overridden before it was needed")
	_, err = Load(Options{Root: root, Environment: "development", LookupEnv: nothingSet})
	p := problemsOf(t, err)[0]
	assert.Equal(t, 2, p.Line)
	assert.Contains(t, p.String(), filepath.Join("base", "worker.toml")+":2:1: worker.worker_type: environment variable NOT_SET is not set")
}

func TestPlaceholdersInNumbersAndLists(t *testing.T) {
	loaded, err := loadText(t, `
[worker]
prefetch = "${PREFETCH:-7}"
tags = ["${TAG}", "b"]
[worker.web]
enabled = "${WEB:-false}"
[common.backoff]
backoff_multiplier = "${MULTIPLIER}"
`, "TAG", "a", "MULTIPLIER", "1.5")
	require.NoError(t, err)
	assert.Equal(t, 7, loaded.Worker.Prefetch)
	assert.Equal(t, []string{"a", "b"}, loaded.Worker.Tags)
	assert.False(t, loaded.Worker.Web.Enabled)
	assert.InDelta(t, 1.5, loaded.Common.Backoff.BackoffMultiplier, 0)

	_, err = loadText(t, "[worker]\nprefetch = \"${PREFETCH}\"\n", "PREFETCH", "many")
	assert.Contains(t, problemsOf(t, err)[0].Message, "with $PREFETCH")
}
