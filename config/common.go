package config

import (
	"time"
)

// Common holds what both daemons read ([common]).
type Common struct {
	Database        Database        `toml:"database"`
	Queues          Queues          `toml:"queues"`
	CircuitBreakers CircuitBreakers `toml:"circuit_breakers"`
	MPSCChannels    CommonChannels  `toml:"mpsc_channels"`
	Execution       Execution       `toml:"execution"`
	Backoff         Backoff         `toml:"backoff"`
	TaskTemplates   TaskTemplates   `toml:"task_templates"`
	Signals         Signals         `toml:"signals"`
	Telemetry       Telemetry       `toml:"telemetry"`
	Shutdown        Shutdown        `toml:"shutdown"`
}

// Shutdown is [common.shutdown].
type Shutdown struct {
	Delay time.Duration `toml:"delay_ms"`
}

// CommonChannels is [common.mpsc_channels]: bounds of channels both daemons have.
type CommonChannels struct {
	OverflowPolicy OverflowPolicy `toml:"overflow_policy"`
}

// OverflowPolicy says how channels near capacity are reported.
type OverflowPolicy struct {
	LogWarningThreshold float64 `toml:"log_warning_threshold"`
}

// Execution is [common.execution].
type Execution struct {
	Environment string `toml:"environment"`
}

// Backoff is [common.backoff]: the delays before retries of a step.
type Backoff struct {
	DefaultBackoff      []time.Duration `toml:"default_backoff_seconds"`
	MaxBackoff          time.Duration   `toml:"max_backoff_seconds"`
	BackoffMultiplier   float64         `toml:"backoff_multiplier"`
	JitterEnabled       bool            `toml:"jitter_enabled"`
	JitterMaxPercentage float64         `toml:"jitter_max_percentage"`
}

// TaskTemplates is [common.task_templates].
type TaskTemplates struct {
	SearchPaths []string `toml:"search_paths"`
	Immutable   string   `toml:"immutable"`
}

// Signals is [common.signals]: the source of signals.
type Signals struct {
	EventSource string `toml:"event_source"`
	WAL         WAL    `toml:"wal"`
}

// InTransaction reports whether the source carries signals in the WAL, so that
// they are part of the transactions that do the work.
func (s Signals) InTransaction() bool { return s.EventSource != "notify" }

// WAL is [common.signals.wal].
type WAL struct {
	Slot        string `toml:"slot"`
	Publication string `toml:"publication"`
}

// Telemetry is [common.telemetry].
type Telemetry struct {
	LogLevel  string `toml:"log_level"`
	LogFormat string `toml:"log_format"`
}
