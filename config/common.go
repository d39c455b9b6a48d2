package config

import (
	"slices"
	"time"
)

// Common holds what both daemons read ([common]).
type Common struct {
	_        string   `toml:"system.default_dependent_system" default:"default" rule:"nonempty" planned:"system tags of tasks" doc:"System tag of tasks that name none." effect:"Groups tasks in reports; one-system deployments can leave it."`
	Database Database `toml:"database"`
	_        struct {
		_ DSN  `toml:"url" default:"${PGMQ_DATABASE_URL:-}" rule:"postgres or empty" env:"PGMQ_DATABASE_URL" doc:"Connection of a separate queue database; empty shares the primary one."`
		_ bool `toml:"enabled" default:"true" doc:"Use PostgreSQL for queues."`
		_ pool `toml:"pool" ceiling:"500" most:"15" least:"3" acquire:"5"`
	} `toml:"pgmq_database" ignored:"steps and results are rows of common.database, not messages"`
	Documents    Documents    `toml:"documents"`
	SchemaChecks SchemaChecks `toml:"schema_checks"`
	Namespaces   struct {
		Grants []NamespaceGrant `toml:"grants" default:"" doc:"Namespaces whose templates and tasks may use those of others, where the API wants credentials." effect:"Without a grant a step of type task, a next task and depends_on stay within their namespace. The same in the whole fleet."`
	} `toml:"namespaces"`
	Queues struct {
		_                   string        `toml:"backend" default:"${TASKER_MESSAGING_BACKEND:-pgmq}" oneof:"pgmq,rabbitmq" env:"TASKER_MESSAGING_BACKEND" sets:"common.signals.event_source" doc:"What carries signals: PostgreSQL (pgmq) or RabbitMQ." effect:"rabbitmq sets common.signals.event_source to amqp. Work is rows of the database with either."`
		_                   string        `toml:"orchestration_namespace" default:"orchestration" rule:"namespace" planned:"RabbitMQ as transport" doc:"Prefix of the orchestrator's queues." effect:"Separates them from the queues of workers."`
		WorkerNamespace     string        `toml:"worker_namespace" default:"worker" rule:"namespace" doc:"Prefix of the workers' queues." effect:"The {namespace} of naming_pattern, with rabbitmq.naming = tasker."`
		_                   time.Duration `toml:"default_visibility_timeout_seconds" default:"30" min:"1" max:"3600" ignored:"worker.lease_seconds decides how long a claim lasts" doc:"Time a received message stays hidden from others."`
		NamingPattern       string        `toml:"naming_pattern" default:"{namespace}_{name}_queue" must:"a string containing {namespace} and {name}" match:"(?s)[{]namespace}.*[{]name}|[{]name}.*[{]namespace}" doc:"How names of the workers' queues are formed." effect:"Used with rabbitmq.naming = tasker. Changing it after deployment leaves the old queues behind."`
		OrchestrationQueues struct {
			TaskRequests      string `toml:"task_requests" default:"orchestration_task_requests" rule:"queue" doc:"Queue of task requests." effect:"Declared in the broker with rabbitmq.naming = tasker; nothing is sent to it yet."`
			TaskFinalizations string `toml:"task_finalizations" default:"orchestration_task_finalizations" rule:"queue" doc:"Queue of tasks to be finalised." effect:"Declared in the broker with rabbitmq.naming = tasker; nothing is sent to it yet."`
			StepResults       string `toml:"step_results" default:"orchestration_step_results" rule:"queue" doc:"Queue of step results." effect:"Declared in the broker with rabbitmq.naming = tasker; nothing is sent to it yet."`
		} `toml:"orchestration_queues"`
		PGMQ struct {
			_                    time.Duration        `toml:"poll_interval_ms" default:"500" min:"10" max:"10000" ignored:"each event system has its poller.interval_ms" doc:"Poll interval of message queues without events."`
			QueueDepthThresholds QueueDepthThresholds `toml:"queue_depth_thresholds"`
		} `toml:"pgmq"`
		RabbitMQ struct {
			URL               DSN           `toml:"url" default:"${RABBITMQ_URL:-amqp://guest:guest@localhost:5672/%2F}" rule:"url amqp amqps or empty" env:"RABBITMQ_URL" doc:"Connection of the broker, with credentials and virtual host." effect:"Used with the event source amqp, and with orchestration.bridge.rabbitmq_queue and rabbitmq_events; amqps encrypts."`
			PrefetchCount     int           `toml:"prefetch_count" default:"100" min:"1" max:"65535" doc:"Messages delivered before an acknowledgement is due." effect:"More throughput against more held in memory."`
			Heartbeat         time.Duration `toml:"heartbeat_seconds" default:"30" min:"0" max:"3600" doc:"AMQP heartbeat; 0 leaves it to the broker." effect:"How soon a dead connection is noticed."`
			Namespace         string        `toml:"namespace" default:"tasker" rule:"queue" doc:"Prefix of exchanges and queues." effect:"The same in the whole fleet; fleets with different ones share a virtual host."`
			Naming            string        `toml:"naming" default:"namespace" oneof:"namespace,tasker" doc:"Names of the durable queues: namespace.key, or those of Tasker (orchestration_queues, naming_pattern)." effect:"For programs that know the queues by these names."`
			Queues            []string      `toml:"queues" default:"" rule:"queue" doc:"Keys of the durable queues that are declared, each with a retry queue." effect:"They are for messages of other programs (orchestration.bridge.rabbitmq_queue); signals do not need them."`
			QueueType         string        `toml:"queue_type" default:"classic" oneof:"classic,quorum" doc:"Type of the durable queues." effect:"quorum replicates them in a cluster. Changing it needs other queues: the broker refuses to change those that exist."`
			MaxWaitingSignals int           `toml:"max_waiting_signals" default:"10000" min:"1" max:"10000000" doc:"Most signals that wait in the broker for one listener, and most delayed ones of each delay." effect:"Beyond it the oldest are dropped and the listener looks at everything (tasker_signal_queue_overflows_total). The same in the whole fleet."`
			TLSCAPath         string        `toml:"tls_ca_path" default:"" doc:"File of certificates that amqps trusts; empty means those of the system." effect:"Needed where the broker's certificate is signed by an authority of your own."`
		} `toml:"rabbitmq"`
	} `toml:"queues"`
	CircuitBreakers struct {
		GlobalSettings struct {
			_                          time.Duration `toml:"metrics_collection_interval_seconds" default:"30" min:"1" max:"3600" ignored:"the metrics of a breaker change with its state" doc:"How often breaker metrics are collected."`
			MinStateTransitionInterval time.Duration `toml:"min_state_transition_interval_seconds" type:"float" default:"5" min:"0" max:"60" doc:"Least time between two changes of state." effect:"Keeps a breaker from flapping."`
		} `toml:"global_settings"`
		DefaultConfig struct {
			_       int           `toml:"failure_threshold" default:"5" min:"1" max:"100" sets:".component_configs.task_readiness.failure_threshold .component_configs.messaging.failure_threshold .component_configs.web.failure_threshold" doc:"Failures in a row that open the breaker of any component without its own settings." effect:"Lower reacts sooner, higher tolerates more."`
			_       int           `toml:"success_threshold" default:"2" min:"1" max:"100" sets:".component_configs.task_readiness.success_threshold .component_configs.messaging.success_threshold .component_configs.web.success_threshold" doc:"Successes in a row, half open, that close it again." effect:"More proof of recovery before full traffic."`
			Timeout time.Duration `toml:"timeout_seconds" default:"30" min:"1" max:"300" doc:"Time open before a trial request is let through." effect:"Shorter tries recovery sooner and may fail again."`
		} `toml:"default_config"`
		ComponentConfigs struct {
			TaskReadiness BreakerThresholds `toml:"task_readiness" failures:"10" successes:"3" of:"readiness queries" open:"More tolerant, since these queries are frequent."`
			Messaging     BreakerThresholds `toml:"messaging" failures:"5" successes:"2" of:"the message transport" open:"Open, sends and receives fail at once."`
			Web           BreakerThresholds `toml:"web" failures:"5" successes:"2" of:"the API's database work" open:"Open, requests are answered 503 at once."`
			_             BreakerThresholds `toml:"cache" planned:"the cache" failures:"5" successes:"2" of:"the cache" open:"Open, reads go to the database."`
		} `toml:"component_configs"`
	} `toml:"circuit_breakers"`
	MPSCChannels struct {
		_              int `toml:"event_publisher.event_queue_buffer_size" default:"5000" min:"10" max:"1000000" ignored:"worker.mpsc_channels.domain_events.command_buffer_size is the only buffer on the way of domain events" doc:"Capacity of the channel of the domain event publisher."`
		_              int `toml:"ffi.ruby_event_buffer_size" default:"1000" min:"10" max:"1000000" ignored:"handlers run in the process of the worker: no runtime of another language is embedded" doc:"Capacity of the event channel towards embedded Ruby handlers."`
		OverflowPolicy struct {
			LogWarningThreshold float64       `toml:"log_warning_threshold" default:"0.8" min:"0" max:"1" doc:"Fill level of a bounded channel at which a warning is logged." effect:"Lower values warn earlier and more often."`
			_                   time.Duration `toml:"metrics.saturation_check_interval_seconds" default:"30" min:"1" max:"3600" ignored:"fill levels are read with every metric scrape and each decision about back-pressure" doc:"How often the fill level of channels is sampled."`
		} `toml:"overflow_policy"`
	} `toml:"mpsc_channels"`
	Execution struct {
		Environment string `toml:"environment" default:"development" rule:"environment" env:"TASKER_ENV" doc:"Name of the environment the daemons run in." effect:"Tags logs and metrics and selects the environment overlay and template overrides."`
		_           int    `toml:"step_enqueue_batch_size" default:"50" min:"1" max:"1000" ignored:"steps become claimable in the transaction that applies what they waited for; orchestration.apply.batch_size bounds it" doc:"Steps made claimable in one batch."`
	} `toml:"execution"`
	Backoff struct {
		DefaultBackoff      []time.Duration `toml:"default_backoff_seconds" default:"1 5 15 30 60" min:"1" max:"86400" doc:"Delays before successive retries of a step." effect:"The retry cadence; after the last entry that entry repeats, up to the cap."`
		MaxBackoff          time.Duration   `toml:"max_backoff_seconds" default:"3600" min:"1" max:"3600" doc:"Longest delay before a retry." effect:"Caps every computed delay."`
		BackoffMultiplier   float64         `toml:"backoff_multiplier" default:"2" min:"1" max:"10" doc:"Growth of the delay from one attempt to the next." effect:"2.0 doubles the delay each time."`
		JitterEnabled       bool            `toml:"jitter_enabled" default:"true" doc:"Spread retries over time." effect:"Off, steps that failed together retry together."`
		JitterMaxPercentage float64         `toml:"jitter_max_percentage" default:"0.15" min:"0" max:"1" doc:"Largest deviation from the computed delay, as a fraction." effect:"0.15 moves a delay by up to 15 % either way."`
	} `toml:"backoff"`
	Cache struct {
		_            bool          `toml:"enabled" default:"false" planned:"the cache" doc:"Use a cache for templates and analytics." effect:"Off, every read goes to the database."`
		_            string        `toml:"backend" default:"redis" oneof:"redis,memcached,moka" alias:"dragonfly=redis,in-memory=moka,memory=moka" planned:"the cache" doc:"Cache in Redis, in memcached, or in process (moka)." effect:"In-process caches of several replicas can differ for the life of an entry."`
		_            time.Duration `toml:"default_ttl_seconds" default:"3600" min:"1" max:"86400" planned:"the cache" doc:"Life of an entry of no special kind." effect:"Freshness against database reads."`
		_            time.Duration `toml:"template_ttl_seconds" default:"3600" min:"1" max:"86400" planned:"the cache" doc:"Life of a cached template." effect:"A changed template shows after at most this time."`
		AnalyticsTTL time.Duration `toml:"analytics_ttl_seconds" default:"60" min:"1" max:"86400" doc:"Life of computed analytics." effect:"Each orchestrator computes them at most once in this time, in its own memory, whether the cache is enabled or not."`
		_            DSN           `toml:"redis.url" default:"${REDIS_URL:-redis://localhost:6379}" rule:"url redis rediss unix or empty" env:"REDIS_URL" planned:"the cache" doc:"Connection of Redis." effect:"Must answer where the cache is on with backend redis."`
		_            int           `toml:"redis.max_connections" default:"10" min:"1" max:"500" planned:"the cache" doc:"Most connections to Redis." effect:"Bounds concurrent cache operations."`
		_            time.Duration `toml:"redis.connection_timeout_seconds" default:"5" min:"1" max:"60" planned:"the cache" doc:"Limit for connecting." effect:"Beyond it reads fall through to the database."`
		_            int           `toml:"redis.database" default:"0" min:"0" max:"15" planned:"the cache" doc:"Number of the Redis database." effect:"Separates applications that share one server."`
		_            DSN           `toml:"memcached.url" default:"${MEMCACHED_URL:-}" rule:"url tcp memcache memcached or empty" env:"MEMCACHED_URL" planned:"the cache" doc:"Connection of memcached." effect:"Needed where the cache is on with backend memcached."`
		_            time.Duration `toml:"memcached.connection_timeout_seconds" default:"5" min:"1" max:"60" planned:"the cache" doc:"Limit for connecting." effect:"Beyond it reads fall through to the database."`
		_            int           `toml:"moka.max_capacity" default:"10000" min:"1" max:"1000000" planned:"the cache" doc:"Entries kept in process." effect:"Bounds memory; the least used go first."`
	} `toml:"cache"`
	TaskTemplates struct {
		SearchPaths []string `toml:"search_paths" default:"config/tasks/**/*.{yml,yaml}" rule:"nonempty" doc:"Glob patterns of task template files." effect:"Templates that match are read at start, beside those of worker.template_path."`
		Immutable   string   `toml:"immutable" default:"refuse" oneof:"refuse,warn,off" doc:"What becomes of other content under a template version that tasks have used." effect:"refuse keeps the version as it is, warn lets the content take its place and logs both hashes, off does so in silence. Running tasks keep what they began with."`
	} `toml:"task_templates"`
	Signals   signals   `toml:"signals"`
	Predictor predictor `toml:"predictor"`
	Shutdown  Shutdown  `toml:"shutdown"`
	Telemetry struct {
		LogLevel  string   `toml:"log_level" default:"info" oneof:"debug,info,warn,error" alias:"trace=debug,warning=warn" env:"TASKER_LOG_LEVEL" reload:"yes" doc:"Least severe level that is logged." effect:"debug shows each wake-up and claim; expect much output."`
		LogLevels []string `toml:"log_levels" default:"" rule:"room=level" reload:"yes" doc:"Levels of single rooms of a daemon, as room=level; the others have log_level." effect:"worker=debug shows what the worker does, and nothing more of the others."`
		LogFormat string   `toml:"log_format" default:"auto" oneof:"auto,json,console" env:"TASKER_LOG_FORMAT" doc:"Shape of log lines: auto is console on a terminal and JSON elsewhere." effect:"json is for collectors, console for people."`
		Aliases   bool     `toml:"metric_aliases" default:"false" doc:"Show the metrics at /metrics under their names in Tasker and other products as well." effect:"For dashboards and alerts of those; some of the names break the conventions of Prometheus. They are at /actuator/prometheus in any case."`
		Tracing   tracing  `toml:"tracing"`
		Metrics   metrics  `toml:"metrics"`
	} `toml:"telemetry"`
}

