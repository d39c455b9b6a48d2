package config

import (
	"time"
)

// Web is a daemon's REST server.
type Web struct {
	Enabled        bool          `toml:"enabled" default:"true" doc:"Serve REST." effect:"Off, the daemon takes part through the database alone."`
	BindAddress    string        `toml:"bind_address" default:"${TASKER_WEB_BIND_ADDRESS:-0.0.0.0:<port>}" rule:"address" env:"TASKER_WEB_BIND_ADDRESS" doc:"Address of the REST server." effect:"Who can reach it; port 0 picks a free one."`
	RequestTimeout time.Duration `toml:"request_timeout_ms" default:"30000" min:"100" max:"300000" doc:"Limit for one request." effect:"Beyond it the answer is 408."`
	_              bool          `toml:"config_endpoint_enabled" default:"false" planned:"the route GET /config" doc:"Serve GET /config (secrets masked)." effect:"Off, the route does not exist."`
	_              struct {
		_ int           `toml:"web_api_pool_size" default:"<pool>" min:"1" max:"1000" doc:"Connections meant for the API." effect:"Keeps requests from starving the engine, and the reverse."`
		_ int           `toml:"web_api_max_connections" default:"<pool_max>" min:"1" max:"1000" doc:"Most connections for the API." effect:"Hard ceiling under bursts."`
		_ time.Duration `toml:"web_api_connection_timeout_seconds" default:"30" min:"1" max:"300" doc:"Longest wait for one of them." effect:"Beyond it a request fails."`
		_ time.Duration `toml:"web_api_idle_timeout_seconds" default:"600" min:"1" max:"3600" doc:"Idle time after which one is closed." effect:"How fast the pool shrinks."`
		_ int           `toml:"max_total_connections_hint" default:"<hint>" min:"1" max:"10000" doc:"Connections this daemon is expected to use in all." effect:"Advice only: exceeding it is logged."`
	} `toml:"database_pools" planned:"a connection pool of the API's own"`
	_ struct {
		_ bool          `toml:"enabled" default:"false" doc:"Require credentials on protected routes." effect:"Off, everyone may do everything."`
		_ string        `toml:"jwt_verification_method" default:"public_key" oneof:"public_key,jwks" doc:"Verify tokens with a fixed key or with a JWKS." effect:"jwks follows key rotation by itself."`
		_ string        `toml:"jwt_issuer" default:"<issuer>" rule:"nonempty" doc:"Required issuer (iss) of tokens." effect:"Others are refused."`
		_ string        `toml:"jwt_audience" default:"<audience>" rule:"nonempty" doc:"Required audience (aud) of tokens." effect:"Others are refused."`
		_ time.Duration `toml:"jwt_token_expiry_hours" default:"24" min:"1" max:"720" doc:"Life of tokens issued here." effect:"Shorter limits the use of a stolen one."`
		_ string        `toml:"jwt_public_key" secret:"yes" default:"${TASKER_JWT_PUBLIC_KEY:-}" env:"TASKER_JWT_PUBLIC_KEY" doc:"PEM key that verifies tokens." effect:"The path form is preferred, and wins."`
		_ string        `toml:"jwt_public_key_path" default:"${TASKER_JWT_PUBLIC_KEY_PATH:-}" env:"TASKER_JWT_PUBLIC_KEY_PATH" doc:"File with that key." effect:"Replace the file and restart to rotate."`
		_ string        `toml:"jwt_private_key" secret:"yes" default:"" doc:"PEM key that signs tokens issued here." effect:"Leave empty unless this daemon issues tokens."`
		_ string        `toml:"jwks_url" default:"" rule:"url https http or empty" doc:"Address of the JWKS." effect:"Needed with verification method jwks."`
		_ time.Duration `toml:"jwks_refresh_interval_seconds" default:"3600" min:"1" max:"604800" doc:"How often the JWKS is fetched again." effect:"An unknown key id also fetches it at once."`
		_ time.Duration `toml:"jwks_max_stale_seconds" default:"300" min:"0" max:"604800" doc:"How long an old JWKS is used when fetching fails." effect:"Availability against late revocation."`
		_ bool          `toml:"jwks_url_allow_http" default:"false" doc:"Allow plain HTTP for the JWKS." effect:"For tests only: keys could be replaced on the way."`
		_ []string      `toml:"jwt_allowed_algorithms" default:"RS256" must:"algorithms among RS256–RS512, PS256–PS512, ES256–ES512, EdDSA" match:"^((RS|PS|ES)(256|384|512)|EdDSA)$" doc:"Signature algorithms accepted in tokens." effect:"Others are refused."`
		_ string        `toml:"permissions_claim" default:"permissions" rule:"nonempty" doc:"Claim that lists the permissions." effect:"Adapts to the identity provider."`
		_ bool          `toml:"strict_validation" default:"true" doc:"Refuse tokens with unknown permissions." effect:"Off, unknown ones are skipped."`
		_ bool          `toml:"log_unknown_permissions" default:"true" doc:"Log unknown permissions." effect:"Shows misspelt grants."`
		_ string        `toml:"api_key" secret:"yes" default:"" doc:"One static API key with every permission." effect:"Older form; strict validation refuses it, use api_keys."`
		_ string        `toml:"api_key_header" default:"X-API-Key" rule:"header" doc:"Header that carries an API key." effect:"Clients must send the same."`
		_ bool          `toml:"api_keys_enabled" default:"false" doc:"Accept the keys of api_keys." effect:"Off, only tokens are accepted."`
		_ []struct {
			_ string   `toml:"key" secret:"yes" rule:"nonempty" doc:"The key itself." effect:"Its holder has its permissions."`
			_ []string `toml:"permissions" rule:"nonempty" doc:"Permissions of the key." effect:"What its holder may do."`
			_ string   `toml:"description" doc:"Whose key it is." effect:"Shown in audits."`
		} `toml:"api_keys" default:"" doc:"API keys, each with its permissions." effect:"Access for clients without an identity provider."`
	} `toml:"auth" planned:"authentication"`
}

