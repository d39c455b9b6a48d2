package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/workflow"
)

// shownElsewhere names, for the active keys that are no option of a part, the test that
// shows their effect.
var shownElsewhere = map[string]string{
	"orchestration.web.oidc.issuer":                   "TestTheProviderFollowsItsSettings",
	"orchestration.web.oidc.issuer_allow_http":        "TestTheProviderFollowsItsSettings",
	"orchestration.web.oidc.client_id":                "TestTheProviderFollowsItsSettings",
	"orchestration.web.oidc.client_secret":            "TestTheProviderFollowsItsSettings",
	"orchestration.web.oidc.redirect_url":             "TestTheProviderFollowsItsSettings",
	"orchestration.web.oidc.scopes":                   "TestTheProviderFollowsItsSettings",
	"orchestration.web.oidc.name_claim":               "TestTheProviderFollowsItsSettings",
	"common.namespaces.grants":                        "TestGrantsReachTheEngine",
	"common.database.migrate_on_start":                "TestMigrateOnStart",
	"common.task_templates.search_paths":              "TestDaemonsFollowTheirSettings",
	"common.telemetry.log_level":                      "TestReloadChangesTheLevelOfTheLog",
	"common.telemetry.log_levels":                     "TestReloadChangesTheLevelOfTheLog",
	"common.telemetry.log_format":                     "TestLogFormat",
	"common.telemetry.metrics.enabled":                "TestMetricsArePushed",
	"orchestration.web.tls_enabled":                   "TestTheAPIIsEncrypted",
	"orchestration.web.tls_cert_path":                 "TestTheAPIIsEncrypted",
	"orchestration.web.tls_key_path":                  "TestTheAPIIsEncrypted",
	"orchestration.web.tls_client_ca_path":            "TestTheAPIIsEncrypted",
	"orchestration.bridge.redis_queue.enabled":        "TestTheBridgeFromRedis",
	"orchestration.bridge.rabbitmq_queue.enabled":     "TestTheBridgeFromRabbitMQ",
	"orchestration.bridge.rabbitmq_events.enabled":    "TestTheBridgeToRabbitMQ",
	"orchestration.bridge.rabbitmq_events.namespaces": "TestTheBridgeToRabbitMQ",
	"orchestration.grpc.enabled":                      "TestDaemonsOverGRPC",
	"orchestration.grpc.tls_enabled":                  "TestGRPCIsEncrypted",
	"orchestration.grpc.tls_cert_path":                "TestGRPCIsEncrypted",
	"orchestration.grpc.tls_key_path":                 "TestGRPCIsEncrypted",
	"orchestration.grpc.tls_client_ca_path":           "TestGRPCIsEncrypted",
	"worker.grpc.enabled":                             "TestDaemonsOverGRPC",
	"worker.grpc.tls_enabled":                         "TestGRPCIsEncrypted",
	"worker.grpc.tls_cert_path":                       "TestGRPCIsEncrypted",
	"worker.grpc.tls_key_path":                        "TestGRPCIsEncrypted",
	"worker.grpc.tls_client_ca_path":                  "TestGRPCIsEncrypted",
	"orchestration.events.max_consumers":              "TestDaemonsFollowTheirSettings",
	"orchestration.events.max_streams":                "TestDaemonsFollowTheirSettings",
	"orchestration.sessions.enabled":                  "TestSessionsWithTheOrchestrator",
	"orchestration.web.enabled":                       "TestAnAPIThatIsOff",
	"orchestration.web.config_endpoint_enabled":       "TestShownConfigHasNoSecrets",
	"worker.web.config_endpoint_enabled":              "TestShownConfigHasNoSecrets",
	"worker.worker_type":                              "TestDaemonsFollowTheirSettings",
	"worker.template_path":                            "TestDaemonsFollowTheirSettings",
	"worker.web.enabled":                              "TestAnAPIThatIsOff",
}

