package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/redact"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://u:hunter2@h/db":               "postgres://u:****@h/db",
		"postgres://u:hun@ter2@h/db":              "postgres://u:****@h/db",
		"postgres://u:hun ter2@h/db":              "postgres://u:****@h/db",
		"redis://:hunter2@h":                      "redis://:****@h",
		"postgres://h:5432/db":                    "postgres://h:5432/db",
		"postgres://h/db?user=u&password=hunter2": "postgres://h/db?user=u&password=****",
		"host=h password=hunter2 user=u":          "host=h password=**** user=u",
		"host=h password = 'hun ter2' dbname=d":   "host=h password = **** dbname=d",
		"sslpassword=hunter2":                     "sslpassword=****",
		"nothing secret":                          "nothing secret",
		"http://localhost:8080":                   "http://localhost:8080",
	} {
		assert.Equal(t, want, redact.Text(in))
		assert.Equal(t, want, redact.Text(redact.Text(in)), "twice changes nothing more")
	}
}

func TestSecretIsMaskedByEveryWayOfPrinting(t *testing.T) {
	type holder struct {
		URL, Keywords, Odd DSN
	}
	h := holder{"postgres://u:hunter2@h/db", "host=h password='hunter2'", "hunter2"}
	asJSON, err := json.Marshal(h)
	require.NoError(t, err)
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("connect", "url", h.URL)
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("connect", "url", h.Odd)
	for _, s := range []string{fmt.Sprint(h), fmt.Sprintf("%+v", h), fmt.Sprintf("%#v", h), fmt.Sprintf("%q", h), fmt.Sprintf("%d", h), fmt.Sprintf("%x%s", h.Odd, h.Odd), string(asJSON), logged.String()} {
		assert.NotContains(t, s, "hunter2")
		assert.Contains(t, s, masked)
	}
	assert.Empty(t, fmt.Sprint(DSN("")))
	assert.Equal(t, "postgres://u:hunter2@h/db", h.URL.Reveal())
}

const secretive = `
[common.database]
url = "postgres://u:hunter2@h/db"
listener_url = "host=h user=u password=hunter2"
[common.cache.redis]
url = "redis://:hunter2@h"
[worker.web.auth]
api_key = "user=hunter2"
jwt_private_key = "hunter2"
jwt_public_key = "x${NONE:-hunter2}"
[[worker.web.auth.api_keys]]
key = "hunter2"
permissions = ["*"]
[worker.orchestration_client.auth]
token = "hunter2"
`

func TestShowMasksSecretsAndNamesOrigins(t *testing.T) {
	loaded, err := loadText(t, secretive, "TASKER_API_KEY", "hunter2", "RABBITMQ_URL", "amqp://u:hunter2@h")
	require.NoError(t, err)
	settings := loaded.Show()
	assert.Greater(t, len(settings), 330)
	for _, s := range settings {
		assert.NotContains(t, s.Value, "hunter2", s.Key)
		assert.NotEmpty(t, s.Origin, s.Key)
	}
	assert.NotContains(t, fmt.Sprintf("%+v", loaded.Common), "hunter2")
	assert.NotContains(t, fmt.Sprintf("%+v", loaded.Worker), "hunter2")

	url, _ := loaded.Setting("common.database.url")
	assert.Equal(t, `"postgres://u:****@h/db"`, url.Value)
	listener, _ := loaded.Setting("common.database.listener_url")
	assert.Equal(t, `"host=h user=u password=****"`, listener.Value)
	assert.Equal(t, 3, url.Position.Line)
	assert.False(t, url.Default)
	assert.True(t, url.Secret)
	id, _ := loaded.Setting("worker.worker_id")
	assert.Equal(t, "generated", id.Origin)
	ttl, _ := loaded.Setting("common.cache.default_ttl_seconds")
	assert.Equal(t, Setting{Key: "common.cache.default_ttl_seconds", Value: "3600", Origin: "default", Default: true, Status: statusPlanned}, ttl)
}

// TestErrorsMaskSecrets breaks each secret in turn and looks at the message.
func TestErrorsMaskSecrets(t *testing.T) {
	for _, line := range []string{
		"common.database.url = \"mysql://u:hunter2@h/db\"",
		"common.database.url = \"hunter2\"",
		"common.database.url = [\"hunter2\"]",
		"common.database.listener_url = \"hunter2 hunter2\"",
		"worker.web.auth.api_key = [\"hunter2\"]",
		"worker.web.auth.api_keyy = \"hunter2\"",
		"common.database.url = \"hunter2${NONE}\"",
		"worker.web.auth.api_keys = [\"hunter2\"]",
		"worker.web.auth.api_keys = [{ key = [\"hunter2\"] }]",
		"common.database.url = \"postgres://u:hunter2@h/%zz\"",
	} {
		_, err := loadText(t, line)
		for _, p := range problemsOf(t, err) {
			assert.NotContains(t, fmt.Sprintf("%+v", p), "hunter2", line)
		}
		assert.NotContains(t, err.Error(), "hunter2", line)
	}
}

