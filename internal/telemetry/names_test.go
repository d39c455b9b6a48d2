package telemetry_test

import "strings"

// document is one whose metrics programs in place of it may be scraped for. Names are as its
// exporter spells them.
type document struct {
	title, names string
	without      map[string]string // the names that are not offered, with the reason
}

const (
	noQueue    = "steps are claimed from a table; no message is sent, received or deleted"
	noFFI      = "handlers in other languages have sessions, see tasker_worker_session*"
	inFlows    = "tasker_store_statement_seconds by flow"
	perWorker  = "the state of permits is tasker_worker_handlers_active and tasker_worker_handlers_limit"
	perChannel = "mpsc_channel_saturation by channel"
)

// because gives names one reason.
func because(reasons ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(reasons); i += 2 {
		for name := range strings.FieldsSeq(reasons[i+1]) {
			m[name] = reasons[i]
		}
	}
	return m
}

var documents = []document{
	{"Taskmaster", `tasks_submitted_total tasks_claimed_total tasks_completed_total tasks_failed_total tasks_dead_lettered_total tasks_requeued_total
		tasks_cleaned_total workers_registered_total workers_died_total workers_cleaned_total tasks_queue_wait_seconds
		tasks_execution_duration_seconds tasks_end_to_end_duration_seconds`, nil},
	{"Distributed Queue (Go, RabbitMQ)", `dq_enqueue_total dq_enqueue_latency_seconds`, nil},
	{"Distributed Task Queue Engine", `taskqueue_jobs_submitted_total taskqueue_jobs_completed_total taskqueue_jobs_failed_total taskqueue_jobs_dead_total
		taskqueue_jobs_duplicate_total taskqueue_jobs_retried_total taskqueue_queue_depth taskqueue_processing_active
		taskqueue_job_execution_duration_seconds taskqueue_job_queue_wait_time_seconds`,
		nil},
	{"Tasker, metrics reference", `tasker_tasks_requests_total tasker_tasks_completions_total tasker_tasks_failures_total tasker_steps_enqueued_total
		tasker_step_results_processed_total tasker_task_initialization_duration_milliseconds tasker_task_finalization_duration_milliseconds
		tasker_step_result_processing_duration_milliseconds tasker_tasks_active tasker_steps_ready tasker_steps_executions_total
		tasker_steps_successes_total tasker_steps_failures_total tasker_steps_claimed_total tasker_steps_results_submitted_total
		tasker_step_execution_duration_milliseconds tasker_step_claim_duration_milliseconds tasker_step_result_submission_duration_milliseconds
		tasker_steps_active_executions tasker_queue_depth api_circuit_breaker_state tasker_circuit_breaker_state api_requests_rejected_total
		ffi_completion_slow_sends_total ffi_completion_circuit_open_rejections_total mpsc_channel_usage_percent mpsc_channel_capacity
		mpsc_channel_full_events_total tasker_sql_queries_total tasker_sql_query_duration_milliseconds tasker_db_pool_connections_active
		tasker_db_pool_connections_idle tasker_db_pool_wait_duration tasker_db_transactions_total tasker_db_transaction_duration
		tasker_queue_messages_sent_total tasker_queue_messages_received_total tasker_queue_messages_deleted_total tasker_queue_message_send_duration
		tasker_queue_message_receive_duration tasker_queue_age_seconds tasker_queue_visibility_timeouts_total tasker_queue_errors_total
		tasker_queue_retry_attempts_total tasker_domain_events_published_total tasker_domain_events_failed_total
		tasker_domain_events_publish_duration_milliseconds`, because(
		noQueue, `tasker_queue_messages_sent_total tasker_queue_messages_received_total tasker_queue_messages_deleted_total
			tasker_queue_message_send_duration tasker_queue_message_receive_duration tasker_queue_visibility_timeouts_total tasker_queue_errors_total
			tasker_queue_retry_attempts_total`,
		inFlows, `tasker_sql_queries_total tasker_db_transactions_total tasker_db_transaction_duration`,
		noFFI, `ffi_completion_slow_sends_total`,
		"a count of the ledger at every scrape; the analytics have it over REST", `tasker_tasks_active`,
		"a sum: `tasker_pool_acquire_seconds_total`", `tasker_db_pool_wait_duration`,
		"durable events are committed with the results of their steps, see tasker_store_statement_seconds", `tasker_domain_events_publish_duration_milliseconds`)},
	{"Tasker, deployment modes, dead letters, credentials", `tasker_event_listener_active tasker_event_listener_lag_ms tasker_polling_fallback_active tasker_mode_switches_total
		tasker_event_notifications_received_total tasker_event_processing_duration_seconds tasker_listener_reconnections_total tasker_polling_cycles_total
		tasker_polling_messages_processed_total tasker_polling_messages_found_total tasker_polling_duration_seconds tasker_polling_errors_total
		tasker_dlq_entries_created_total tasker_staleness_tasks_detected_total tasker_staleness_tasks_transitioned_to_error_total
		tasker_staleness_detection_runs_total tasker_staleness_detection_duration tasker_dlq_time_in_queue tasker_dlq_pending_investigations
		tasker_auth_requests_total tasker_auth_failures_total tasker_permission_denials_total tasker_auth_jwt_verification_duration`,
		because(
			"a time of days, which the dead letter queue has over REST for each entry", `tasker_dlq_time_in_queue`,
			"`tasker_api_requests_total` less `tasker_auth_refusals_total`", `tasker_auth_requests_total`,
			"some microseconds; the benchmark `secure` has them", `tasker_auth_jwt_verification_duration`)},
	{"Tasker, backpressure runbook", `messaging_circuit_breaker_state messaging_circuit_breaker_rejections_total mpsc_channel_saturation api_requests_total
		api_request_latency_ms orchestration_command_channel_size orchestration_command_channel_saturation pgmq_queue_depth pgmq_queue_max_depth
		pgmq_enqueue_failures_total worker_claim_refusals_total worker_handler_semaphore_permits_available worker_handler_semaphore_permits_total
		worker_handler_semaphore_wait_ms worker_dispatch_channel_saturation worker_completion_channel_saturation worker_handler_execution_ms
		domain_events_dropped_total domain_events_dispatched_total`, because(
		perChannel, `orchestration_command_channel_size orchestration_command_channel_saturation worker_dispatch_channel_saturation worker_completion_channel_saturation`,
		noQueue, `pgmq_enqueue_failures_total`, "a threshold of the configuration; tasker_backpressure_tier says how near it is", `pgmq_queue_max_depth`,
		"a worker claims no more than it has permits for, so that it refuses nothing", `worker_claim_refusals_total worker_handler_semaphore_wait_ms`,
		perWorker, `worker_handler_semaphore_permits_available`,
		"tasker_domain_events_published_total", `domain_events_dispatched_total`)},
}