// tracing is [common.telemetry.tracing]: spans of OpenTelemetry.
type tracing struct {
	Enabled     bool          `toml:"enabled" default:"false" doc:"Make spans of sampled tasks and send them to a collector." effect:"Off, a daemon makes and stores nothing of its own, and hands on the traces of tasks."`
	Endpoint    string        `toml:"endpoint" default:"http://127.0.0.1:4318" rule:"url http https" doc:"Collector that takes OTLP over HTTP (protobuf)." effect:"A URL without a path gets /v1/traces."`
	Headers     Secret        `toml:"headers" secret:"yes" default:"" doc:"Headers for the collector: name=value pairs between commas, values percent-encoded." effect:"Where a collector wants a key."`
	SampleRatio float64       `toml:"sample_ratio" default:"0.01" min:"0" max:"1" doc:"Share of sampled traces, of those that begin with a request here." effect:"A request with a traceparent follows the decision of its sender. Set it in the file of an environment."`
	Timeout     time.Duration `toml:"timeout_ms" default:"5000" min:"100" max:"60000" doc:"Longest time for sending one batch of spans, repetitions included." effect:"Beyond it the batch is dropped."`
	BatchSize   int           `toml:"batch_size" default:"512" min:"1" max:"10000" doc:"Most spans of one request to the collector." effect:"Larger sends less often under load."`
	QueueSize   int           `toml:"queue_size" default:"4096" min:"1" max:"1000000" doc:"Most spans that wait for being sent." effect:"Beyond it spans are dropped (tasker_spans_dropped_total); work never waits."`
	Interval    time.Duration `toml:"interval_ms" default:"1000" min:"10" max:"60000" doc:"Longest time a span waits for its batch to fill up." effect:"Shorter shows spans sooner."`
}

