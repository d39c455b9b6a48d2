package config

import (
	"time"
)

// Web is a daemon's REST server.
type Web struct {
	Enabled        bool          `toml:"enabled" default:"true" doc:"Serve REST." effect:"Off, the daemon takes part through the database alone, unless grpc.enabled = true is set."`
	BindAddress    string        `toml:"bind_address" default:"${TASKER_WEB_BIND_ADDRESS:-0.0.0.0:<port>}" rule:"address" env:"TASKER_WEB_BIND_ADDRESS" doc:"Address of the REST server." effect:"Who can reach it; port 0 picks a free one."`
	RequestTimeout time.Duration `toml:"request_timeout_ms" default:"30000" min:"100" max:"300000" doc:"Limit for one request." effect:"Beyond it the answer is 504."`
	ConfigEndpoint bool          `toml:"config_endpoint_enabled" default:"false" doc:"Serve GET /config, a part of the configuration without secrets." effect:"Off, the route does not exist."`
	_              struct {
		_ int           `toml:"web_api_pool_size" default:"<pool>" min:"1" max:"1000" doc:"Connections meant for the API." effect:"Keeps requests from starving the engine, and the reverse."`
		_ int           `toml:"web_api_max_connections" default:"<pool_max>" min:"1" max:"1000" doc:"Most connections for the API." effect:"Hard ceiling under bursts."`
		_ time.Duration `toml:"web_api_connection_timeout_seconds" default:"30" min:"1" max:"300" doc:"Longest wait for one of them." effect:"Beyond it a request fails."`
		_ time.Duration `toml:"web_api_idle_timeout_seconds" default:"600" min:"1" max:"3600" doc:"Idle time after which one is closed." effect:"How fast the pool shrinks."`
		_ int           `toml:"max_total_connections_hint" default:"<hint>" min:"1" max:"10000" doc:"Connections this daemon is expected to use in all." effect:"Advice only: exceeding it is logged."`
	} `toml:"database_pools" planned:"a connection pool of the API's own"`
	CORSOrigins  []string `toml:"cors_allowed_origins" default:"" must:"origins such as https://ops.example.com" match:"^https?://[^/*]+$" doc:"Origins whose pages may call the API from a browser." effect:"None by default; credentials are never sent along by browsers."`
	AllowedHosts []string `toml:"allowed_hosts" default:"" must:"host names or addresses without a port" match:"^([A-Za-z0-9_.-]+|[0-9a-fA-F:]+)$" doc:"Names in the header Host that are answered, besides those of this machine (localhost, 127.0.0.0/8, ::1)." effect:"Empty, any name is answered, unless the server asks for no credentials and listens on loopback: then only this machine's, so that no page can reach it under a name of its own (DNS rebinding). Probes are always answered."`
	ServerTLS
	Auth Auth `toml:"auth"`
}

// ServerTLS says how a server encrypts.
type ServerTLS struct {
	TLSEnabled  bool   `toml:"tls_enabled" default:"false" doc:"Serve TLS, at least version 1.2." effect:"Needs tls_cert_path and tls_key_path; the files are read again when they change."`
	TLSCertPath string `toml:"tls_cert_path" default:"" doc:"File with the certificate chain (PEM)." effect:"Used with tls_enabled."`
	TLSKeyPath  string `toml:"tls_key_path" default:"" doc:"File with its private key (PEM)." effect:"Used with tls_enabled."`
	TLSClientCA string `toml:"tls_client_ca_path" default:"" doc:"File with the authorities of client certificates (PEM)." effect:"With it every client needs a certificate of one of them."`
}

