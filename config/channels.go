package config

import (
	"time"
)

// CommandChannel bounds the command processor.
type CommandChannel struct {
	CommandBufferSize int `toml:"command_buffer_size"`
}

// EventSystemChannel bounds what waits for an event system.
type EventSystemChannel struct {
	EventChannelBufferSize int `toml:"event_channel_buffer_size"`
}

// EventListenerChannel bounds what waits on the listening connection.
type EventListenerChannel struct {
	PGMQEventBufferSize int `toml:"pgmq_event_buffer_size"`
}

// WorkerChannels are the bounds of the worker's channels.
type WorkerChannels struct {
	EventSystems    EventSystemChannel   `toml:"event_systems"`
	EventListeners  EventListenerChannel `toml:"event_listeners"`
	InProcessEvents InProcessEvents      `toml:"in_process_events"`
	DomainEvents    DomainEvents         `toml:"domain_events"`
	HandlerDispatch HandlerDispatch      `toml:"handler_dispatch"`
}

// InProcessEvents bounds the in-process event bus.
type InProcessEvents struct {
	BroadcastBufferSize int           `toml:"broadcast_buffer_size"`
	LogSubscriberErrors bool          `toml:"log_subscriber_errors"`
	DispatchTimeout     time.Duration `toml:"dispatch_timeout_ms"`
}

// DomainEvents bounds the domain event system.
type DomainEvents struct {
	CommandBufferSize    int           `toml:"command_buffer_size"`
	ShutdownDrainTimeout time.Duration `toml:"shutdown_drain_timeout_ms"`
	LogDroppedEvents     bool          `toml:"log_dropped_events"`
}

// HandlerDispatch bounds the running of handlers.
type HandlerDispatch struct {
	MaxConcurrentHandlers int           `toml:"max_concurrent_handlers"`
	HandlerTimeout        time.Duration `toml:"handler_timeout_ms"`
	LoadShedding          LoadShedding  `toml:"load_shedding"`
}

// LoadShedding says from which share of the results that may wait a worker warns and stops claiming; the thresholds are percentages.
type LoadShedding struct {
	Enabled                  bool    `toml:"enabled"`
	CapacityThresholdPercent float64 `toml:"capacity_threshold_percent"`
	WarningThresholdPercent  float64 `toml:"warning_threshold_percent"`
}
