package telemetry

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is the catalogue. Each field is a collector, or the description of what a daemon
// reads when it is scraped, and its tags are all there is to know about it: its name, its
// labels in the order of WithLabelValues, the values of each (a|b; * where they are open),
// its names in other products (see [Aliased]), its help, and the buckets of a histogram that
// does not measure seconds. It is safe for concurrent use.
type Metrics struct {
	// Listeners: system is the id of an event system, mode the short form of its deployment mode.

	ListenerActive        *prometheus.GaugeVec     `metric:"tasker_event_listener_active" labels:"system,mode" values:"*,hybrid|event_driven|polling|disabled" help:"1 while the listener is connected and not deaf."`
	ListenerLag           *prometheus.GaugeVec     `metric:"tasker_event_listener_lag_seconds" labels:"system,mode" values:"*,hybrid|event_driven|polling|disabled" alias:"tasker_event_listener_lag_ms*1000" help:"Round trip of the latest probe."`
	ProbeLag              *prometheus.HistogramVec `metric:"tasker_probe_lag_seconds" labels:"system" help:"Round trips of probes through the path of the signals."`
	NotificationsReceived *prometheus.CounterVec   `metric:"tasker_event_notifications_received_total" labels:"system" help:"Signals received, probes left out."`
	Reconnections         *prometheus.CounterVec   `metric:"tasker_listener_reconnections_total" labels:"system" help:"Connections of the listener after its first."`
	WALLag                *prometheus.GaugeVec     `metric:"tasker_wal_lag_bytes" labels:"system" help:"Bytes of WAL that the reader of signals has not received yet; only where the WAL is read."`

	// Pollers.

	PollingCycles        *prometheus.CounterVec   `metric:"tasker_polling_cycles_total" labels:"system" help:"Polls made."`
	PollingMessagesFound *prometheus.CounterVec   `metric:"tasker_polling_messages_found_total" labels:"system" alias:"tasker_polling_messages_processed_total" help:"Work found by polls; near 0 in a healthy Hybrid fleet."`
	PollingErrors        *prometheus.CounterVec   `metric:"tasker_polling_errors_total" labels:"system" help:"Polls that failed."`
	PollingDuration      *prometheus.HistogramVec `metric:"tasker_polling_duration_seconds" labels:"system" help:"Duration of a poll."`

	// How event systems find work.

	PollingFallbackActive *prometheus.GaugeVec     `metric:"tasker_polling_fallback_active" labels:"system,mode" values:"*,hybrid|event_driven|polling|disabled" help:"1 while polling stands in for a listener."`
	ModeSwitches          *prometheus.CounterVec   `metric:"tasker_mode_switches_total" labels:"system,mode" values:"*,hybrid|event_driven|polling|disabled" help:"Changes of the mode or between relaxed and tight polling."` // (the mode after the switch)
	Found                 *prometheus.CounterVec   `metric:"tasker_found_total" labels:"system,by" values:"*,listener|poller|timer|catch_up|continue" help:"Work found, by what made the system look."`
	EmptyWakes            *prometheus.CounterVec   `metric:"tasker_empty_wakes_total" labels:"system,by" values:"*,listener|poller|timer|catch_up|continue" help:"Looks that found nothing, by what made the system look."`
	LooksRepeated         *prometheus.CounterVec   `metric:"tasker_looks_repeated_total" labels:"system,missing" values:"*,locked|unseen" help:"Looks that are repeated within milliseconds, because what they were told of was locked, or was not seen."`
	Missed                *prometheus.CounterVec   `metric:"tasker_missed_total" labels:"system" help:"Work that only a poll found, long after it was ready and beside a healthy listener; 0 in a healthy fleet."`
	CatchUpScans          *prometheus.CounterVec   `metric:"tasker_catch_up_scans_total" labels:"system" help:"Looks at everything after a connection was made."`
	EventProcessing       *prometheus.HistogramVec `metric:"tasker_event_processing_duration_seconds" labels:"system" help:"From the first signal of a wake-up to the end of the look."`

	// Bounded channels, commands, batches and loops.

	ChannelSaturation *prometheus.GaugeVec     `metric:"mpsc_channel_saturation" labels:"channel" alias:"mpsc_channel_usage_percent*100" help:"Share of a bounded channel in use, 0 to 1."`
	ChannelCapacity   *prometheus.GaugeVec     `metric:"mpsc_channel_capacity" labels:"channel" help:"Places of a bounded channel."`
	ChannelFull       *prometheus.CounterVec   `metric:"mpsc_channel_full_events_total" labels:"channel" help:"Sends that had to wait because a bounded channel was full."`
	CommandDuration   *prometheus.HistogramVec `metric:"tasker_command_duration_seconds" labels:"command" help:"Duration of a command."`
	Commands          *prometheus.CounterVec   `metric:"tasker_commands_total" labels:"command,outcome" values:"*,ok|error|panic" help:"Commands run."`
	BatchSize         *prometheus.HistogramVec `metric:"tasker_batch_size" labels:"batch" buckets:"1 2 4 8 16 32 64 128 256 512 1024 2048" help:"Items per batch."`
	SpansDropped      prometheus.Counter       `metric:"tasker_spans_dropped_total" help:"Spans that were not sent: the queue was full, or the collector did not take them in time."`
	PushesFailed      prometheus.Counter       `metric:"tasker_metrics_pushes_failed_total" help:"Times that the metrics could not be sent to their collector."`
	LoopRestarts      *prometheus.CounterVec   `metric:"tasker_loop_restarts_total" labels:"loop" help:"Loops that died and were restarted."`

	// Tasks, steps, leases and statements.

	TasksCreated     *prometheus.CounterVec `metric:"tasker_tasks_created_total" labels:"namespace" alias:"tasker_tasks_requests_total" help:"Tasks created."`
	TasksCompleted   *prometheus.CounterVec `metric:"tasker_tasks_completed_total" labels:"namespace,state" values:"*,complete|error|cancelled|resolved_manually" alias:"tasker_tasks_completions_total{state=complete} tasker_tasks_failures_total{state=error}" help:"Tasks that reached a terminal state, at the daemon that decided so: add those of workers and orchestrators."`
	StepsAged        *prometheus.CounterVec `metric:"tasker_steps_aged_total" labels:"namespace" help:"Steps brought forward by ageing: they had waited for longer than the bound behind others."`
	StepsUnpredicted prometheus.Counter     `metric:"tasker_steps_unpredicted_total" help:"Steps put in line without the expected time of their handler, by which the policy of their callable orders."`

	PredictionSamples     prometheus.Counter     `metric:"tasker_prediction_samples_total" help:"Executions from which the times of handlers were learned."`
	PredictionsDistrusted prometheus.Gauge       `metric:"tasker_predictions_distrusted" help:"Steps whose expected times were of no use by the last executions: they are put in line first in, first out. Of those that the last run of this orchestrator learned."`
	PredictorDistrusted   prometheus.Gauge       `metric:"tasker_predictor_distrusted" help:"Steps for which the predictor outside was of no use by the last executions: they are put in line first in, first out. Of those that the last run of this orchestrator learned."`
	PredictorNotFollowed  *prometheus.CounterVec `metric:"tasker_predictor_not_followed_total" labels:"reason" values:"asked|full|unknown|invalid|late|failed|refused|distrusted" help:"Steps put in line without an answer of the predictor outside, by reason: learned times take its place, or first in, first out where it is distrusted."`
	StepsClaimed          *prometheus.CounterVec `metric:"tasker_steps_claimed_total" labels:"namespace" alias:"tasker_steps_executions_total" help:"Steps claimed by workers."`
	StepsReady            *prometheus.CounterVec `metric:"tasker_steps_ready_total" labels:"namespace" alias:"tasker_steps_enqueued_total" help:"Steps put in line for workers: those that became ready, and again those that are tried again."`
	// Tasks of plain queues, under the names of their API.

	QueueSubmitted    *prometheus.CounterVec   `metric:"tasks_submitted_total" labels:"queue" alias:"taskqueue_jobs_submitted_total" help:"Tasks submitted to a queue."`
	QueueDuplicates   *prometheus.CounterVec   `metric:"tasks_duplicate_total" labels:"queue" alias:"taskqueue_jobs_duplicate_total" help:"Submissions to a queue, and requests for a task of a task type, that were answered with the task that there is."`
	QueueClaimed      *prometheus.CounterVec   `metric:"tasks_claimed_total" labels:"queue" help:"Tasks of a queue claimed by its workers."`
	QueueCompleted    *prometheus.CounterVec   `metric:"tasks_completed_total" labels:"queue" alias:"taskqueue_jobs_completed_total" help:"Tasks of a queue completed successfully."`
	QueueFailed       *prometheus.CounterVec   `metric:"tasks_failed_total" labels:"queue" alias:"taskqueue_jobs_failed_total" help:"Failures reported by the workers of a queue, before it is decided whether the task is tried again."`
	QueueDeadLettered *prometheus.CounterVec   `metric:"tasks_dead_lettered_total" labels:"queue,reason" values:"*,exhausted|worker_dead|deadline|operator" alias:"taskqueue_jobs_dead_total" help:"Tasks of a queue that became DEAD, by exhausted, worker_dead, deadline or operator."`
	QueueRequeued     *prometheus.CounterVec   `metric:"tasks_requeued_total" labels:"reason" values:"failed|worker_dead" alias:"taskqueue_jobs_retried_total" help:"Tasks of queues that became PENDING again, by failed or worker_dead."`
	QueueCleaned      prometheus.Counter       `metric:"tasks_cleaned_total" help:"Ended tasks of queues deleted by their retention."`
	QueueWorkersKnown *prometheus.CounterVec   `metric:"workers_registered_total" labels:"queue" help:"Registrations of workers of a queue."`
	QueueWorkersDied  prometheus.Counter       `metric:"workers_died_total" help:"Workers of queues that became DEAD."`
	QueueWorkersGone  prometheus.Counter       `metric:"workers_cleaned_total" help:"Dead workers of queues deleted by their retention."`
	QueueWait         *prometheus.HistogramVec `metric:"tasks_queue_wait_seconds" labels:"queue" alias:"taskqueue_job_queue_wait_time_seconds" help:"From the submission of a task of a queue to its claim."`
	QueueExecution    *prometheus.HistogramVec `metric:"tasks_execution_duration_seconds" labels:"queue" alias:"taskqueue_job_execution_duration_seconds" help:"From the claim of a task of a queue to the report of its end."`
	QueueEndToEnd     *prometheus.HistogramVec `metric:"tasks_end_to_end_duration_seconds" labels:"queue" help:"From the submission of a task of a queue to its end as reported by a worker, with its retries."`
	QueueRepeated     prometheus.Counter       `metric:"tasker_queue_claims_repeated_total" help:"Tasks of queues told again to workers that had not received the answer to a claim."`
	QueueWaiting      prometheus.Gauge         `metric:"tasker_queue_claims_waiting" help:"Claims of queues that wait for a task."`

	// Tasks of task types, and those that bridges make of the jobs of other programs.

	Enqueued          *prometheus.CounterVec   `metric:"tasker_enqueue_total" labels:"type,queue,status" values:"*,*,ok|error" alias:"dq_enqueue_total" help:"Requests over REST for a task of a task type; type and queue are empty where no such type is registered."`
	EnqueueDuration   *prometheus.HistogramVec `metric:"tasker_enqueue_duration_seconds" labels:"type,queue" alias:"dq_enqueue_latency_seconds" help:"Duration of a request over REST for a task of a task type."`
	BridgeJobs        *prometheus.CounterVec   `metric:"tasker_bridge_jobs_total" labels:"bridge,outcome" values:"redis|rabbitmq,created|duplicate|refused|parked|signalled" help:"Jobs of other programs that a bridge took from their queues: created as a task, duplicate of one, refused (a dead letter there), parked (it waits apart, each time), or signalled (about a task that is there; of rabbitmq only)."`
	BridgeHeld        *prometheus.GaugeVec     `metric:"tasker_bridge_held" labels:"bridge" values:"redis|rabbitmq" help:"Jobs that a bridge has taken and cannot make tasks of yet."`
	BridgeWaiting     *prometheus.GaugeVec     `metric:"tasker_bridge_waiting_since_timestamp_seconds" labels:"bridge" values:"redis|rabbitmq" help:"Since when a bridge has not been able to make tasks of jobs; 0 while it is."`
	BridgeDeadLetters *prometheus.GaugeVec     `metric:"tasker_bridge_dead_letters" labels:"bridge" values:"redis|rabbitmq" help:"Dead letters in the queue of the other programs, as of the last look of the bridge; the same at every orchestrator."`
	BridgeEvents      *prometheus.CounterVec   `metric:"tasker_bridge_events_total" labels:"namespace,outcome" values:"*,published|unroutable" help:"Durable domain events published to an exchange of RabbitMQ, at the orchestrator that did: published (confirmed by the broker, copies included), or unroutable (no queue is bound for them)."`
	BridgeEventsLag   *prometheus.GaugeVec     `metric:"tasker_bridge_events_lag_seconds" labels:"namespace" help:"For how long the oldest durable domain event waits that is not published to the exchange of RabbitMQ, as each orchestrator with that bridge sees it."`

	StepResults            *prometheus.CounterVec   `metric:"tasker_step_results_total" labels:"namespace,outcome" values:"*,success|failed|error|lease_lost|cancelled" alias:"tasker_steps_successes_total{outcome=success} tasker_steps_failures_total{outcome=error} tasker_step_results_processed_total tasker_steps_results_submitted_total" help:"Step results applied, at the daemon that did; see tasker_tasks_completed_total."`
	StepsCreated           *prometheus.CounterVec   `metric:"tasker_decision_steps_created_total" labels:"namespace" help:"Steps created by the results of decisions and batchable steps."`
	BatchesCreated         *prometheus.CounterVec   `metric:"tasker_batches_created_total" labels:"namespace" help:"Batches created by the results of batchable steps."`
	StepDuration           *prometheus.HistogramVec `metric:"tasker_step_duration_seconds" labels:"namespace" alias:"tasker_step_execution_duration_milliseconds*1000 worker_handler_execution_ms*1000" help:"Duration of a handler."`
	Sessions               prometheus.Gauge         `metric:"tasker_worker_sessions" help:"Open sessions of processes in other languages."`
	SessionStepsKept       prometheus.Counter       `metric:"tasker_worker_session_steps_kept_total" help:"Steps that stayed with their process when it opened another session."`
	SessionsLost           prometheus.Counter       `metric:"tasker_worker_sessions_lost_total" help:"Sessions that made no request within the grace."`
	SessionReportsRejected prometheus.Counter       `metric:"tasker_worker_session_reports_rejected_total" help:"Reports of sessions about steps, and steps presented by them, that they did not hold any more."`
	StaleResults           prometheus.Counter       `metric:"tasker_stale_results_total" help:"Results refused because their claim was no longer valid."`
	StepsSettled           *prometheus.CounterVec   `metric:"tasker_steps_settled_total" labels:"way" values:"lone|taken" help:"Successes whose consequences the worker made true where they happened; way is lone for the only step in hand, else taken."`
	BeyondLimits           *prometheus.CounterVec   `metric:"tasker_steps_beyond_limits_total" labels:"beyond" values:"cancel_newest|cancel_running|drop" help:"Steps of keys without room that did not wait: their tasks were cancelled (the newest, or those that ran), or they completed without having run."`
	LeasesExpired          prometheus.Counter       `metric:"tasker_leases_expired_total" help:"Leases that ran out and were taken back."`
	InputsRead             prometheus.Counter       `metric:"tasker_step_inputs_read_bytes_total" help:"Bytes of inputs that were too large to come with the claims of their steps, and were read when their handlers began."`
	LossesSpared           prometheus.Counter       `metric:"tasker_losses_spared_total" help:"Steps that were lost with their process and not blamed for it: they run again and used no attempt."`
	LossesBlamed           prometheus.Counter       `metric:"tasker_losses_blamed_total" help:"Steps that were blamed for the loss of their process: the only suspected one there."`
	ClaimsUnbegun          prometheus.Counter       `metric:"tasker_claims_unbegun_total" help:"Claims whose leases ran out before a handler had begun; they use up no attempt."`
	StuckSessionsEnded     prometheus.Counter       `metric:"tasker_stuck_sessions_ended_total" help:"Database sessions that were ended because their process froze while it held locks which others need."`
	TasksQuarantined       *prometheus.CounterVec   `metric:"tasker_tasks_quarantined_total" labels:"reason" values:"records_contradict|cannot_be_applied" help:"Tasks that ended as failed and have an entry in the dead letter queue, because their reports could not be applied."`
	RowsSetAside           *prometheus.GaugeVec     `metric:"tasker_rows_set_aside" labels:"flow" values:"*" help:"Rows that this daemon leaves out of a flow for now, because the database rejects them; the log names their tasks."`
	RowsRejected           *prometheus.CounterVec   `metric:"tasker_rows_rejected_total" labels:"flow" values:"*" help:"Rejections of single rows of statements over many; the others of the statement were handled."`
	AttemptLogLines        *prometheus.CounterVec   `metric:"tasker_attempt_log_lines_total" labels:"outcome" values:"kept|dropped|rejected" help:"Lines of handlers that were written to the database, dropped because an attempt or the worker had too many (worker.logs), or rejected by the database."`
	RatesDropped           prometheus.Counter       `metric:"tasker_rates_dropped_total" help:"Attempts and ends of tasks that are in the ledger but not in the rates: there were too many kinds of them between two heartbeats, or the database did not answer when they were written."`
	AttemptLogPending      prometheus.Gauge         `metric:"tasker_attempt_log_pending_bytes" help:"Bytes of lines of handlers that are not written yet (worker.logs.max_pending_bytes)."`
	LeasesLost             prometheus.Counter       `metric:"tasker_leases_lost_total" help:"Leases a worker learnt it no longer held."`
	StoreStatement         *prometheus.HistogramVec `metric:"tasker_store_statement_seconds" labels:"flow" alias:"tasker_task_initialization_duration_milliseconds{flow=create}*1000 tasker_step_claim_duration_milliseconds{flow=claim|claim_limited}*1000 tasker_step_result_submission_duration_milliseconds{flow=report|settle}*1000 tasker_step_result_processing_duration_milliseconds{flow=apply|settle}*1000 tasker_task_finalization_duration_milliseconds{flow=apply|settle}*1000 tasker_sql_query_duration_milliseconds*1000" help:"Duration of a database flow."`
	SchemaChecksWaiting    prometheus.Gauge         `metric:"tasker_schema_checks_waiting" help:"Large checks of documents against schemas that wait for their turn (common.schema_checks.max_concurrent)."`
	SchemaChecksGivenUp    *prometheus.CounterVec   `metric:"tasker_schema_checks_given_up_total" labels:"reason" values:"steps|time|busy" help:"Checks of documents against schemas that were given up: beyond common.schema_checks.max_steps or max_time_ms, or because too many waited."`
	ResultSchemaViolations *prometheus.CounterVec   `metric:"tasker_result_schema_violations_total" labels:"namespace,policy" values:"*,enforce|warn" help:"Results of handlers that did not fit the result_schema of their steps: enforce (the step has failed) or warn (accepted)."`
	HandlersActive         prometheus.Gauge         `metric:"tasker_worker_handlers_active" alias:"taskqueue_processing_active tasker_steps_active_executions" help:"Handlers running now."`
	HandlersLimit          prometheus.Gauge         `metric:"tasker_worker_handlers_limit" alias:"worker_handler_semaphore_permits_total" help:"Handlers that may run at once."`
	HandlersZombie         prometheus.Gauge         `metric:"tasker_worker_handlers_zombie" help:"Handlers still running after the time limit or the loss of the lease."`

	// Checkpoints, isolated items and yields.

	CheckpointsSaved     *prometheus.CounterVec `metric:"tasker_checkpoints_saved_total" labels:"namespace" help:"Checkpoints of running steps that were saved, those of yields as well."`
	CheckpointsRefused   *prometheus.CounterVec `metric:"tasker_checkpoints_refused_total" labels:"reason" values:"lease_lost|too_large|not_storable" help:"Checkpoints that were not saved: lease_lost, too_large or not_storable."`
	CheckpointsStalled   prometheus.Gauge       `metric:"tasker_checkpoints_stalled" help:"Running steps whose last checkpoint is older than checkpoint_stall_minutes, up to 1,000; the same at every orchestrator."`
	CheckpointRedispatch prometheus.Histogram   `metric:"tasker_checkpoint_redispatch_seconds" help:"From the end of a handler that yields until its step is in line again."`
	ItemsIsolated        *prometheus.CounterVec `metric:"tasker_batch_items_isolated_total" labels:"namespace" help:"Items that handlers of batches could not process and have isolated, in batches that succeeded."`
	ItemsNotIsolated     *prometheus.CounterVec `metric:"tasker_batch_items_not_isolated_total" labels:"namespace" help:"Items of batches that could not be isolated: too many, too large, or without a JSON form. Their batches fail."`
	StepYields           *prometheus.CounterVec `metric:"tasker_step_yields_total" labels:"namespace" help:"Handlers that ended to go on from a checkpoint."`

	// Signals sent and relayed.

	EventSource          *prometheus.GaugeVec   `metric:"tasker_event_source" labels:"source,role" values:"notify|wal|relay|amqp|redis,used|moved_from" help:"1 for the event source that the daemon uses, and for the one that its fleet moves away from."`
	SignalsSent          prometheus.Counter     `metric:"tasker_signals_sent_total" help:"Signals sent."`
	SignalsCoalesced     prometheus.Counter     `metric:"tasker_signals_coalesced_total" help:"Signals that joined an equal one waiting to be sent."`
	SignalsFailed        prometheus.Counter     `metric:"tasker_signals_failed_total" help:"Signals that could not be sent."`
	SignalsDropped       prometheus.Counter     `metric:"tasker_signals_dropped_total" help:"Signals given up because too many were waiting."`
	SignalsReturned      prometheus.Counter     `metric:"tasker_signals_returned_total" help:"Signals that no listener wanted when they were sent; only where a broker carries signals."`
	SignalQueueOverflows prometheus.Counter     `metric:"tasker_signal_queue_overflows_total" help:"Times that a broker dropped signals waiting for a listener, which then looks at everything."`
	BrokerUp             *prometheus.GaugeVec   `metric:"tasker_broker_up" labels:"connection" values:"signals|rabbitmq_queue|redis_queue|rabbitmq_events" help:"1 while a broker does what a connection asks of it, 0 after it did not: that of signals, or of a bridge. Absent before the first time."`
	BrokerErrors         *prometheus.CounterVec `metric:"tasker_broker_errors_total" labels:"connection,reason" values:"signals|rabbitmq_queue|redis_queue|rabbitmq_events,unreachable|refused|blocked|topology" help:"Times that a broker did not do what a connection asked: it did not answer (unreachable), answered no (refused: rights, role, memory, disk), takes no messages for now (blocked), or has other exchanges and queues than the configuration wants (topology)."`
	BrokerBlocked        prometheus.Gauge       `metric:"tasker_broker_blocked" help:"Connections over which RabbitMQ takes no messages now, because it is short of memory or disk."`
	RelayLeader          prometheus.Gauge       `metric:"tasker_relay_leader" help:"1 while this replica relays the signals of the fleet."`
	WALSlotsLost         prometheus.Counter     `metric:"tasker_wal_slots_lost_total" help:"Persistent replication slots that the server had invalidated, and which were made anew."`
	RelayForwarded       prometheus.Counter     `metric:"tasker_relay_forwarded_total" help:"Signals read from the WAL and announced again."`

	// Circuit breakers.

	BreakerState       *prometheus.GaugeVec   `metric:"tasker_circuit_breaker_state" labels:"component" alias:"api_circuit_breaker_state{component=web} messaging_circuit_breaker_state{component=messaging}" help:"State of a circuit breaker: 0 closed, 1 half-open, 2 open."`
	BreakerTransitions *prometheus.CounterVec `metric:"tasker_circuit_breaker_transitions_total" labels:"component,to" values:"*,closed|half_open|open" help:"Changes of the state of a circuit breaker, by the state after it."`
	BreakerRejected    *prometheus.CounterVec `metric:"tasker_circuit_breaker_rejected_total" labels:"component" alias:"messaging_circuit_breaker_rejections_total{component=messaging} ffi_completion_circuit_open_rejections_total{component=report}" help:"Calls that a circuit breaker refused."`

	// Requests without credentials or permission.

	AuthRefusals *prometheus.CounterVec `metric:"tasker_auth_refusals_total" labels:"reason" values:"missing|expired|invalid|malformed|forbidden" alias:"tasker_auth_failures_total tasker_permission_denials_total{reason=forbidden}" help:"Requests that were refused, or would be, by reason: missing, expired, invalid, malformed, forbidden."`
	// Logins and the ends of browser sessions.
	Logins               *prometheus.CounterVec `metric:"tasker_logins_total" labels:"by,outcome" values:"api_key|oidc,opened|refused|failed" help:"Logins of browsers, by how (api_key, oidc) and outcome: opened a session, refused, or failed because something was not available."`
	BrowserSessionsEnded *prometheus.CounterVec `metric:"tasker_browser_sessions_ended_total" labels:"reason" values:"logout|replaced|operator" help:"Browser sessions that were ended before their time: by a logout, for a new one of the same browser or principal, or by their id."`
	AuthHits             prometheus.Counter     `metric:"tasker_auth_cache_hits_total" help:"Requests whose token or API key had been verified within ten seconds, and was not verified again."`
	AuthMisses           prometheus.Counter     `metric:"tasker_auth_cache_misses_total" help:"Requests whose token or API key was verified, or refused."`
	UnknownKeys          *prometheus.CounterVec `metric:"tasker_unknown_body_keys_total" labels:"operation" help:"Unknown keys of request bodies, and query parameters, that were ignored, as Tasker ignores them."`
	KeySetFetches        *prometheus.CounterVec `metric:"tasker_auth_key_set_fetches_total" labels:"outcome" values:"success|error" help:"Fetches of the JWKS."`

	// Requests over REST, when they have been answered; status is the class of it, route is empty where there is none.

	APIRequests *prometheus.CounterVec   `metric:"tasker_api_requests_total" labels:"status" values:"2xx|3xx|4xx|5xx" alias:"api_requests_total" help:"Requests over REST that were answered, by the class of their status."`
	APIDuration *prometheus.HistogramVec `metric:"tasker_api_request_duration_seconds" labels:"route" alias:"api_request_latency_ms*1000" help:"Duration of requests over REST, streams and waiting requests too."`

	// gRPC; operations that rpcs call are requests of the API too.

	GRPCRequests       *prometheus.CounterVec `metric:"tasker_grpc_requests_total" labels:"rpc,code" help:"Calls over gRPC that have ended, by the code of their status."`
	GRPCStreams        prometheus.Gauge       `metric:"tasker_grpc_task_streams" help:"Open streams of task statuses."`
	GRPCStreamsRefused prometheus.Counter     `metric:"tasker_grpc_task_streams_refused_total" help:"Streams of task statuses that were refused because there were as many as there may be."`

	// Analytics.

	AnalyticsHits   *prometheus.CounterVec `metric:"tasker_analytics_cache_hits_total" labels:"answer" values:"performance|bottlenecks|queues" help:"Requests for analytics that a computed answer was good for."`
	AnalyticsMisses *prometheus.CounterVec `metric:"tasker_analytics_cache_misses_total" labels:"answer" values:"performance|bottlenecks|queues" help:"Answers of the analytics that were computed."`

	// Rejected new work.

	BackpressureTier     *prometheus.GaugeVec   `metric:"tasker_backpressure_tier" labels:"namespace" help:"How full the queue of a namespace is: 0 normal, 1 warning, 2 critical, 3 overflow; measured while tasks are being created."`
	BackpressureRefusals *prometheus.CounterVec `metric:"tasker_backpressure_refusals_total" labels:"reason" values:"circuit_breaker|channel_saturation|queue_depth|quota|throttle" alias:"api_requests_rejected_total" help:"Requests for new work that were turned away."`
	DrainRate            prometheus.Gauge       `metric:"tasker_drain_rate" help:"Claims of steps per second of late, in the whole fleet; measured while tasks are being created."`
	WebBudget            *prometheus.GaugeVec   `metric:"tasker_web_budget_bytes" labels:"budget" values:"bodies|answers" help:"Bytes that requests may take up together: bodies, or answers."`
	WebBudgetHeld        *prometheus.GaugeVec   `metric:"tasker_web_budget_held_bytes" labels:"budget" values:"bodies|answers" help:"Bytes of the budget that requests under way take up."`
	SharesRefused        *prometheus.CounterVec `metric:"tasker_shares_refused_total" labels:"places" values:"batches|streams|task_streams|sessions|waiting_requests|waiting_claims|event_consumers|bytes_of_bodies|bytes_of_answers" help:"Requests that were turned away (429) or answered without a wait because their principal used its share, by what was to be held (web.auth.principal_share_percent)."`
	WebBudgetRefused     *prometheus.CounterVec `metric:"tasker_web_budget_refused_total" labels:"budget" values:"bodies|answers" help:"Requests that were turned away (503) because the budget was exhausted."`

	// Sweeps and their findings; each run is counted by the replica that made it.

	SweepRuns         *prometheus.CounterVec   `metric:"tasker_sweep_runs_total" labels:"sweep,outcome" values:"*,ok|error|panic|stopped" help:"Runs of sweeps by this replica, dry ones as well."`
	SweepDuration     *prometheus.HistogramVec `metric:"tasker_sweep_duration_seconds" labels:"sweep" help:"Duration of a run of a sweep."`
	SweepItems        *prometheus.CounterVec   `metric:"tasker_sweep_items_total" labels:"sweep,action" help:"What sweeps found, by what they did about it; would_ means a dry run."`
	SweepLastSuccess  *prometheus.GaugeVec     `metric:"tasker_sweep_last_success_timestamp_seconds" labels:"sweep" help:"End of the last successful run by this replica; the fleet's is the greatest of all."`
	WorkersDied       prometheus.Counter       `metric:"tasker_workers_died_total" help:"Workers given up because they sent no heartbeat any more."`
	WorkersCleaned    prometheus.Counter       `metric:"tasker_workers_cleaned_total" help:"Workers, and orchestrators, that are gone and were deleted by retention."`
	TasksCleaned      prometheus.Counter       `metric:"tasker_tasks_cleaned_total" help:"Ended tasks deleted one by one by retention; most go with their day."`
	StalenessRuns     prometheus.Counter       `metric:"tasker_staleness_detection_runs_total" help:"Looks for stale tasks."`
	StalenessDetected prometheus.Counter       `metric:"tasker_staleness_tasks_detected_total" help:"Stale tasks found, by dry runs as well."`
	StalenessToError  prometheus.Counter       `metric:"tasker_staleness_tasks_transitioned_to_error_total" help:"Stale tasks moved to error."`
	StalenessDuration prometheus.Histogram     `metric:"tasker_staleness_detection_duration_seconds" alias:"tasker_staleness_detection_duration*1000 tasker_staleness_detection_duration_milliseconds*1000" help:"Duration of a look for stale tasks."`

	// The dead letter queue.

	DLQEntriesCreated *prometheus.CounterVec `metric:"tasker_dlq_entries_created_total" labels:"reason" values:"staleness_timeout|max_retries_exceeded|dependency_cycle_detected|worker_unavailable|manual_dlq" help:"Entries of the dead letter queue created."`
	DLQPending        prometheus.Gauge       `metric:"tasker_dlq_pending_investigations" help:"Open entries of the dead letter queue; the same at every orchestrator."`

	// Handlers that work in a transaction.

	Transactions    *prometheus.CounterVec `metric:"tasker_worker_transactions_total" labels:"outcome" values:"committed|rolled_back|refused|unknown" help:"Transactions of handlers: committed, rolled_back, refused (the claim was lost), unknown (the worker ended before it was known)."`
	TransactionWait prometheus.Histogram   `metric:"tasker_worker_transaction_wait_seconds" help:"Wait of a handler for the connection of its transaction."`
	CommitsUnknown  prometheus.Counter     `metric:"tasker_worker_commits_unknown_total" help:"Commits of handlers' transactions whose answer was lost, so that the worker had to ask what became of them."`

	// Schedules; each run is counted by the replica that made it.

	ScheduleRuns *prometheus.CounterVec `metric:"tasker_schedule_runs_total" labels:"outcome" values:"created|duplicate|by_hand|missed|overlap|failed|refused" help:"Runs of schedules: created, duplicate, by_hand, and those that made no task: missed, overlap, failed, and refused by a quota, which are tried again."`
	ScheduleLag  prometheus.Histogram   `metric:"tasker_schedule_lag_seconds" help:"From the time that a run is for to its transaction."`

	// Waiting steps; each event is counted by the replica that received it.

	EventsReceived *prometheus.CounterVec `metric:"tasker_events_received_total" labels:"outcome" values:"delivered|kept|duplicate" help:"Events from outside: delivered to steps, kept for one that will wait, duplicate."`

	// Domain events: durable ones are counted by the orchestrator that commits them, fast ones by the worker that ran the step.

	DomainEventsPublished       *prometheus.CounterVec `metric:"tasker_domain_events_published_total" labels:"event_name,namespace" help:"Domain events: durable ones that were committed, and fast ones that were handed to the subscribers. Those that templates do not declare have no event_name here."`
	DomainEventsFailed          *prometheus.CounterVec `metric:"tasker_domain_events_failed_total" labels:"event_name,namespace,reason" values:"*,*,schema|too_large|not_storable|unknown_publisher|publisher_error|publisher_panic|publisher_timeout|busy" help:"Domain events that were not published: schema, too_large, not_storable, unknown_publisher, publisher_error, publisher_panic, publisher_timeout, busy."`
	DomainEventsDropped         *prometheus.CounterVec `metric:"tasker_domain_events_dropped_total" labels:"subscriber" alias:"domain_events_dropped_total" help:"Fast domain events that a subscriber lost because its buffer was full; without a name: the buffer before all of them."`
	DomainEventSubscriberErrors *prometheus.CounterVec `metric:"tasker_domain_event_subscriber_errors_total" labels:"subscriber" help:"Fast domain events over which a subscriber failed."`
	DomainEventsSent            *prometheus.CounterVec `metric:"tasker_domain_events_sent_total" labels:"outcome" values:"sent|too_large|not_sendable" help:"Fast domain events for the other workers: sent (handed to the sender of signals), too_large, not_sendable."`
	DomainEventsReceived        *prometheus.CounterVec `metric:"tasker_domain_events_received_total" labels:"outcome" values:"delivered|duplicate|malformed|lost" help:"Fast domain events from the other workers: delivered, duplicate, malformed; lost counts gaps, where senders or receivers gave up some."`

	// Streams of server-sent events: of domain events (stream="events") and of transitions.

	EventStreams        *prometheus.GaugeVec   `metric:"tasker_event_streams" labels:"stream" values:"events|transitions" help:"Open streams: of domain events (events), of transitions."`
	EventStreamsRefused prometheus.Counter     `metric:"tasker_event_streams_refused_total" help:"Streams of events and of transitions that were refused (503) because there were as many as there may be."`
	EventStreamsEnded   *prometheus.CounterVec `metric:"tasker_event_streams_ended_total" labels:"stream,reason" values:"events|transitions,left|slow|complete|stopping|error" help:"Streams that have ended: left (by the client), slow (it did not read in time), complete (its task has ended, or the hour), stopping, error (the database)."`
	TransitionsSent     prometheus.Counter     `metric:"tasker_transitions_sent_total" help:"Transitions written to streams, once for each client."`

	// Read when they are scraped, by collectors of the daemons.

	QueueDepth         *prometheus.Desc `metric:"tasker_queue_depth" kind:"gauge" labels:"namespace" alias:"taskqueue_queue_depth tasker_steps_ready pgmq_queue_depth" help:"Claimable steps, counted up to one more than overflow_threshold."`
	QueueOldest        *prometheus.Desc `metric:"tasker_queue_oldest_seconds" kind:"gauge" labels:"namespace" alias:"tasker_queue_age_seconds" help:"For how long the oldest claimable step has been claimable."`
	WorkersDesired     *prometheus.Desc `metric:"tasker_workers_desired" kind:"gauge" labels:"namespace" help:"Workers that the namespace should have, as GET /v1/autoscaling/{namespace} advises."`
	StepsWithoutWorker *prometheus.Desc `metric:"tasker_steps_without_worker" kind:"gauge" labels:"namespace" help:"Claimable steps that no live worker can run, counted up to one more than overflow_threshold for each callable."`

	PoolMax      *prometheus.Desc `metric:"tasker_pool_connections_max" kind:"gauge" help:"Connections of the pool that may be open."`
	PoolActive   *prometheus.Desc `metric:"tasker_pool_connections_active" kind:"gauge" alias:"tasker_db_pool_connections_active" help:"Connections of the pool in use."`
	PoolIdle     *prometheus.Desc `metric:"tasker_pool_connections_idle" kind:"gauge" alias:"tasker_db_pool_connections_idle" help:"Connections of the pool open and unused."`
	PoolAcquires *prometheus.Desc `metric:"tasker_pool_acquires_total" kind:"counter" help:"Connections of the pool that were acquired."`
	PoolWait     *prometheus.Desc `metric:"tasker_pool_acquire_seconds_total" kind:"counter" help:"Time for which connections of the pool were waited for or opened."`

	TransactionPoolMax      *prometheus.Desc `metric:"tasker_transaction_pool_connections_max" kind:"gauge" help:"Connections of the pool for handlers that work in a transaction that may be open."`
	TransactionPoolActive   *prometheus.Desc `metric:"tasker_transaction_pool_connections_active" kind:"gauge" help:"Connections of the pool for handlers that work in a transaction in use."`
	TransactionPoolIdle     *prometheus.Desc `metric:"tasker_transaction_pool_connections_idle" kind:"gauge" help:"Connections of the pool for handlers that work in a transaction open and unused."`
	TransactionPoolAcquires *prometheus.Desc `metric:"tasker_transaction_pool_acquires_total" kind:"counter" help:"Connections of the pool for handlers that work in a transaction that were acquired."`
	TransactionPoolWait     *prometheus.Desc `metric:"tasker_transaction_pool_acquire_seconds_total" kind:"counter" help:"Time for which connections of the pool for handlers that work in a transaction were waited for or opened."`

	names *names // behind all metrics, see Catalogue
}

