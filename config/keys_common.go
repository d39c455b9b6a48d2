package config

import "slices"

// Why keys of Tasker can have no effect here.
const (
	noRuntime = "handlers run in the process of the worker: no runtime of another language is embedded"
	noQueues  = "steps and results are rows of common.database, not messages"
	noClient  = "a worker reaches the orchestrator through the database alone"
	theLease  = "worker.lease_seconds decides how long a claim lasts"
)

// What planned keys wait for.
const (
	forAuth     = "authentication"
	forGRPC     = "the gRPC servers"
	forCache    = "the cache"
	forRabbitMQ = "RabbitMQ as transport"
	forAPIPool  = "a connection pool of the API's own"
)

// commonKeys are the keys both daemons read, queues and cache aside.
func commonKeys() []Key {
	return slices.Concat(
		under("common.system",
			text("default_dependent_system", "default", "System tag of tasks that name none.",
				"Groups tasks in reports; one-system deployments can leave it.").must(notEmpty()).planned("system tags of tasks"),
		),
		databaseKeys(),
		queueKeys(),
		breakerKeys(),
		under("common.mpsc_channels",
			integer("event_publisher.event_queue_buffer_size", 5000, 10, 1000000, "Capacity of the channel of the domain event publisher.",
				"").ignored("worker.mpsc_channels.domain_events.command_buffer_size is the only buffer on the way of domain events"),
			integer("ffi.ruby_event_buffer_size", 1000, 10, 1000000, "Capacity of the event channel towards embedded Ruby handlers.",
				"").ignored(noRuntime),
			float("overflow_policy.log_warning_threshold", 0.8, 0, 1, "Fill level of a bounded channel at which a warning is logged.",
				"Lower values warn earlier and more often."),
			integer("overflow_policy.metrics.saturation_check_interval_seconds", 30, 1, 3600, "How often the fill level of channels is sampled.",
				"").ignored("fill levels are read with every metric scrape and each decision about back-pressure"),
		),
		under("common.execution",
			text("environment", "development", "Name of the environment the daemons run in.",
				"Tags logs and metrics and selects the environment overlay and template overrides.").env("TASKER_ENV").
				must(&textRule{text: environmentRule, ok: isEnvironmentName}),
			integer("step_enqueue_batch_size", 50, 1, 1000, "Steps made claimable in one batch.",
				"").ignored("steps become claimable in the transaction that applies what they waited for; orchestration.apply.batch_size bounds it"),
		),
		under("common.backoff",
			integers("default_backoff_seconds", []int64{1, 5, 15, 30, 60}, 1, 86400, "Delays before successive retries of a step.",
				"The retry cadence; after the last entry that entry repeats, up to the cap."),
			integer("max_backoff_seconds", 3600, 1, 3600, "Longest delay before a retry.",
				"Caps every computed delay."),
			float("backoff_multiplier", 2, 1, 10, "Growth of the delay from one attempt to the next.",
				"2.0 doubles the delay each time."),
			boolean("jitter_enabled", true, "Spread retries over time.",
				"Off, steps that failed together retry together."),
			float("jitter_max_percentage", 0.15, 0, 1, "Largest deviation from the computed delay, as a fraction.",
				"0.15 moves a delay by up to 15 % either way."),
		),
		waiting(forCache, cacheKeys()...),
		under("common.task_templates",
			texts("search_paths", []string{"config/tasks/**/*.{yml,yaml}"}, "Glob patterns of task template files.",
				"Templates that match are read at start, beside those of worker.template_path.").must(notEmpty()),
			text("immutable", "refuse", "What becomes of other content under a template version that tasks have used.",
				"refuse keeps the version as it is, warn lets the content take its place and logs both hashes, off does so in silence. Running tasks keep what they began with.").
				oneOf("refuse", "warn", "off"),
		),
		under("common.signals",
			text("event_source", "notify", "Where a listener hears of work: LISTEN/NOTIFY, logical decoding messages (WAL), or NOTIFY by one orchestrator that reads the WAL (relay).",
				"The same in the whole fleet. wal and relay need wal_level=logical and replication connections; with wal each listener decodes the WAL, with relay one replica does.").oneOf("notify", "wal", "relay"),
			text("wal.slot", "", "Name of a persistent replication slot; empty uses a temporary one.",
				"A persistent slot loses no signal over a disconnect and keeps WAL on the server meanwhile. With relay it is the one that the relaying orchestrator reads.").
				must(matching("a slot name of a–z, 0–9 and _ (at most 63), or empty", `^[a-z0-9_]{0,63}$`)),
			text("wal.publication", "tasker_signals", "Name of the publication that carries the messages.",
				"Must be the same in every daemon of a fleet.").
				must(matching("a publication name of a–z, 0–9 and _ (1–63)", `^[a-z_][a-z0-9_]{0,62}$`)),
		),
		under("common.shutdown",
			integer("delay_ms", -1, -1, 300000, "How long a daemon that was told to stop says that it is not ready and serves everything as before; -1 means 3000 where its API listens on an address that others can reach, else 0.",
				"Load balancers and clients learn of it before requests are refused; too short and they see refusals, longer delays every roll-out."),
		),
		under("common.telemetry",
			text("log_level", "info", "Least severe level that is logged.",
				"debug shows each wake-up and claim; expect much output.").oneOf("debug", "info", "warn", "error").
				alias("trace", "debug", "warning", "warn").env("TASKER_LOG_LEVEL").reload(),
			text("log_format", "auto", "Shape of log lines: auto is console on a terminal and JSON elsewhere.",
				"json is for collectors, console for people.").oneOf("auto", "json", "console").env("TASKER_LOG_FORMAT"),
		),
	)
}

