package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestValuesThatBreakTheirOwnRule covers each kind of rule on a single value.
func TestValuesThatBreakTheirOwnRule(t *testing.T) {
	for name, c := range map[string]struct{ toml, key, want string }{
		"below range":        {"[orchestration]\nshutdown_timeout_ms = 999", "orchestration.shutdown_timeout_ms", "1000–300000"},
		"above range":        {"[worker]\nlease_seconds = 86401", "worker.lease_seconds", "5–86400"},
		"float range":        {"[common.backoff]\njitter_max_percentage = 1.01", "common.backoff.jitter_max_percentage", "0–1"},
		"not a number":       {"[common.backoff]\nbackoff_multiplier = nan", "common.backoff.backoff_multiplier", "1–10"},
		"float for integer":  {"[worker]\nprefetch = 1.0", "worker.prefetch", "must be an integer, not a float"},
		"string for boolean": {"[common.cache]\nenabled = \"yes\"", "common.cache.enabled", "must be a boolean, not a string"},
		"table for string":   {"[common.cache.backend]\nx = 1", "common.cache.backend", "must be a string, not a table"},
		"string for table":   {"[common]\ncache = \"redis\"", "common.cache", "is a table, not a string"},
		"date":               {"[worker]\nworker_type = 1979-05-27", "worker.worker_type", "not a date"},
		"enum":               {"[common.signals]\nevent_source = \"kafka\"", "common.signals.event_source", "one of notify, wal"},
		"mode":               {"[worker.event_systems.worker]\ndeployment_mode = \"Sometimes\"", "worker.event_systems.worker.deployment_mode", "Hybrid"},
		"empty list":         {"[common.backoff]\ndefault_backoff_seconds = []", "common.backoff.default_backoff_seconds", "non-empty list"},
		"list element":       {"[common.backoff]\ndefault_backoff_seconds = [1, 0]", "common.backoff.default_backoff_seconds", "1–86400"},
		"mixed list":         {"[worker]\nnamespaces = [\"a\", 1]", "worker.namespaces", "list of strings"},
		"namespace":          {"[worker]\nnamespaces = [\"has space\"]", "worker.namespaces", "29 characters"},
		"address":            {"[worker.web]\nbind_address = \"8081\"", "worker.web.bind_address", "host:port"},
		"DSN":                {"[common.database]\nurl = \"mysql://h/d\"", "common.database.url", "PostgreSQL"},
		"slot":               {"[common.signals.wal]\nslot = \"Bad-Slot\"", "common.signals.wal.slot", "slot name"},
		"Redis":              {"[common.signals.redis]\nurl = \"\"", "common.signals.redis.url", "redis, rediss, unix"},
		"prefix of channels": {"[common.signals.redis]\nprefix = \"a?b\"", "common.signals.redis.prefix", "1–40"},
		"failover":           {"[common.signals.wal]\nfailover = true", "common.signals.wal.failover", "needs common.signals.wal.slot"},
		"API keys shape":     {"[worker.web.auth]\napi_keys = \"k\"", "worker.web.auth.api_keys", "array of tables"},
		"API keys element":   {"[worker.web.auth]\napi_keys = [1]", "worker.web.auth.api_keys", "must be a table"},
		"API key member":     {"[[worker.web.auth.api_keys]]\nkey = \"k\"\npermissions = [\"*\"]\nkeyy = \"s\"", "worker.web.auth.api_keys[0].keyy", "did you mean worker.web.auth.api_keys[].key"},
		"worker id":          {"[worker]\nworker_id = \"a b\"", "worker.worker_id", "without spaces"},
		"environment":        {"[common.execution]\nenvironment = \"Prod\"", "common.execution.environment", "production"},
		"quoted key":         {"[worker]\n\"a.b\" = 1", "worker.a.b", "unknown key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadText(t, c.toml)
			problems := problemsOf(t, err)
			require.Len(t, problems, 1, "%v", err)
			assert.Equal(t, c.key, problems[0].Key)
			assert.Contains(t, problems[0].Message, c.want)
			assert.Positive(t, problems[0].Line)
		})
	}
}