// The values of the label by of Found and EmptyWakes.
const (
	ByListener = "listener"
	ByPoller   = "poller"
	ByTimer    = "timer"
	ByCatchUp  = "catch_up"
	ByContinue = "continue"
)

// The values of the label outcome of Commands.
const (
	OutcomeOK    = "ok"
	OutcomeError = "error"
	OutcomePanic = "panic"
)

// NewMetrics registers the catalogue on reg and returns it. A second call with the same
// registry returns the existing collectors, so that several daemons in one process can
// share it. It panics if reg holds a metric of the same name and another shape, which is a
// programming error.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{names: &names{known: map[string]map[string]bool{}}}
	fields := reflect.ValueOf(m).Elem()
	for i, e := range Catalogue() {
		c, tag := fields.Field(i), fields.Type().Field(i).Tag
		if sampled, ok := c.Addr().Interface().(**prometheus.Desc); ok {
			*sampled = prometheus.NewDesc(e.Name, e.Help, e.Labels, nil)
			continue
		}
		c.Set(reflect.ValueOf(registered(reg, collector(c.Addr().Interface(), tag))))
		m.begin(i, &e, "", "")
	}
	return m
}

// Observe adds a measurement, with the id of its trace as exemplar; "": without one.
func Observe(o prometheus.Observer, v float64, traceID string) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && traceID != "" {
		e.ObserveWithExemplar(v, prometheus.Labels{"trace_id": traceID})
		return
	}
	o.Observe(v)
}