func TestChanges(t *testing.T) {
	before, err := loadText(t, "[worker]\nworker_id = \"w\"\nprefetch = 1\n[worker.event_systems.worker]\ndeployment_mode = \"Hybrid\"\n[common.database]\nlistener_url = \"host=h password=hunter2\"\n")
	require.NoError(t, err)
	after, err := loadText(t, "[worker]\nworker_id = \"w\"\nprefetch = 2\n[worker.event_systems.worker]\ndeployment_mode = \"PollingOnly\"\n[worker.web]\nbind_address = \"127.0.0.1:1\"\n[common.database]\nlistener_url = \"host=h password=hunter3\"\n")
	require.NoError(t, err)
	changes := before.Changes(after)
	require.Len(t, changes, 4)
	byKey := map[string]Change{}
	for _, c := range changes {
		byKey[c.Key] = c
	}
	assert.Equal(t, Change{Key: "worker.prefetch", Old: "1", New: "2"}, byKey["worker.prefetch"])
	assert.True(t, byKey["worker.event_systems.worker.deployment_mode"].Reloadable)
	assert.False(t, byKey["worker.web.bind_address"].Reloadable)
	assert.NotContains(t, fmt.Sprint(changes), "hunter")
	assert.Empty(t, before.Changes(before))
}

func TestExplain(t *testing.T) {
	text, err := Explain("worker.lease_seconds")
	require.NoError(t, err)
	for _, want := range []string{"worker.lease_seconds", "integer", "5–86400", "10", "heartbeats extend it", "status:   active"} {
		assert.Contains(t, text, want)
	}
	text, err = Explain("worker.web.auth.api_keys[0].key")
	require.NoError(t, err)
	assert.Contains(t, text, "masked")
	text, err = Explain("common.cache")
	require.NoError(t, err)
	assert.Contains(t, text, "common.cache.redis.url: ")
	text, err = Explain("common.cache.backend")
	require.NoError(t, err)
	assert.Contains(t, text, `"dragonfly" = "redis"`)
	text, err = Explain("orchestration.deployment_mode")
	require.NoError(t, err)
	assert.Contains(t, text, "use:      orchestration.event_systems.orchestration.deployment_mode")
	text, err = Explain("common.cache.enabled")
	require.NoError(t, err)
	assert.Contains(t, text, "status:   planned, for the cache")
	text, err = Explain("worker.mpsc_channels.ffi_dispatch.dispatch_buffer_size")
	require.NoError(t, err)
	assert.Contains(t, text, "status:   ignored: handlers run in the process")
	_, err = Explain("worker.lease_second")
	assert.ErrorContains(t, err, "did you mean worker.lease_seconds?")
}

// TestGeneratedFilesMeanTheSame loads each generated file by itself and
// expects the values of the layers it was made from.
func TestGeneratedFilesMeanTheSame(t *testing.T) {
	for _, environment := range []string{"development", "test", "production"} {
		for _, context := range []Context{ContextCommon, ContextOrchestration, ContextWorker, ContextComplete} {
			text, err := Generate(context, environment)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "generated.toml")
			require.NoError(t, os.WriteFile(path, text, 0o600))
			options := Options{Context: context, Path: path, LookupEnv: nothingSet, WorkerID: "w"}
			generated, err := Load(options)
			require.NoError(t, err, "%s %s", context, environment)
			options.Path, options.Environment = "", environment
			layered, err := Load(options)
			require.NoError(t, err)
			assert.Empty(t, layered.Changes(generated), "%s %s", context, environment)
			assert.Empty(t, generated.Warnings, "%s %s", context, environment)
			assert.Empty(t, generated.WithoutEffect, "%s %s", context, environment)
		}
	}
	_, err := Generate(ContextWorker, "../test")
	require.Error(t, err)
	_, err = Generate("all", "test")
	require.Error(t, err)
}

