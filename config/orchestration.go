package config

import (
	"time"
)

// Orchestration holds what only the orchestrator reads ([orchestration]).
type Orchestration struct {
	ShutdownTimeout   time.Duration             `toml:"shutdown_timeout_ms"`
	HeartbeatInterval time.Duration             `toml:"heartbeat_interval_ms"`
	EventSystems      OrchestrationEventSystems `toml:"event_systems"`
	Apply             Apply                     `toml:"apply"`
	Create            Create                    `toml:"create"`
	Leases            Leases                    `toml:"leases"`
	Waits             Waits                     `toml:"waits"`
	DecisionPoints    DecisionPoints            `toml:"decision_points"`
	DLQ               DLQ                       `toml:"dlq"`
	Sweeps            Sweeps                    `toml:"sweeps"`
	Retention         Retention                 `toml:"retention"`
	Backpressure      Backpressure              `toml:"backpressure"`
	Events            OrchestrationEvents       `toml:"events"`
	BatchProcessing   BatchProcessing           `toml:"batch_processing"`
	MPSCChannels      OrchestrationChannels     `toml:"mpsc_channels"`
	Web               OrchestrationWeb          `toml:"web"`
}

// OrchestrationEvents is [orchestration.events]: those who read domain events.
type OrchestrationEvents struct {
	MaxConsumers int `toml:"max_consumers"`
	MaxStreams   int `toml:"max_streams"`
}

// OrchestrationEventSystems are the two event systems of the orchestrator.
type OrchestrationEventSystems struct {
	Orchestration EventSystem `toml:"orchestration"`
	TaskReadiness EventSystem `toml:"task_readiness"`
}

// Apply bounds the transactions that move tasks.
type Apply struct {
	BatchSize     int `toml:"batch_size"`
	MaxBatchBytes int `toml:"max_batch_bytes"`
}

// Create bounds the transactions that create tasks.
type Create struct {
	BatchSize   int    `toml:"batch_size"`
	MaxPending  int    `toml:"max_pending"`
	InputSchema string `toml:"input_schema"`
}

// Leases says what becomes of expired leases.
type Leases struct {
	SweepBatchSize int           `toml:"sweep_batch_size"`
	Grace          time.Duration `toml:"grace_ms"`
	MaxCrashes     int           `toml:"max_crashes"`
}

// Waits bounds what steps that wait, or are tasks, may ask for.
type Waits struct {
	MaxTaskDepth int           `toml:"max_task_depth"`
	EventTTL     time.Duration `toml:"event_ttl_seconds"`
}

// DecisionPoints is [orchestration.decision_points].
type DecisionPoints struct {
	Enabled               bool `toml:"enabled"`
	MaxStepsPerDecision   int  `toml:"max_steps_per_decision"`
	MaxDecisionDepth      int  `toml:"max_decision_depth"`
	WarnThresholdSteps    int  `toml:"warn_threshold_steps"`
	WarnThresholdDepth    int  `toml:"warn_threshold_depth"`
	EnableDetailedLogging bool `toml:"enable_detailed_logging"`
	EnableMetrics         bool `toml:"enable_metrics"`
}

// BatchProcessing is [orchestration.batch_processing].
type BatchProcessing struct {
	Enabled            bool          `toml:"enabled"`
	MaxParallelBatches int           `toml:"max_parallel_batches"`
	MaxBatchesPerStep  int           `toml:"max_batches_per_step"`
	CheckpointStall    time.Duration `toml:"checkpoint_stall_minutes"`
}

// OrchestrationChannels are the bounds of the orchestrator's channels.
type OrchestrationChannels struct {
	CommandProcessor CommandChannel       `toml:"command_processor"`
	EventSystems     EventSystemChannel   `toml:"event_systems"`
	EventListeners   EventListenerChannel `toml:"event_listeners"`
}
