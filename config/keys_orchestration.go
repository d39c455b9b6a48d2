package config

import "slices"

// orchestrationKeys are the keys of the orchestrator daemon.
func orchestrationKeys() []Key {
	servers := webDefaults{
		daemon: "orchestration", issuer: "tasker-core", audience: "tasker-api",
		webPort: "8080", grpcPort: "9190", grpcEnv: "TASKER_ORCHESTRATION_GRPC_BIND_ADDRESS",
		poolSize: 20, poolMax: 30, hint: 50, streams: 200,
	}
	return slices.Concat(
		under("orchestration",
			boolean("enable_performance_logging", true, "Log how long processing takes.", "").ignored("durations are metrics (tasker_store_statement_seconds, tasker_event_processing_duration_seconds), not log lines"),
			integer("shutdown_timeout_ms", 30000, 1000, 300000, "Time to finish what has begun when stopping.",
				"Beyond it the daemon stops; unfinished work is taken up by others."),
			integer("heartbeat_interval_ms", 10000, 100, 3600000, "How often the daemon records that it is alive.",
				"How soon the fleet view notices a dead replica."),
		),
		eventSystemKeys(systemDefaults{
			prefix: "orchestration.event_systems.orchestration", id: "orchestration-event-system", batchKey: "orchestration.apply.batch_size",
			batch: 20, parallel: 50, fallbackSeconds: 5, intervalMS: 500, relaxedMS: 5000,
		}),
		eventSystemKeys(systemDefaults{
			prefix: "orchestration.event_systems.task_readiness", id: "task-readiness-event-system", batchKey: "orchestration.leases.sweep_batch_size",
			batch: 50, parallel: 100, fallbackSeconds: 5, intervalMS: 1000, relaxedMS: 5000,
		}),
		engineKeys(),
		decisionKeys(),
		dlqKeys(),
		operationsKeys(),
		under("orchestration.batch_processing",
			boolean("enabled", true, "Allow batchable steps.", "Off, a step that asks for batches fails."),
			integer("max_parallel_batches", 50, 1, 1000, "Batches of one step that run at the same time.", "Bounds the load of one fan-out."),
			integer("max_batches_per_step", 10000, 1, 30000, "Batches that one step may ask for.", "Bounds the transaction that creates them; more fails the step."),
			integer("default_batch_size", 1000, 1, 100000, "Items per batch where the template names no size.", "Overhead against the cost of a repeat.").planned("batches that the engine cuts by itself"),
			integer("checkpoint_stall_minutes", 15, 1, 1440, "Time without a checkpoint after which a running step that saves checkpoints counts as stalled.",
				"It is shown, by the staleness view, the sweep and a metric; nothing is ended over it."),
		),
		under("orchestration.mpsc_channels",
			integer("command_processor.command_buffer_size", 5000, 10, 1000000, "Capacity of the command channel.", "A full channel holds signals back; the poller makes up for them."),
			integer("event_systems.event_channel_buffer_size", 10000, 10, 1000000, "Different signals that wait for one event system.", "Beyond it payloads are given up and everything is looked at."),
			integer("event_listeners.pgmq_event_buffer_size", 50000, 10, 1000000, "Different signals that wait on the listening connection.", "Beyond it payloads are given up and everything is looked at."),
		),
		webKeys(servers),
		under("orchestration.web",
			integer("max_body_bytes", 2097152, 1024, 268435456, "Largest request body in bytes.", "Larger is answered 413."),
			integer("body_budget_bytes", 16777216, 65536, 17179869184, "Bytes that the bodies of requests may take up together, those of up to 16 KiB aside.",
				"Bounds memory, which is about eight times as much. A request that waits longer than 5 s for its share is answered 503."),
			integer("answer_budget_bytes", 33554432, 1048576, 17179869184, "Bytes that answers may take up together, as they are read from the database.",
				"Bounds memory, which is about five times as much, and how many requests read at once (one for each MiB). Those that wait longer than 5 s are answered 503."),
			integer("max_wait_seconds", 60, 0, 3600, "Longest time a request may wait for a task to end; 0 forbids waiting.", "Bounds open connections."),
		),
		waiting(forGRPC, grpcKeys(servers)...),
	)
}

