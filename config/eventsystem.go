package config

import (
	"time"

	"github.com/tasker-go/tasker/deploymode"
)

// EventSystem is one event system: how a daemon learns of work and goes about it.
type EventSystem struct {
	DeploymentMode deploymode.Mode  `toml:"deployment_mode"`
	SystemID       string           `toml:"system_id"`
	Timing         SystemTiming     `toml:"timing"`
	Processing     SystemProcessing `toml:"processing"`
	Health         SystemHealth     `toml:"health"`
	Listener       SystemListener   `toml:"listener"`
	Poller         SystemPoller     `toml:"poller"`
}

// SystemTiming are the intervals and limits of an event system.
type SystemTiming struct {
	ProcessingTimeout time.Duration `toml:"processing_timeout_seconds"`
}

// SystemProcessing bounds how much is processed at once.
type SystemProcessing struct {
	Backoff SystemBackoff `toml:"backoff"`
}

// SystemBackoff are the delays between retries of a failed item.
type SystemBackoff struct {
	InitialDelay  time.Duration `toml:"initial_delay_ms"`
	MaxDelay      time.Duration `toml:"max_delay_ms"`
	Multiplier    float64       `toml:"multiplier"`
	JitterPercent float64       `toml:"jitter_percent"`
}

// SystemHealth says when an event system counts as unhealthy.
type SystemHealth struct {
	Enabled                      bool `toml:"enabled"`
	PerformanceMonitoringEnabled bool `toml:"performance_monitoring_enabled"`
	ErrorRateThresholdPerMinute  int  `toml:"error_rate_threshold_per_minute"`
	MaxConsecutiveErrors         int  `toml:"max_consecutive_errors"`
}

// SystemListener keeps the connection on which signals arrive.
type SystemListener struct {
	ConnectionTimeout           time.Duration `toml:"connection_timeout_ms"`
	ReconnectInitial            time.Duration `toml:"reconnect_initial_ms"`
	ReconnectMax                time.Duration `toml:"reconnect_max_ms"`
	JitterPercent               float64       `toml:"jitter_percent"`
	MaxReconnectAttempts        int           `toml:"max_reconnect_attempts"`
	OnListenerFailure           string        `toml:"on_listener_failure"`
	HealthCheckInterval         time.Duration `toml:"health_check_interval_ms"`
	FallbackActivationThreshold time.Duration `toml:"fallback_activation_threshold_ms"`
	RecoveryThreshold           int           `toml:"recovery_threshold"`
}

// SystemPoller are the intervals of polling.
type SystemPoller struct {
	Interval               time.Duration `toml:"interval_ms"`
	RelaxedInterval        time.Duration `toml:"relaxed_interval_ms"`
	JitterPercent          float64       `toml:"jitter_percent"`
	ErrorBackoffBase       time.Duration `toml:"error_backoff_base_ms"`
	ErrorBackoffMax        time.Duration `toml:"error_backoff_max_ms"`
	ErrorBackoffMultiplier float64       `toml:"error_backoff_multiplier"`
}
