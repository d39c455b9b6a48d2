package config

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keysOfTasker are the keys whose meaning others have given them.
func keysOfTasker(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/tasker_keys.txt")
	require.NoError(t, err)
	return strings.Fields(strings.TrimPrefix(string(text), strings.SplitN(string(text), "\n", 2)[0]))
}

// A key of our own that has no effect would be a key too many.
func TestOnlyKeysOfTaskerAreIgnored(t *testing.T) {
	t.Parallel()
	theirs := keysOfTasker(t)
	for _, k := range Keys() {
		if k.Status == statusIgnored && !k.Older {
			assert.Contains(t, theirs, k.Path, "%s is our own and ignored", k.Path)
		}
	}
	known := Keys()
	for _, path := range theirs {
		assert.True(t, slices.ContainsFunc(known, func(k Key) bool { return k.Path == path }), path)
	}
}

// A key that acts through others acts when it alone is set, and only then.
func TestKeysThatSetOthers(t *testing.T) {
	t.Parallel()
	byPath := theSchema().byPath
	for _, k := range Keys() {
		for _, path := range k.Sets {
			require.Contains(t, byPath, path)
			assert.Equal(t, StatusActive, byPath[path].Status, "%s acts through %s", k.Path, path)
			if k.Older {
				continue // see TestLegacyKeysFillTheirReplacements
			}
			value := map[string]string{typeInt: "7", typeStringList: `["seven"]`, typeString: `"rabbitmq"`}[k.Type]
			loaded, err := loadText(t, "["+k.table()+"]\n"+k.name()+" = "+value+"\n")
			require.NoError(t, err)
			s, _ := loaded.Setting(path)
			want := value
			if k.Type == typeString {
				want = `"amqp"`
			}
			if strings.HasSuffix(k.Path, "_seconds") && strings.HasSuffix(path, "_ms") {
				want += "000"
			}
			assert.Equal(t, want, s.Value, "%s sets %s", k.Path, path)
			assert.Contains(t, s.Origin, "follows "+k.Path)
		}
	}
	loaded, err := loadText(t, `[common.circuit_breakers]
default_config.failure_threshold = 7
component_configs.web.failure_threshold = 9
`)
	require.NoError(t, err)
	assert.Equal(t, 9, loaded.Common.CircuitBreakers.ComponentConfigs.Web.FailureThreshold)
	assert.Equal(t, 7, loaded.Common.CircuitBreakers.ComponentConfigs.Messaging.FailureThreshold)
}

func keysOf(problems []Problem) (keys []string) {
	for _, p := range problems {
		keys = append(keys, p.Key)
	}
	return keys
}

// What is set and has no effect is listed with its place and the reason;
// defaults are not.
func TestKeysWithoutEffectAreListed(t *testing.T) {
	t.Parallel()
	loaded, err := loadText(t, "[worker.grpc]\nmax_frame_size = 32768\n[common.mpsc_channels.ffi]\nruby_event_buffer_size = 1000\n", "MEMCACHED_URL", "tcp://m:1", "REDIS_URL", "redis://r:1")
	require.NoError(t, err)
	require.Equal(t, []string{"common.cache.memcached.url", "worker.grpc.max_frame_size", "common.mpsc_channels.ffi.ruby_event_buffer_size"}, keysOf(loaded.WithoutEffect))
	assert.Equal(t, "$MEMCACHED_URL: common.cache.memcached.url has no effect: planned, for the cache", loaded.WithoutEffect[0].String())
	assert.Contains(t, loaded.WithoutEffect[1].String(), ":2:1: worker.grpc.max_frame_size has no effect: ignored: the gRPC library")
	assert.Contains(t, loaded.WithoutEffect[2].Message, "ignored: handlers run in the process of the worker")
	assert.Empty(t, loaded.Warnings)

	loaded, err = loadText(t, "")
	require.NoError(t, err)
	assert.Empty(t, loaded.WithoutEffect)
}

// What has no effect cannot be wrong: Tasker takes these, and so do we.
func TestFilesThatTaskerTakesLoad(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"keys of tokens":          "[worker.web.auth]\njwt_private_key = \"k\"\n",
		"memcached":               "[common.cache]\nenabled = true\nbackend = \"memcached\"\n[common.cache.memcached]\nurl = \"memcached.internal:11211\"\nconnection_timeout_seconds = 90\n",
		"memcached by variable":   "[common.cache]\nenabled = true\nbackend = \"memcached\"\n[common.cache.memcached]\nurl = \"${MEMCACHED_URL}\"\n",
		"other keys of memcached": "[common.cache.memcached]\nmax_connections = 10\nservers = [\"a:11211\"]\ntls = { enabled = true }\n",
		"queues apart":            "[common.pgmq_database]\nenabled = false\n",
		"no credential":           "[worker.orchestration_client.auth]\ntype = \"bearer\"\n",
	} {
		loaded, err := loadText(t, text, "DATABASE_URL", "postgresql://h/d")
		require.NoError(t, err, name)
		assert.NotEmpty(t, loaded.WithoutEffect, name)
		assert.NoError(t, loaded.Refused(), name)
	}
}