// metrics is [common.telemetry.metrics]: pushing the metrics, which can be scraped as well.
type metrics struct {
	Enabled  bool          `toml:"enabled" default:"false" doc:"Send the metrics to a collector, beside their exposition at /metrics." effect:"For where no Prometheus can reach the daemons."`
	Endpoint string        `toml:"endpoint" default:"http://127.0.0.1:4318" rule:"url http https" doc:"Collector that takes OTLP over HTTP (protobuf)." effect:"A URL without a path gets /v1/metrics."`
	Headers  Secret        `toml:"headers" secret:"yes" default:"" doc:"Headers for the collector: name=value pairs between commas, values percent-encoded." effect:"Where a collector wants a key."`
	Timeout  time.Duration `toml:"timeout_ms" default:"5000" min:"100" max:"60000" doc:"Longest time for sending the metrics once." effect:"Beyond it the push has failed (tasker_metrics_pushes_failed_total); the next one has its values."`
	Interval time.Duration `toml:"interval_ms" default:"60000" min:"100" max:"3600000" doc:"Time between two pushes." effect:"Shorter shows changes sooner, and sends more."`
}

// Database is [common.database]: the primary database.
type Database struct {
	URL                DSN           `toml:"url" default:"${DATABASE_URL:-postgresql://localhost/tasker}" rule:"postgres" env:"DATABASE_URL,DATABASE_URL_FILE" doc:"Connection of the primary database." effect:"All state lives here; it must be reachable at start."`
	ListenerURL        DSN           `toml:"listener_url" default:"" rule:"postgres or empty" doc:"Direct connection for LISTEN and replication; empty uses url." effect:"Needed where url goes through a pooler in transaction mode, which drops LISTEN."`
	ConnectTimeout     time.Duration `toml:"connect_timeout_seconds" default:"10" min:"1" max:"300" doc:"Limit for opening one connection." effect:"Shorter fails over sooner, longer tolerates slow networks."`
	StatementTimeout   time.Duration `toml:"statement_timeout_ms" default:"30000" min:"100" max:"3600000" doc:"Limit for one statement, enforced by the server." effect:"Protects the pool from statements that never end."`
	HoldTimeout        time.Duration `toml:"hold_timeout_ms" default:"3000" min:"100" max:"60000" doc:"Limit for a pause of a daemon in the middle of a transaction, enforced by the server." effect:"A frozen daemon holds locks that others need for so long; works through a pooler."`
	PreparedStatements bool          `toml:"prepared_statements" default:"true" doc:"Use server-side prepared statements." effect:"Set to false where url goes through PgBouncer in transaction mode; costs parse time."`
	MigrateOnStart     bool          `toml:"migrate_on_start" default:"true" doc:"Bring the schema up to date when a daemon starts." effect:"false leaves migrations to a separate step; a daemon then refuses an old schema."`
	Pool               pool          `toml:"pool" ceiling:"1000" most:"25" least:"5" acquire:"10"`
}