// TestRulesBetweenKeys covers each rule that spans keys: the message names
// every key that takes part.
func TestRulesBetweenKeys(t *testing.T) {
	const o, w = "orchestration.event_systems.orchestration", "worker.event_systems.worker"
	const dispatch = "worker.mpsc_channels.handler_dispatch"
	for name, c := range map[string]struct {
		toml string
		want []string
	}{
		"pool":                {"[common.database.pool]\nmin_connections = 26", []string{"common.database.pool.min_connections (26", "common.database.pool.max_connections (25"}},
		"queue depth":         {"[common.queues.pgmq.queue_depth_thresholds]\ncritical_threshold = 10001", []string{"critical_threshold", "overflow_threshold"}},
		"decision steps":      {"[orchestration.decision_points]\nwarn_threshold_steps = 101", []string{"warn_threshold_steps", "max_steps_per_decision"}},
		"decision depth":      {"[orchestration.decision_points]\nmax_decision_depth = 9", []string{"warn_threshold_depth", "max_decision_depth"}},
		"load shedding":       {"[" + dispatch + ".load_shedding]\nwarning_threshold_percent = 80.5", []string{"warning_threshold_percent", "capacity_threshold_percent"}},
		"create":              {"[orchestration.create]\nmax_pending = 400", []string{"create.batch_size", "create.max_pending"}},
		"report":              {"[worker.report]\nmax_pending = 10", []string{"report.batch_size", "report.max_pending"}},
		"processing backoff":  {"[" + o + ".processing.backoff]\nmax_delay_ms = 50", []string{"initial_delay_ms", "max_delay_ms"}},
		"reconnect":           {"[" + o + ".listener]\nreconnect_initial_ms = 6000", []string{"reconnect_initial_ms", "reconnect_max_ms"}},
		"probe":               {"[" + w + ".listener]\nhealth_check_interval_ms = 11000", []string{"health_check_interval_ms", "fallback_activation_threshold_ms"}},
		"poll intervals":      {"[" + w + ".poller]\ninterval_ms = 3000", []string{"interval_ms", "relaxed_interval_ms"}},
		"poll backoff":        {"[" + w + ".poller]\nerror_backoff_max_ms = 10", []string{"error_backoff_base_ms", "error_backoff_max_ms"}},
		"lease and heartbeat": {"[worker]\nheartbeat_interval_ms = 3334", []string{"worker.lease_seconds", "worker.heartbeat_interval_ms"}},
		"listener and pooler": {"[common.database]\nprepared_statements = false\n[" + w + "]\ndeployment_mode = \"EventDrivenOnly\"", []string{"prepared_statements", "listener_url", w + ".deployment_mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadText(t, c.toml)
			problems := problemsOf(t, err)
			require.Len(t, problems, 1, "%v", err)
			for _, want := range c.want {
				assert.Contains(t, problems[0].Message, want)
			}
			assert.Positive(t, problems[0].Line, "placed where it was set")
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestWarnings(t *testing.T) {
	const o, r, w = "orchestration.event_systems.orchestration", "orchestration.event_systems.task_readiness", "worker.event_systems.worker"
	mode := func(m string) string {
		return "[" + o + "]\ndeployment_mode = \"" + m + "\"\n[" + r + "]\ndeployment_mode = \"" + m + "\"\n[" + w + "]\ndeployment_mode = \"" + m + "\"\n"
	}
	for name, c := range map[string]struct {
		toml string
		want string
	}{
		"WAL without listener":  {mode("PollingOnly") + "[common.signals]\nevent_source = \"wal\"", "has no use"},
		"all disabled":          {mode("Disabled"), "no work"},
		"slot with Redis":       {"[common.signals]\nevent_source = \"redis\"\nwal.slot = \"tasker\"", "has no use"},
		"slot without WAL":      {"[common.signals.wal]\nslot = \"tasker\"", "has no use"},
		"shared worker id":      {"[worker]\nworker_id = \"worker-default-001\"", "same in every replica"},
		"overruled fallback":    {"[" + w + "]\ntiming.fallback_polling_interval_seconds = 9\npoller.relaxed_interval_ms = 4000", "overruled"},
		"capped delays":         {"[common.backoff]\nmax_backoff_seconds = 20", "caps them"},
		"two servers, one port": {"[worker.grpc]\nbind_address = \"127.0.0.1:8081\"", "same address"},
		"two daemons, one port": {"[worker.web]\nbind_address = \"0.0.0.0:8080\"", "same address"},
		"standby":               {"[common.database]\nurl = \"postgresql://u:s3cret@pg-a:5432,pg-b:5432/tasker\"", "2 hosts without target_session_attrs=read-write"},
		"standby heard":         {"[common.database]\nlistener_url = \"host=pg-a,pg-b,pg-c password=s3cret target_session_attrs=any\"", "listener_url"},
		"custom environment":    {"[common.execution]\nenvironment = \"staging\"", "staging"},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := loadText(t, c.toml)
			require.NoError(t, err)
			require.Len(t, loaded.Warnings, 1)
			assert.Contains(t, loaded.Warnings[0].Message, c.want)
			assert.NotContains(t, loaded.Warnings[0].String(), "s3cret")
		})
	}
	t.Run("hosts that take writes", func(t *testing.T) {
		for _, dsn := range []string{
			"postgresql://u:s3cret@pg-a:5432,pg-b:5432/tasker?target_session_attrs=read-write",
			"postgresql://u:s3cret@pg-a:5432,pg-b:5432/tasker?target_session_attrs=primary&sslmode=disable",
			"postgresql://u:s3cret@pg-a:5432/tasker", "postgresql://u:s,3,cret@pg-a:5432/tasker", "postgresql:///tasker?host=/run/postgresql",
			"host=pg-a,pg-b target_session_attrs = 'read-write'", "host=pg-a port=5432 user=a,b", "password='host=a,b' host=pg-a",
		} {
			loaded, err := loadText(t, "[common.database]\nurl = \""+dsn+"\"")
			require.NoError(t, err)
			assert.Empty(t, loaded.Warnings, dsn)
		}
		for _, dsn := range []string{"host='pg-a,pg-b' user=tasker", "postgresql:///tasker?host=pg-a,pg-b", "postgresql://pg-a,pg-b/tasker?target_session_attrs=prefer-standby"} {
			loaded, err := loadText(t, "[common.database]\nurl = \""+dsn+"\"")
			require.NoError(t, err)
			assert.Len(t, loaded.Warnings, 1, dsn)
		}
	})
	t.Run("pooled Hybrid", func(t *testing.T) {
		loaded, err := loadText(t, "[common.database]\nprepared_statements = false")
		require.NoError(t, err)
		assert.Len(t, loaded.Warnings, 3, "one for each system that listens")
		loaded, err = loadText(t, "[common.signals]\nevent_source = \"redis\"\n[common.database]\nprepared_statements = false")
		require.NoError(t, err)
		require.Empty(t, loaded.Warnings, "no listener goes through the pooler")
		loaded, err = loadText(t, "[common.database]\nprepared_statements = false\nlistener_url = \"postgres://direct/tasker\"")
		require.NoError(t, err)
		assert.Empty(t, loaded.Warnings)
	})
}

// TestPlainTextIsWarnedOf: for each server that others reach and that wants credentials.
func TestPlainTextIsWarnedOf(t *testing.T) {
	const on, keys = ".web.auth]\nenabled = true\n", "cert_path = \"c\"\ntls_key_path = \"k\"\n"
	for name, c := range map[string]struct {
		toml          string
		orchestration []string // the servers
		worker        []string
	}{
		"without access": {toml: ""},
		"anonymous":      {toml: "[worker.web.auth]\nallow_anonymous = true\n[worker.web]\nbind_address = \"0.0.0.0:1\"\n"},
		"both daemons":   {"[orchestration" + on + "[worker" + on, []string{"grpc", "web"}, []string{"grpc", "web"}},
		"switched off":   {toml: "[worker" + on + "enforcement = \"off\"\n"},
		"loopback":       {"[worker" + on + "[worker.web]\nbind_address = \"127.0.0.1:1\"\n", nil, []string{"grpc"}},
		"encrypted":      {"[worker" + on + "[worker.web]\ntls_enabled = true\ntls_" + keys, nil, []string{"grpc"}},
		"no server":      {"[worker" + on + "[worker.grpc]\nenabled = false\n", nil, []string{"web"}},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := loadText(t, c.toml)
			require.NoError(t, err)
			for root, want := range map[string][]string{"orchestration": c.orchestration, "worker": c.worker} {
				got := loaded.Unencrypted(root)
				require.Len(t, got, len(want), "%v", got)
				for _, server := range want {
					assert.Contains(t, strings.Join(got, "\n"), root+"."+server+".bind_address (")
				}
			}
			assert.Len(t, loaded.Warnings, len(c.orchestration)+len(c.worker))
		})
	}
}

