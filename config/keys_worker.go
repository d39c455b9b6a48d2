package config

import "slices"

// workerKeys are the keys of the worker daemon.
func workerKeys() []Key {
	servers := webDefaults{
		daemon: "worker", issuer: "tasker-worker", audience: "worker-api",
		webPort: "8081", grpcPort: "9191", grpcEnv: "TASKER_WORKER_GRPC_BIND_ADDRESS",
		poolSize: 10, poolMax: 15, hint: 25, streams: 1000,
	}
	return slices.Concat(
		workerOwnKeys(),
		eventSystemKeys(systemDefaults{
			prefix: "worker.event_systems.worker", id: "worker-event-system", batchKey: "worker.mpsc_channels.handler_dispatch.max_concurrent_handlers",
			batch: 20, parallel: 100, fallbackSeconds: 2, intervalMS: 500, relaxedMS: 2000,
		}),
		workerMetadataKeys(),
		under("worker.circuit_breakers.ffi_completion_send",
			integer("failure_threshold", 5, 1, 100, "Failures in a row that open the breaker of result reports.", "Open, results are kept and sent later."),
			integer("recovery_timeout_seconds", 5, 1, 300, "Time open before a trial report.", "How soon reports resume."),
			integer("success_threshold", 2, 1, 100, "Successes in a row, half open, that close it.", "Proof of recovery."),
			integer("slow_send_threshold_ms", 100, 10, 10000, "Duration of a report that is logged as slow.", "Early sign of a slow database."),
		),
		workerChannelKeys(),
		handlerKeys(),
		each(func(k Key) Key { return k.ignored(noClient) }, clientKeys()...),
		webKeys(servers),
		waiting(forGRPC, grpcKeys(servers)...),
	)
}

func workerOwnKeys() []Key {
	return under("worker",
		text("worker_id", "", "Identity of this replica; empty makes one of the host name and a random suffix.",
			"Unique in the fleet: while one worker lives, another one of the same identity does not start. One that is started again has the claims of its predecessor back after one and a half heartbeats.").env("TASKER_WORKER_ID").
			must(matching("at most 128 characters without spaces, or empty", `^\S{0,128}$`)),
		text("worker_type", "general", "Class of the worker; general takes everything.", "Shown in the fleet view.").must(notEmpty()),
		texts("namespaces", []string{}, "Namespaces to take work from; empty means those of its templates and handlers.",
			"Spreads namespaces over fleets of workers.").env("WORKER_NAMESPACES").must(namespaceName()),
		texts("tags", []string{}, "Labels of this replica.", "Shown in the fleet view; work can be routed by them.").must(notEmpty()),
		text("template_path", "${TASKER_TEMPLATE_PATH:-}", "Directory or file of task templates, or empty.",
			"Templates found there are registered at start.").env("TASKER_TEMPLATE_PATH"),
		integer("lease_seconds", 10, 5, 86400, "Time a claimed step belongs to the worker unless a heartbeat extends it.",
			"How soon the steps of a dead worker run elsewhere. Handlers may run for longer: heartbeats extend it."),
		integer("heartbeat_interval_ms", 3000, 100, 3600000, "How often leases are extended.",
			"One statement per worker each time; at most a third of the lease."),
		integer("lease_grace_seconds", 50, 0, 86400, "Time handlers run on after their lease has ended while no heartbeat reaches the database.",
			"A database that is away for lease and grace stops no handler. A worker that alone is cut off runs its steps beside their next executions for as long."),
		integer("prefetch", 0, 0, 10000, "Steps claimed beyond the free handler permits.",
			"Hides the latency of claiming; prefetched steps wait here instead of at an idle worker."),
		integer("transactions.max_connections", 10, 1, 1000, "Connections for handlers that work in a transaction, beside those of the pool; opened when first needed.",
			"A handler holds one for as long as it runs; more handlers wait in the time of their steps."),
		boolean("report.settle", true, "Decide what follows from successes where they happen.", "Off, an orchestrator finds each on the board: more round trips between two steps."),
		integer("report.batch_size", 500, 1, 10000, "Results reported by one transaction.", "Throughput under load."),
		integer("report.max_pending", 10000, 1, 1000000, "Results that may wait to be reported.", "Beyond it handlers wait."),
		integer("checkpoint.max_cursor_bytes", 4096, 16, 65536, "Largest cursor of a checkpoint, in bytes of JSON.",
			"Larger is refused. Earlier cursors are kept in the history, so a step may hold that many."),
		integer("checkpoint.max_accumulated_bytes", 65536, 16, 1048576, "Largest accumulated results of a checkpoint, in bytes of JSON.",
			"Larger is refused. Every checkpoint writes all of it."),
		integer("checkpoint.max_history", 20, 0, 1000, "Earlier cursors kept with a checkpoint, the newest.", "What people see of how a step came along."),
		integer("checkpoint.save_timeout_ms", 10000, 1000, 300000, "Longest time a handler that saves a checkpoint waits for the database.",
			"Beyond it the handler is told; a handler that yields waits for nothing."),
		integer("isolated_items.max_items", 1000, 1, 10000, "Items that one batch may isolate (failure_strategy: isolate).",
			"Beyond it the batch fails: what cannot be processed to that extent has another cause."),
		integer("isolated_items.max_item_bytes", 4096, 16, 65536, "Largest item that a batch isolates, in bytes of JSON.", "Larger is refused, and the batch fails."),
		integer("isolated_items.max_total_bytes", 262144, 1024, 4194304, "Largest list of isolated items of one batch, in bytes of JSON with their errors.",
			"Beyond it the batch fails. Each checkpoint of the batch writes all of it."),
		integer("domain_events.max_payload_bytes", 262144, 16, 16777216, "Largest payload of a domain event, in bytes of JSON.",
			"Larger is not published, and counted. Without a publisher the payload is the result of the step."),
		integer("domain_events.publisher_timeout_ms", 5000, 10, 60000, "Longest time a publisher works on one event.",
			"Beyond it the event is not published, and counted. The end of the step is not reported before."),
		text("domain_events.unknown_publisher", "default", "What becomes of an event whose publisher the worker does not have.",
			"default publishes it with the plain payload and warns, nothing does not publish it, error is nothing and keeps a worker from starting whose own templates name such a publisher.").
			oneOf("default", "nothing", "error"),
	)
}