// pool sizes a connection pool.
type pool struct {
	MaxConnections       int           `toml:"max_connections" default:"<most>" min:"1" max:"<ceiling>" doc:"Most connections the pool opens." effect:"Too few make queries queue, too many exhaust the server; the sum over replicas must fit max_connections of PostgreSQL."`
	MinConnections       int           `toml:"min_connections" default:"<least>" min:"0" max:"100" doc:"Connections kept open when idle." effect:"Warm connections avoid the cost of connecting after a quiet time."`
	AcquireTimeout       time.Duration `toml:"acquire_timeout_seconds" default:"<acquire>" min:"1" max:"300" doc:"Longest wait for a free connection." effect:"Work fails with a time-out when none becomes free."`
	IdleTimeout          time.Duration `toml:"idle_timeout_seconds" default:"300" min:"1" max:"3600" doc:"Idle time after which a connection is closed." effect:"How fast the pool shrinks after a peak."`
	MaxLifetime          time.Duration `toml:"max_lifetime_seconds" default:"1800" min:"60" max:"86400" doc:"Age at which a connection is replaced." effect:"Limits the effect of server-side changes and leaks."`
	SlowAcquireThreshold time.Duration `toml:"slow_acquire_threshold_ms" default:"100" min:"10" max:"60000" doc:"Wait for a connection that is logged as slow." effect:"An early sign that the pool is too small."`
}