// What a daemon cannot honour is refused, and can be loaded and shown.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"open to others": {"[worker.web]\nbind_address = \":8081\"\n", "tasker.toml:2:1: worker.web.bind_address (\":8081\", "},
		"no certificate": {"[worker.web]\ntls_enabled = true\n", "needs worker.web.tls_cert_path"},
		"gRPC to others": {"[worker.grpc]\nbind_address = \":9191\"\n", "tasker.toml:2:1: worker.grpc.bind_address (\":9191\", "},
		"none for gRPC":  {"[worker.grpc]\ntls_enabled = true\n", "needs worker.grpc.tls_cert_path"},
		"two sources":    {"[common.queues]\nbackend = \"rabbitmq\"\n[common.signals]\nevent_source = \"wal\"\n", "which means amqp: leave one of them out"},
		"a bare bridge":  {"[common.queues.rabbitmq]\nurl = \"\"\n[orchestration.bridge.rabbitmq_queue]\nenabled = true\n", "needs common.queues.rabbitmq.url: set RABBITMQ_URL"},
		"no queue":       {"[orchestration.bridge.rabbitmq_queue]\nenabled = true\n", "needs common.queues.rabbitmq.queues: name the queues"},
		"a wrong key":    {"[common.queues.rabbitmq]\nqueues = [\"high\"]\n[orchestration.bridge.rabbitmq_queue]\nenabled = true\nkeys = [\"high\", \"low\"]\n", "rabbitmq_queue.keys has \"low\": want keys of common.queues.rabbitmq.queues"},
		"nowhere to go":  {"[common.signals]\nmoving_from = \"notify\"\n", "is common.signals.event_source: want the source that the fleet used before"},
		"one slot":       {"[common.signals]\nevent_source = \"relay\"\nmoving_from = \"wal\"\nwal.slot = \"s\"\n", "would both read common.signals.wal.slot"},
		"no old broker":  {"[common.signals]\nmoving_from = \"amqp\"\n[common.queues.rabbitmq]\nurl = \"\"\n", "needs common.queues.rabbitmq.url: set RABBITMQ_URL"},
		"bare events":    {"[common.queues.rabbitmq]\nurl = \"\"\n[orchestration.bridge.rabbitmq_events]\nenabled = true\nnamespaces = [\"shop\"]\n", "needs common.queues.rabbitmq.url: set RABBITMQ_URL"},
		"no namespace":   {"[orchestration.bridge.rabbitmq_events]\nenabled = true\n", "needs orchestration.bridge.rabbitmq_events.namespaces"},
		"no broker":      {"[common.signals]\nevent_source = \"amqp\"\n[common.queues.rabbitmq]\nurl = \"\"\n", "needs common.queues.rabbitmq.url: set RABBITMQ_URL"},
	} {
		loaded, err := loadText(t, tt.text)
		require.NoError(t, err, name)
		require.ErrorContains(t, loaded.Refused(), tt.want, name)
	}
	loaded, err := loadText(t, "[orchestration.web]\nenabled = false\nbind_address = \":1\"\n", "DATABASE_URL", "postgresql://h/d")
	require.NoError(t, err)
	require.NoError(t, loaded.Refused(), "nothing is served that would have to be protected")
}

// The backend says what carries signals, unless the source is named.
func TestBackendIsTheSourceOfSignals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text, variable, want string
	}{
		"neither":     {"", "", "notify"},
		"RabbitMQ":    {"[common.queues]\nbackend = \"rabbitmq\"\n", "", "amqp"},
		"by variable": {"", "rabbitmq", "amqp"},
		"PostgreSQL":  {"[common.queues]\nbackend = \"pgmq\"\n", "", "notify"},
		"both":        {"[common.queues]\nbackend = \"rabbitmq\"\n[common.signals]\nevent_source = \"amqp\"\n", "", "amqp"},
		"the source":  {"[common.queues]\nbackend = \"pgmq\"\n[common.signals]\nevent_source = \"wal\"\n", "", "wal"},
	} {
		environment := []string{"DATABASE_URL", "postgresql://h/d"}
		if tt.variable != "" {
			environment = append(environment, "TASKER_MESSAGING_BACKEND", tt.variable)
		}
		loaded, err := loadText(t, tt.text, environment...)
		require.NoError(t, err, name)
		require.NoError(t, loaded.Refused(), name)
		assert.Equal(t, tt.want, loaded.Common.Signals.EventSource, name)
	}
}

// A gRPC server that is not configured follows REST: without it there is none, and beside a
// free port another one.
func TestGRPCFollowsREST(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text    string
		enabled bool
		address string
	}{
		"as it is":         {"", true, "127.0.0.1:9191"},
		"no REST":          {"[worker.web]\nenabled = false\n", false, "0.0.0.0:9191"},
		"gRPC alone":       {"[worker.web]\nenabled = false\n[worker.grpc]\nenabled = true\n", true, "127.0.0.1:9191"},
		"a free port":      {"[worker.web]\nbind_address = \"127.0.0.1:0\"\n", true, "127.0.0.1:0"},
		"only REST on one": {"[worker.web]\nbind_address = \"127.0.0.1:0\"\n[worker.grpc]\nbind_address = \"127.0.0.1:1\"\n", true, "127.0.0.1:1"},
		"guarded":          {"[worker.web.auth]\nenabled = true\napi_key = \"k\"\n", true, "0.0.0.0:9191"},
	} {
		loaded, err := loadText(t, tt.text, "DATABASE_URL", "postgresql://h/d")
		require.NoError(t, err, name)
		require.NoError(t, loaded.Refused(), name)
		assert.Equal(t, tt.enabled, loaded.Worker.GRPC.Enabled, name)
		assert.Equal(t, tt.address, loaded.Worker.GRPC.BindAddress, name)
	}
}

// A database without a name is not guessed.
func TestNoDatabase(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: nothingSet})
	require.NoError(t, err)
	require.ErrorContains(t, loaded.Refused(), "invalid configuration: no database is configured: set DATABASE_URL, for example to postgresql://")
	loaded, err = Load(Options{LookupEnv: environ("DATABASE_URL", "postgresql://h/d")})
	require.NoError(t, err)
	require.NoError(t, loaded.Refused())
}