// optionsOf returns the options of the parts of both daemons, by the functions that the
// daemons use.
func optionsOf(loaded *config.Loaded) string {
	o, w := loaded, loaded
	s := &shared{loaded: loaded, log: zap.NewNop(), metrics: telemetry.Discard()}
	s.breakers, _ = newBreakers(o.Common, nil, s.log, s.metrics)
	od := &Orchestrator{shared: s, depth: newQueueDepth(nil, nil, nil, o.Common.Queues.PGMQ.QueueDepthThresholds, telemetry.Discard())}
	od.autoscaling = newAutoscaling(nil, o.Orchestration, 0, nil)
	wd := &Worker{shared: s}
	of, wf := &signals{config: o.Common, buffers: orchestratorBuffers(o.Orchestration)}, &signals{config: w.Common, buffers: workerBuffers(w.Worker)}
	web, _ := workerWeb(w.Worker.Web)
	self := store.Daemon{}
	sweeps := od.sweepConfig(o.Orchestration, self)
	whole := sweeps.Settings // of which the sweeps read only these parts
	sweeps.Settings = config.Orchestration{Sweeps: whole.Sweeps, DLQ: whole.DLQ, Retention: whole.Retention}
	sweeps.Settings.BatchProcessing.CheckpointStall = whole.BatchProcessing.CheckpointStall
	sweeps.Settings.Taskmaster.Reaper, sweeps.Settings.Taskmaster.Retention = whole.Taskmaster.Reaper, whole.Taskmaster.Retention
	var b strings.Builder
	ofWeb, _ := od.webConfig(o.Orchestration.Web, o.Orchestration.GRPC, loaded.Environment)
	wfWeb, _ := wd.webConfig(web, w.Worker.GRPC, loaded.Environment)
	ofGRPC, _ := od.grpcConfig(o.Orchestration.GRPC, o.Orchestration.Web)
	wfGRPC, _ := wd.grpcConfig(w.Worker.GRPC, web)
	lent, _ := lendingConfig(o)
	for _, options := range []any{
		od.tracingConfig(""), od.pushConfig(""), od.predictorConfig(), od.queueConfig(o, orchestration.Config{}, self), lent, sessionConfig("", o.Orchestration.Sessions.Sessions),
		storeOptions(o.Common, "", nil), breakerSettings(o.Common, nil), breakerSettings(w.Common, &w.Worker),
		of.listenerConfig(), of.notifyConfig(), of.walConfig(), of.amqpConfig(), of.redisConfig(), wf.listenerConfig(), wf.notifyConfig(), wf.walConfig(), wf.redisConfig(),
		od.engineConfig(o, self, nil), sweeps, od.admissionConfig(o), od.redisBridge(o.Orchestration), od.rabbitMQBridge(o), od.eventsBridge(o, "", ""), ofWeb, od.api(o, self, workflow.Rules{}), ofGRPC, wfGRPC,
		od.depth.thresholds, od.autoscaling.target, od.autoscaling.window,
		wd.workerConfig(w, nil), wfWeb, sessionConfig(w.Worker.WorkerID, w.Worker.Sessions),
		OrchestratorProgram().ShutdownTimeout(loaded), WorkerProgram("", nil).ShutdownTimeout(loaded),
	} {
		dump(&b, reflect.ValueOf(options))
	}
	return b.String()
}

// dump writes the data of a value; functions, channels and the targets of pointers and
// interfaces are not data.
func dump(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		b.WriteString("{")
		for i := range v.NumField() {
			fmt.Fprintf(b, "%s:", v.Type().Field(i).Name)
			dump(b, v.Field(i))
		}
		b.WriteString("}")
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			dump(b, v.Index(i))
		}
		b.WriteString(";")
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, k := range keys {
			b.WriteString(k.String() + "=")
			dump(b, v.MapIndex(k))
		}
	case reflect.String:
		b.WriteString(strconv.Quote(v.String()))
	case reflect.Bool:
		fmt.Fprint(b, v.Bool(), ",")
	case reflect.Float32, reflect.Float64:
		fmt.Fprint(b, v.Float(), ",")
	default:
		switch {
		case v.CanInt():
			fmt.Fprint(b, v.Int(), ",")
		case v.CanUint():
			fmt.Fprint(b, v.Uint(), ",")
		}
	}
}

