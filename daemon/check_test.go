package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
)

// TestAValidationRefusesWhatADaemonRefuses runs each file through both: a daemon starts
// with it if and only if it passes the validation.
func TestAValidationRefusesWhatADaemonRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("name: broken\nsteps: [{name: a, dependencies: [a]}]\n"), 0o600))
	for name, tt := range map[string]struct {
		text   string
		refuse bool
	}{
		"no database":          {"", true},
		"planned":              {"[common.cache]\nenabled = true\n", false},
		"gRPC for others":      {"[orchestration.grpc]\nbind_address = \":9190\"\n", true},
		"gRPC without a key":   {"[worker.grpc]\ntls_enabled = true\n", true},
		"a wrong value":        {"[orchestration.apply]\nbatch_size = 0\n", true},
		"an unknown key":       {"[orchestration.apply]\nbatchsize = 1\n", true},
		"a contradiction":      {"[worker]\nlease_seconds = 5\n", true},
		"nothing to verify":    {"[orchestration.web.auth]\nenabled = true\n", true},
		"of the worker":        {"[worker.web.auth]\nenabled = true\n", true},
		"RabbitMQ":             {"[common.queues]\nbackend = \"rabbitmq\"\n", false}, // which need not run yet
		"of two minds":         {"[common.queues]\nbackend = \"rabbitmq\"\n[common.signals]\nevent_source = \"wal\"\n", true},
		"no broker":            {"[common.queues]\nbackend = \"rabbitmq\"\nrabbitmq.url = \"\"\n", true},
		"a broker unread":      {"[common.queues]\nbackend = \"rabbitmq\"\nrabbitmq.tls_ca_path = \"" + broken + "\"\n", true},
		"a database unread":    {"[common.database]\nurl = \"host=h port=many\"\n", true},
		"a listener unread":    {"[common.database]\nlistener_url = \"postgresql://h:many/d\"\n", true},
		"broken templates":     {"[common.task_templates]\nsearch_paths = [\"" + broken + "\"]\n", true},
		"of the worker's":      {"[worker]\ntemplate_path = \"" + broken + "\"\n", true},
		"no templates at all":  {"[worker]\ntemplate_path = \"" + filepath.Join(dir, "nowhere") + "\"\n", true},
		"a Redis unread":       {"[common.signals]\nevent_source = \"redis\"\nredis.url = \"redis://h/many\"\n", true},
		"a Redis out of reach": {"[common.signals]\nevent_source = \"redis\"\nredis.url = \"redis://127.0.0.1:1\"\n", false},
		"a bridge unread":      {"[orchestration.bridge.redis_queue]\nenabled = true\nurl = \"redis://h/many\"\n", true},
		"a queue unknown":      {"[common.queues.rabbitmq]\nqueues = [\"a\"]\n[orchestration.bridge.rabbitmq_queue]\nenabled = true\nkeys = [\"b\"]\n", true},
		"an odd pattern":       {"[orchestration.bridge.rabbitmq_events]\nenabled = true\nnamespaces = [\"a\"]\npatterns = [\"a b\"]\n", true},
		"events elsewhere":     {"[orchestration.bridge.rabbitmq_events]\nenabled = true\nnamespaces = [\"a\"]\n", false}, // a broker that need not run yet
		"spans to nowhere":     {"[common.telemetry.tracing]\nenabled = true\nendpoint = \"ftp://collector\"\n", true},
		"spans with a secret":  {"[common.telemetry.tracing]\nenabled = true\nheaders = \"no equals sign\"\n", true},
		"metrics to nowhere":   {"[common.telemetry.metrics]\nenabled = true\nendpoint = \"collector:4318\"\n", true},
		"spans to come":        {"[common.telemetry.tracing]\nenabled = true\n", false}, // a collector that need not run yet
		"no queue at all":      {"[orchestration.bridge.rabbitmq_queue]\nenabled = true\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			file := filepath.Join(t.TempDir(), "tasker.toml")
			text := "[common.database.pool]\nmin_connections = 0\nmax_connections = 2\n" + tt.text
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			loaded, invalid := config.Load(config.Options{Path: file, WorkerID: "w", LookupEnv: func(name string) (string, bool) {
				named := tt.text == "" || strings.HasPrefix(tt.text, "[common.database]\nurl")
				if name != "DATABASE_URL" || named {
					return "", false
				}
				return db.DSN, true
			}})
			if invalid != nil { // neither continues
				require.True(t, tt.refuse, "%v", invalid)
				return
			}
			validated := errors.Join(append(Check(loaded), loaded.Refused())...)
			require.Equal(t, tt.refuse, validated != nil, "%v", validated)
			started := startBoth(t, loaded)
			require.Equal(t, tt.refuse, started != nil, "%v", started)
		})
	}
}

// startBoth makes both daemons, which connects, and returns the first error.
func startBoth(t *testing.T, loaded *config.Loaded) error {
	t.Helper()
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	if err != nil {
		return err
	}
	defer o.store.Close()
	w, err := newWorker(t.Context(), loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	if err != nil {
		return err
	}
	w.store.Close()
	return nil
}
