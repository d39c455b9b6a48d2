package daemon

import (
	"context"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/api/rest"
)

// shownConfig returns what the API shows of an orchestrator's configuration; nil: nothing.
func (d *Orchestrator) shownConfig(c *config.Loaded) func() *client.OrchestratorConfig {
	if !c.Orchestration.Web.ConfigEndpoint {
		return nil
	}
	breakers, pool := c.Common.CircuitBreakers, uint32(c.Common.Database.Pool.MaxConnections) // #nosec G115 -- at most 1,000
	shown := client.OrchestratorConfig{
		Auth: shownAuth(c.Orchestration.Web.Auth),
		CircuitBreakers: client.SafeBreakerConfig{Enabled: true,
			FailureThreshold: uint32(breakers.ComponentConfigs.Web.FailureThreshold), // #nosec G115 -- at most 100
			SuccessThreshold: uint32(breakers.ComponentConfigs.Web.SuccessThreshold), // #nosec G115 -- at most 100
			TimeoutSeconds:   uint32(breakers.DefaultConfig.Timeout.Seconds())},
		DatabasePools: client.SafePoolConfig{WebAPIPoolSize: pool, WebAPIMaxConnections: pool},
		Messaging: shownMessaging(c, textOf(c, "common.queues.orchestration_queues.step_results"),
			textOf(c, "common.queues.orchestration_queues.task_requests"), textOf(c, "common.queues.orchestration_queues.task_finalizations")),
	}
	return func() *client.OrchestratorConfig {
		now := shown
		now.DeploymentMode = string(d.engine.Mode())
		return &now
	}
}

// shownConfig returns what the API shows of a worker's configuration; nil: nothing.
func (d *Worker) shownConfig(c *config.Loaded) func() *client.WorkerConfig {
	if !c.Worker.Web.ConfigEndpoint {
		return nil
	}
	dispatch := strings.ReplaceAll(textOf(c, "common.queues.naming_pattern"), "{namespace}", textOf(c, "common.queues.worker_namespace"))
	shown := client.WorkerConfig{WorkerID: c.Worker.WorkerID, WorkerType: c.Worker.WorkerType, Auth: shownAuth(c.Worker.Web.Auth),
		Messaging: shownMessaging(c, dispatch, textOf(c, "common.queues.orchestration_queues.step_results"))}
	return func() *client.WorkerConfig { return &shown }
}

// shownAuth leaves every key out.
func shownAuth(a config.Auth) client.SafeAuthConfig {
	keys := 0
	if a.APIKeysEnabled {
		keys = len(a.APIKeys)
	}
	if a.APIKey != "" {
		keys++
	}
	return client.SafeAuthConfig{
		Enabled: a.Enabled && a.Enforcement != "off", VerificationMethod: a.Method, JWTIssuer: a.Issuer, JWTAudience: a.Audience,
		APIKeyHeader: a.APIKeyHeader, APIKeyCount: keys,
		StrictValidation: a.StrictValidation, AllowedAlgorithms: append([]string{}, a.Algorithms...),
	}
}

// shownMessaging names the queues of Tasker's configuration. Work waits in tables, which
// have none of these names.
func shownMessaging(c *config.Loaded, queues ...string) client.SafeMessagingConfig {
	return client.SafeMessagingConfig{Backend: textOf(c, "common.queues.backend"), Queues: queues}
}

// textOf is the value of a key without a field, because it has no effect here.
func textOf(c *config.Loaded, key string) string {
	s, _ := c.Setting(key)
	return strings.Trim(s.Value, `"`)
}

// waiting counts what waits, for the API of a worker, whose route is open to all.
type waiting struct {
	count                               func(ctx context.Context, limit int) (map[string]int, error)
	oldest                              func(ctx context.Context) (map[string]time.Duration, error)
	limit                               int
	sampled[map[string]rest.QueueState] // nil: the latest count failed
}

// measure returns what waits by namespace; nil means no answer. The map must not be
// changed.
func (w *waiting) measure(ctx context.Context) map[string]rest.QueueState { return w.get(ctx, w.read) }

func (w *waiting) read(ctx context.Context) map[string]rest.QueueState {
	depths, err := w.count(ctx, w.limit)
	if err != nil {
		return nil
	}
	oldest, err := w.oldest(ctx)
	if err != nil {
		return nil
	}
	queues := make(map[string]rest.QueueState, len(depths))
	for name, n := range depths {
		queues[name] = rest.QueueState{Depth: n, Oldest: oldest[name]}
	}
	return queues
}