func workerMetadataKeys() []Key {
	return under("worker.event_systems.worker.metadata",
		boolean("in_process_events.ffi_integration_enabled", true, "Deliver events to handlers of an embedded language.",
			"").ignored(noRuntime),
		integer("in_process_events.deduplication_cache_size", 10000, 0, 10000000, "Ids of fast events from other workers that are remembered, so that none is handled twice.", "Memory against doubles; 0 remembers none."),
		integer("listener.retry_interval_seconds", 5, 1, 3600, "Gap between attempts to reconnect.",
			"").ignored("listener.reconnect_initial_ms and reconnect_max_ms decide"),
		integer("listener.max_retry_attempts", 5, 0, 1000000, "Attempts before polling takes over.",
			"").ignored("listener.max_reconnect_attempts decides"),
		integer("listener.event_timeout_seconds", 60, 1, 3600, "Longest wait for an event.",
			"").ignored("the listener waits without waking"),
		boolean("listener.batch_processing", true, "Handle notifications that piled up together.",
			"").ignored("signals always coalesce"),
		integer("listener.connection_timeout_seconds", 30, 1, 300, "Limit for opening the listening connection.",
			"").ignored("listener.connection_timeout_ms decides"),
		boolean("fallback_poller.enabled", true, "Poll beside the events.",
			"").ignored("deployment_mode decides (EventDrivenOnly does not poll)"),
		integer("fallback_poller.polling_interval_ms", 1000, 1, 3600000, "Poll interval.",
			"").ignored("poller.interval_ms and relaxed_interval_ms decide"),
		integer("fallback_poller.batch_size", 20, 1, 10000, "Messages per poll.",
			"").ignored("as many as there are free permits are claimed"),
		integer("fallback_poller.age_threshold_seconds", 5, 0, 86400, "Least age of a message a poll takes.",
			"").ignored("a poll takes all that is due"),
		integer("fallback_poller.max_age_hours", 24, 1, 8760, "Greatest age of a message a poll takes.",
			"").ignored("due work is never left out for its age"),
		integer("fallback_poller.visibility_timeout_seconds", 30, 1, 3600, "Time a polled message stays hidden.",
			"").ignored("worker.lease_seconds decides"),
		texts("fallback_poller.supported_namespaces", []string{}, "Namespaces to poll; empty means all.",
			"Used as worker.namespaces when no file sets that key.").must(namespaceName()).sets(keyNamespaces),
	)
}