// Auth says who may use a daemon's API.
type Auth struct {
	Enabled            bool          `toml:"enabled" default:"false" env:"TASKER_WEB_AUTH_ENABLED" doc:"Require credentials on protected routes." effect:"Off, every client may do everything, and the daemon listens on loopback only."`
	AllowAnonymous     bool          `toml:"allow_anonymous" default:"false" env:"TASKER_WEB_ALLOW_ANONYMOUS" doc:"Serve other addresses than loopback without authentication." effect:"For networks that something else protects; needed with enabled = false and such an address."`
	Enforcement        string        `toml:"enforcement" default:"enforce" oneof:"off,log,enforce" doc:"What is done about requests without permission." effect:"log lets them through and logs what would be refused; off looks at no credentials."`
	Method             string        `toml:"jwt_verification_method" default:"public_key" oneof:"public_key,jwks" doc:"Verify tokens with fixed keys or with a JWKS." effect:"jwks follows key rotation by itself."`
	Issuer             string        `toml:"jwt_issuer" default:"<issuer>" rule:"nonempty" doc:"Required issuer (iss) of tokens." effect:"Others are refused."`
	Audience           string        `toml:"jwt_audience" default:"<audience>" rule:"nonempty" doc:"Required audience (aud) of tokens." effect:"Others are refused."`
	_                  time.Duration `toml:"jwt_token_expiry_hours" default:"24" min:"1" max:"720" doc:"Life of tokens issued here." ignored:"daemons issue no tokens"`
	PublicKey          Secret        `toml:"jwt_public_key" secret:"yes" default:"${TASKER_JWT_PUBLIC_KEY:-}" env:"TASKER_JWT_PUBLIC_KEY" doc:"PEM keys that verify tokens, one or several." effect:"The path form is preferred, and wins."`
	PublicKeyPath      string        `toml:"jwt_public_key_path" default:"${TASKER_JWT_PUBLIC_KEY_PATH:-}" env:"TASKER_JWT_PUBLIC_KEY_PATH" doc:"File with those keys." effect:"Holds old and new ones while they are rotated; read at the start."`
	_                  string        `toml:"jwt_private_key" secret:"yes" default:"" doc:"PEM key that signs tokens issued here." ignored:"daemons issue no tokens"`
	KeySetURL          string        `toml:"jwks_url" default:"" rule:"url https http or empty" doc:"Address of the JWKS." effect:"Needed with verification method jwks."`
	KeySetRefresh      time.Duration `toml:"jwks_refresh_interval_seconds" default:"3600" min:"1" max:"604800" doc:"How often the JWKS is fetched again." effect:"Requests use the old one meanwhile. An unknown key id also fetches it, at most every ten seconds."`
	KeySetMaxStale     time.Duration `toml:"jwks_max_stale_seconds" default:"300" min:"0" max:"604800" doc:"How long an old JWKS is used when fetching fails, or is not answered." effect:"Availability against late revocation."`
	KeySetAllowHTTP    bool          `toml:"jwks_url_allow_http" default:"false" doc:"Allow plain HTTP for the JWKS." effect:"For tests only: keys could be replaced on the way."`
	Algorithms         []string      `toml:"jwt_allowed_algorithms" default:"RS256" must:"algorithms among RS256–RS512, PS256–PS512, ES256–ES512, EdDSA" match:"^((RS|PS|ES)(256|384|512)|EdDSA)$" doc:"Signature algorithms accepted in tokens." effect:"Others are refused."`
	ClockSkew          time.Duration `toml:"jwt_clock_skew_seconds" default:"30" min:"0" max:"300" doc:"By how much the clocks of issuers may be off." effect:"Tokens are good for that much longer."`
	PermissionsClaim   string        `toml:"permissions_claim" default:"permissions" rule:"nonempty" doc:"Claim that lists the permissions, as an array or a text; dots lead into objects." effect:"Adapts to the identity provider."`
	NamespacesClaim    string        `toml:"namespaces_claim" default:"worker_namespaces" rule:"nonempty" doc:"Claim that lists the namespaces of a token." effect:"A token with some is refused in all others; * in it stands for all, and an empty one for none."`
	NamespacesRequired bool          `toml:"namespaces_claim_required" default:"false" doc:"Refuse tokens without namespaces_claim." effect:"Off, a token without it is good in all namespaces; one with an empty claim is good in none in any case."`
	StrictValidation   bool          `toml:"strict_validation" default:"true" doc:"Refuse tokens and keys with unknown permissions." effect:"Off, unknown ones are skipped."`
	LogUnknown         bool          `toml:"log_unknown_permissions" default:"true" doc:"Log unknown permissions." effect:"Shows misspelt grants."`
	APIKey             Secret        `toml:"api_key" secret:"yes" default:"" doc:"One static API key with every permission." effect:"Older form; prefer api_keys, which name what a key may do."`
	APIKeyHeader       string        `toml:"api_key_header" default:"X-API-Key" rule:"header" doc:"Header that carries an API key." effect:"Clients must send the same."`
	APIKeysEnabled     bool          `toml:"api_keys_enabled" default:"false" doc:"Accept the keys of api_keys, and those that tasker-ctl auth key has created." effect:"Off, only tokens and api_key are accepted."`
	APIKeys            []APIKey      `toml:"api_keys" default:"" doc:"API keys, each with its permissions." effect:"Access for clients without an identity provider."`
	PrincipalShare     int           `toml:"principal_share_percent" default:"50" min:"1" max:"100" doc:"Share of the batches, streams, sessions, waiting requests and claims, and bytes of requests that one principal may hold at a daemon." effect:"Beyond it that principal gets 429 (SHARE_EXCEEDED), and the others are served. 100 lets one hold all; requests without credentials have no share."`
	PublicEndpoints    []string      `toml:"public_endpoints" default:"" must:"endpoints among docs, metrics, health_detailed, reflection" match:"^(docs|metrics|health_detailed|reflection)$" doc:"What needs no credentials, of docs (/api-docs), metrics (/metrics and below, /actuator/prometheus), health_detailed (/health/detailed) and reflection (of gRPC)." effect:"The others need system:read, metrics and health_detailed for all namespaces. Probes need nothing."`
}