// QueueDepthThresholds are queue depths, in messages, at which back-pressure sets in.
type QueueDepthThresholds struct {
	CriticalThreshold int `toml:"critical_threshold" default:"5000" min:"1" max:"1000000000" reload:"yes" doc:"Queue depth at which health is degraded." effect:"Shows that workers do not keep up."`
	OverflowThreshold int `toml:"overflow_threshold" default:"10000" min:"1" max:"1000000000" reload:"yes" doc:"Queue depth at which health is bad." effect:"Shown in the detailed health and in tasker_queue_depth; the tiers of back-pressure are shares of it."`
}

// BreakerThresholds are counts of results in a row.
type BreakerThresholds struct {
	FailureThreshold int `toml:"failure_threshold" default:"<failures>" min:"1" max:"100" doc:"Failures in a row that open the breaker of <of>." effect:"<open>"`
	SuccessThreshold int `toml:"success_threshold" default:"<successes>" min:"1" max:"100" doc:"Successes in a row, half open, that close it again." effect:"More proof of recovery before full traffic."`
}

// signals is [common.signals]: the source of signals.
type signals struct {
	EventSource string `toml:"event_source" default:"notify" oneof:"notify,wal,relay,amqp,redis" alias:"pgmq=notify,rabbitmq=amqp" doc:"Where a listener hears of work: LISTEN/NOTIFY, logical decoding messages (WAL), NOTIFY by one orchestrator that reads the WAL (relay), RabbitMQ (amqp), or channels of Redis." effect:"The same in the whole fleet, which moves to another one with moving_from. amqp needs common.queues.rabbitmq.url, redis common.signals.redis.url; both take signals off PostgreSQL, which then needs no direct connections. wal and relay need wal_level=logical and replication connections; with wal each listener decodes the WAL, with relay one replica does."`
	MovingFrom  string `toml:"moving_from" default:"" oneof:",notify,wal,relay,amqp,redis" alias:"pgmq=notify,rabbitmq=amqp" doc:"Event source that the fleet moves away from; empty: it does not move." effect:"Signals are sent over and received from both. All daemons are restarted with it, and then without it: docs/operate/operations.md has the steps."`
	WAL         struct {
		Slot        string `toml:"slot" default:"" must:"a slot name of a–z, 0–9 and _ (at most 63), or empty" match:"^[a-z0-9_]{0,63}$" doc:"Name of a persistent replication slot; empty uses a temporary one." effect:"A persistent slot loses no signal over a disconnect and keeps WAL on the server meanwhile. With relay it is the one that the relaying orchestrator reads."`
		Failover    bool   `toml:"failover" default:"false" doc:"Whether standbys copy the persistent slot, so that it is there after a failover of the server." effect:"Needs slot, PostgreSQL 17 or later and sync_replication_slots on the standby; true also changes a slot that exists, false leaves it as it is."`
		Publication string `toml:"publication" default:"tasker_signals" must:"a publication name of a–z, 0–9 and _ (1–63)" match:"^[a-z_][a-z0-9_]{0,62}$" doc:"Name of the publication that carries the messages." effect:"Must be the same in every daemon of a fleet."`
	} `toml:"wal"`
	Redis struct {
		URL     DSN           `toml:"url" default:"${REDIS_URL:-redis://localhost:6379}" rule:"url redis rediss unix" env:"REDIS_URL" doc:"Server that carries signals with event_source redis; rediss is TLS, cacert=FILE has the certificates to trust instead of the system's." effect:"The primary of one server (6.2 or later) that the whole fleet reaches: nodes of a cluster and replicas are refused."`
		Prefix  string        `toml:"prefix" default:"tasker" must:"1–40 of a–z, A–Z, 0–9, _, ., : and -" match:"^[a-zA-Z0-9_.:-]{1,40}$" doc:"What the names of channels begin with." effect:"One for each fleet on a server, whose numbered databases do not separate channels."`
		Timeout time.Duration `toml:"timeout_ms" default:"2000" min:"50" max:"60000" doc:"Limit for connecting, and for each exchange with the server." effect:"Beyond it signals are sent once more, then dropped: pollers find the work."`
	} `toml:"redis"`
}