// OrchestrationWeb is the REST server of the orchestrator.
type OrchestrationWeb struct {
	Web
	MaxBodyBytes      int           `toml:"max_body_bytes" default:"2097152" min:"1024" max:"268435456" doc:"Largest request body in bytes." effect:"Larger is answered 413."`
	BodyBudgetBytes   int64         `toml:"body_budget_bytes" default:"16777216" min:"65536" max:"17179869184" doc:"Bytes that the bodies of requests may take up together, those of up to 16 KiB aside." effect:"Bounds memory, which is about eight times as much. A request that waits longer than 5 s for its share is answered 503."`
	AnswerBudgetBytes int64         `toml:"answer_budget_bytes" default:"33554432" min:"1048576" max:"17179869184" doc:"Bytes that answers may take up together, as they are read from the database." effect:"Bounds memory, which is about five times as much, and how many requests read at once (one for each MiB). Those that wait longer than 5 s are answered 503."`
	MaxWait           time.Duration `toml:"max_wait_seconds" default:"60" min:"0" max:"3600" doc:"Longest time a request may wait for a task to end; 0 forbids waiting." effect:"Bounds open connections."`
}

// grpcServer is a daemon's gRPC server.
type grpcServer struct {
	_ bool          `toml:"enabled" default:"true" doc:"Serve gRPC." effect:"Off, only REST is served."`
	_ string        `toml:"bind_address" default:"${<variable>:-0.0.0.0:<port>}" rule:"address" env:"<variable>" doc:"Address of the gRPC server." effect:"Who can reach it; port 0 picks a free one."`
	_ bool          `toml:"tls_enabled" default:"false" doc:"Serve TLS." effect:"Needs tls_cert_path and tls_key_path."`
	_ string        `toml:"tls_cert_path" default:"" doc:"File with the certificate chain (PEM)." effect:"Used with tls_enabled."`
	_ string        `toml:"tls_key_path" default:"" doc:"File with its private key (PEM)." effect:"Used with tls_enabled."`
	_ time.Duration `toml:"keepalive_interval_seconds" default:"30" min:"1" max:"3600" doc:"How often an idle connection is pinged." effect:"Keeps proxies from closing it."`
	_ time.Duration `toml:"keepalive_timeout_seconds" default:"20" min:"1" max:"300" doc:"Wait for the answer to a ping." effect:"Beyond it the connection is closed."`
	_ int           `toml:"max_concurrent_streams" default:"<streams>" min:"1" max:"10000" doc:"Streams per connection." effect:"Bounds what one client can hold open."`
	_ int           `toml:"max_frame_size" default:"16384" min:"16384" max:"16777215" doc:"Largest HTTP/2 frame in bytes." effect:"Larger suits large messages."`
	_ bool          `toml:"enable_reflection" default:"true" doc:"Serve the reflection service." effect:"Lets tools discover methods; off in production."`
	_ bool          `toml:"enable_health_service" default:"true" doc:"Serve grpc.health.v1." effect:"Used by load balancers and probes."`
}
