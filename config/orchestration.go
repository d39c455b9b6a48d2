package config

import (
	"time"
)

// Orchestration holds what only the orchestrator reads ([orchestration]).
type Orchestration struct {
	ShutdownTimeoutMS   int64                     `toml:"shutdown_timeout_ms"`
	HeartbeatIntervalMS int64                     `toml:"heartbeat_interval_ms"`
	EventSystems        OrchestrationEventSystems `toml:"event_systems"`
	Apply               Apply                     `toml:"apply"`
	Create              Create                    `toml:"create"`
	Leases              Leases                    `toml:"leases"`
	Waits               Waits                     `toml:"waits"`
	DecisionPoints      DecisionPoints            `toml:"decision_points"`
	DLQ                 DLQ                       `toml:"dlq"`
	Sweeps              Sweeps                    `toml:"sweeps"`
	Retention           Retention                 `toml:"retention"`
	Backpressure        Backpressure              `toml:"backpressure"`
	Events              OrchestrationEvents       `toml:"events"`
	BatchProcessing     BatchProcessing           `toml:"batch_processing"`
	MPSCChannels        OrchestrationChannels     `toml:"mpsc_channels"`
	Web                 OrchestrationWeb          `toml:"web"`
}

// ShutdownTimeout returns shutdown_timeout_ms: time to finish what has begun when stopping.
func (o Orchestration) ShutdownTimeout() time.Duration {
	return time.Duration(o.ShutdownTimeoutMS) * time.Millisecond
}

// HeartbeatInterval returns heartbeat_interval_ms: how often the daemon records that it is alive.
func (o Orchestration) HeartbeatInterval() time.Duration {
	return time.Duration(o.HeartbeatIntervalMS) * time.Millisecond
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
	SweepBatchSize int   `toml:"sweep_batch_size"`
	GraceMS        int64 `toml:"grace_ms"`
	MaxCrashes     int   `toml:"max_crashes"`
}

// Grace returns grace_ms: time without the end of a lease after an orchestrator has started or has reached the database again.
func (l Leases) Grace() time.Duration { return time.Duration(l.GraceMS) * time.Millisecond }

// Waits bounds what steps that wait, or are tasks, may ask for.
type Waits struct {
	MaxTaskDepth    int   `toml:"max_task_depth"`
	EventTTLSeconds int64 `toml:"event_ttl_seconds"`
}

// EventTTL returns event_ttl_seconds: for which an event is kept that nobody waits for.
func (w Waits) EventTTL() time.Duration { return time.Duration(w.EventTTLSeconds) * time.Second }

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
	Enabled                bool  `toml:"enabled"`
	MaxParallelBatches     int   `toml:"max_parallel_batches"`
	MaxBatchesPerStep      int   `toml:"max_batches_per_step"`
	CheckpointStallMinutes int64 `toml:"checkpoint_stall_minutes"`
}

// CheckpointStall returns checkpoint_stall_minutes: time without a checkpoint after which a running step that saves checkpoints counts as stalled.
func (b BatchProcessing) CheckpointStall() time.Duration {
	return time.Duration(b.CheckpointStallMinutes) * time.Minute
}

// OrchestrationChannels are the bounds of the orchestrator's channels.
type OrchestrationChannels struct {
	CommandProcessor CommandChannel       `toml:"command_processor"`
	EventSystems     EventSystemChannel   `toml:"event_systems"`
	EventListeners   EventListenerChannel `toml:"event_listeners"`
}
