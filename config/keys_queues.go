package config

import "slices"

// queueKeys are the keys of the message transport.
func queueKeys() []Key {
	return slices.Concat(
		under("common.queues",
			text("backend", "${TASKER_MESSAGING_BACKEND:-pgmq}", "Transport of messages: PostgreSQL or RabbitMQ.",
				"PostgreSQL needs nothing else; RabbitMQ pushes through a broker.").oneOf("pgmq", "rabbitmq").env("TASKER_MESSAGING_BACKEND").planned(forRabbitMQ),
			text("orchestration_namespace", "orchestration", "Prefix of the orchestrator's queues.",
				"Separates them from the queues of workers.").must(namespaceName()).planned(forRabbitMQ),
			text("worker_namespace", "worker", "Prefix of the workers' queues.",
				"Separates them from the queues of the orchestrator.").must(namespaceName()).planned(forRabbitMQ),
			integer("default_visibility_timeout_seconds", 30, 1, 3600, "Time a received message stays hidden from others.",
				"").ignored(theLease),
			text("naming_pattern", "{namespace}_{name}_queue", "How queue names are formed.",
				"Changing it after deployment leaves the old queues behind.").must(queueNamePattern()).planned(forRabbitMQ),
		),
		waiting(forRabbitMQ, under("common.queues.orchestration_queues",
			text("task_requests", "orchestration_task_requests", "Queue of task requests.", "Read by the orchestrator.").must(queueName()),
			text("task_finalizations", "orchestration_task_finalizations", "Queue of tasks to be finalised.", "Read by the orchestrator.").must(queueName()),
			text("step_results", "orchestration_step_results", "Queue of step results.", "Written by workers, read by the orchestrator.").must(queueName()),
		)...),
		under("common.queues.pgmq",
			integer("poll_interval_ms", 500, 10, 10000, "Poll interval of message queues without events.",
				"").ignored("each event system has its poller.interval_ms"),
			integer("queue_depth_thresholds.critical_threshold", 5000, 1, 1000000000, "Queue depth at which health is degraded.",
				"Shows that workers do not keep up.").reload(),
			integer("queue_depth_thresholds.overflow_threshold", 10000, 1, 1000000000, "Queue depth at which health is bad.",
				"Shown in the detailed health and in tasker_queue_depth; the tiers of back-pressure are shares of it.").reload(),
		),
		waiting(forRabbitMQ, under("common.queues.rabbitmq",
			text("url", "${RABBITMQ_URL:-amqp://guest:guest@localhost:5672/%2F}", "Connection of the broker.",
				"Used with backend rabbitmq only.").must(urlOf(true, "amqp", "amqps")).env("RABBITMQ_URL").secret(),
			integer("prefetch_count", 100, 1, 65535, "Messages delivered before an acknowledgement is due.",
				"More throughput against more held in memory."),
			integer("heartbeat_seconds", 30, 0, 3600, "AMQP heartbeat; 0 switches it off.",
				"How soon a dead connection is noticed."),
		)...),
	)
}

// cacheKeys are the keys of the optional cache.
func cacheKeys() []Key {
	return slices.Concat(
		under("common.cache",
			boolean("enabled", false, "Use a cache for templates and analytics.",
				"Off, every read goes to the database."),
			text("backend", "redis", "Cache in Redis, in memcached, or in process (moka).",
				"In-process caches of several replicas can differ for the life of an entry.").
				oneOf("redis", "memcached", "moka").
				alias("dragonfly", "redis", "memory", "moka", "in-memory", "moka"),
			integer("default_ttl_seconds", 3600, 1, 86400, "Life of an entry of no special kind.", "Freshness against database reads."),
			integer("template_ttl_seconds", 3600, 1, 86400, "Life of a cached template.", "A changed template shows after at most this time."),
			integer("analytics_ttl_seconds", 60, 1, 86400, "Life of cached analytics.", "Kept short, since the numbers move."),
		),
		under("common.cache.redis",
			text("url", "${REDIS_URL:-redis://localhost:6379}", "Connection of Redis.",
				"Must answer where the cache is on with backend redis.").must(urlOf(true, "redis", "rediss", "unix")).env("REDIS_URL").secret(),
			integer("max_connections", 10, 1, 500, "Most connections to Redis.", "Bounds concurrent cache operations."),
			integer("connection_timeout_seconds", 5, 1, 60, "Limit for connecting.", "Beyond it reads fall through to the database."),
			integer("database", 0, 0, 15, "Number of the Redis database.", "Separates applications that share one server."),
		),
		under("common.cache.memcached",
			text("url", "${MEMCACHED_URL:-}", "Connection of memcached.", "Needed where the cache is on with backend memcached.").
				must(urlOf(true, "tcp", "memcache", "memcached")).env("MEMCACHED_URL").secret(),
			integer("connection_timeout_seconds", 5, 1, 60, "Limit for connecting.", "Beyond it reads fall through to the database."),
		),
		under("common.cache.moka",
			integer("max_capacity", 10000, 1, 1000000, "Entries kept in process.", "Bounds memory; the least used go first."),
		),
	)
}