func TestValuesThatFollowOthers(t *testing.T) {
	loaded, err := loadText(t, "[worker.event_systems.worker.timing]\nfallback_polling_interval_seconds = 7\n")
	require.NoError(t, err)
	assert.Equal(t, 7*time.Second, loaded.Worker.EventSystems.Worker.Poller.RelaxedInterval)
	s, _ := loaded.Setting("worker.event_systems.worker.poller.relaxed_interval_ms")
	assert.Contains(t, s.Origin, "follows worker.event_systems.worker.timing.fallback_polling_interval_seconds")

	loaded, err = loadText(t, "[worker.mpsc_channels.handler_dispatch]\nhandler_timeout_ms = 600500\n")
	require.NoError(t, err)
	assert.Equal(t, 10*time.Second, loaded.Worker.Lease, "heartbeats extend it for as long as a handler runs")

	loaded, err = loadText(t, "[worker.event_systems.worker.metadata.fallback_poller]\nsupported_namespaces = [\"a\", \"b\"]\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, loaded.Worker.Namespaces)

	loaded, err = Load(Options{LookupEnv: nothingSet, WorkerID: "kept-1"})
	require.NoError(t, err)
	assert.Equal(t, "kept-1", loaded.Worker.WorkerID)
}

func TestAliasesBecomeTheirValue(t *testing.T) {
	loaded, err := loadText(t, "[common.cache]\nbackend = \"in-memory\"\n[worker.event_systems.worker]\ndeployment_mode = \"event_driven_only\"\n")
	require.NoError(t, err)
	backend, _ := loaded.Setting("common.cache.backend")
	assert.Equal(t, `"moka"`, backend.Value)
	assert.True(t, loaded.Worker.EventSystems.Worker.DeploymentMode.Listens())
}

// TestCorpus loads the base files of the project whose users should keep them.
func TestCorpus(t *testing.T) {
	dir := filepath.Join("..", "..", "shared", "corpus", "config")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no corpus beside the repository")
	}
	root, merged := t.TempDir(), ""
	require.NoError(t, os.Mkdir(filepath.Join(root, "base"), 0o755))
	for _, role := range ContextComplete.Roots() {
		data, err := os.ReadFile(filepath.Join(dir, role+".toml"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, "base", role+".toml"), data, 0o600))
		merged += string(data) + "\n"
	}
	for _, environment := range []string{"development", "test", "production"} {
		for _, context := range []Context{ContextOrchestration, ContextWorker, ContextComplete} {
			loaded, err := Load(Options{Root: root, Context: context, Environment: environment, LookupEnv: nothingSet})
			require.NoError(t, err, "%s %s", environment, context)
			if context != ContextOrchestration {
				assert.Equal(t, "worker-default-001", loaded.Worker.WorkerID)
				assert.Contains(t, messages(loaded.Warnings), "same in every replica")
			}
		}
	}
	_, err := loadText(t, merged)
	require.NoError(t, err, "as one merged file")
}

func messages(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// A worker may serve all namespaces, by a file as by the variable.
func TestAllNamespaces(t *testing.T) {
	loaded, err := loadText(t, "[worker]\nnamespaces = [\"*\"]")
	require.NoError(t, err)
	require.Equal(t, []string{"*"}, loaded.Worker.Namespaces)
	_, err = loadText(t, "[worker]\nnamespaces = [\"a*\"]")
	require.ErrorContains(t, err, "* for all")
}
