package config

import (
	"time"
)

// Worker holds what only the worker reads ([worker]).
type Worker struct {
	WorkerID          string             `toml:"worker_id"`
	Exclusive         bool               `toml:"-"` // WorkerID was configured, for this replica alone
	WorkerType        string             `toml:"worker_type"`
	Namespaces        []string           `toml:"namespaces"`
	Tags              []string           `toml:"tags"`
	TemplatePath      string             `toml:"template_path"`
	Lease             time.Duration      `toml:"lease_seconds"`
	HeartbeatInterval time.Duration      `toml:"heartbeat_interval_ms"`
	LeaseGrace        time.Duration      `toml:"lease_grace_seconds"`
	Prefetch          int                `toml:"prefetch"`
	Transactions      Transactions       `toml:"transactions"`
	Report            Report             `toml:"report"`
	Checkpoint        Checkpoint         `toml:"checkpoint"`
	IsolatedItems     IsolatedItems      `toml:"isolated_items"`
	DomainEvents      WorkerDomainEvents `toml:"domain_events"`
	EventSystems      WorkerEventSystems `toml:"event_systems"`
	CircuitBreakers   WorkerBreakers     `toml:"circuit_breakers"`
	MPSCChannels      WorkerChannels     `toml:"mpsc_channels"`
	Web               Web                `toml:"web"`
}

// Transactions are those of handlers that work in one.
type Transactions struct {
	MaxConnections int `toml:"max_connections"`
}

// Report bounds the transactions that report results.
type Report struct {
	Settle     bool `toml:"settle"`
	BatchSize  int  `toml:"batch_size"`
	MaxPending int  `toml:"max_pending"`
}

// Checkpoint bounds what handlers save of their progress.
type Checkpoint struct {
	MaxCursorBytes      int           `toml:"max_cursor_bytes"`
	MaxAccumulatedBytes int           `toml:"max_accumulated_bytes"`
	MaxHistory          int           `toml:"max_history"`
	SaveTimeout         time.Duration `toml:"save_timeout_ms"`
}

// IsolatedItems bounds what handlers of batches could not process.
type IsolatedItems struct {
	MaxItems      int `toml:"max_items"`
	MaxItemBytes  int `toml:"max_item_bytes"`
	MaxTotalBytes int `toml:"max_total_bytes"`
}

// WorkerDomainEvents bounds the making of domain events.
type WorkerDomainEvents struct {
	MaxPayloadBytes  int           `toml:"max_payload_bytes"`
	PublisherTimeout time.Duration `toml:"publisher_timeout_ms"`
	UnknownPublisher string        `toml:"unknown_publisher"`
}

// WorkerEventSystems is the event system of the worker.
type WorkerEventSystems struct {
	Worker WorkerEventSystem `toml:"worker"`
}

// WorkerEventSystem is an EventSystem with the worker's own settings.
type WorkerEventSystem struct {
	EventSystem
	Metadata WorkerMetadata `toml:"metadata"`
}

// WorkerMetadata is [worker.event_systems.worker.metadata].
type WorkerMetadata struct {
	InProcessEvents WorkerInProcessEvents `toml:"in_process_events"`
}

// WorkerInProcessEvents says how events are kept from being handled twice.
type WorkerInProcessEvents struct {
	DeduplicationCacheSize int `toml:"deduplication_cache_size"`
}

// WorkerBreakers is [worker.circuit_breakers].
type WorkerBreakers struct {
	FFICompletionSend ReportBreaker `toml:"ffi_completion_send"`
}

// ReportBreaker is the breaker of result reports.
type ReportBreaker struct {
	SlowSendThreshold time.Duration `toml:"slow_send_threshold_ms"`
	FailureThreshold  int           `toml:"failure_threshold"`
	RecoveryTimeout   time.Duration `toml:"recovery_timeout_seconds"`
	SuccessThreshold  int           `toml:"success_threshold"`
}
