package config

import (
	"time"
)

// Common holds what both daemons read ([common]).
type Common struct {
	System          System          `toml:"system"`
	Database        Database        `toml:"database"`
	PGMQDatabase    QueueDatabase   `toml:"pgmq_database"`
	Queues          Queues          `toml:"queues"`
	CircuitBreakers CircuitBreakers `toml:"circuit_breakers"`
	MPSCChannels    CommonChannels  `toml:"mpsc_channels"`
	Execution       Execution       `toml:"execution"`
	Backoff         Backoff         `toml:"backoff"`
	Cache           Cache           `toml:"cache"`
	TaskTemplates   TaskTemplates   `toml:"task_templates"`
	Signals         Signals         `toml:"signals"`
	Telemetry       Telemetry       `toml:"telemetry"`
}

// System is [common.system].
type System struct {
	DefaultDependentSystem string `toml:"default_dependent_system"`
}

// CommonChannels is [common.mpsc_channels]: bounds of channels both daemons have.
type CommonChannels struct {
	EventPublisher EventPublisherChannel `toml:"event_publisher"`
	OverflowPolicy OverflowPolicy        `toml:"overflow_policy"`
}

// EventPublisherChannel bounds the domain event publisher.
type EventPublisherChannel struct {
	EventQueueBufferSize int `toml:"event_queue_buffer_size"`
}

// OverflowPolicy says how channels near capacity are reported.
type OverflowPolicy struct {
	LogWarningThreshold float64         `toml:"log_warning_threshold"`
	Metrics             OverflowMetrics `toml:"metrics"`
}

// OverflowMetrics says how often fill levels are sampled.
type OverflowMetrics struct {
	SaturationCheckIntervalSeconds int64 `toml:"saturation_check_interval_seconds"`
}

// SaturationCheckInterval returns saturation_check_interval_seconds: how often the fill level of channels is sampled.
func (o OverflowMetrics) SaturationCheckInterval() time.Duration {
	return time.Duration(o.SaturationCheckIntervalSeconds) * time.Second
}

// Execution is [common.execution].
type Execution struct {
	Environment          string `toml:"environment"`
	StepEnqueueBatchSize int    `toml:"step_enqueue_batch_size"`
}

// Backoff is [common.backoff]: the delays before retries of a step.
type Backoff struct {
	DefaultBackoffSeconds []int64 `toml:"default_backoff_seconds"`
	MaxBackoffSeconds     int64   `toml:"max_backoff_seconds"`
	BackoffMultiplier     float64 `toml:"backoff_multiplier"`
	JitterEnabled         bool    `toml:"jitter_enabled"`
	JitterMaxPercentage   float64 `toml:"jitter_max_percentage"`
}

// DefaultBackoff returns default_backoff_seconds as durations.
func (b Backoff) DefaultBackoff() []time.Duration {
	delays := make([]time.Duration, len(b.DefaultBackoffSeconds))
	for i, n := range b.DefaultBackoffSeconds {
		delays[i] = time.Duration(n) * time.Second
	}
	return delays
}

// MaxBackoff returns max_backoff_seconds: longest delay before a retry.
func (b Backoff) MaxBackoff() time.Duration {
	return time.Duration(b.MaxBackoffSeconds) * time.Second
}

// TaskTemplates is [common.task_templates].
type TaskTemplates struct {
	SearchPaths []string `toml:"search_paths"`
}

// Signals is [common.signals]: the source of signals.
type Signals struct {
	EventSource string `toml:"event_source"`
	WAL         WAL    `toml:"wal"`
}

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