// predictor is [common.predictor]: a program outside that knows how long handlers take.
type predictor struct {
	URL       string        `toml:"url" default:"" rule:"url http https or empty" doc:"Program that is asked how long handlers will take, with its path (POST, JSON); empty asks none." effect:"Steps whose policy orders by expected times go by its answers, while they are any good. The same in the whole fleet."`
	Token     Secret        `toml:"token" secret:"yes" default:"" doc:"Bearer token for the predictor." effect:"Where it wants one."`
	Timeout   time.Duration `toml:"timeout_ms" default:"500" min:"1" max:"10000" doc:"Longest time for one request to the predictor." effect:"Beyond it learned times count; no step waits for an answer."`
	BatchSize int           `toml:"batch_size" default:"256" min:"1" max:"10000" doc:"Most questions of one request, and most that wait for the next one." effect:"What has no room is asked when it comes again."`
	Answers   int           `toml:"max_answers" default:"10000" min:"1" max:"1000000" doc:"Most answers of the predictor that a daemon remembers, for five minutes each." effect:"Too few make steps be put in line by learned times, and ask more."`
}

// Shutdown is [common.shutdown].
type Shutdown struct {
	Delay time.Duration `toml:"delay_ms" default:"-1" min:"-1" max:"300000" doc:"How long a daemon that was told to stop says that it is not ready and serves everything as before; -1 means 3000 where its API listens on an address that others can reach, else 0." effect:"Load balancers and clients learn of it before requests are refused; too short and they see refusals, longer delays every roll-out."`
}

