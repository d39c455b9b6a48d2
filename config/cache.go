package config

import (
	"time"
)

// Cache is [common.cache].
type Cache struct {
	Enabled             bool           `toml:"enabled"`
	Backend             string         `toml:"backend"`
	DefaultTTLSeconds   int64          `toml:"default_ttl_seconds"`
	TemplateTTLSeconds  int64          `toml:"template_ttl_seconds"`
	AnalyticsTTLSeconds int64          `toml:"analytics_ttl_seconds"`
	Redis               RedisCache     `toml:"redis"`
	Memcached           MemcachedCache `toml:"memcached"`
	Moka                MokaCache      `toml:"moka"`
}

// DefaultTTL returns default_ttl_seconds: life of an entry of no special kind.
func (c Cache) DefaultTTL() time.Duration {
	return time.Duration(c.DefaultTTLSeconds) * time.Second
}

// TemplateTTL returns template_ttl_seconds: life of a cached template.
func (c Cache) TemplateTTL() time.Duration {
	return time.Duration(c.TemplateTTLSeconds) * time.Second
}

// AnalyticsTTL returns analytics_ttl_seconds: life of cached analytics.
func (c Cache) AnalyticsTTL() time.Duration {
	return time.Duration(c.AnalyticsTTLSeconds) * time.Second
}

// RedisCache is [common.cache.redis].
type RedisCache struct {
	URL                      DSN   `toml:"url"`
	MaxConnections           int   `toml:"max_connections"`
	ConnectionTimeoutSeconds int64 `toml:"connection_timeout_seconds"`
	Database                 int   `toml:"database"`
}

// ConnectionTimeout returns connection_timeout_seconds: limit for connecting.
func (r RedisCache) ConnectionTimeout() time.Duration {
	return time.Duration(r.ConnectionTimeoutSeconds) * time.Second
}

// MemcachedCache is [common.cache.memcached].
type MemcachedCache struct {
	URL                      DSN   `toml:"url"`
	ConnectionTimeoutSeconds int64 `toml:"connection_timeout_seconds"`
}

// ConnectionTimeout returns connection_timeout_seconds: limit for connecting.
func (m MemcachedCache) ConnectionTimeout() time.Duration {
	return time.Duration(m.ConnectionTimeoutSeconds) * time.Second
}

// MokaCache is [common.cache.moka]: the in-process cache.
type MokaCache struct {
	MaxCapacity int `toml:"max_capacity"`
}