func databaseKeys() []Key {
	return slices.Concat(
		under("common.database",
			text("url", "${DATABASE_URL:-postgresql://localhost/tasker}", "Connection of the primary database.",
				"All state lives here; it must be reachable at start.").must(postgresDSN(false)).env("DATABASE_URL", "DATABASE_URL_FILE").secret(),
			text("listener_url", "", "Direct connection for LISTEN and replication; empty uses url.",
				"Needed where url goes through a pooler in transaction mode, which drops LISTEN.").must(postgresDSN(true)).secret(),
			integer("connect_timeout_seconds", 10, 1, 300, "Limit for opening one connection.",
				"Shorter fails over sooner, longer tolerates slow networks."),
			integer("statement_timeout_ms", 30000, 100, 3600000, "Limit for one statement, enforced by the server.",
				"Protects the pool from statements that never end."),
			integer("hold_timeout_ms", 3000, 100, 60000, "Limit for a pause of a daemon in the middle of a transaction, enforced by the server.",
				"A frozen daemon holds locks that others need for so long; works through a pooler."),
			boolean("prepared_statements", true, "Use server-side prepared statements.",
				"Set to false where url goes through PgBouncer in transaction mode; costs parse time."),
			boolean("migrate_on_start", true, "Bring the schema up to date when a daemon starts.",
				"false leaves migrations to a separate step; a daemon then refuses an old schema."),
		),
		poolKeys("common.database.pool", 1000, 25, 5, 10),
		under("common.pgmq_database",
			text("url", "${PGMQ_DATABASE_URL:-}", "Connection of a separate queue database; empty shares the primary one.",
				"").must(postgresDSN(true)).env("PGMQ_DATABASE_URL").secret().ignored(noQueues),
			boolean("enabled", true, "Use PostgreSQL for queues.", "").ignored(noQueues),
		),
		each(func(k Key) Key { return k.ignored(noQueues) }, poolKeys("common.pgmq_database.pool", 500, 15, 3, 5)...),
	)
}

// poolKeys are the six keys of a connection pool.
func poolKeys(prefix string, ceiling, most, least, acquireSeconds int64) []Key {
	return under(prefix,
		integer("max_connections", most, 1, ceiling, "Most connections the pool opens.",
			"Too few make queries queue, too many exhaust the server; the sum over replicas must fit max_connections of PostgreSQL."),
		integer("min_connections", least, 0, 100, "Connections kept open when idle.",
			"Warm connections avoid the cost of connecting after a quiet time."),
		integer("acquire_timeout_seconds", acquireSeconds, 1, 300, "Longest wait for a free connection.",
			"Work fails with a time-out when none becomes free."),
		integer("idle_timeout_seconds", 300, 1, 3600, "Idle time after which a connection is closed.",
			"How fast the pool shrinks after a peak."),
		integer("max_lifetime_seconds", 1800, 60, 86400, "Age at which a connection is replaced.",
			"Limits the effect of server-side changes and leaks."),
		integer("slow_acquire_threshold_ms", 100, 10, 60000, "Wait for a connection that is logged as slow.",
			"An early sign that the pool is too small."),
	)
}

func breakerKeys() []Key {
	breaker := func(name string, fail, succeed int64, what, impact string) []Key {
		return under("common.circuit_breakers."+name,
			integer("failure_threshold", fail, 1, 100, "Failures in a row that open the breaker of "+what+".", impact),
			integer("success_threshold", succeed, 1, 100, "Successes in a row, half open, that close it again.",
				"More proof of recovery before full traffic."),
		)
	}
	return slices.Concat(
		under("common.circuit_breakers.global_settings",
			integer("metrics_collection_interval_seconds", 30, 1, 3600, "How often breaker metrics are collected.",
				"").ignored("the metrics of a breaker change with its state"),
			float("min_state_transition_interval_seconds", 5, 0, 60, "Least time between two changes of state.",
				"Keeps a breaker from flapping."),
		),
		each(func(k Key) Key {
			const components = "common.circuit_breakers.component_configs."
			return k.sets(components+"task_readiness."+k.Name(), components+"messaging."+k.Name(), components+"web."+k.Name())
		}, breaker("default_config", 5, 2, "any component without its own settings", "Lower reacts sooner, higher tolerates more.")...),
		under("common.circuit_breakers.default_config",
			integer("timeout_seconds", 30, 1, 300, "Time open before a trial request is let through.",
				"Shorter tries recovery sooner and may fail again."),
		),
		breaker("component_configs.task_readiness", 10, 3, "readiness queries", "More tolerant, since these queries are frequent."),
		breaker("component_configs.messaging", 5, 2, "the message transport", "Open, sends and receives fail at once."),
		breaker("component_configs.web", 5, 2, "the API's database work", "Open, requests are answered 503 at once."),
		waiting(forCache, breaker("component_configs.cache", 5, 2, "the cache", "Open, reads go to the database.")...),
	)
}