// others returns other values for a key, as TOML.
func others(k config.Key) []string {
	switch k.Type {
	case "boolean":
		return []string{fmt.Sprint(k.Default != true)}
	case "integer":
		n, _ := k.Default.(int64)
		var list []string
		for _, m := range []int64{n + 1, n - 1, n + n/10, n - n/10, 2 * n, n / 2, int64(k.Min), int64(k.Max)} {
			if float64(m) >= k.Min && float64(m) <= k.Max && m != n {
				list = append(list, strconv.FormatInt(m, 10))
			}
		}
		return list
	case "float":
		x, _ := k.Default.(float64)
		return []string{strconv.FormatFloat(min(x*1.05+0.01, k.Max), 'f', 3, 64), strconv.FormatFloat(max(x*0.9, k.Min), 'f', 3, 64)}
	case "list of integers":
		return []string{"[2, 3]"}
	case "list of strings":
		return []string{`["other"]`, `["RS512"]`, `["https://other"]`}
	case "deployment mode":
		return []string{`"` + string(deploymode.PollingOnly) + `"`}
	case "array of tables":
		return []string{`[{ key = "k", permissions = ["*"] }]`}
	}
	for _, value := range k.Enum {
		if value != k.Default && value != "pgmq" {
			return []string{strconv.Quote(value)}
		}
	}
	return []string{`"other"`, `"127.0.0.1:7"`, `"postgresql://other/tasker"`, `"{namespace}.{name}"`, `"https://other/?a=b"`, `"amqp://other"`, `"redis://other"`}
}

// loadWith loads a file that sets keys; ok is false where that is not valid.
func loadWith(t *testing.T, dir, text string, part config.Context) (loaded *config.Loaded, ok bool) {
	t.Helper()
	file := filepath.Join(dir, "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	loaded, err := config.Load(config.Options{Path: file, Context: part, LookupEnv: func(string) (string, bool) { return "", false }, WorkerID: "w"})
	return loaded, err == nil
}

// partOf returns what must be loaded to see the effect of a key.
func partOf(k config.Key) config.Context {
	if k.Root == "common" {
		return config.ContextComplete
	}
	return config.Context(k.Root)
}

// TestEveryActiveKeyChangesADaemon sets each active key to another value: the options of
// the daemons change.
func TestEveryActiveKeyChangesADaemon(t *testing.T) {
	t.Parallel()
	dir, before := t.TempDir(), map[config.Context]string{}
	for _, part := range []config.Context{config.ContextComplete, config.ContextOrchestration, config.ContextWorker} {
		base, ok := loadWith(t, dir, "", part)
		require.True(t, ok)
		before[part] = optionsOf(base)
	}
	known := testsHere(t)
	for _, k := range config.Keys() {
		if k.Status != config.StatusActive || k.Older || k.Member {
			continue
		}
		if _, ok := accessKeys[strings.TrimPrefix(strings.TrimPrefix(k.Path, "orchestration.web.auth."), "worker.web.auth.")]; ok {
			continue // shown by TestAccessFollowsItsSettings
		}
		if test, elsewhere := shownElsewhere[strings.Replace(k.Path, "worker.web.tls_", "orchestration.web.tls_", 1)]; elsewhere {
			require.Contains(t, known, "func "+test+"(", k.Path)
			continue
		}
		with, was := "", before[partOf(k)]
		switch {
		case k.Path == "common.signals.wal.failover": // of a persistent slot only
			with = "common.signals.wal.slot = \"kept\"\n"
		case strings.HasPrefix(k.Path, "common.queues.orchestration_queues."), k.Path == "common.queues.worker_namespace", k.Path == "common.queues.naming_pattern":
			with = "common.queues.rabbitmq.naming = \"tasker\"\ncommon.queues.rabbitmq.queues = [\"orders\"]\n"
		}
		if with != "" {
			base, ok := loadWith(t, dir, with, partOf(k))
			require.True(t, ok)
			was = optionsOf(base)
		}
		changed := slices.ContainsFunc(others(k), func(value string) bool {
			loaded, ok := loadWith(t, dir, with+k.Path+" = "+value+"\n", partOf(k))
			return ok && optionsOf(loaded) != was
		})
		require.True(t, changed, "%s is active, and has no effect", k.Path)
	}
}

// TestKeysWithoutEffectChangeNothing sets all of them to other values.
func TestKeysWithoutEffectChangeNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base, ok := loadWith(t, dir, "", config.ContextComplete)
	require.True(t, ok)
	var text strings.Builder
	set := 0
	for _, k := range config.Keys() {
		if k.Status != config.StatusActive && !k.Older && !k.Member {
			fmt.Fprintf(&text, "%s = %s\n", k.Path, others(k)[0])
			set++
		}
	}
	loaded, ok := loadWith(t, dir, text.String(), config.ContextComplete)
	require.True(t, ok)
	require.Len(t, loaded.WithoutEffect, set-len(loaded.Refusals)+1, "except rejected ones; the missing database is not among them")
	require.Equal(t, optionsOf(base), optionsOf(loaded))
}

// testsHere is the source of the tests of this package.
func testsHere(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
