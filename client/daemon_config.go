package client

import "context"

// OrchestratorConfig is the part of an orchestrator's configuration that its API shows.
// It has no secrets.
type OrchestratorConfig struct {
	Metadata        ConfigMetadata      `json:"metadata"`
	Auth            SafeAuthConfig      `json:"auth"`
	CircuitBreakers SafeBreakerConfig   `json:"circuit_breakers"`
	DatabasePools   SafePoolConfig      `json:"database_pools"`
	DeploymentMode  string              `json:"deployment_mode" doc:"The mode in force: PollingOnly, EventDrivenOnly, Hybrid or Disabled"`
	Messaging       SafeMessagingConfig `json:"messaging"`
}

// WorkerConfig is the part of a worker's configuration that its API shows. It has no
// secrets.
type WorkerConfig struct {
	Metadata   ConfigMetadata      `json:"metadata"`
	WorkerID   string              `json:"worker_id"`
	WorkerType string              `json:"worker_type"`
	Auth       SafeAuthConfig      `json:"auth"`
	Messaging  SafeMessagingConfig `json:"messaging"`
}

// ConfigMetadata says what answered, and when.
type ConfigMetadata struct {
	Timestamp   Time   `json:"timestamp" format:"date-time"`
	Environment string `json:"environment"`
	Version     string `json:"version"`
}

// SafeAuthConfig says how clients prove who they are, without keys.
type SafeAuthConfig struct {
	Enabled            bool     `json:"enabled"`
	VerificationMethod string   `json:"verification_method" doc:"public_key or jwks"`
	JWTIssuer          string   `json:"jwt_issuer"`
	JWTAudience        string   `json:"jwt_audience"`
	APIKeyHeader       string   `json:"api_key_header"`
	APIKeyCount        int      `json:"api_key_count" doc:"Keys of the configuration; those of the database are not counted"`
	StrictValidation   bool     `json:"strict_validation"`
	AllowedAlgorithms  []string `json:"allowed_algorithms"`
}

// SafeBreakerConfig is the configuration of the circuit breaker of the API.
type SafeBreakerConfig struct {
	Enabled          bool   `json:"enabled"`
	FailureThreshold uint32 `json:"failure_threshold"`
	TimeoutSeconds   uint32 `json:"timeout_seconds"`
	SuccessThreshold uint32 `json:"success_threshold"`
}

// SafePoolConfig is the size of the connection pool. The API shares that of the engine,
// so both are its largest size.
type SafePoolConfig struct {
	WebAPIPoolSize       uint32 `json:"web_api_pool_size"`
	WebAPIMaxConnections uint32 `json:"web_api_max_connections"`
}

// SafeMessagingConfig says where work waits: in PostgreSQL. The queues are names of the
// configuration; there are no tables behind them.
type SafeMessagingConfig struct {
	Backend string   `json:"backend"`
	Queues  []string `json:"queues"`
}

// OrchestratorConfig returns what an orchestrator shows of its configuration. The server
// answers 404 unless web.config_endpoint_enabled is set.
func (c *Client) OrchestratorConfig(ctx context.Context) (*OrchestratorConfig, error) {
	return get[OrchestratorConfig](ctx, c, nil, "config")
}

// WorkerConfig is [Client.OrchestratorConfig] of a worker.
func (c *Client) WorkerConfig(ctx context.Context) (*WorkerConfig, error) {
	return get[WorkerConfig](ctx, c, nil, "config")
}