// engineKeys size the transactions in which the orchestrator moves tasks.
func engineKeys() []Key {
	return under("orchestration",
		integer("apply.batch_size", 200, 1, 5000, "Tasks moved by one transaction.", "Throughput under load against the length of a transaction."),
		integer("apply.max_batch_bytes", 8388608, 65536, 1073741824, "Results of decisions and batchable steps that one transaction takes into memory, in bytes.", "After a transaction above it the next ones take fewer steps, until they fit."),
		integer("events.max_consumers", 100, 1, 10000, "How many event consumers there may be.", "Each is listed with how far behind it is."),
		integer("events.max_streams", 100, 1, 10000, "Streams of domain events that one replica serves at once.", "Each holds a connection; beyond it clients are told to come back (503)."),
		integer("create.batch_size", 2000, 1, 10000, "Tasks created by one transaction.", "Throughput of task creation under load."),
		integer("create.max_pending", 10000, 1, 1000000, "Task requests that may wait for creation.", "Beyond it callers are told to come back (503)."),
		text("create.input_schema", "enforce", "What becomes of a request whose context breaks the input_schema of its template.",
			"enforce refuses it (400), warn accepts and logs it, off does not look. Handlers and programs that create tasks in their own transactions are always held to it.").
			oneOf("enforce", "warn", "off"),
		integer("leases.sweep_batch_size", 500, 1, 10000, "Expired leases taken back at once.", "How fast the work of dead workers returns."),
		integer("leases.grace_ms", 5000, 0, 60000, "Time without the end of a lease after an orchestrator has started or has reached the database again.",
			"Workers for which the database was away extend their leases first. At least a heartbeat of theirs and its time-out."),
		integer("leases.max_crashes", 3, 1, 1000, "Leases a step may lose before it counts as failed for good.", "Keeps a step that kills its worker from killing all."),
		integer("waits.max_task_depth", 10, 1, 100, "Tasks of which each is a step of the one before.", "Ends a workflow that is a step of itself."),
		integer("waits.event_ttl_seconds", 86400, 60, 31536000, "Seconds for which an event from outside is kept.", "How early an event may come before a step waits for it."),
	)
}

func decisionKeys() []Key {
	return under("orchestration.decision_points",
		boolean("enabled", true, "Allow decision steps.", "Off, a decision that names steps fails."),
		integer("max_steps_per_decision", 100, 1, 10000, "Most steps one decision may create.", "Stops a runaway decision."),
		integer("max_decision_depth", 20, 1, 100, "Deepest nesting of decisions.", "Stops endless recursion."),
		integer("warn_threshold_steps", 50, 1, 10000, "Steps of one decision that are logged as a warning.", "Early sign of a runaway."),
		integer("warn_threshold_depth", 10, 1, 100, "Depth that is logged as a warning.", "Early sign of recursion."),
		boolean("enable_detailed_logging", false, "Log each decision in full.", "Much output; for diagnosis."),
		boolean("enable_metrics", true, "Count the steps and batches that decisions and batchable steps create.", "Off, tasker_decision_steps_created_total and tasker_batches_created_total stay as they are."),
	)
}

func dlqKeys() []Key {
	return under("orchestration.dlq",
		boolean("enabled", true, "Use the dead letter queue.", "Off, stuck tasks get no entry."),
		boolean("staleness_detection.enabled", true, "Look for tasks that no longer move.", "Off, they stay as they are until an operator acts."),
		integer("staleness_detection.detection_interval_seconds", 300, 30, 3600, "How often to look.", "How soon a stale task is found."),
		integer("staleness_detection.batch_size", 100, 1, 10000, "Tasks judged at once.", "Length of one sweep."),
		boolean("staleness_detection.dry_run", false, "Only log what would be done.", "For trying thresholds."),
		integer("staleness_detection.thresholds.waiting_for_dependencies_minutes", 60, 1, 1440, "Longest wait for parents.", "Beyond it the task is stale."),
		integer("staleness_detection.thresholds.waiting_for_retry_minutes", 30, 1, 1440, "Longest wait for a retry.", "Beyond it the task is stale."),
		integer("staleness_detection.thresholds.steps_in_process_minutes", 30, 1, 1440, "Longest time with steps being processed.", "Beyond it a worker is thought to hang."),
		integer("staleness_detection.thresholds.task_max_lifetime_hours", 24, 1, 168, "Greatest age of a task in any state.", "Beyond it the task is stale."),
		boolean("staleness_detection.actions.auto_transition_to_error", true, "Move a stale task to error.", "Off, it is only recorded."),
		boolean("staleness_detection.actions.auto_move_to_dlq", true, "Open an entry in the dead letter queue.", "Off, nobody is asked to look."),
		boolean("staleness_detection.actions.emit_events", true, "Publish an event for each stale task.", "Lets other systems react.").planned("events of stale tasks"),
		text("staleness_detection.actions.event_channel", "task_staleness_detected", "Channel of these events.", "Subscribers listen there.").planned("events of stale tasks").
			must(&textRule{text: "1–255 characters", ok: func(s string) bool { return len(s) >= 1 && len(s) <= 255 }}),
	)
}
