package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/workflow"
)

const (
	workerTemplatePath = "/v1/templates/shapes/diamond/1.0.0"
	configPath         = "/config"
)

// flat checks a failure of a worker.
func (r reply) flat(t testing.TB, status int, code string) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, "%s", r.body)
	var e struct{ Error, Message string }
	require.NoError(t, json.Unmarshal(r.body, &e))
	require.Equal(t, code, e.Error)
	require.NotEmpty(t, e.Message)
}

func TestTemplatesOfAWorker(t *testing.T) {
	t.Parallel()
	db := newFakeStore()
	h := newWorkerHouse(t, newFakeStatus(), db)
	h.get("/v1/templates?include_cache_stats=true").golden(t, "worker_templates")
	h.get(workerTemplatePath).golden(t, "worker_template")

	var list client.WorkerTemplates
	h.get("/v1/templates?namespace=shapes").into(t, &list)
	require.Equal(t, []string{"shapes"}, list.SupportedNamespaces)
	require.EqualValues(t, 1, list.TemplateCount)
	require.Nil(t, list.CacheStats)
	h.get("/v1/templates?namespace=other").into(t, &list)
	require.Empty(t, list.SupportedNamespaces)
	require.Zero(t, list.TemplateCount, "none that the worker serves")
	h.get("/v1/templates?include_cache_stats=perhaps").flat(t, http.StatusBadRequest, "bad_request")

	h.get("/v1/templates/shapes/none/1.0.0").flat(t, http.StatusNotFound, "template_not_found")
	h.get("/v1/templates/other/diamond/1.0.0").flat(t, http.StatusNotFound, "template_not_found")
	h.get("/v1/templates/shapes/%00/1.0.0").flat(t, http.StatusNotFound, "template_not_found")
	db.fails(sqlError{})
	h.get(workerTemplatePath).flat(t, http.StatusInternalServerError, "database_error")
}

func TestAWorkerSaysWhatItCanRun(t *testing.T) {
	t.Parallel()
	db := newFakeStore()
	h := newWorkerHouse(t, newFakeStatus(), db, func(_ *rest.Config, w *rest.Worker) {
		w.Tags = []string{"gpu"}
		w.CheckHandler = func(def workflow.HandlerReference) error {
			if def.Callable == "right" {
				return errors.New(`no handler "right"`)
			}
			return nil
		}
	})
	db.plan.Steps[0].StepTemplate.Tags = []string{"gpu", "eu"}
	h.do(http.MethodPost, workerTemplatePath+"/validate", "").golden(t, "worker_validation")

	db.plan = diamond()
	db.plan.Steps[2].StepTemplate.Handler.Callable = "left"
	var v client.TemplateValidation
	h.do(http.MethodPost, workerTemplatePath+"/validate", `{}`).into(t, &v)
	require.True(t, v.Valid)
	require.Equal(t, []string{"start", "left", "end"}, v.StepHandlers, "each once")
	h.do(http.MethodPost, "/v1/templates/other/diamond/1.0.0/validate", "").flat(t, http.StatusNotFound, "template_not_found")
}

func TestMetricsOfAWorker(t *testing.T) {
	t.Parallel()
	queues := map[string]rest.QueueState{"shapes": {Depth: 3, Oldest: 1500 * time.Millisecond}, "elsewhere": {Depth: 1}}
	h := newWorkerHouse(t, newFakeStatus(), newFakeStore(), func(_ *rest.Config, w *rest.Worker) {
		w.Queues = func(context.Context) map[string]rest.QueueState { return queues }
	})
	var m client.WorkerMetrics
	h.get("/metrics/worker").into(t, &m)
	require.Equal(t, "worker-1", m.WorkerID)
	require.Positive(t, m.Metrics["uptime_seconds"].Value)
	uptime := m.Metrics["uptime_seconds"]
	uptime.Value = 0
	m.Metrics["uptime_seconds"] = uptime
	text, err := json.Marshal(m.Metrics)
	require.NoError(t, err)
	goldenJSON(t, "worker_metrics", text)
	queues = nil // they cannot be counted
	m = client.WorkerMetrics{}
	h.get("/metrics/worker").into(t, &m)
	require.Len(t, m.Metrics, 2)
}

func TestConfigIsShownWhereThatIsConfigured(t *testing.T) {
	t.Parallel()
	newHouse(t).get(configPath).refused(t, http.StatusNotFound, "NOT_FOUND")
	newWorkerHouse(t, newFakeStatus(), nil).get(configPath).flat(t, http.StatusNotFound, "not_found")

	who := client.SafeAuthConfig{Enabled: true, VerificationMethod: "jwks", JWTIssuer: "i", JWTAudience: "a", APIKeyHeader: "X-API-Key", APIKeyCount: 2,
		StrictValidation: true, AllowedAlgorithms: []string{"RS256"}}
	messages := client.SafeMessagingConfig{Backend: "pgmq", Queues: []string{"q"}}
	shown := &client.OrchestratorConfig{Auth: who, CircuitBreakers: client.SafeBreakerConfig{Enabled: true, FailureThreshold: 5, TimeoutSeconds: 30, SuccessThreshold: 2},
		DatabasePools: client.SafePoolConfig{WebAPIPoolSize: 10, WebAPIMaxConnections: 10}, DeploymentMode: "Hybrid", Messaging: messages}
	orchestrator := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Config = func() *client.OrchestratorConfig { return shown }
	})
	goldenJSON(t, "config", dated(t, orchestrator.get(configPath)))
	require.Zero(t, shown.Metadata, "each answer has its own")
	worker := newWorkerHouse(t, newFakeStatus(), nil, func(_ *rest.Config, w *rest.Worker) {
		w.Config = func() *client.WorkerConfig {
			return &client.WorkerConfig{WorkerID: "worker-1", WorkerType: "go", Auth: who, Messaging: messages}
		}
	})
	goldenJSON(t, "worker_config", dated(t, worker.get(configPath)))
}

// dated replaces the time of a configuration.
func dated(t testing.TB, r reply) []byte {
	t.Helper()
	var v map[string]any
	r.into(t, &v)
	metadata := v["metadata"].(map[string]any)
	_, err := time.Parse("2006-01-02T15:04:05.000000Z", metadata["timestamp"].(string))
	require.NoError(t, err)
	metadata["timestamp"] = "2026-03-21T10:11:12.123456Z"
	body, err := json.Marshal(v)
	require.NoError(t, err)
	return body
}
