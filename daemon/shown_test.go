package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
)

// No key and no password of a configuration is in what the API shows of it.
func TestShownConfigHasNoSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(file, []byte(`
[common.database]
url = "postgres://tasker:geheim@db/tasker"
[common.queues.rabbitmq]
url = "amqp://guest:geheim@mq:5672/%2F"
[worker.web]
config_endpoint_enabled = true
[worker.web.auth]
enabled = true
api_key = "geheim-geheim-geheim-1"
api_keys_enabled = true
jwt_public_key = "geheim"
[[worker.web.auth.api_keys]]
key = "geheim-geheim-geheim-2"
permissions = ["tasks:read"]
description = "geheim"
`), 0o600))
	loaded, err := config.Load(config.Options{Path: file, WorkerID: "w", LookupEnv: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	shown := (&Worker{}).shownConfig(loaded)()
	require.Equal(t, client.SafeAuthConfig{Enabled: true, VerificationMethod: "public_key", JWTIssuer: "tasker-worker", JWTAudience: "worker-api",
		APIKeyHeader: "X-API-Key", APIKeyCount: 2, StrictValidation: true, AllowedAlgorithms: []string{"RS256"}}, shown.Auth)
	require.Equal(t, client.SafeMessagingConfig{Backend: "pgmq", Queues: []string{"worker_{name}_queue", "orchestration_step_results"}}, shown.Messaging)
	require.Equal(t, "w", shown.WorkerID)
	text, err := json.Marshal(shown)
	require.NoError(t, err)
	require.NotContains(t, string(text), "geheim")

	loaded.Orchestration.Web.Auth = loaded.Worker.Web.Auth
	require.Nil(t, (&Orchestrator{}).shownConfig(loaded), "it is off")
}

func TestWaitingIsCountedOnceASecond(t *testing.T) {
	t.Parallel()
	counts, fails := 0, error(nil)
	w := &waiting{limit: 11, sampled: sampled[map[string]rest.QueueState]{now: time.Now}, count: func(_ context.Context, limit int) (map[string]int, error) {
		require.Equal(t, 11, limit)
		counts++
		return map[string]int{"a": 2, "b": 0}, fails
	}, oldest: func(context.Context) (map[string]time.Duration, error) {
		return map[string]time.Duration{"a": time.Minute}, nil
	}}
	want := map[string]rest.QueueState{"a": {Depth: 2, Oldest: time.Minute}, "b": {}}
	require.Equal(t, want, w.measure(t.Context()))
	require.Equal(t, want, w.measure(t.Context()))
	require.Equal(t, 1, counts)
	w.at, fails = time.Now().Add(-time.Hour), errors.New("away")
	require.Nil(t, w.measure(t.Context()), "old counts are not reported")
}
