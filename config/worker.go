package config

import (
	"time"
)

// Worker holds what only the worker reads ([worker]).
type Worker struct {
	WorkerID          string        `toml:"worker_id" default:"" must:"at most 128 characters without spaces, or empty" match:"^\\S{0,128}$" env:"TASKER_WORKER_ID" doc:"Identity of this replica; empty makes one of the host name and a random suffix." effect:"Unique in the fleet: while one worker lives, another one of the same identity does not start. One that is started again has the claims of its predecessor back after one and a half heartbeats, those of sessions after sessions.reclaim_grace_ms more unless their processes go on with them."`
	Exclusive         bool          // WorkerID was configured, for this replica alone
	WorkerType        string        `toml:"worker_type" default:"general" rule:"nonempty" doc:"Class of the worker; general takes everything." effect:"Shown in the fleet view."`
	Namespaces        []string      `toml:"namespaces" default:"" rule:"namespaces" env:"WORKER_NAMESPACES" doc:"Namespaces to take work from, * for all; empty means those of its templates and handlers." effect:"Spreads namespaces over fleets of workers."`
	Tags              []string      `toml:"tags" default:"" rule:"nonempty" doc:"Labels of this replica." effect:"Shown in the fleet view; work can be routed by them."`
	TemplatePath      string        `toml:"template_path" default:"${TASKER_TEMPLATE_PATH:-}" env:"TASKER_TEMPLATE_PATH" doc:"Directory or file of task templates, or empty." effect:"Templates found there are registered at start."`
	Lease             time.Duration `toml:"lease_seconds" default:"10" min:"5" max:"86400" doc:"Time a claimed step belongs to the worker unless a heartbeat extends it." effect:"How soon the steps of a dead worker run elsewhere. Handlers may run for longer: heartbeats extend it."`
	HeartbeatInterval time.Duration `toml:"heartbeat_interval_ms" default:"3000" min:"100" max:"3600000" doc:"How often leases are extended." effect:"One statement per worker each time; at most a third of the lease."`
	LeaseGrace        time.Duration `toml:"lease_grace_seconds" default:"50" min:"0" max:"86400" doc:"Time handlers run on after their lease has ended while no heartbeat reaches the database." effect:"A database that is away for lease and grace stops no handler. A worker that alone is cut off runs its steps beside their next executions for as long."`
	Prefetch          int           `toml:"prefetch" default:"0" min:"0" max:"10000" doc:"Steps claimed beyond the free handler permits." effect:"Hides the latency of claiming; prefetched steps wait here instead of at an idle worker."`
	Transactions      struct {
		MaxConnections int `toml:"max_connections" default:"10" min:"1" max:"1000" doc:"Connections for handlers that work in a transaction, beside those of the pool; opened when first needed." effect:"A handler holds one for as long as it runs; more handlers wait in the time of their steps."`
	} `toml:"transactions"`
	Report struct {
		Settle     bool `toml:"settle" default:"true" doc:"Decide what follows from successes where they happen." effect:"Off, an orchestrator finds each on the board: more round trips between two steps."`
		BatchSize  int  `toml:"batch_size" default:"500" min:"1" max:"10000" doc:"Results reported by one transaction." effect:"Throughput under load."`
		MaxPending int  `toml:"max_pending" default:"10000" min:"1" max:"1000000" doc:"Results that may wait to be reported." effect:"Beyond it handlers wait."`
	} `toml:"report"`
	Inputs struct {
		MaxBytes   int `toml:"max_bytes" default:"33554432" min:"65536" max:"1073741824" doc:"Most bytes of the context, the results of parents and the checkpoint of one step together, as JSON." effect:"Beyond it the step fails for good with InputsTooLarge, which names the sum."`
		TotalBytes int `toml:"total_bytes" default:"67108864" min:"65536" max:"4294967296" doc:"Most bytes of the inputs of all running steps that have more than 64 KiB each." effect:"The memory that large inputs take; further such steps wait for it. At least max_bytes."`
	} `toml:"inputs"`
	StepResults struct {
		Schema string `toml:"schema" default:"warn" oneof:"enforce,warn,off" doc:"What becomes of a result that does not fit the result_schema of its step." effect:"enforce fails the step for good with the code RESULT_SCHEMA, warn accepts, logs and counts it, off does not look. It holds for handlers in every language."`
	} `toml:"step_results"`
	Checkpoint struct {
		MaxCursorBytes      int           `toml:"max_cursor_bytes" default:"4096" min:"16" max:"65536" doc:"Largest cursor of a checkpoint, in bytes of JSON." effect:"Larger is refused. Earlier cursors are kept in the history, so a step may hold that many."`
		MaxAccumulatedBytes int           `toml:"max_accumulated_bytes" default:"65536" min:"16" max:"1048576" doc:"Largest accumulated results of a checkpoint, in bytes of JSON." effect:"Larger is refused. Every checkpoint writes all of it."`
		MaxHistory          int           `toml:"max_history" default:"20" min:"0" max:"1000" doc:"Earlier cursors kept with a checkpoint, the newest." effect:"What people see of how a step came along."`
		SaveTimeout         time.Duration `toml:"save_timeout_ms" default:"10000" min:"1000" max:"300000" doc:"Longest time a handler that saves a checkpoint waits for the database." effect:"Beyond it the handler is told; a handler that yields waits for nothing."`
	} `toml:"checkpoint"`
	Logs struct {
		Enabled    bool          `toml:"enabled" default:"true" doc:"Keep what handlers log, and how far they are, with their attempts." effect:"Off, lines leave with the process that wrote them."`
		Level      string        `toml:"level" default:"info" oneof:"debug,info,warn,error" doc:"Least level of the lines that are kept." effect:"Independent of log_level."`
		Kept       int           `toml:"max_kept_bytes" default:"524288" min:"4096" max:"16777216" doc:"Bytes of the first lines of an attempt that are kept, and of its last, before compression." effect:"Lines between them are dropped and counted. A chunk counts 128 bytes at least, which bounds the rows of an attempt."`
		MaxLine    int           `toml:"max_line_bytes" default:"16384" min:"256" max:"262144" doc:"Largest text of a line, and largest fields." effect:"A longer text is cut; larger fields are left out."`
		MaxPending int           `toml:"max_pending_bytes" default:"8388608" min:"65536" max:"1073741824" doc:"Bytes of lines that wait to be written, of all handlers." effect:"The memory for logs, up to twice of it, and what is written in each flush_after_ms. A handler has its share; beyond it the middle of its lines is dropped."`
		FlushAfter time.Duration `toml:"flush_after_ms" default:"700" min:"50" max:"60000" doc:"How long a line waits for others before it is written." effect:"What a killed worker has not written. Shorter makes more and smaller rows."`
		Redact     []string      `toml:"redact" default:"password passwd secret token authorization api_key apikey cookie" rule:"nonempty" doc:"Names of fields whose values are not kept, at any depth, in whatever case." effect:"They are shown as ****. The text of a line is kept as it is."`
	} `toml:"logs"`
	IsolatedItems struct {
		MaxItems      int `toml:"max_items" default:"1000" min:"1" max:"10000" doc:"Items that one batch may isolate (failure_strategy: isolate)." effect:"Beyond it the batch fails: what cannot be processed to that extent has another cause."`
		MaxItemBytes  int `toml:"max_item_bytes" default:"4096" min:"16" max:"65536" doc:"Largest item that a batch isolates, in bytes of JSON." effect:"Larger is refused, and the batch fails."`
		MaxTotalBytes int `toml:"max_total_bytes" default:"262144" min:"1024" max:"4194304" doc:"Largest list of isolated items of one batch, in bytes of JSON with their errors." effect:"Beyond it the batch fails. Each checkpoint of the batch writes all of it."`
	} `toml:"isolated_items"`
	Sessions     Sessions `toml:"sessions"`
	DomainEvents struct {
		MaxPayloadBytes  int           `toml:"max_payload_bytes" default:"262144" min:"16" max:"16777216" doc:"Largest payload of a domain event, in bytes of JSON." effect:"Larger is not published, and counted. Without a publisher the payload is the result of the step."`
		MaxOwn           int           `toml:"max_own" default:"100" min:"0" max:"1000" doc:"Events that a handler may publish in one step beside those of its template." effect:"Beyond it the step fails. Their payloads together have max_payload_bytes at most."`
		PublisherTimeout time.Duration `toml:"publisher_timeout_ms" default:"5000" min:"10" max:"60000" doc:"Longest time a publisher works on one event." effect:"Beyond it the event is not published, and counted. The end of the step is not reported before."`
		UnknownPublisher string        `toml:"unknown_publisher" default:"default" oneof:"default,nothing,error" doc:"What becomes of an event whose publisher the worker does not have." effect:"default publishes it with the plain payload and warns, nothing does not publish it, error is nothing and keeps a worker from starting whose own templates name such a publisher."`
	} `toml:"domain_events"`
	EventSystems struct {
		Worker struct {
			EventSystem `id:"worker-event-system" bound:"worker.mpsc_channels.handler_dispatch.max_concurrent_handlers" batch:"20" parallel:"100" fallback:"2" interval:"500" relaxed:"2000"`
			Metadata    struct {
				InProcessEvents struct {
					_                      bool `toml:"ffi_integration_enabled" default:"true" ignored:"handlers run in the process of the worker: no runtime of another language is embedded" doc:"Deliver events to handlers of an embedded language."`
					DeduplicationCacheSize int  `toml:"deduplication_cache_size" default:"10000" min:"0" max:"10000000" doc:"Ids of fast events from other workers that are remembered, so that none is handled twice." effect:"Memory against doubles; 0 remembers none."`
				} `toml:"in_process_events"`
				_ time.Duration `toml:"listener.retry_interval_seconds" default:"5" min:"1" max:"3600" ignored:"listener.reconnect_initial_ms and reconnect_max_ms decide" doc:"Gap between attempts to reconnect."`
				_ int           `toml:"listener.max_retry_attempts" default:"5" min:"0" max:"1000000" ignored:"listener.max_reconnect_attempts decides" doc:"Attempts before polling takes over."`
				_ time.Duration `toml:"listener.event_timeout_seconds" default:"60" min:"1" max:"3600" ignored:"the listener waits without waking" doc:"Longest wait for an event."`
				_ bool          `toml:"listener.batch_processing" default:"true" ignored:"signals always coalesce" doc:"Handle notifications that piled up together."`
				_ time.Duration `toml:"listener.connection_timeout_seconds" default:"30" min:"1" max:"300" ignored:"listener.connection_timeout_ms decides" doc:"Limit for opening the listening connection."`
				_ bool          `toml:"fallback_poller.enabled" default:"true" ignored:"deployment_mode decides (EventDrivenOnly does not poll)" doc:"Poll beside the events."`
				_ time.Duration `toml:"fallback_poller.polling_interval_ms" default:"1000" min:"1" max:"3600000" ignored:"poller.interval_ms and relaxed_interval_ms decide" doc:"Poll interval."`
				_ int           `toml:"fallback_poller.batch_size" default:"20" min:"1" max:"10000" ignored:"as many as there are free permits are claimed" doc:"Messages per poll."`
				_ time.Duration `toml:"fallback_poller.age_threshold_seconds" default:"5" min:"0" max:"86400" ignored:"a poll takes all that is due" doc:"Least age of a message a poll takes."`
				_ time.Duration `toml:"fallback_poller.max_age_hours" default:"24" min:"1" max:"8760" ignored:"due work is never left out for its age" doc:"Greatest age of a message a poll takes."`
				_ time.Duration `toml:"fallback_poller.visibility_timeout_seconds" default:"30" min:"1" max:"3600" ignored:"worker.lease_seconds decides" doc:"Time a polled message stays hidden."`
				_ []string      `toml:"fallback_poller.supported_namespaces" default:"" rule:"namespace" sets:"worker.namespaces" doc:"Namespaces to poll; empty means all." effect:"Used as worker.namespaces when no file sets that key."`
			} `toml:"metadata"`
		} `toml:"worker"`
	} `toml:"event_systems"`
	CircuitBreakers struct {
		FFICompletionSend struct {
			FailureThreshold  int           `toml:"failure_threshold" default:"5" min:"1" max:"100" doc:"Failures in a row that open the breaker of result reports." effect:"Open, results are kept and sent later."`
			RecoveryTimeout   time.Duration `toml:"recovery_timeout_seconds" default:"5" min:"1" max:"300" doc:"Time open before a trial report." effect:"How soon reports resume."`
			SuccessThreshold  int           `toml:"success_threshold" default:"2" min:"1" max:"100" doc:"Successes in a row, half open, that close it." effect:"Proof of recovery."`
			SlowSendThreshold time.Duration `toml:"slow_send_threshold_ms" default:"100" min:"10" max:"10000" doc:"Duration of a report that is logged as slow." effect:"Early sign of a slow database."`
		} `toml:"ffi_completion_send"`
	} `toml:"circuit_breakers"`
	MPSCChannels struct {
		_            int `toml:"command_processor.command_buffer_size" default:"2000" min:"10" max:"1000000" ignored:"a worker looks, claims and reports without a command channel" doc:"Capacity of the command channel."`
		EventSystems struct {
			EventChannelBufferSize int `toml:"event_channel_buffer_size" default:"2000" min:"10" max:"1000000" doc:"Different signals that wait for the event system." effect:"Beyond it payloads are given up and everything is looked at."`
		} `toml:"event_systems"`
		_              int `toml:"event_subscribers.completion_buffer_size" default:"1000" min:"10" max:"1000000" ignored:"completions have no subscribers; in_process_events.broadcast_buffer_size bounds those of events" doc:"Capacity of a subscriber to completions."`
		_              int `toml:"event_subscribers.result_buffer_size" default:"1000" min:"10" max:"1000000" ignored:"results have no subscribers; worker.report.max_pending bounds them" doc:"Capacity of a subscriber to results."`
		EventListeners struct {
			PGMQEventBufferSize int `toml:"pgmq_event_buffer_size" default:"10000" min:"10" max:"1000000" doc:"Different signals that wait on the listening connection." effect:"Beyond it payloads are given up and everything is looked at."`
		} `toml:"event_listeners"`
		InProcessEvents struct {
			BroadcastBufferSize int           `toml:"broadcast_buffer_size" default:"2000" min:"10" max:"1000000" doc:"Events a slow in-process subscriber may lag behind." effect:"Beyond it the oldest are dropped."`
			LogSubscriberErrors bool          `toml:"log_subscriber_errors" default:"true" doc:"Log errors of subscribers." effect:"Off, they only count."`
			DispatchTimeout     time.Duration `toml:"dispatch_timeout_ms" default:"5000" min:"100" max:"60000" doc:"Limit for handing an event to a subscriber." effect:"A hanging subscriber is passed over."`
		} `toml:"in_process_events"`
		DomainEvents struct {
			CommandBufferSize    int           `toml:"command_buffer_size" default:"1000" min:"10" max:"1000000" doc:"Capacity of the domain event channel." effect:"Beyond it fast events are dropped."`
			ShutdownDrainTimeout time.Duration `toml:"shutdown_drain_timeout_ms" default:"5000" min:"100" max:"60000" doc:"Time to deliver what is queued when stopping." effect:"Fast events left over are lost."`
			LogDroppedEvents     bool          `toml:"log_dropped_events" default:"true" doc:"Log dropped events." effect:"Off, they only count."`
		} `toml:"domain_events"`
		_ struct {
			_ int           `toml:"dispatch_buffer_size" default:"1000" min:"10" max:"1000000" doc:"Capacity of the channel to embedded handlers."`
			_ time.Duration `toml:"completion_timeout_ms" default:"30000" min:"1000" max:"600000" doc:"Limit for an embedded handler."`
			_ time.Duration `toml:"callback_timeout_ms" default:"5000" min:"100" max:"60000" doc:"Limit for callbacks after completion."`
			_ time.Duration `toml:"starvation_warning_threshold_ms" default:"10000" min:"1000" max:"300000" doc:"Age of a waiting event that is logged."`
			_ time.Duration `toml:"completion_send_timeout_ms" default:"10000" min:"1000" max:"300000" doc:"Limit for handing a completion over."`
		} `toml:"ffi_dispatch" ignored:"handlers run in the process of the worker: no runtime of another language is embedded"`
		HandlerDispatch struct {
			_                     int           `toml:"dispatch_buffer_size" default:"1000" min:"10" max:"1000000" ignored:"max_concurrent_handlers and worker.prefetch bound what is claimed" doc:"Capacity of the channel to handlers."`
			_                     int           `toml:"completion_buffer_size" default:"1000" min:"10" max:"1000000" ignored:"worker.report.max_pending bounds the results that wait" doc:"Capacity of the channel of results."`
			MaxConcurrentHandlers int           `toml:"max_concurrent_handlers" default:"10" min:"1" max:"10000" doc:"Handlers that run at the same time." effect:"The worker's throughput, memory and load on what the handlers call."`
			HandlerTimeout        time.Duration `toml:"handler_timeout_ms" default:"30000" min:"1000" max:"3600000" doc:"Limit for one run of a handler." effect:"Beyond it the run is cancelled and counts as a failure that may be retried."`
			LoadShedding          LoadShedding  `toml:"load_shedding"`
		} `toml:"handler_dispatch"`
	} `toml:"mpsc_channels"`
	_ struct {
		_ string        `toml:"base_url" default:"http://localhost:8080" rule:"url http https" doc:"Address of the orchestrator."`
		_ string        `toml:"transport" default:"rest" oneof:"rest,grpc" doc:"Protocol of these calls."`
		_ time.Duration `toml:"timeout_ms" default:"30000" min:"100" max:"300000" doc:"Limit for one call."`
		_ int           `toml:"max_retries" default:"3" min:"0" max:"10" doc:"Retries of a failed call."`
		_ struct {
			_ string `toml:"type" default:"" oneof:",bearer,api_key" alias:"bearer_token=bearer,none=" doc:"Kind of credential sent: none, a bearer token or an API key."`
			_ string `toml:"token" secret:"yes" default:"" env:"TASKER_ORCHESTRATION_AUTH_TOKEN,TASKER_AUTH_TOKEN" doc:"Bearer token."`
			_ string `toml:"key" secret:"yes" default:"" env:"TASKER_API_KEY" doc:"API key."`
			_ string `toml:"header_name" default:"X-API-Key" rule:"header" env:"TASKER_API_KEY_HEADER" doc:"Header of the API key."`
		} `toml:"auth"`
	} `toml:"orchestration_client" ignored:"a worker reaches the orchestrator through the database alone"`
	Web  Web  `toml:"web" port:"8081" issuer:"tasker-worker" audience:"worker-api" pool:"10" pool_max:"15" hint:"25"`
	GRPC GRPC `toml:"grpc" variable:"TASKER_WORKER_GRPC_BIND_ADDRESS" port:"9191" streams:"1000"`
}

