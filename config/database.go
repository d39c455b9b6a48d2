package config

import (
	"time"
)

// Database is [common.database]: the primary database.
type Database struct {
	URL                   DSN   `toml:"url"`
	ListenerURL           DSN   `toml:"listener_url"`
	ConnectTimeoutSeconds int64 `toml:"connect_timeout_seconds"`
	StatementTimeoutMS    int64 `toml:"statement_timeout_ms"`
	HoldTimeoutMS         int64 `toml:"hold_timeout_ms"`
	PreparedStatements    bool  `toml:"prepared_statements"`
	MigrateOnStart        bool  `toml:"migrate_on_start"`
	Pool                  Pool  `toml:"pool"`
}

// ConnectTimeout returns connect_timeout_seconds: limit for opening one connection.
func (d Database) ConnectTimeout() time.Duration {
	return time.Duration(d.ConnectTimeoutSeconds) * time.Second
}

// StatementTimeout returns statement_timeout_ms: limit for one statement, enforced by the server.
func (d Database) StatementTimeout() time.Duration {
	return time.Duration(d.StatementTimeoutMS) * time.Millisecond
}

// HoldTimeout returns hold_timeout_ms: limit for a pause of this process in the middle of a transaction.
func (d Database) HoldTimeout() time.Duration {
	return time.Duration(d.HoldTimeoutMS) * time.Millisecond
}

// Pool sizes a connection pool.
type Pool struct {
	MaxConnections         int   `toml:"max_connections"`
	MinConnections         int   `toml:"min_connections"`
	AcquireTimeoutSeconds  int64 `toml:"acquire_timeout_seconds"`
	IdleTimeoutSeconds     int64 `toml:"idle_timeout_seconds"`
	MaxLifetimeSeconds     int64 `toml:"max_lifetime_seconds"`
	SlowAcquireThresholdMS int64 `toml:"slow_acquire_threshold_ms"`
}

// AcquireTimeout returns acquire_timeout_seconds: longest wait for a free connection.
func (p Pool) AcquireTimeout() time.Duration {
	return time.Duration(p.AcquireTimeoutSeconds) * time.Second
}

// IdleTimeout returns idle_timeout_seconds: idle time after which a connection is closed.
func (p Pool) IdleTimeout() time.Duration {
	return time.Duration(p.IdleTimeoutSeconds) * time.Second
}

// MaxLifetime returns max_lifetime_seconds: age at which a connection is replaced.
func (p Pool) MaxLifetime() time.Duration {
	return time.Duration(p.MaxLifetimeSeconds) * time.Second
}

// SlowAcquireThreshold returns slow_acquire_threshold_ms: wait for a connection that is logged as slow.
func (p Pool) SlowAcquireThreshold() time.Duration {
	return time.Duration(p.SlowAcquireThresholdMS) * time.Millisecond
}
