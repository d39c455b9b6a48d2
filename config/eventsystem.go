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
	ProcessingTimeoutSeconds int64 `toml:"processing_timeout_seconds"`
}

// ProcessingTimeout returns processing_timeout_seconds: limit for processing one event.
func (s SystemTiming) ProcessingTimeout() time.Duration {
	return time.Duration(s.ProcessingTimeoutSeconds) * time.Second
}

// SystemProcessing bounds how much is processed at once.
type SystemProcessing struct {
	Backoff SystemBackoff `toml:"backoff"`
}

// SystemBackoff are the delays between retries of a failed item.
type SystemBackoff struct {
	InitialDelayMS int64   `toml:"initial_delay_ms"`
	MaxDelayMS     int64   `toml:"max_delay_ms"`
	Multiplier     float64 `toml:"multiplier"`
	JitterPercent  float64 `toml:"jitter_percent"`
}

// InitialDelay returns initial_delay_ms: delay before the first retry.
func (s SystemBackoff) InitialDelay() time.Duration {
	return time.Duration(s.InitialDelayMS) * time.Millisecond
}

// MaxDelay returns max_delay_ms: longest delay between retries.
func (s SystemBackoff) MaxDelay() time.Duration {
	return time.Duration(s.MaxDelayMS) * time.Millisecond
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
	ConnectionTimeoutMS           int64   `toml:"connection_timeout_ms"`
	ReconnectInitialMS            int64   `toml:"reconnect_initial_ms"`
	ReconnectMaxMS                int64   `toml:"reconnect_max_ms"`
	JitterPercent                 float64 `toml:"jitter_percent"`
	MaxReconnectAttempts          int     `toml:"max_reconnect_attempts"`
	OnListenerFailure             string  `toml:"on_listener_failure"`
	HealthCheckIntervalMS         int64   `toml:"health_check_interval_ms"`
	FallbackActivationThresholdMS int64   `toml:"fallback_activation_threshold_ms"`
	RecoveryThreshold             int     `toml:"recovery_threshold"`
}

// ConnectionTimeout returns connection_timeout_ms: limit for opening the listening connection.
func (s SystemListener) ConnectionTimeout() time.Duration {
	return time.Duration(s.ConnectionTimeoutMS) * time.Millisecond
}

// ReconnectInitial returns reconnect_initial_ms: delay before the first attempt to reconnect.
func (s SystemListener) ReconnectInitial() time.Duration {
	return time.Duration(s.ReconnectInitialMS) * time.Millisecond
}

// ReconnectMax returns reconnect_max_ms: longest delay between attempts.
func (s SystemListener) ReconnectMax() time.Duration {
	return time.Duration(s.ReconnectMaxMS) * time.Millisecond
}

// HealthCheckInterval returns health_check_interval_ms: how often the listener sends itself a probe and times it.
func (s SystemListener) HealthCheckInterval() time.Duration {
	return time.Duration(s.HealthCheckIntervalMS) * time.Millisecond
}

// FallbackActivationThreshold returns fallback_activation_threshold_ms: silence after which the listener counts as deaf.
func (s SystemListener) FallbackActivationThreshold() time.Duration {
	return time.Duration(s.FallbackActivationThresholdMS) * time.Millisecond
}

// SystemPoller are the intervals of polling.
type SystemPoller struct {
	IntervalMS             int64   `toml:"interval_ms"`
	RelaxedIntervalMS      int64   `toml:"relaxed_interval_ms"`
	JitterPercent          float64 `toml:"jitter_percent"`
	ErrorBackoffBaseMS     int64   `toml:"error_backoff_base_ms"`
	ErrorBackoffMaxMS      int64   `toml:"error_backoff_max_ms"`
	ErrorBackoffMultiplier float64 `toml:"error_backoff_multiplier"`
}

// Interval returns interval_ms: poll interval of PollingOnly, and of Hybrid while the listener is deaf.
func (s SystemPoller) Interval() time.Duration {
	return time.Duration(s.IntervalMS) * time.Millisecond
}

// RelaxedInterval returns relaxed_interval_ms: poll interval of Hybrid while the listener is healthy.
func (s SystemPoller) RelaxedInterval() time.Duration {
	return time.Duration(s.RelaxedIntervalMS) * time.Millisecond
}

// ErrorBackoffBase returns error_backoff_base_ms: delay after the first failed poll.
func (s SystemPoller) ErrorBackoffBase() time.Duration {
	return time.Duration(s.ErrorBackoffBaseMS) * time.Millisecond
}

// ErrorBackoffMax returns error_backoff_max_ms: longest delay after failed polls.
func (s SystemPoller) ErrorBackoffMax() time.Duration {
	return time.Duration(s.ErrorBackoffMaxMS) * time.Millisecond
}
