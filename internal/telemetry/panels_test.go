package telemetry_test

// panel is one of a dashboard, or the title of a row where it has no queries. Its unit is one of
// Grafana's.
type panel struct {
	title, unit string
	queries     []query
}

// query names its series by legend.
type query struct{ expr, legend string }

type dashboard struct {
	file, title string
	panels      []panel
}

func one(title, unit, expr, legend string) panel {
	return panel{title, unit, []query{{expr, legend}}}
}

// rate is that of a counter over the interval of a panel.
func rate(by, counter string) string {
	return "sum by (" + by + ") (rate(" + counter + "[$__rate_interval]))"
}

// within are the quantiles of a histogram.
func within(title, name, by string) panel {
	p := panel{title: title, unit: "s"}
	for _, q := range []struct{ quantile, legend string }{{"0.5", "p50"}, {"0.95", "p95"}, {"0.99", "p99"}} {
		labels, legend := "le", q.legend
		if by != "" {
			labels, legend = "le, "+by, q.legend+" {{"+by+"}}"
		}
		p.queries = append(p.queries, query{"histogram_quantile(" + q.quantile + ", " + rate(labels, name+"_bucket") + ")", legend})
	}
	return p
}

var dashboards = []dashboard{
	{"tasker-overview", "Tasker Overview", []panel{
		one("Daemons scraped", "short", `sum by (job) (up{job=~"tasker.*"})`, "{{job}}"),
		{"Tasks", "ops", []query{
			{rate("namespace", "tasker_tasks_created_total"), "created {{namespace}}"},
			{rate("namespace, state", "tasker_tasks_completed_total"), "{{state}} {{namespace}}"}}},
		one("Results of steps", "ops", rate("namespace, outcome", "tasker_step_results_total"), "{{outcome}} {{namespace}}"),
		one("Permanent errors", "percentunit", "tasker:step_errors:ratio5m", "{{namespace}}"),
		one("Claimable steps", "short", "max by (namespace) (tasker_queue_depth)", "{{namespace}}"),
		one("Oldest claimable step", "s", "max by (namespace) (tasker_queue_oldest_seconds)", "{{namespace}}"),
		one("Steps without a worker", "short", "max by (namespace) (tasker_steps_without_worker)", "{{namespace}}"),
		one("Open dead letters", "short", "max(tasker_dlq_pending_investigations)", "open"),
		one("Dead letters made", "ops", rate("reason", "tasker_dlq_entries_created_total"), "{{reason}}"),
		one("Listeners", "short", "min by (system) (tasker_event_listener_active)", "{{system}}"),
		within("Way of a probe", "tasker_probe_lag_seconds", "system"),
		one("Work found", "ops", rate("system, by", "tasker_found_total"), "{{system}} by {{by}}"),
		one("Work missed by listeners", "ops", rate("system", "tasker_missed_total"), "{{system}}"),
		one("Circuit breakers (0 closed, 1 half-open, 2 open)", "short", "max by (component) (tasker_circuit_breaker_state)", "{{component}}"),
		one("Fullest channels", "percentunit", "topk(5, max by (channel) (mpsc_channel_saturation))", "{{channel}}"),
		within("Commands", "tasker_command_duration_seconds", "command"),
		{"Connections of the pools", "short", []query{
			{"max by (instance) (tasker_pool_connections_active)", "active {{instance}}"},
			{"max by (instance) (tasker_pool_connections_max)", "most {{instance}}"}}},
		within("Database flows", "tasker_store_statement_seconds", ""),
		one("Signals", "ops", `sum(rate(tasker_signals_sent_total[$__rate_interval]))`, "sent"),
		one("Sweeps", "ops", rate("sweep, outcome", "tasker_sweep_runs_total"), "{{sweep}} {{outcome}}"),
		one("Schedules", "ops", rate("outcome", "tasker_schedule_runs_total"), "{{outcome}}"),
		one("New work refused", "ops", rate("reason", "tasker_backpressure_refusals_total"), "{{reason}}"),
		{"Brokers", "", nil},
		{"Brokers that answer", "short", []query{
			{"min by (connection) (tasker_broker_up)", "{{connection}}"},
			{"sum(tasker_broker_blocked)", "blocked connections"}}},
		one("Errors of brokers", "ops", rate("connection, reason", "tasker_broker_errors_total"), "{{connection}} {{reason}}"),
		{"Signals over brokers", "ops", []query{
			{`sum(rate(tasker_signals_failed_total[$__rate_interval]))`, "not sent"},
			{`sum(rate(tasker_signals_returned_total[$__rate_interval]))`, "without a listener"},
			{`sum(rate(tasker_signal_queue_overflows_total[$__rate_interval]))`, "overflows of listeners' queues"}}},
		one("Jobs of bridges", "ops", rate("bridge, outcome", "tasker_bridge_jobs_total"), "{{bridge}} {{outcome}}"),
		one("Held by bridges", "short", "sum by (bridge) (tasker_bridge_held)", "{{bridge}}"),
		one("Bridges have waited for", "s", "max by (bridge) ((time() - tasker_bridge_waiting_since_timestamp_seconds) * (tasker_bridge_waiting_since_timestamp_seconds > bool 0))", "{{bridge}}"),
		one("Dead letters of brokers", "short", "max by (bridge) (tasker_bridge_dead_letters)", "{{bridge}}"),
		one("Tasks of types requested", "ops", rate("type, queue, status", "tasker_enqueue_total"), "{{type}} {{queue}} {{status}}"),
		within("Requests for tasks of types", "tasker_enqueue_duration_seconds", ""),
	}},
	{"tasker-workers", "Tasker Workers", []panel{
		{"Handlers", "short", []query{
			{"sum by (instance) (tasker_worker_handlers_active)", "active {{instance}}"},
			{"sum by (instance) (tasker_worker_handlers_limit)", "limit {{instance}}"},
			{"sum by (instance) (tasker_worker_handlers_zombie)", "zombie {{instance}}"}}},
		one("Steps claimed", "ops", rate("namespace", "tasker_steps_claimed_total"), "{{namespace}}"),
		within("Duration of handlers", "tasker_step_duration_seconds", "namespace"),
		one("Leases lost and expired", "ops", `sum(rate(tasker_leases_lost_total[$__rate_interval])) + sum(rate(tasker_leases_expired_total[$__rate_interval]))`, "leases"),
		one("Results too late", "ops", `sum(rate(tasker_stale_results_total[$__rate_interval]))`, "results"),
		one("Transactions of handlers", "ops", rate("outcome", "tasker_worker_transactions_total"), "{{outcome}}"),
		one("Checkpoints saved", "ops", rate("namespace", "tasker_checkpoints_saved_total"), "{{namespace}}"),
		one("Sessions of other languages", "short", "sum(tasker_worker_sessions)", "open"),
		one("Restarts of loops", "ops", "sum(rate(tasker_loop_restarts_total[$__rate_interval])) or vector(0)", "restarts"),
		one("Memory", "bytes", `sum by (instance) (process_resident_memory_bytes{job=~"tasker.*"})`, "{{instance}}"),
		one("Goroutines", "short", `sum by (instance) (go_goroutines{job=~"tasker.*"})`, "{{instance}}"),
	}},
	{"taskmaster-overview", "Taskmaster Overview", []panel{
		{"Task throughput", "ops", []query{
			{rate("queue", "tasks_submitted_total"), "submitted {{queue}}"},
			{rate("queue", "tasks_claimed_total"), "claimed {{queue}}"},
			{rate("queue", "tasks_completed_total"), "completed {{queue}}"},
			{rate("queue", "tasks_failed_total"), "failed {{queue}}"}}},
		one("Tasks tried again", "ops", rate("reason", "tasks_requeued_total"), "{{reason}}"),
		one("Dead letters", "ops", rate("queue, reason", "tasks_dead_lettered_total"), "{{queue}} {{reason}}"),
		{"Worker events", "ops", []query{
			{rate("queue", "workers_registered_total"), "registered {{queue}}"},
			{"sum(rate(workers_died_total[$__rate_interval]))", "died"},
			{"sum(rate(workers_cleaned_total[$__rate_interval]))", "cleaned"}}},
		within("Wait in the queue", "tasks_queue_wait_seconds", "queue"),
		within("Execution", "tasks_execution_duration_seconds", "queue"),
		within("End to end", "tasks_end_to_end_duration_seconds", "queue"),
		one("Tasks removed by retention", "ops", "sum(rate(tasks_cleaned_total[$__rate_interval]))", "removed"),
		one("Claims that wait for a task", "short", "sum(tasker_queue_claims_waiting)", "claims"),
	}},
}
