package config

import (
	"time"
)

// Web is a daemon's REST server.
type Web struct {
	Enabled               bool     `toml:"enabled"`
	BindAddress           string   `toml:"bind_address"`
	RequestTimeoutMS      int64    `toml:"request_timeout_ms"`
	ConfigEndpointEnabled bool     `toml:"config_endpoint_enabled"`
	DatabasePools         WebPools `toml:"database_pools"`
	Auth                  Auth     `toml:"auth"`
}

// RequestTimeout returns request_timeout_ms: limit for one request.
func (w Web) RequestTimeout() time.Duration {
	return time.Duration(w.RequestTimeoutMS) * time.Millisecond
}

// WebPools sizes the connections of the API.
type WebPools struct {
	WebAPIPoolSize                 int   `toml:"web_api_pool_size"`
	WebAPIMaxConnections           int   `toml:"web_api_max_connections"`
	WebAPIConnectionTimeoutSeconds int64 `toml:"web_api_connection_timeout_seconds"`
	WebAPIIdleTimeoutSeconds       int64 `toml:"web_api_idle_timeout_seconds"`
	MaxTotalConnectionsHint        int   `toml:"max_total_connections_hint"`
}

// WebAPIConnectionTimeout returns web_api_connection_timeout_seconds: longest wait for one of them.
func (w WebPools) WebAPIConnectionTimeout() time.Duration {
	return time.Duration(w.WebAPIConnectionTimeoutSeconds) * time.Second
}

// WebAPIIdleTimeout returns web_api_idle_timeout_seconds: idle time after which one is closed.
func (w WebPools) WebAPIIdleTimeout() time.Duration {
	return time.Duration(w.WebAPIIdleTimeoutSeconds) * time.Second
}

// Auth is the authentication of a daemon's API.
type Auth struct {
	Enabled                    bool     `toml:"enabled"`
	JWTVerificationMethod      string   `toml:"jwt_verification_method"`
	JWTIssuer                  string   `toml:"jwt_issuer"`
	JWTAudience                string   `toml:"jwt_audience"`
	JWTTokenExpiryHours        int64    `toml:"jwt_token_expiry_hours"`
	JWTPublicKey               Secret   `toml:"jwt_public_key"`
	JWTPublicKeyPath           string   `toml:"jwt_public_key_path"`
	JWTPrivateKey              Secret   `toml:"jwt_private_key"`
	JWKSURL                    string   `toml:"jwks_url"`
	JWKSRefreshIntervalSeconds int64    `toml:"jwks_refresh_interval_seconds"`
	JWKSMaxStaleSeconds        int64    `toml:"jwks_max_stale_seconds"`
	JWKSURLAllowHTTP           bool     `toml:"jwks_url_allow_http"`
	JWTAllowedAlgorithms       []string `toml:"jwt_allowed_algorithms"`
	PermissionsClaim           string   `toml:"permissions_claim"`
	StrictValidation           bool     `toml:"strict_validation"`
	LogUnknownPermissions      bool     `toml:"log_unknown_permissions"`
	APIKey                     Secret   `toml:"api_key"`
	APIKeyHeader               string   `toml:"api_key_header"`
	APIKeysEnabled             bool     `toml:"api_keys_enabled"`
	APIKeys                    []APIKey `toml:"api_keys"`
}

// JWTTokenExpiry returns jwt_token_expiry_hours: life of tokens issued here.
func (a Auth) JWTTokenExpiry() time.Duration {
	return time.Duration(a.JWTTokenExpiryHours) * time.Hour
}

// JWKSRefreshInterval returns jwks_refresh_interval_seconds: how often the JWKS is fetched again.
func (a Auth) JWKSRefreshInterval() time.Duration {
	return time.Duration(a.JWKSRefreshIntervalSeconds) * time.Second
}

// JWKSMaxStale returns jwks_max_stale_seconds: how long an old JWKS is used when fetching fails.
func (a Auth) JWKSMaxStale() time.Duration {
	return time.Duration(a.JWKSMaxStaleSeconds) * time.Second
}

// APIKey is one API key and what its holder may do.
type APIKey struct {
	Key         Secret   `toml:"key"`
	Permissions []string `toml:"permissions"`
	Description string   `toml:"description"`
}

// OrchestrationWeb is the REST server of the orchestrator.
type OrchestrationWeb struct {
	Web
	MaxBodyBytes   int   `toml:"max_body_bytes"`
	MaxWaitSeconds int64 `toml:"max_wait_seconds"`
}

// MaxWait returns max_wait_seconds: longest time a request may wait for a task to end; 0 forbids waiting.
func (o OrchestrationWeb) MaxWait() time.Duration {
	return time.Duration(o.MaxWaitSeconds) * time.Second
}

// GRPC is a daemon's gRPC server.
type GRPC struct {
	Enabled                  bool   `toml:"enabled"`
	BindAddress              string `toml:"bind_address"`
	TLSEnabled               bool   `toml:"tls_enabled"`
	TLSCertPath              string `toml:"tls_cert_path"`
	TLSKeyPath               string `toml:"tls_key_path"`
	KeepaliveIntervalSeconds int64  `toml:"keepalive_interval_seconds"`
	KeepaliveTimeoutSeconds  int64  `toml:"keepalive_timeout_seconds"`
	MaxConcurrentStreams     int    `toml:"max_concurrent_streams"`
	MaxFrameSize             int    `toml:"max_frame_size"`
	EnableReflection         bool   `toml:"enable_reflection"`
	EnableHealthService      bool   `toml:"enable_health_service"`
}

// KeepaliveInterval returns keepalive_interval_seconds: how often an idle connection is pinged.
func (g GRPC) KeepaliveInterval() time.Duration {
	return time.Duration(g.KeepaliveIntervalSeconds) * time.Second
}

// KeepaliveTimeout returns keepalive_timeout_seconds: wait for the answer to a ping.
func (g GRPC) KeepaliveTimeout() time.Duration {
	return time.Duration(g.KeepaliveTimeoutSeconds) * time.Second
}
