package config

import (
	"time"
)

// Database is [common.database]: the primary database.
type Database struct {
	URL                DSN           `toml:"url"`
	ListenerURL        DSN           `toml:"listener_url"`
	ConnectTimeout     time.Duration `toml:"connect_timeout_seconds"`
	StatementTimeout   time.Duration `toml:"statement_timeout_ms"`
	HoldTimeout        time.Duration `toml:"hold_timeout_ms"`
	PreparedStatements bool          `toml:"prepared_statements"`
	MigrateOnStart     bool          `toml:"migrate_on_start"`
	Pool               Pool          `toml:"pool"`
}

// Pool sizes a connection pool.
type Pool struct {
	MaxConnections       int           `toml:"max_connections"`
	MinConnections       int           `toml:"min_connections"`
	AcquireTimeout       time.Duration `toml:"acquire_timeout_seconds"`
	IdleTimeout          time.Duration `toml:"idle_timeout_seconds"`
	MaxLifetime          time.Duration `toml:"max_lifetime_seconds"`
	SlowAcquireThreshold time.Duration `toml:"slow_acquire_threshold_ms"`
}