// ListenerDSN is the connection for LISTEN and replication: listener_url, or
// url where that is empty.
func (d Database) ListenerDSN() DSN {
	if d.ListenerURL != "" {
		return d.ListenerURL
	}
	return d.URL
}

// Uses reports whether one of the sources carries signals, as the fleet's or as the one that it moves
// away from.
func (s signals) Uses(sources ...string) bool {
	return slices.Contains(sources, s.EventSource) || slices.Contains(sources, s.MovingFrom)
}

// SchemaChecks bounds the checks of contexts, results and payloads against the JSON Schemas of
// templates ([common.schema_checks]).
type SchemaChecks struct {
	MaxSteps      int           `toml:"max_steps" default:"2000000" min:"20000" max:"1000000000" doc:"Steps of one check, each the work for one value and one subschema that applies to it." effect:"Beyond it a request is refused (400), a step or the run of a schedule fails."`
	MaxTime       time.Duration `toml:"max_time_ms" default:"10000" min:"100" max:"300000" doc:"Longest time of one check." effect:"Beyond it a request may be tried again (503), a step or the run of a schedule fails."`
	MaxConcurrent int           `toml:"max_concurrent" default:"1" min:"1" max:"1024" doc:"Checks of more than 20,000 steps under way at once in a daemon; smaller ones do not wait." effect:"The processors that large values may take from other work, and memory: up to 60 MB each per million steps."`
	MaxWaiting    int           `toml:"max_waiting" default:"100" min:"1" max:"10000" doc:"Such checks that may wait for their turn." effect:"Beyond it requests may be tried again (503), as are steps of the engine and schedules."`
}

// NamespaceGrant lets the content of a namespace use others.
type NamespaceGrant struct {
	From string   `toml:"from" rule:"nonempty" doc:"Namespace of the templates and tasks." effect:"They may use the namespaces of to."`
	To   []string `toml:"to" rule:"nonempty" doc:"Namespaces that they may use; * means all." effect:"Templates there run as their sub-workflows and next tasks, and tasks there may be depended on."`
}

// Documents bounds the JSON of contexts and results ([common.documents]).
type Documents struct {
	MaxBytes      int `toml:"max_bytes" default:"1048576" min:"1024" max:"16777216" doc:"Most bytes of the context of a task, and of the result of a step." effect:"Beyond it a request is refused (400), and a step fails for good. Requests over HTTP are bound by web.max_body_bytes too; SQL functions and programs that create tasks in their own transactions always have the default."`
	MaxDepth      int `toml:"max_depth" default:"100" min:"1" max:"100" doc:"Objects and lists inside each other in the context of a task." effect:"Beyond it a request is refused."`
	MaxItems      int `toml:"max_items" default:"0" min:"0" max:"1000000" doc:"Keys of an object and elements of a list in the context of a task; 0 means any number." effect:"Beyond it a request is refused."`
	MaxCharacters int `toml:"max_characters" default:"0" min:"0" max:"16777216" doc:"Characters of a text in the context of a task; 0 means any number." effect:"Beyond it a request is refused."`
}
