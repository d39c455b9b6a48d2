package config

import (
	"time"
)

// CircuitBreakers is [common.circuit_breakers].
type CircuitBreakers struct {
	GlobalSettings   BreakerGlobals    `toml:"global_settings"`
	DefaultConfig    BreakerDefaults   `toml:"default_config"`
	ComponentConfigs BreakerComponents `toml:"component_configs"`
}

// BreakerGlobals hold for every breaker.
type BreakerGlobals struct {
	MinStateTransitionIntervalSeconds float64 `toml:"min_state_transition_interval_seconds"`
}

// MinStateTransitionInterval returns min_state_transition_interval_seconds: least time between two changes of state.
func (b BreakerGlobals) MinStateTransitionInterval() time.Duration {
	return time.Duration(b.MinStateTransitionIntervalSeconds * float64(time.Second))
}

// BreakerDefaults hold for components without their own settings.
type BreakerDefaults struct {
	TimeoutSeconds int64 `toml:"timeout_seconds"`
}

// Timeout returns timeout_seconds: time open before a trial request is let through.
func (b BreakerDefaults) Timeout() time.Duration {
	return time.Duration(b.TimeoutSeconds) * time.Second
}

// BreakerComponents are the breakers with their own thresholds.
type BreakerComponents struct {
	TaskReadiness BreakerThresholds `toml:"task_readiness"`
	Messaging     BreakerThresholds `toml:"messaging"`
	Web           BreakerThresholds `toml:"web"`
}

// BreakerThresholds are counts of results in a row.
type BreakerThresholds struct {
	FailureThreshold int `toml:"failure_threshold"`
	SuccessThreshold int `toml:"success_threshold"`
}
