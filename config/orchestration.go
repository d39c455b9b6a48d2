package config

import (
	"time"
)

// Orchestration holds what only the orchestrator reads ([orchestration]).
type Orchestration struct {
	_                 bool          `toml:"enable_performance_logging" default:"true" ignored:"durations are metrics (tasker_store_statement_seconds, tasker_event_processing_duration_seconds), not log lines" doc:"Log how long processing takes."`
	ShutdownTimeout   time.Duration `toml:"shutdown_timeout_ms" default:"30000" min:"1000" max:"300000" doc:"Time to finish what has begun when stopping." effect:"Beyond it the daemon stops; unfinished work is taken up by others."`
	HeartbeatInterval time.Duration `toml:"heartbeat_interval_ms" default:"10000" min:"100" max:"3600000" doc:"How often the daemon records that it is alive." effect:"How soon the fleet view notices a dead replica."`
	EventSystems      struct {
		Orchestration EventSystem `toml:"orchestration" id:"orchestration-event-system" bound:"orchestration.apply.batch_size" batch:"20" parallel:"50" fallback:"5" interval:"500" relaxed:"5000"`
		TaskReadiness EventSystem `toml:"task_readiness" id:"task-readiness-event-system" bound:"orchestration.leases.sweep_batch_size" batch:"50" parallel:"100" fallback:"5" interval:"1000" relaxed:"5000"`
	} `toml:"event_systems"`
	Apply struct {
		BatchSize     int `toml:"batch_size" default:"200" min:"1" max:"5000" doc:"Tasks moved by one transaction." effect:"Throughput under load against the length of a transaction."`
		MaxBatchBytes int `toml:"max_batch_bytes" default:"8388608" min:"65536" max:"1073741824" doc:"Results of decisions and batchable steps that one transaction takes into memory, in bytes." effect:"After a transaction above it the next ones take fewer steps, until they fit."`
	} `toml:"apply"`
	Events struct {
		MaxConsumers int `toml:"max_consumers" default:"100" min:"1" max:"10000" doc:"How many event consumers there may be." effect:"Each is listed with how far behind it is."`
		MaxStreams   int `toml:"max_streams" default:"100" min:"1" max:"10000" doc:"Streams of domain events and of transitions that one replica serves at once." effect:"Each holds a connection; beyond it clients are told to come back (503)."`
	} `toml:"events"`
	Sessions struct {
		Enabled       bool     `toml:"enabled" default:"false" doc:"Serve sessions of processes in other languages (docs/reference/protocol.md) without a worker daemon." effect:"The orchestrator claims the steps that they offer to run, as a worker of the fleet."`
		Namespaces    []string `toml:"namespaces" default:"" rule:"namespace" doc:"Namespaces whose steps the sessions get; empty means all." effect:"Keeps the steps of others for worker daemons."`
		MaxConcurrent int      `toml:"max_concurrent_steps" default:"1000" min:"1" max:"10000" doc:"Steps that all sessions hold at the same time." effect:"The work and memory that sessions add to the daemon."`
		Sessions
	} `toml:"sessions"`
	Create struct {
		BatchSize   int    `toml:"batch_size" default:"2000" min:"1" max:"10000" doc:"Tasks created by one transaction." effect:"Throughput of task creation under load."`
		MaxPending  int    `toml:"max_pending" default:"10000" min:"1" max:"1000000" doc:"Task requests that may wait for creation." effect:"Beyond it callers are told to come back (503)."`
		InputSchema string `toml:"input_schema" default:"enforce" oneof:"enforce,warn,off" doc:"What becomes of a request whose context breaks the input_schema of its template." effect:"enforce refuses it (400), warn accepts and logs it, off does not look. Handlers and programs that create tasks in their own transactions are always held to it."`
	} `toml:"create"`
	Leases struct {
		SweepBatchSize int           `toml:"sweep_batch_size" default:"500" min:"1" max:"10000" doc:"Expired leases taken back at once." effect:"How fast the work of dead workers returns."`
		Grace          time.Duration `toml:"grace_ms" default:"5000" min:"0" max:"60000" doc:"Time without the end of a lease after an orchestrator has started or has reached the database again." effect:"Workers for which the database was away extend their leases first. At least a heartbeat of theirs and its time-out."`
		MaxCrashes     int           `toml:"max_crashes" default:"3" min:"1" max:"1000" doc:"Processes whose loss a step may be blamed for before it counts as failed for good." effect:"Keeps a step that kills its worker from killing all."`
		MaxLosses      int           `toml:"max_losses" default:"10" min:"2" max:"1000" doc:"Processes with which a step may be lost before it counts as failed for good, although it is not blamed." effect:"Ends what never comes to its end. Such a loss uses no attempt."`
	} `toml:"leases"`
	Waits struct {
		MaxTaskDepth int           `toml:"max_task_depth" default:"10" min:"1" max:"100" doc:"Tasks of which each is a step of the one before." effect:"Ends a workflow that is a step of itself."`
		EventTTL     time.Duration `toml:"event_ttl_seconds" default:"86400" min:"60" max:"31536000" doc:"Seconds for which an event from outside is kept." effect:"How early an event may come before a step waits for it."`
	} `toml:"waits"`
	DecisionPoints struct {
		Enabled               bool `toml:"enabled" default:"true" doc:"Allow decision steps." effect:"Off, a decision that names steps fails."`
		MaxStepsPerDecision   int  `toml:"max_steps_per_decision" default:"100" min:"1" max:"10000" doc:"Most steps one decision may create." effect:"Stops a runaway decision."`
		MaxDecisionDepth      int  `toml:"max_decision_depth" default:"20" min:"1" max:"100" doc:"Deepest nesting of decisions." effect:"Stops endless recursion."`
		WarnThresholdSteps    int  `toml:"warn_threshold_steps" default:"50" min:"1" max:"10000" doc:"Steps of one decision that are logged as a warning." effect:"Early sign of a runaway."`
		WarnThresholdDepth    int  `toml:"warn_threshold_depth" default:"10" min:"1" max:"100" doc:"Depth that is logged as a warning." effect:"Early sign of recursion."`
		EnableDetailedLogging bool `toml:"enable_detailed_logging" default:"false" doc:"Log each decision in full." effect:"Much output; for diagnosis."`
		EnableMetrics         bool `toml:"enable_metrics" default:"true" doc:"Count the steps and batches that decisions and batchable steps create." effect:"Off, tasker_decision_steps_created_total and tasker_batches_created_total stay as they are."`
	} `toml:"decision_points"`
	DLQ struct {
		Enabled            bool `toml:"enabled" default:"true" doc:"Use the dead letter queue." effect:"Off, stuck tasks get no entry."`
		StalenessDetection struct {
			Enabled           bool          `toml:"enabled" default:"true" doc:"Look for tasks that no longer move." effect:"Off, they stay as they are until an operator acts."`
			DetectionInterval time.Duration `toml:"detection_interval_seconds" default:"300" min:"30" max:"3600" doc:"How often to look." effect:"How soon a stale task is found."`
			BatchSize         int           `toml:"batch_size" default:"100" min:"1" max:"10000" doc:"Tasks judged at once." effect:"Length of one sweep."`
			DryRun            bool          `toml:"dry_run" default:"false" doc:"Only log what would be done." effect:"For trying thresholds."`
			Thresholds        struct {
				WaitingForDependencies time.Duration `toml:"waiting_for_dependencies_minutes" default:"60" min:"1" max:"1440" doc:"Longest wait for parents." effect:"Beyond it the task is stale."`
				WaitingForRetry        time.Duration `toml:"waiting_for_retry_minutes" default:"30" min:"1" max:"1440" doc:"Longest wait for a retry." effect:"Beyond it the task is stale."`
				StepsInProcess         time.Duration `toml:"steps_in_process_minutes" default:"30" min:"1" max:"1440" doc:"Longest time with steps being processed." effect:"Beyond it a worker is thought to hang."`
				TaskMaxLifetime        time.Duration `toml:"task_max_lifetime_hours" default:"24" min:"1" max:"168" doc:"Greatest age of a task in any state." effect:"Beyond it the task is stale."`
			} `toml:"thresholds"`
			Actions struct {
				AutoTransitionToError bool   `toml:"auto_transition_to_error" default:"true" doc:"Move a stale task to error." effect:"Off, it is only recorded."`
				AutoMoveToDLQ         bool   `toml:"auto_move_to_dlq" default:"true" doc:"Open an entry in the dead letter queue." effect:"Off, the staleness sweep creates no entry."`
				_                     bool   `toml:"emit_events" default:"true" planned:"events of stale tasks" doc:"Publish an event for each stale task." effect:"Lets other systems react."`
				_                     string `toml:"event_channel" default:"task_staleness_detected" must:"1–255 characters" match:"(?s)^.{1,255}$" planned:"events of stale tasks" doc:"Channel of these events." effect:"Subscribers listen there."`
			} `toml:"actions"`
		} `toml:"staleness_detection"`
	} `toml:"dlq"`
	// to time. The fleet makes each sweep once per interval.
	Sweeps struct {
		Liveness struct {
			Interval   time.Duration `toml:"interval_seconds" default:"15" min:"1" max:"3600" doc:"How often the heartbeats of workers are judged." effect:"How soon a silent worker is noticed."`
			StaleAfter time.Duration `toml:"stale_after_seconds" default:"30" min:"1" max:"86400" doc:"Age of a heartbeat at which a worker is stale." effect:"At least two heartbeats, or a single lost one shows."`
			DeadAfter  time.Duration `toml:"dead_after_seconds" default:"120" min:"1" max:"86400" doc:"Age of a heartbeat at which a worker is dead." effect:"Its steps go to others at once, also those with a longer lease. It comes back as another worker."`
			BatchSize  int           `toml:"batch_size" default:"100" min:"1" max:"10000" doc:"Workers judged by one transaction." effect:"Length of one sweep."`
		} `toml:"liveness"`
		Deadlines struct {
			Enabled   bool          `toml:"enabled" default:"true" doc:"Cancel tasks that have not begun when their deadline passes." effect:"Off, a deadline is only shown."`
			Interval  time.Duration `toml:"interval_seconds" default:"30" min:"1" max:"3600" doc:"How often to look for passed deadlines." effect:"How soon such a task ends."`
			BatchSize int           `toml:"batch_size" default:"100" min:"1" max:"10000" doc:"Tasks cancelled by one transaction." effect:"Length of one sweep."`
		} `toml:"deadlines"`
		Dependencies struct {
			Interval  time.Duration `toml:"interval_seconds" default:"60" min:"1" max:"3600" doc:"How often to look for tasks that wait for others and would never be told." effect:"How soon such a task goes on. No flow of the engine leaves one behind."`
			BatchSize int           `toml:"batch_size" default:"10000" min:"1" max:"100000" doc:"Dependencies looked at by one transaction." effect:"Length of one look."`
		} `toml:"dependencies"`
		Signals struct {
			Interval time.Duration `toml:"interval_seconds" default:"30" min:"1" max:"3600" doc:"How often to look for waiting work without a signal." effect:"How soon a lost signal is made up for where no system polls."`
			Overdue  time.Duration `toml:"overdue_seconds" default:"30" min:"1" max:"3600" doc:"Time in line after which work is signalled again." effect:"Shorter signals busy queues for nothing."`
		} `toml:"signals"`
		Ageing struct {
			Bound     time.Duration `toml:"bound_seconds" default:"0" min:"0" max:"31536000" doc:"Time in line from which a step is claimed before others of any priority; 0 turns it off (docs/use/order.md)." effect:"Nothing waits much longer behind higher priorities: once work waits for longer, priorities count less."`
			BatchSize int           `toml:"batch_size" default:"500" min:"1" max:"10000" doc:"Steps brought forward by one transaction." effect:"Length of one transaction."`
		} `toml:"ageing"`
		Rates struct {
			Interval  time.Duration `toml:"interval_seconds" default:"10" min:"1" max:"3600" doc:"How often what daemons have counted is added up to the rates of callables and namespaces (docs/use/rates.md), while there is something." effect:"How old the newest figures are, beside the interval of heartbeats."`
			BatchSize int           `toml:"batch_size" default:"5000" min:"1" max:"100000" doc:"Counts added up by one transaction." effect:"Length of one transaction."`
		} `toml:"rates"`
		Depths struct {
			Interval time.Duration `toml:"interval_seconds" default:"60" min:"1" max:"60" doc:"How often the waiting and running steps of callables are counted for the rates." effect:"How old the depth of a queue may be that is shown."`
			Limit    int           `toml:"limit" default:"10000" min:"1" max:"1000000" doc:"How many waiting steps of one priority of a callable are counted; more count as that many." effect:"Time of one look."`
		} `toml:"depths"`
		Predictions struct {
			Interval time.Duration `toml:"interval_seconds" default:"5" min:"1" max:"3600" doc:"How often the times of handlers are learned from what workers tell, while a policy orders by them (docs/use/order.md)." effect:"How soon a change of the times has an effect; each run reads the rows of all workers."`
		} `toml:"predictions"`
	} `toml:"sweeps"`
	Retention struct {
		TTL           time.Duration `toml:"ttl_seconds" default:"604800" min:"0" max:"315360000" doc:"Time from the end of a task until it is deleted; 0 keeps it for ever." effect:"Size of the ledger. A task under investigation is kept."`
		DeadLetterTTL time.Duration `toml:"dead_letter_ttl_seconds" default:"2592000" min:"0" max:"315360000" doc:"Time from the end of an investigation until its entry is deleted; 0 keeps it for ever." effect:"How long the dead letter queue remembers."`
		EventTTL      time.Duration `toml:"event_ttl_seconds" default:"604800" min:"0" max:"315360000" doc:"Time from the publishing of a domain event until it is deleted, a day at least; 0 keeps it for ever." effect:"How far back consumers can read. One that falls behind further loses events."`
		MinutesTTL    time.Duration `toml:"rate_minutes_ttl_seconds" default:"1209600" min:"3600" max:"315360000" doc:"Time for which the rates of minutes, and of ten minutes, are kept." effect:"How far back a chart is that fine. A callable that always runs has 14,400 rows of a minute in ten days, for each outcome."`
		HoursTTL      time.Duration `toml:"rate_hours_ttl_seconds" default:"7776000" min:"3600" max:"315360000" doc:"Time for which the rates of hours and days are kept." effect:"How far back charts go."`
		Interval      time.Duration `toml:"interval_seconds" default:"600" min:"10" max:"86400" doc:"How often to look for what may be deleted." effect:"Whole days are dropped at once."`
		BatchSize     int           `toml:"batch_size" default:"500" min:"1" max:"10000" doc:"Tasks deleted by one transaction where a day cannot be dropped." effect:"Length of one transaction."`
		DryRun        bool          `toml:"dry_run" default:"false" doc:"Only log what would be deleted." effect:"For trying a time to live."`
	} `toml:"retention"`
	Taskmaster struct {
		Heartbeat struct {
			StaleThreshold time.Duration `toml:"stale_threshold_seconds" env:"TASKMASTER_HEARTBEAT_STALE_THRESHOLD_SECONDS" default:"30" min:"1" max:"86400" doc:"Silence after which a worker of a queue is STALE (taskmaster.heartbeat.stale-threshold-seconds)." effect:"It is shown, and no longer counted as active."`
			DeadThreshold  time.Duration `toml:"dead_threshold_seconds" env:"TASKMASTER_HEARTBEAT_DEAD_THRESHOLD_SECONDS" default:"120" min:"1" max:"86400" doc:"Silence after which a worker of a queue is DEAD (taskmaster.heartbeat.dead-threshold-seconds)." effect:"Its tasks are tried again. At least the threshold of STALE."`
		} `toml:"heartbeat"`
		Reaper struct {
			Interval time.Duration `toml:"interval_ms" env:"TASKMASTER_REAPER_INTERVAL_MS" default:"15000" min:"100" max:"3600000" doc:"How often deaths of workers of queues are counted and shown (taskmaster.reaper.interval-ms)." effect:"Their tasks do not wait for it: each claim ends with its worker."`
		} `toml:"reaper"`
		Retry struct {
			BaseDelay time.Duration `toml:"base_delay_seconds" env:"TASKMASTER_RETRY_BASE_DELAY_SECONDS" default:"1" min:"1" max:"150" doc:"Base of the backoff of tasks of queues: 2^attempts times this, 5 minutes at most (taskmaster.retry.base-delay-seconds)." effect:"It counts for tasks submitted from then on."`
		} `toml:"retry"`
		Retention struct {
			TTL       time.Duration `toml:"ttl_seconds" default:"604800" min:"0" max:"315360000" doc:"Time from the end of a task of a queue, and from the death of a worker, until they are deleted; 0 keeps them (taskmaster.retention.ttl)." effect:"orchestration.retention.ttl_seconds holds as well: the shorter time counts for tasks."`
			Interval  time.Duration `toml:"interval_ms" env:"TASKMASTER_RETENTION_INTERVAL_MS" default:"600000" min:"100" max:"86400000" doc:"How often to look for them (taskmaster.retention.interval-ms)." effect:"How long they may stay beyond their time."`
			BatchSize int           `toml:"batch_size" env:"TASKMASTER_RETENTION_BATCH_SIZE" default:"500" min:"1" max:"10000" doc:"Tasks, and workers, deleted by one transaction (taskmaster.retention.batch-size)." effect:"Length of one transaction."`
		} `toml:"retention"`
		MaxWaitingClaims int `toml:"max_waiting_claims" default:"10000" min:"1" max:"1000000" doc:"Claims of queues that may wait for a task at one replica." effect:"Each holds a connection; beyond it workers are told to come back (503)."`
	} `toml:"taskmaster"`
	Compat struct {
		DistributedTaskQueue bool `toml:"distributed_task_queue" default:"false" doc:"Serve POST /enqueue, GET /tasks/{id} and GET /healthz of distributed-task-queue." effect:"Its producers create tasks of task types unchanged."`
		TaskQueueEngine      bool `toml:"task_queue_engine" default:"false" doc:"Serve POST /api/v1/jobs and GET /api/v1/jobs/{id} of Distributed-Task-Queue-Engine." effect:"Its producers create tasks of task types, in three priorities, unchanged."`
	} `toml:"compat"`
	Bridge struct {
		RedisQueue struct {
			Enabled      bool          `toml:"enabled" default:"false" doc:"Make tasks of the jobs that producers of Distributed-Task-Queue-Engine push into Redis." effect:"Every orchestrator with it takes jobs from the lanes; each job becomes one task of the type that it names."`
			URL          DSN           `toml:"url" default:"${REDIS_URL:-redis://localhost:6379}" rule:"url redis rediss unix" env:"REDIS_URL" doc:"Server with the lanes; rediss is TLS, cacert=FILE has the certificates to trust instead of the system's." effect:"Used where the bridge is enabled."`
			Prefix       string        `toml:"prefix" default:"tq" must:"1–40 of a–z, A–Z, 0–9, _, ., : and -" match:"^[a-zA-Z0-9_.:-]{1,40}$" doc:"What its keys begin with: PREFIX:queue:high and so on." effect:"Another one stands for other producers."`
			Namespace    string        `toml:"namespace" default:"" rule:"namespace or empty" doc:"Namespace of the task types that jobs name; empty: the only one that has the type." effect:"A job of a type that is not there goes to PREFIX:dlq."`
			BatchSize    int           `toml:"batch_size" default:"100" min:"1" max:"1000" doc:"Jobs that are moved at once." effect:"Larger moves more under load, with longer transactions."`
			Interval     time.Duration `toml:"poll_interval_ms" default:"200" min:"10" max:"60000" doc:"Time between two looks at the lanes, where the first found less than a batch." effect:"How long a job waits at least half of the times."`
			ReclaimAfter time.Duration `toml:"reclaim_after_seconds" default:"60" min:"1" max:"86400" doc:"Time after which a job that was moved, and is neither a task nor a dead letter, is taken up again." effect:"How long the jobs of a bridge that died wait. Taking one up too early makes no second task."`
			Timeout      time.Duration `toml:"timeout_ms" default:"2000" min:"50" max:"60000" doc:"Limit for connecting, and for each exchange with the server." effect:"Beyond it the bridge pauses, 5 s at most, and tries again."`
		} `toml:"redis_queue"`
		RabbitMQQueue struct {
			Enabled   bool     `toml:"enabled" default:"false" doc:"Make tasks of the messages that other programs publish to the durable queues of RabbitMQ (common.queues.rabbitmq)." effect:"Every orchestrator with it consumes the queues; a message is a signal for the task that it names, or becomes one task of the type that it names."`
			Keys      []string `toml:"keys" default:"" rule:"queue" doc:"Keys of the queues, of those in common.queues.rabbitmq.queues; empty means all durable queues." effect:"The others are left to other programs."`
			Namespace string   `toml:"namespace" default:"" rule:"namespace or empty" doc:"Namespace of the task types that messages name; empty: the only one that has the type." effect:"A message of a type that is not there goes to the dead-letter queue."`
			BatchSize int      `toml:"batch_size" default:"100" min:"1" max:"1000" doc:"Messages that are made tasks at once." effect:"Larger moves more under load, with longer transactions; of each queue common.queues.rabbitmq.prefetch_count arrive at most."`
		} `toml:"rabbitmq_queue"`
		RabbitMQEvents struct {
			Enabled      bool          `toml:"enabled" default:"false" doc:"Publish durable domain events to an exchange of RabbitMQ (common.queues.rabbitmq), in the order of commits of each task (docs/use/events.md)." effect:"Orchestrators with it take turns: the event consumer rabbitmq-events.NAMESPACE has the place. Each namespace has a connection."`
			Exchange     string        `toml:"exchange" default:"tasker.events" must:"1–255 of a–z, A–Z, 0–9, _, ., : and -" match:"^[a-zA-Z0-9_.:-]{1,255}$" doc:"Exchange that events are published to, with the routing key NAMESPACE.EVENT." effect:"After a change events go on to the new one."`
			ExchangeType string        `toml:"exchange_type" default:"topic" oneof:"topic,direct,fanout,headers,existing" doc:"Type of the exchange, which is declared as durable; existing declares nothing." effect:"existing needs no right to configure it; any other has to be the type of an exchange that is there."`
			Namespaces   []string      `toml:"namespaces" default:"" rule:"namespace" doc:"Namespaces whose events are published." effect:"Needed where the bridge is enabled. One that is not there yet is waited for."`
			Patterns     []string      `toml:"patterns" default:"" doc:"Names of events that are published, in which * stands for any characters; none means all." effect:"The others are passed over."`
			From         string        `toml:"from" default:"beginning" oneof:"beginning,now" doc:"Where a namespace begins whose event consumer is not there yet: with the oldest event that is kept, or with what comes." effect:"It counts once; tasker-ctl events reset moves a consumer later."`
			BatchSize    int           `toml:"batch_size" default:"100" min:"1" max:"1000" doc:"Events that are claimed at once." effect:"Larger moves more under load; where an orchestrator dies, so many come again."`
			Lease        time.Duration `toml:"lease_seconds" default:"30" min:"5" max:"3600" doc:"Time within which a batch has to be confirmed by the broker." effect:"How long the events of an orchestrator that died wait for another one."`
			Interval     time.Duration `toml:"poll_interval_ms" default:"2000" min:"10" max:"60000" doc:"Time between two looks for events without a signal." effect:"How late events are where no signal comes, as in PollingOnly."`
			Mandatory    bool          `toml:"mandatory" default:"false" doc:"Let an event for which no queue is bound wait, with those behind it, until one is." effect:"Off, it is counted (tasker_bridge_events_total) and gone, as RabbitMQ's users know it."`
			Results      bool          `toml:"results" default:"false" doc:"Make the end of each task of the namespaces a durable event with its results (tasker.task.complete, error, cancelled, resolved_manually)." effect:"Every consumer of events has them, however a task ends. Off, they end: set it before the bridge is disabled."`
		} `toml:"rabbitmq_events"`
	} `toml:"bridge"`
	Autoscaling struct {
		TargetWait     time.Duration `toml:"target_wait_seconds" default:"10" min:"1" max:"86400" doc:"Time within which waiting steps should begin." effect:"A shorter one asks for more workers (GET /v1/autoscaling/{namespace}, tasker_workers_desired)."`
		ScaleDownAfter time.Duration `toml:"scale_down_after_seconds" default:"300" min:"0" max:"86400" doc:"Time for which the number of desired workers stays at its greatest value." effect:"Loads that come in shorter waves leave it steady."`
	} `toml:"autoscaling"`
	Backpressure struct {
		RefuseTasks bool `toml:"refuse_tasks" default:"false" doc:"Refuse new tasks (503) when a queue nears overflow_threshold." effect:"Off, the tiers are only shown: a backlog of millions drains as fast as a short one. On, senders feel it when workers do not keep up."`
	} `toml:"backpressure"`
	BatchProcessing struct {
		Enabled            bool          `toml:"enabled" default:"true" doc:"Allow batchable steps." effect:"Off, a step that asks for batches fails."`
		MaxParallelBatches int           `toml:"max_parallel_batches" default:"50" min:"1" max:"1000" doc:"Batches of one step that run at the same time." effect:"Bounds the load of one fan-out."`
		MaxBatchesPerStep  int           `toml:"max_batches_per_step" default:"10000" min:"1" max:"30000" doc:"Batches that one step may ask for." effect:"Bounds the transaction that creates them; more fails the step."`
		_                  int           `toml:"default_batch_size" default:"1000" min:"1" max:"100000" planned:"batches that the engine cuts by itself" doc:"Items per batch where the template names no size." effect:"Overhead against the cost of a repeat."`
		CheckpointStall    time.Duration `toml:"checkpoint_stall_minutes" default:"15" min:"1" max:"1440" doc:"Time without a checkpoint after which a running step that saves checkpoints counts as stalled." effect:"It is shown, by the staleness view, the sweep and a metric; nothing is ended over it."`
	} `toml:"batch_processing"`
	MPSCChannels struct {
		CommandProcessor struct {
			CommandBufferSize int `toml:"command_buffer_size" default:"5000" min:"10" max:"1000000" doc:"Commands of one kind that may wait: operators' actions, and transactions of bulk creation." effect:"Beyond it requests are answered 503."`
		} `toml:"command_processor"`
		EventSystems struct {
			EventChannelBufferSize int `toml:"event_channel_buffer_size" default:"10000" min:"10" max:"1000000" doc:"Different signals that wait for one event system." effect:"Beyond it payloads are given up and everything is looked at."`
		} `toml:"event_systems"`
		EventListeners struct {
			PGMQEventBufferSize int `toml:"pgmq_event_buffer_size" default:"50000" min:"10" max:"1000000" doc:"Different signals that wait on the listening connection." effect:"Beyond it payloads are given up and everything is looked at."`
		} `toml:"event_listeners"`
	} `toml:"mpsc_channels"`
	Web  OrchestrationWeb `toml:"web" port:"8080" issuer:"tasker-core" audience:"tasker-api" pool:"20" pool_max:"30" hint:"50"`
	GRPC GRPC             `toml:"grpc" variable:"TASKER_ORCHESTRATION_GRPC_BIND_ADDRESS" port:"9190" streams:"200"`
}