func workerChannelKeys() []Key {
	return under("worker.mpsc_channels",
		integer("command_processor.command_buffer_size", 2000, 10, 1000000, "Capacity of the command channel.", "").ignored("a worker looks, claims and reports without a command channel"),
		integer("event_systems.event_channel_buffer_size", 2000, 10, 1000000, "Different signals that wait for the event system.", "Beyond it payloads are given up and everything is looked at."),
		integer("event_subscribers.completion_buffer_size", 1000, 10, 1000000, "Capacity of a subscriber to completions.", "").ignored("completions have no subscribers; in_process_events.broadcast_buffer_size bounds those of events"),
		integer("event_subscribers.result_buffer_size", 1000, 10, 1000000, "Capacity of a subscriber to results.", "").ignored("results have no subscribers; worker.report.max_pending bounds them"),
		integer("event_listeners.pgmq_event_buffer_size", 10000, 10, 1000000, "Different signals that wait on the listening connection.", "Beyond it payloads are given up and everything is looked at."),
		integer("in_process_events.broadcast_buffer_size", 2000, 10, 1000000, "Events a slow in-process subscriber may lag behind.", "Beyond it the oldest are dropped."),
		boolean("in_process_events.log_subscriber_errors", true, "Log errors of subscribers.", "Off, they only count."),
		integer("in_process_events.dispatch_timeout_ms", 5000, 100, 60000, "Limit for handing an event to a subscriber.", "A hanging subscriber is passed over."),
		integer("domain_events.command_buffer_size", 1000, 10, 1000000, "Capacity of the domain event channel.", "Beyond it fast events are dropped."),
		integer("domain_events.shutdown_drain_timeout_ms", 5000, 100, 60000, "Time to deliver what is queued when stopping.", "Fast events left over are lost."),
		boolean("domain_events.log_dropped_events", true, "Log dropped events.", "Off, they only count."),
		integer("ffi_dispatch.dispatch_buffer_size", 1000, 10, 1000000, "Capacity of the channel to embedded handlers.", "").ignored(noRuntime),
		integer("ffi_dispatch.completion_timeout_ms", 30000, 1000, 600000, "Limit for an embedded handler.", "").ignored(noRuntime),
		integer("ffi_dispatch.callback_timeout_ms", 5000, 100, 60000, "Limit for callbacks after completion.", "").ignored(noRuntime),
		integer("ffi_dispatch.starvation_warning_threshold_ms", 10000, 1000, 300000, "Age of a waiting event that is logged.", "").ignored(noRuntime),
		integer("ffi_dispatch.completion_send_timeout_ms", 10000, 1000, 300000, "Limit for handing a completion over.", "").ignored(noRuntime),
	)
}

func handlerKeys() []Key {
	return under("worker.mpsc_channels.handler_dispatch",
		integer("dispatch_buffer_size", 1000, 10, 1000000, "Capacity of the channel to handlers.", "").ignored("max_concurrent_handlers and worker.prefetch bound what is claimed"),
		integer("completion_buffer_size", 1000, 10, 1000000, "Capacity of the channel of results.", "").ignored("worker.report.max_pending bounds the results that wait"),
		integer("max_concurrent_handlers", 10, 1, 10000, "Handlers that run at the same time.", "The worker's throughput, memory and load on what the handlers call."),
		integer("handler_timeout_ms", 30000, 1000, 3600000, "Limit for one run of a handler.", "Beyond it the run is cancelled and counts as a failure that may be retried."),
		boolean("load_shedding.enabled", true, "Stop claiming while many results wait to be reported.", "Off, claiming stops at worker.report.max_pending, and nothing is warned of before."),
		float("load_shedding.capacity_threshold_percent", 80, 0, 100, "Share of worker.report.max_pending from which on nothing more is claimed.", "Leaves the work to other workers while this one cannot report."),
		float("load_shedding.warning_threshold_percent", 70, 0, 100, "Share of worker.report.max_pending that is logged as a warning.", "Early sign of a slow database."),
	)
}

func clientKeys() []Key {
	return under("worker.orchestration_client",
		text("base_url", "http://localhost:8080", "Address of the orchestrator.", "Used for calls to its API.").must(urlOf(false, "http", "https")),
		text("transport", "rest", "Protocol of these calls.", "grpc needs the address of the gRPC server.").oneOf("rest", "grpc"),
		integer("timeout_ms", 30000, 100, 300000, "Limit for one call.", "Beyond it the call is retried or fails."),
		integer("max_retries", 3, 0, 10, "Retries of a failed call.", "Only network errors and 5xx are retried."),
		text("auth.type", "", "Kind of credential sent: none, a bearer token or an API key.", "Needed where the orchestrator requires credentials.").
			oneOf("", "bearer", "api_key").alias("bearer_token", "bearer", "none", ""),
		text("auth.token", "", "Bearer token.", "Sent with type bearer.").env("TASKER_ORCHESTRATION_AUTH_TOKEN", "TASKER_AUTH_TOKEN").secret(),
		text("auth.key", "", "API key.", "Sent with type api_key.").env("TASKER_API_KEY").secret(),
		text("auth.header_name", "X-API-Key", "Header of the API key.", "Must be the one the orchestrator reads.").env("TASKER_API_KEY_HEADER").must(headerName()),
	)
}