// APIKey is an API key of a configuration file.
type APIKey struct {
	Key         Secret   `toml:"key" secret:"yes" rule:"nonempty" doc:"The key itself, or sha256: and the 64 hexadecimal digits of its hash." effect:"Its holder has its permissions."`
	Permissions []string `toml:"permissions" rule:"nonempty" doc:"Permissions of the key." effect:"What its holder may do."`
	Namespaces  []string `toml:"namespaces" rule:"nonempty" doc:"Namespaces of the key; none: all." effect:"It is refused in all others."`
	Description string   `toml:"description" doc:"Whose key it is." effect:"Shown in audits."`
}

// OrchestrationWeb is the REST server of the orchestrator.
type OrchestrationWeb struct {
	Web
	MaxBodyBytes      int           `toml:"max_body_bytes" default:"2097152" min:"1024" max:"268435456" doc:"Largest request body in bytes." effect:"Larger is answered 413."`
	BodyBudgetBytes   int64         `toml:"body_budget_bytes" default:"16777216" min:"65536" max:"17179869184" doc:"Bytes that the bodies of requests may take up together, those of up to 16 KiB aside." effect:"Bounds memory, which is about eight times as much. A request that waits longer than 5 s for its share is answered 503."`
	AnswerBudgetBytes int64         `toml:"answer_budget_bytes" default:"33554432" min:"1048576" max:"17179869184" doc:"Bytes that answers may take up together, as they are read from the database." effect:"Bounds memory, which is about five times as much, and how many requests read at once (one for each MiB). Those that wait longer than 5 s are answered 503."`
	Browser           Browser       `toml:"browser"`
	OIDC              OIDC          `toml:"oidc"`
	MaxWait           time.Duration `toml:"max_wait_seconds" default:"60" min:"0" max:"3600" doc:"Longest time a request may wait for a task to end; 0 forbids waiting." effect:"Bounds open connections."`
}