// LoadShedding says from which share of the results that may wait a worker warns and stops claiming; the thresholds are percentages.
type LoadShedding struct {
	Enabled                  bool    `toml:"enabled" default:"true" doc:"Stop claiming while many results wait to be reported." effect:"Off, claiming stops at worker.report.max_pending, and nothing is warned of before."`
	CapacityThresholdPercent float64 `toml:"capacity_threshold_percent" default:"80" min:"0" max:"100" doc:"Share of worker.report.max_pending from which on nothing more is claimed." effect:"Leaves the work to other workers while this one cannot report."`
	WarningThresholdPercent  float64 `toml:"warning_threshold_percent" default:"70" min:"0" max:"100" doc:"Share of worker.report.max_pending that is logged as a warning." effect:"Early sign of a slow database."`
}

// Sessions bound those of processes in other languages.
type Sessions struct {
	MaxSessions  int           `toml:"max_sessions" default:"1000" min:"0" max:"100000" doc:"Sessions of processes in other languages (docs/reference/protocol.md); 0 allows none." effect:"Further processes are refused with 503. They share the permits of the worker (max_concurrent_handlers)."`
	MaxPermits   int           `toml:"max_permits" default:"100" min:"1" max:"10000" doc:"Steps that one session may hold." effect:"A session that asks for more is refused. One answer may have as many steps, each with its context and the results that it depends on."`
	ReclaimGrace time.Duration `toml:"reclaim_grace_ms" default:"3000" min:"100" max:"300000" doc:"Longest time between two requests of a session, and for a session to find its steps again after its daemon was started again under its worker_id." effect:"Beyond it the session is lost, and the steps that it holds run again at once."`
	MaxLosses    int           `toml:"max_losses" default:"10" min:"2" max:"1000" doc:"Processes with which a step may be lost before it counts as failed for good, although it is not blamed." effect:"Ends what never comes to its end. Such a loss uses no attempt; orchestration.leases.max_losses bounds those with a worker."`
	MaxWait      time.Duration `toml:"max_wait_ms" default:"10000" min:"0" max:"60000" doc:"Longest wait of a poll for steps." effect:"A process that is frozen or cut off without a word is noticed after this and the grace."`
}