// TestOverlays pins what differs per environment.
func TestOverlays(t *testing.T) {
	environments := []string{"development", "test", "production"}
	loaded := make([]*Loaded, len(environments))
	for i, environment := range environments {
		var err error
		loaded[i], err = Load(Options{Environment: environment, LookupEnv: nothingSet})
		require.NoError(t, err)
	}
	for key, want := range map[string][3]string{ // in the order of environments
		"common.database.pool.max_connections":                                              {"25", "30", "50"},
		"common.database.pool.min_connections":                                              {"5", "2", "10"},
		"common.pgmq_database.pool.max_connections":                                         {"15", "10", "25"},
		"common.pgmq_database.pool.min_connections":                                         {"3", "1", "5"},
		"common.database.pool.slow_acquire_threshold_ms":                                    {"200", "500", "50"},
		"common.cache.enabled":                                                              {"true", "true", "true"},
		"common.cache.template_ttl_seconds":                                                 {"3600", "300", "3600"},
		"common.cache.analytics_ttl_seconds":                                                {"60", "30", "120"},
		"common.queues.pgmq.poll_interval_ms":                                               {"500", "250", "500"},
		"common.queues.pgmq.queue_depth_thresholds.critical_threshold":                      {"5000", "500", "5000"},
		"common.queues.pgmq.queue_depth_thresholds.overflow_threshold":                      {"10000", "1000", "10000"},
		"common.backoff.default_backoff_seconds":                                            {"[1, 5, 15, 30, 60]", "[1, 2, 4]", "[1, 5, 15, 30, 60]"},
		"common.backoff.max_backoff_seconds":                                                {"3600", "10", "3600"},
		"common.execution.step_enqueue_batch_size":                                          {"50", "10", "50"},
		"orchestration.shutdown_timeout_ms":                                                 {"15000", "5000", "30000"},
		"orchestration.dlq.staleness_detection.detection_interval_seconds":                  {"120", "60", "600"},
		"orchestration.dlq.staleness_detection.batch_size":                                  {"50", "10", "200"},
		"orchestration.dlq.staleness_detection.thresholds.waiting_for_dependencies_minutes": {"15", "5", "120"},
		"orchestration.dlq.staleness_detection.thresholds.waiting_for_retry_minutes":        {"10", "2", "60"},
		"orchestration.dlq.staleness_detection.thresholds.steps_in_process_minutes":         {"15", "5", "60"},
		"orchestration.dlq.staleness_detection.thresholds.task_max_lifetime_hours":          {"4", "1", "48"},
		"orchestration.batch_processing.max_parallel_batches":                               {"25", "10", "100"},
		"orchestration.batch_processing.default_batch_size":                                 {"500", "100", "2000"},
		"orchestration.batch_processing.checkpoint_stall_minutes":                           {"5", "2", "30"},
		"orchestration.grpc.enable_reflection":                                              {"true", "true", "false"},
		"orchestration.grpc.max_concurrent_streams":                                         {"200", "200", "500"},
		"worker.mpsc_channels.handler_dispatch.max_concurrent_handlers":                     {"10", "5", "50"},
		"worker.mpsc_channels.handler_dispatch.handler_timeout_ms":                          {"30000", "5000", "60000"},
		"worker.mpsc_channels.in_process_events.dispatch_timeout_ms":                        {"5000", "2000", "10000"},
		"worker.orchestration_client.base_url":                                              {`"http://localhost:8080"`, `"http://localhost:8080"`, `"http://orchestration:8080"`},
		"worker.web.config_endpoint_enabled":                                                {"false", "true", "false"},
		"orchestration.web.config_endpoint_enabled":                                         {"false", "true", "false"},
		"worker.lease_seconds":                                                              {"10", "10", "10"},
	} {
		for i, environment := range environments {
			s, ok := loaded[i].Setting(key)
			require.True(t, ok, key)
			assert.Equal(t, want[i], s.Value, "%s in %s", key, environment)
		}
	}
}

func TestReferenceHasEveryKey(t *testing.T) {
	page := string(ReferenceMarkdown())
	for _, k := range Keys() {
		assert.Contains(t, page, strings.TrimPrefix(k.Path, k.table()+"."), k.Path)
	}
	assert.Contains(t, page, "| `api_keys[].key` |")
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "| `") {
			cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			assert.Contains(t, []int{3, 6}, cells, line)
		}
	}
	assert.Equal(t, page, string(ReferenceMarkdown()), "stable")
}

func TestLiteralsReadBack(t *testing.T) {
	for _, value := range []any{"a\"b\\c\n\t\x01\x7f é ✓", int64(-5), 2.0, 1e21, 0.1, true, []any{"x", int64(1)}} {
		var back map[string]any
		_, err := toml.Decode("v = "+literal(value)+"\n", &back)
		require.NoError(t, err, literal(value))
		assert.Equal(t, value, back["v"])
	}
	assert.True(t, bytes.HasPrefix([]byte(literal([]string{})), []byte("[]")))
}
