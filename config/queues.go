package config

import (
	"time"
)

// Queues is [common.queues]: the message transport.
type Queues struct {
	Backend                         string              `toml:"backend"`
	OrchestrationNamespace          string              `toml:"orchestration_namespace"`
	WorkerNamespace                 string              `toml:"worker_namespace"`
	DefaultVisibilityTimeoutSeconds int64               `toml:"default_visibility_timeout_seconds"`
	NamingPattern                   string              `toml:"naming_pattern"`
	OrchestrationQueues             OrchestrationQueues `toml:"orchestration_queues"`
	PGMQ                            PGMQ                `toml:"pgmq"`
	RabbitMQ                        RabbitMQ            `toml:"rabbitmq"`
}

// DefaultVisibilityTimeout returns default_visibility_timeout_seconds: time a received message stays hidden from others.
func (q Queues) DefaultVisibilityTimeout() time.Duration {
	return time.Duration(q.DefaultVisibilityTimeoutSeconds) * time.Second
}

// OrchestrationQueues names the queues the orchestrator reads.
type OrchestrationQueues struct {
	TaskRequests      string `toml:"task_requests"`
	TaskFinalizations string `toml:"task_finalizations"`
	StepResults       string `toml:"step_results"`
}

// PGMQ is [common.queues.pgmq]: queues in PostgreSQL.
type PGMQ struct {
	PollIntervalMS       int64                `toml:"poll_interval_ms"`
	QueueDepthThresholds QueueDepthThresholds `toml:"queue_depth_thresholds"`
}

// PollInterval returns poll_interval_ms: poll interval of message queues without events.
func (p PGMQ) PollInterval() time.Duration {
	return time.Duration(p.PollIntervalMS) * time.Millisecond
}

// QueueDepthThresholds are queue depths, in messages, at which back-pressure sets in.
type QueueDepthThresholds struct {
	CriticalThreshold int `toml:"critical_threshold"`
	OverflowThreshold int `toml:"overflow_threshold"`
}

// RabbitMQ is [common.queues.rabbitmq].
type RabbitMQ struct {
	URL              DSN   `toml:"url"`
	PrefetchCount    int   `toml:"prefetch_count"`
	HeartbeatSeconds int64 `toml:"heartbeat_seconds"`
}

// Heartbeat returns heartbeat_seconds: aMQP heartbeat; 0 switches it off.
func (r RabbitMQ) Heartbeat() time.Duration {
	return time.Duration(r.HeartbeatSeconds) * time.Second
}