// Broker notes whether a broker did what a connection asked of it; reason classifies an error.
// One that ends because the daemon does says nothing of the broker.
func (m *Metrics) Broker(connection string, err error, reason func(error) string) {
	switch {
	case err == nil:
		m.BrokerUp.WithLabelValues(connection).Set(1)
	case !errors.Is(err, context.Canceled):
		m.BrokerUp.WithLabelValues(connection).Set(0)
		m.BrokerErrors.WithLabelValues(connection, reason(err)).Inc()
	}
}

// The values of the label reason of BrokerErrors.
const (
	BrokerUnreachable = "unreachable"
	BrokerRefused     = "refused"
	BrokerBlocked     = "blocked"
	BrokerTopology    = "topology"
)

// Restarted counts a restart of a loop.
func (m *Metrics) Restarted(loop string) { m.LoopRestarts.WithLabelValues(loop).Inc() }

// Discard returns metrics without a reader, for components that were given none.
func Discard() *Metrics { return NewMetrics(prometheus.NewRegistry()) }

// OrDiscard returns m, or Discard if m is nil.
func (m *Metrics) OrDiscard() *Metrics {
	if m == nil {
		return Discard()
	}
	return m
}

// collector makes the collector of a field by its tags.
func collector(field any, tag reflect.StructTag) prometheus.Collector {
	name, help, labels := tag.Get("metric"), tag.Get("help"), list(tag.Get("labels"))
	histogram := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets(tag.Get("buckets"))}
	switch field.(type) {
	case *prometheus.Counter:
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	case **prometheus.CounterVec:
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	case *prometheus.Gauge:
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	case **prometheus.GaugeVec:
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	case *prometheus.Histogram:
		return prometheus.NewHistogram(histogram)
	default:
		return prometheus.NewHistogramVec(histogram, labels)
	}
}

// buckets reads those of a tag. By default they span the measured durations: half a
// millisecond to a minute.
func buckets(tag string) (bounds []float64) {
	if tag == "" {
		return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	}
	for _, bound := range strings.Fields(tag) {
		b, _ := strconv.ParseFloat(bound, 64)
		bounds = append(bounds, b)
	}
	return bounds
}

func registered(reg prometheus.Registerer, c prometheus.Collector) prometheus.Collector {
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	switch {
	case err == nil:
		return c
	case errors.As(err, &already):
		return already.ExistingCollector
	}
	panic(err) //nolint:forbidigo // two metrics of one name are a programming error, found at the first start
}
