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
	MinStateTransitionInterval time.Duration `toml:"min_state_transition_interval_seconds"`
}

// BreakerDefaults hold for components without their own settings.
type BreakerDefaults struct {
	Timeout time.Duration `toml:"timeout_seconds"`
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
