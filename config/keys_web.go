package config

import "slices"

// webDefaults are the defaults in which the two daemons' servers differ.
type webDefaults struct {
	daemon, issuer, audience string
	webPort, grpcPort        string
	poolSize, poolMax, hint  int64
	streams                  int64
	grpcEnv                  string
}

// webKeys are the keys of a daemon's REST server and its authentication.
func webKeys(d webDefaults) []Key {
	return under(d.daemon+".web", slices.Concat(
		[]Key{
			boolean("enabled", true, "Serve REST.", "Off, the daemon takes part through the database alone."),
			text("bind_address", "${TASKER_WEB_BIND_ADDRESS:-0.0.0.0:"+d.webPort+"}", "Address of the REST server.",
				"Who can reach it; port 0 picks a free one.").must(hostPort()).env("TASKER_WEB_BIND_ADDRESS"),
			integer("request_timeout_ms", 30000, 100, 300000, "Limit for one request.", "Beyond it the answer is 408."),
			boolean("config_endpoint_enabled", false, "Serve GET /config (secrets masked).", "Off, the route does not exist.").planned("the route GET /config"),
		},
		waiting(forAPIPool, under("database_pools",
			integer("web_api_pool_size", d.poolSize, 1, 1000, "Connections meant for the API.", "Keeps requests from starving the engine, and the reverse."),
			integer("web_api_max_connections", d.poolMax, 1, 1000, "Most connections for the API.", "Hard ceiling under bursts."),
			integer("web_api_connection_timeout_seconds", 30, 1, 300, "Longest wait for one of them.", "Beyond it a request fails."),
			integer("web_api_idle_timeout_seconds", 600, 1, 3600, "Idle time after which one is closed.", "How fast the pool shrinks."),
			integer("max_total_connections_hint", d.hint, 1, 10000, "Connections this daemon is expected to use in all.", "Advice only: exceeding it is logged."),
		)...),
		waiting(forAuth, authKeys(d)...),
	)...)
}

func authKeys(d webDefaults) []Key {
	return under("auth",
		boolean("enabled", false, "Require credentials on protected routes.", "Off, everyone may do everything."),
		text("jwt_verification_method", "public_key", "Verify tokens with a fixed key or with a JWKS.",
			"jwks follows key rotation by itself.").oneOf("public_key", "jwks"),
		text("jwt_issuer", d.issuer, "Required issuer (iss) of tokens.", "Others are refused.").must(notEmpty()),
		text("jwt_audience", d.audience, "Required audience (aud) of tokens.", "Others are refused.").must(notEmpty()),
		integer("jwt_token_expiry_hours", 24, 1, 720, "Life of tokens issued here.", "Shorter limits the use of a stolen one."),
		text("jwt_public_key", "${TASKER_JWT_PUBLIC_KEY:-}", "PEM key that verifies tokens.",
			"The path form is preferred, and wins.").env("TASKER_JWT_PUBLIC_KEY").secret(),
		text("jwt_public_key_path", "${TASKER_JWT_PUBLIC_KEY_PATH:-}", "File with that key.",
			"Replace the file and restart to rotate.").env("TASKER_JWT_PUBLIC_KEY_PATH"),
		text("jwt_private_key", "", "PEM key that signs tokens issued here.", "Leave empty unless this daemon issues tokens.").secret(),
		text("jwks_url", "", "Address of the JWKS.", "Needed with verification method jwks.").must(urlOf(true, "https", "http")),
		integer("jwks_refresh_interval_seconds", 3600, 1, 604800, "How often the JWKS is fetched again.", "An unknown key id also fetches it at once."),
		integer("jwks_max_stale_seconds", 300, 0, 604800, "How long an old JWKS is used when fetching fails.", "Availability against late revocation."),
		boolean("jwks_url_allow_http", false, "Allow plain HTTP for the JWKS.", "For tests only: keys could be replaced on the way."),
		texts("jwt_allowed_algorithms", []string{"RS256"}, "Signature algorithms accepted in tokens.", "Others are refused.").
			must(matching("algorithms among RS256–RS512, PS256–PS512, ES256–ES512, EdDSA", `^((RS|PS|ES)(256|384|512)|EdDSA)$`)),
		text("permissions_claim", "permissions", "Claim that lists the permissions.", "Adapts to the identity provider.").must(notEmpty()),
		boolean("strict_validation", true, "Refuse tokens with unknown permissions.", "Off, unknown ones are skipped."),
		boolean("log_unknown_permissions", true, "Log unknown permissions.", "Shows misspelt grants."),
		text("api_key", "", "One static API key with every permission.", "Older form; strict validation refuses it, use api_keys.").secret(),
		text("api_key_header", "X-API-Key", "Header that carries an API key.", "Clients must send the same.").must(headerName()),
		boolean("api_keys_enabled", false, "Accept the keys of api_keys.", "Off, only tokens are accepted."),
		key("api_keys", TypeTables, []map[string]any{}, "API keys, each with its permissions.", "Access for clients without an identity provider."),
		text("api_keys[].key", "", "The key itself.", "Whoever holds it has its permissions.").must(notEmpty()).secret().unset(),
		texts("api_keys[].permissions", nil, "Permissions of the key.", "What its holder may do.").must(notEmpty()).unset(),
		text("api_keys[].description", "", "Whose key it is.", "Shown in audits.").unset(),
	)
}

// grpcKeys are the keys of a daemon's gRPC server.
func grpcKeys(d webDefaults) []Key {
	return under(d.daemon+".grpc",
		boolean("enabled", true, "Serve gRPC.", "Off, only REST is served."),
		text("bind_address", "${"+d.grpcEnv+":-0.0.0.0:"+d.grpcPort+"}", "Address of the gRPC server.",
			"Who can reach it; port 0 picks a free one.").must(hostPort()).env(d.grpcEnv),
		boolean("tls_enabled", false, "Serve TLS.", "Needs tls_cert_path and tls_key_path."),
		text("tls_cert_path", "", "File with the certificate chain (PEM).", "Used with tls_enabled."),
		text("tls_key_path", "", "File with its private key (PEM).", "Used with tls_enabled."),
		integer("keepalive_interval_seconds", 30, 1, 3600, "How often an idle connection is pinged.", "Keeps proxies from closing it."),
		integer("keepalive_timeout_seconds", 20, 1, 300, "Wait for the answer to a ping.", "Beyond it the connection is closed."),
		integer("max_concurrent_streams", d.streams, 1, 10000, "Streams per connection.", "Bounds what one client can hold open."),
		integer("max_frame_size", 16384, 16384, 16777215, "Largest HTTP/2 frame in bytes.", "Larger suits large messages."),
		boolean("enable_reflection", true, "Serve the reflection service.", "Lets tools discover methods; off in production."),
		boolean("enable_health_service", true, "Serve grpc.health.v1.", "Used by load balancers and probes."),
	)
}