// Browser bounds the browser sessions that POST /v1/login opens.
type Browser struct {
	SessionLife time.Duration `toml:"session_life_hours" default:"720" min:"1" max:"8760" doc:"Life of a browser session." effect:"After it the browser must log in again. It holds for sessions opened from then on."`
	SessionIdle time.Duration `toml:"session_idle_minutes" default:"720" min:"5" max:"525600" doc:"How long a browser session lasts without a request." effect:"An open stream of events counts as use. Uses are noted to the minute."`
	MaxSessions int           `toml:"max_sessions_per_principal" default:"20" min:"1" max:"1000" doc:"Browser sessions that one principal may have." effect:"A login beyond it ends the oldest."`
}

// OIDC is the identity provider at which browsers log in. Its claims are read by the keys of web.auth.
type OIDC struct {
	Issuer       string   `toml:"issuer" default:"" rule:"url https http or empty" doc:"Address of the OpenID Connect provider, as in its discovery document." effect:"With it GET /v1/login/oidc logs browsers in. Needs web.auth.enabled, client_id and redirect_url."`
	AllowHTTP    bool     `toml:"issuer_allow_http" default:"false" doc:"Allow plain HTTP for the issuer." effect:"For tests only: identities could be replaced on the way."`
	ClientID     string   `toml:"client_id" default:"" doc:"Id of this installation at the provider." effect:"ID tokens for others are refused."`
	ClientSecret Secret   `toml:"client_secret" secret:"yes" default:"${TASKER_OIDC_CLIENT_SECRET:-}" env:"TASKER_OIDC_CLIENT_SECRET" doc:"Secret of the client; empty for a public client." effect:"Sent when a code is exchanged."`
	RedirectURL  string   `toml:"redirect_url" default:"" rule:"url https http or empty" doc:"Address of /v1/login/oidc/callback as browsers reach it." effect:"The provider leads back there; it must be registered at the provider."`
	Scopes       []string `toml:"scopes" default:"openid profile email" doc:"Scopes that a login asks for; openid must be among them." effect:"Which claims the provider sends."`
	NameClaim    string   `toml:"name_claim" default:"sub" rule:"nonempty" doc:"Claim with the name of the principal." effect:"Shown in records; with email, only verified addresses."`
}

// GRPC is a daemon's gRPC server. Its clients need the credentials of the same daemon's web.auth.
type GRPC struct {
	Enabled     bool   `toml:"enabled" default:"true" doc:"Serve gRPC." effect:"Off, only REST is served. It follows web.enabled = false."`
	BindAddress string `toml:"bind_address" default:"${<variable>:-0.0.0.0:<port>}" rule:"address" env:"<variable>" doc:"Address of the gRPC server." effect:"Who can reach it; port 0 picks a free one, as it does where web.bind_address has port 0."`
	ServerTLS
	KeepaliveInterval    time.Duration `toml:"keepalive_interval_seconds" default:"30" min:"1" max:"3600" doc:"How often an idle connection is pinged." effect:"Keeps proxies from closing it."`
	KeepaliveTimeout     time.Duration `toml:"keepalive_timeout_seconds" default:"20" min:"1" max:"300" doc:"Wait for the answer to a ping." effect:"Beyond it the connection is closed."`
	MaxConcurrentStreams int           `toml:"max_concurrent_streams" default:"<streams>" min:"1" max:"10000" doc:"Streams per connection." effect:"Bounds what one client can hold open; other calls of it wait."`
	MaxTaskStreams       int           `toml:"max_task_streams" default:"1000" min:"1" max:"100000" doc:"Streams of task statuses of all clients." effect:"Each reads its task every second. Beyond it a stream is refused (UNAVAILABLE)."`
	_                    int           `toml:"max_frame_size" default:"16384" min:"16384" max:"16777215" doc:"Largest HTTP/2 frame in bytes." ignored:"the gRPC library has no such setting: its frames have 16384 bytes"`
	Reflection           bool          `toml:"enable_reflection" default:"true" doc:"Serve the reflection service." effect:"Lets tools discover methods, with credentials unless web.auth.public_endpoints has reflection; off in production."`
	Health               bool          `toml:"enable_health_service" default:"true" doc:"Serve grpc.health.v1." effect:"Used by load balancers and probes."`
}
