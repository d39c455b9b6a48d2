package config

// Queues is [common.queues]: of the message transport what has an effect.
type Queues struct {
	PGMQ PGMQ `toml:"pgmq"`
}

// PGMQ is [common.queues.pgmq]: queues in PostgreSQL.
type PGMQ struct {
	QueueDepthThresholds QueueDepthThresholds `toml:"queue_depth_thresholds"`
}

// QueueDepthThresholds are queue depths, in messages, at which back-pressure sets in.
type QueueDepthThresholds struct {
	CriticalThreshold int `toml:"critical_threshold"`
	OverflowThreshold int `toml:"overflow_threshold"`
}
