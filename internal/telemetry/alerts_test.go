package telemetry_test

// alert is a rule of deploy/prometheus/rules.yml with two cases for promtool: the series of a
// fleet that it fires for, and of one that it does not. A series is followed by its values,
// a minute apart; both are looked at after wait.
type alert struct {
	name, expr, hold, severity string
	summary, do                string
	labels                     map[string]string // of the alert that fires, beside severity
	fires, silent              []string
	wait                       string
}

const (
	critical = "critical"
	warning  = "warning"
	info     = "info"
)

// of is the labels of an alert.
func of(pairs ...string) map[string]string {
	labels := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return labels
}

// grown is an expression for a counter whose label values are open: its first event makes
// the series, so that increase() does not see it.
func grown(by, counter, window string) string {
	return "sum by (" + by + ") (increase(" + counter + "[" + window + "])) > 0 or sum by (" + by + ") (" + counter +
		" unless " + counter + " offset " + window + ") > 0"
}

// brokerErrors is an expression for what a broker did not do, for a reason.
func brokerErrors(reason string) string {
	return `sum by (instance, connection) (increase(tasker_broker_errors_total{reason="` + reason + `"}[10m])) > 0`
}

var alerts = []alert{
	{name: "TaskerDown", expr: `up{job=~"tasker.*"} == 0`, hold: "1m", severity: critical,
		summary: "A daemon is not scraped.", do: "Its process has ended, hangs or cannot be reached; see its log and its supervisor.",
		labels: of("job", "tasker-worker", "instance", "a"),
		fires:  []string{`up{job="tasker-worker",instance="a"} 0x10`}, silent: []string{`up{job="tasker-worker",instance="a"} 1x10`}},
	{name: "TaskerListenerDown", expr: `max by (instance, system) (tasker_event_listener_active) == 0`, hold: "1m", severity: critical,
		summary: "A listener is not connected, or deaf.", do: "Work is found by polls, or not at all in the mode EventDrivenOnly; /health/detailed of the daemon says what failed.",
		labels: of("instance", "a", "system", "worker"),
		fires:  []string{`tasker_event_listener_active{instance="a",system="worker",mode="hybrid"} 0x10`},
		silent: []string{`tasker_event_listener_active{instance="a",system="worker",mode="hybrid"} 1x10`}},
	{name: "TaskerPollingInPlaceOfListener", expr: `max by (instance, system) (tasker_polling_fallback_active) == 1`, hold: "5m", severity: warning,
		summary: "Polling has stood in for a listener for minutes.", do: "Find out why the listener does not hear: its URL, a pooler, the event source.",
		labels: of("instance", "a", "system", "worker"),
		fires:  []string{`tasker_polling_fallback_active{instance="a",system="worker",mode="hybrid"} 1x10`},
		silent: []string{`tasker_polling_fallback_active{instance="a",system="worker",mode="hybrid"} 1x3 0x7`}},
	{name: "TaskerModeSwitchesOften", expr: `sum by (instance, system) (increase(tasker_mode_switches_total[1h])) > 20`, hold: "0m", severity: warning,
		summary: "An event system switches its mode more than 20 times an hour.", do: "The connection of the listener is unstable.", wait: "70m",
		labels: of("instance", "a", "system", "worker"),
		fires:  []string{`tasker_mode_switches_total{instance="a",system="worker",mode="polling"} 0+1x80`},
		silent: []string{`tasker_mode_switches_total{instance="a",system="worker",mode="polling"} 0x40 2x40`}},
	{name: "TaskerReconnectsOften", expr: `sum by (instance, system) (increase(tasker_listener_reconnections_total[1h])) > 5`, hold: "0m", severity: warning,
		summary: "A listener reconnects more than 5 times an hour.", do: "See the logs of the daemon, the server and the pooler.", wait: "70m",
		labels: of("instance", "a", "system", "worker"),
		fires:  []string{`tasker_listener_reconnections_total{instance="a",system="worker"} 0+1x80`},
		silent: []string{`tasker_listener_reconnections_total{instance="a",system="worker"} 0x40 1x40`}},
	{name: "TaskerPollsStopped", expr: `sum by (instance, system) (increase(tasker_polling_cycles_total[10m])) == 0 and sum by (instance, system) (tasker_polling_cycles_total) > 0`,
		hold: "1m", severity: critical,
		summary: "An event system that polls has stopped polling.", do: "Its loop hangs: take a profile of goroutines and restart the daemon.",
		labels: of("instance", "a", "system", "worker"), wait: "30m",
		fires:  []string{`tasker_polling_cycles_total{instance="a",system="worker"} 5x40`},
		silent: []string{`tasker_polling_cycles_total{instance="a",system="worker"} 0+9x40`, `tasker_polling_cycles_total{instance="a",system="events only"} 0x40`}},
	{name: "TaskerPollsFail", expr: `sum by (instance, system) (rate(tasker_polling_errors_total[5m])) / sum by (instance, system) (rate(tasker_polling_cycles_total[5m])) > 0.05`,
		hold: "5m", severity: warning,
		summary: "More than 5 % of the polls fail.", do: "The log of the daemon has the errors of the database.",
		labels: of("instance", "a", "system", "worker"), wait: "20m",
		fires:  []string{`tasker_polling_errors_total{instance="a",system="worker"} 0+1x30`, `tasker_polling_cycles_total{instance="a",system="worker"} 0+10x30`},
		silent: []string{`tasker_polling_errors_total{instance="a",system="worker"} 0x30`, `tasker_polling_cycles_total{instance="a",system="worker"} 0+10x30`}},
	{name: "TaskerWorkMissed", expr: `sum by (instance, system) (increase(tasker_missed_total[15m])) > 0`, hold: "0m", severity: warning,
		summary: "A poll found work whose signal was lost although the listener is healthy.", do: "A defect of the engine or of the transport of its signals; the log line names the system.",
		labels: of("instance", "a", "system", "worker"), wait: "10m",
		fires: []string{`tasker_missed_total{instance="a",system="worker"} 0x5 1x10`}, silent: []string{`tasker_missed_total{instance="a",system="worker"} 0x20`}},
	{name: "TaskerQueueFull", expr: `max by (namespace) (tasker_backpressure_tier) >= 2`, hold: "5m", severity: critical,
		summary: "The queue of a namespace is critically long; new tasks are refused soon.", do: "More workers, or fewer tasks; tasker-ctl top shows both rates.",
		labels: of("namespace", "n"), fires: []string{`tasker_backpressure_tier{namespace="n",instance="a"} 2x10`},
		silent: []string{`tasker_backpressure_tier{namespace="n",instance="a"} 1x10`}},
	{name: "TaskerStepsDoNotMove", hold: "15m", severity: critical,
		expr:    `max by (namespace) (tasker_queue_depth) > 0 and on (namespace) (sum by (namespace) (rate(tasker_steps_claimed_total[5m])) == 0)`,
		summary: "Steps of a namespace have waited for a quarter of an hour and none is claimed.", do: "See whether its workers live (tasker-ctl system fleet) and are ready.",
		labels: of("namespace", "n"), wait: "30m",
		fires:  []string{`tasker_queue_depth{namespace="n",instance="a"} 3x40`, `tasker_steps_claimed_total{namespace="n",instance="b"} 7x40`},
		silent: []string{`tasker_queue_depth{namespace="n",instance="a"} 3x40`, `tasker_steps_claimed_total{namespace="n",instance="b"} 0+1x40`}},
	{name: "TaskerStepsWaitLong", expr: `max by (namespace) (tasker_queue_oldest_seconds) > 900`, hold: "5m", severity: warning,
		summary: "The oldest step of a namespace has waited for more than a quarter of an hour.", do: "More workers, or a worker that has its handler; tasker-ctl top shows queues and rates.",
		labels: of("namespace", "n"), fires: []string{`tasker_queue_oldest_seconds{namespace="n",instance="a"} 1000x10`},
		silent: []string{`tasker_queue_oldest_seconds{namespace="n",instance="a"} 20x10`}},
	{name: "TaskerStepsWithoutWorker", expr: `max by (namespace) (tasker_steps_without_worker) > 0`, hold: "5m", severity: warning,
		summary: "Steps wait for a handler that no live worker has.", do: "A roll-out that lags behind, or a mistake in a template; /health/detailed of an orchestrator names the callables.",
		labels: of("namespace", "n"), fires: []string{`tasker_steps_without_worker{namespace="n",instance="a"} 1x10`},
		silent: []string{`tasker_steps_without_worker{namespace="n",instance="a"} 0x10`}},
	{name: "TaskerNewWorkRefused", expr: `sum by (reason) (rate(tasker_backpressure_refusals_total[5m])) > 0.1`, hold: "2m", severity: warning,
		summary: "More than 6 requests a minute for new work are turned away.", do: "The reason says what is full: the queue, a channel, or a circuit breaker is open.",
		labels: of("reason", "queue_depth"), wait: "15m",
		fires: []string{`tasker_backpressure_refusals_total{reason="queue_depth"} 0+60x20`}, silent: []string{`tasker_backpressure_refusals_total{reason="queue_depth"} 0+1x20`}},
	{name: "TaskerDeadLettersGrow", expr: `sum by (reason) (increase(tasker_dlq_entries_created_total[1h])) > 10`, hold: "0m", severity: warning,
		summary: "More than 10 tasks became dead letters within an hour.", do: "tasker-ctl dlq lists them with their errors.",
		labels: of("reason", "max_retries_exceeded"), wait: "70m",
		fires: []string{`tasker_dlq_entries_created_total{reason="max_retries_exceeded"} 0+1x80`}, silent: []string{`tasker_dlq_entries_created_total{reason="max_retries_exceeded"} 0x60 3x20`}},
	{name: "TaskerStepsFail", hold: "10m", severity: warning,
		expr:    `tasker:step_errors:ratio5m > 0.1`,
		summary: "More than a tenth of the results of a namespace are permanent errors.", do: "The steps' errors are in tasker-ctl task get and the dead letter queue.",
		labels: of("namespace", "n"), wait: "30m",
		fires:  []string{`tasker_step_results_total{namespace="n",outcome="error"} 0+2x40`, `tasker_step_results_total{namespace="n",outcome="success"} 0+8x40`},
		silent: []string{`tasker_step_results_total{namespace="n",outcome="error"} 0+1x40`, `tasker_step_results_total{namespace="n",outcome="success"} 0+99x40`}},
	{name: "TaskerLoopRestarts", expr: grown("instance, loop", "tasker_loop_restarts_total", "15m"), hold: "0m", severity: warning,
		summary: "A loop of a daemon panicked or failed, and was restarted.", do: "The log has the stack.",
		labels: of("instance", "a", "loop", "partitions"), wait: "10m",
		fires: []string{`tasker_loop_restarts_total{instance="a",loop="partitions"} _x5 1x10`}, silent: []string{`tasker_loop_restarts_total{instance="a",loop="partitions"} _x40`}},
	{name: "TaskerPoolExhausted", expr: `max by (instance) (tasker_pool_connections_active) >= max by (instance) (tasker_pool_connections_max)`, hold: "5m", severity: warning,
		summary: "All connections of a daemon's pool are in use.", do: "Work waits for connections: raise the pool, or find the slow statement.",
		labels: of("instance", "a"), fires: []string{`tasker_pool_connections_active{instance="a"} 9x10`, `tasker_pool_connections_max{instance="a"} 9x10`},
		silent: []string{`tasker_pool_connections_active{instance="a"} 3x10`, `tasker_pool_connections_max{instance="a"} 9x10`}},
	{name: "TaskerTransactionPoolExhausted", hold: "15m", severity: warning,
		expr:    `max by (instance) (tasker_transaction_pool_connections_active) >= (max by (instance) (tasker_transaction_pool_connections_max) > 0)`,
		summary: "Handlers have waited for the connections of their transactions for a quarter of an hour.", do: "Raise worker.transactions.max_connections, or do what takes long without a transaction.",
		labels: of("instance", "a"), wait: "20m",
		fires:  []string{`tasker_transaction_pool_connections_active{instance="a"} 9x30`, `tasker_transaction_pool_connections_max{instance="a"} 9x30`},
		silent: []string{`tasker_transaction_pool_connections_active{instance="a"} 0x30`, `tasker_transaction_pool_connections_max{instance="a"} 0x30`}},
	{name: "TaskerBreakerOpen", expr: `max by (instance, component) (tasker_circuit_breaker_state) == 2`, hold: "1m", severity: critical,
		summary: "A circuit breaker is open.", do: "What it protects fails: see the database and the log of the daemon.",
		labels: of("instance", "a", "component", "web"), fires: []string{`tasker_circuit_breaker_state{instance="a",component="web"} 2x10`},
		silent: []string{`tasker_circuit_breaker_state{instance="a",component="web"} 0x10`}},
	{name: "TaskerBreakerHalfOpen", expr: `max by (instance, component) (tasker_circuit_breaker_state) == 1`, hold: "5m", severity: warning,
		summary: "A circuit breaker has not closed again for minutes.", do: "What it protects answers only now and then.",
		labels: of("instance", "a", "component", "web"), fires: []string{`tasker_circuit_breaker_state{instance="a",component="web"} 1x10`},
		silent: []string{`tasker_circuit_breaker_state{instance="a",component="web"} 0x10`}},
	{name: "TaskerLeasesExpire", expr: `sum(rate(tasker_leases_expired_total[5m])) > 0`, hold: "15m", severity: warning,
		summary: "Leases have been running out for a quarter of an hour.", do: "Workers die, or cannot send heartbeats.", wait: "30m",
		fires: []string{`tasker_leases_expired_total{instance="a"} 0+1x40`}, silent: []string{`tasker_leases_expired_total{instance="a"} 0x5 1x35`}},
	{name: "TaskerResultsStale", expr: `sum(rate(tasker_stale_results_total[5m])) > 0`, hold: "15m", severity: warning,
		summary: "Results have been coming too late for a quarter of an hour.", do: "Leases too short, pauses too long, or a database that loses connections.", wait: "30m",
		fires: []string{`tasker_stale_results_total{instance="a"} 0+1x40`}, silent: []string{`tasker_stale_results_total{instance="a"} 0x5 1x35`}},
	{name: "TaskerCommitsUnknown", expr: `sum(rate(tasker_worker_commits_unknown_total[5m])) > 0`, hold: "15m", severity: warning,
		summary: "Connections of handlers have been breaking during commits.", do: "The network, a pooler, or a server that is restarted.", wait: "30m",
		fires: []string{`tasker_worker_commits_unknown_total{instance="a"} 0+1x40`}, silent: []string{`tasker_worker_commits_unknown_total{instance="a"} 0x40`}},
	{name: "TaskerSignalsDropped", expr: `sum by (instance) (increase(tasker_signals_dropped_total[5m])) > 0`, hold: "0m", severity: warning,
		summary: "A daemon gave up signals because too many were waiting.", do: "Work is found by polls meanwhile; see whether the transport of signals answers.",
		labels: of("instance", "a"), wait: "8m",
		fires: []string{`tasker_signals_dropped_total{instance="a"} 0x5 4x10`}, silent: []string{`tasker_signals_dropped_total{instance="a"} 0x20`}},
	{name: "TaskerChannelFull", expr: `max by (instance, channel) (mpsc_channel_saturation) > 0.8`, hold: "1m", severity: warning,
		summary: "A bounded channel is nearly full.", do: "What it feeds is too slow; its capacity is in the configuration.",
		labels: of("instance", "a", "channel", "c"), fires: []string{`mpsc_channel_saturation{instance="a",channel="c"} 0.9x10`}, silent: []string{`mpsc_channel_saturation{instance="a",channel="c"} 0.5x10`}},
	{name: "TaskerHandlersZombie", expr: `max by (instance) (tasker_worker_handlers_zombie) > 0`, hold: "5m", severity: warning,
		summary: "Handlers run on after their time limit or the loss of their lease.", do: "They do not watch their context; a profile of goroutines names them.",
		labels: of("instance", "a"), fires: []string{`tasker_worker_handlers_zombie{instance="a"} 1x10`}, silent: []string{`tasker_worker_handlers_zombie{instance="a"} 0x10`}},
	{name: "TaskerHandlersBusy", expr: `max by (instance) (tasker_worker_handlers_active) >= (max by (instance) (tasker_worker_handlers_limit) > 0)`, hold: "15m", severity: info,
		summary: "All permits of a worker have been taken for a quarter of an hour.", do: "More replicas, or more permits.", wait: "20m",
		labels: of("instance", "a"), fires: []string{`tasker_worker_handlers_active{instance="a"} 8x30`, `tasker_worker_handlers_limit{instance="a"} 8x30`},
		silent: []string{`tasker_worker_handlers_active{instance="a"} 7x30`, `tasker_worker_handlers_limit{instance="a"} 8x30`}},
	{name: "TaskerSweepsFail", expr: `sum by (sweep) (increase(tasker_sweep_runs_total{outcome=~"error|panic"}[1h])) > 2`, hold: "0m", severity: warning,
		summary: "A sweep failed more than twice within an hour.", do: "tasker-ctl sweep lists its runs with their errors.",
		labels: of("sweep", "retention"), wait: "70m",
		fires: []string{`tasker_sweep_runs_total{sweep="retention",outcome="error"} 0+1x80`}, silent: []string{`tasker_sweep_runs_total{sweep="retention",outcome="ok"} 0+1x80`}},
	{name: "TaskerSweepsNotRun", expr: `time() - max by (sweep) (tasker_sweep_last_success_timestamp_seconds) > 7200`, hold: "5m", severity: warning,
		summary: "No orchestrator has completed a sweep for two hours.", do: "Raise the limit for a sweep whose interval is longer; else see the orchestrators' logs.",
		labels: of("sweep", "retention"), wait: "3h",
		fires: []string{`tasker_sweep_last_success_timestamp_seconds{instance="a",sweep="retention"} 60x200`}, silent: []string{`tasker_sweep_last_success_timestamp_seconds{instance="a",sweep="retention"} 0+60x200`}},
	{name: "TaskerRelayWithoutLeader", expr: `sum(tasker_relay_leader) == 0 and max_over_time(sum(tasker_relay_leader)[6h:1m]) > 0`, hold: "1m", severity: critical,
		summary: "No replica relays the signals of the fleet.", do: "signal_relay in /health/detailed, and the logs of the orchestrators.", wait: "10m",
		fires: []string{`tasker_relay_leader{instance="a"} 1x4 0x20`}, silent: []string{`tasker_relay_leader{instance="a"} 0x20`}},
	{name: "TaskerWALLag", expr: `max by (instance, system) (tasker_wal_lag_bytes) > 268435456`, hold: "5m", severity: warning,
		summary: "A reader of signals is 256 MiB of WAL behind.", do: "The server is slow at decoding (a huge transaction?) or the listener hangs; persistent slots keep that WAL.",
		labels: of("instance", "a", "system", "worker"), fires: []string{`tasker_wal_lag_bytes{instance="a",system="worker"} 300000000x10`}, silent: []string{`tasker_wal_lag_bytes{instance="a",system="worker"} 9000x10`}},
	{name: "TaskerRowsSetAside", expr: `max by (instance, flow) (tasker_rows_set_aside) > 0`, hold: "5m", severity: critical,
		summary: "The database rejects rows.", do: "The log of the daemon names their tasks and says why.",
		labels: of("instance", "a", "flow", "apply"), fires: []string{`tasker_rows_set_aside{instance="a",flow="apply"} 1x10`}, silent: []string{`tasker_rows_set_aside{instance="a",flow="apply"} 0x10`}},
	{name: "TaskerTasksQuarantined", expr: `sum by (reason) (increase(tasker_tasks_quarantined_total[15m])) > 0`, hold: "0m", severity: critical,
		summary: "A task ended as failed because its reports could not be applied.", do: "It has an entry in the dead letter queue; the log says why.",
		labels: of("reason", "cannot_be_applied"), wait: "10m",
		fires: []string{`tasker_tasks_quarantined_total{reason="cannot_be_applied"} 0x5 1x10`}, silent: []string{`tasker_tasks_quarantined_total{reason="cannot_be_applied"} 0x20`}},
	{name: "TaskerCheckpointsStalled", expr: `max(tasker_checkpoints_stalled) > 0`, hold: "10m", severity: warning,
		summary: "Steps run that save no checkpoints any more.", do: "tasker-ctl dlq staleness has them.", wait: "15m",
		fires: []string{`tasker_checkpoints_stalled{instance="a"} 2x20`}, silent: []string{`tasker_checkpoints_stalled{instance="a"} 0x20`}},
	{name: "TaskerSchedulesFail", expr: `sum(increase(tasker_schedule_runs_total{outcome="failed"}[1h])) > 0`, hold: "0m", severity: warning,
		summary: "A run of a schedule could not be made.", do: "tasker-ctl schedule show has its last error.", wait: "10m",
		fires: []string{`tasker_schedule_runs_total{outcome="failed"} 0x5 1x10`}, silent: []string{`tasker_schedule_runs_total{outcome="created"} 0+1x20`}},
	{name: "TaskerDomainEventsDropped", expr: `sum by (subscriber) (rate(tasker_domain_events_dropped_total[5m])) > 1`, hold: "5m", severity: info,
		summary: "A subscriber loses more than one fast domain event a second.", do: "It is too slow for its buffer; without a name it is the buffer before all of them.",
		labels: of("subscriber", "s"), wait: "20m",
		fires: []string{`tasker_domain_events_dropped_total{subscriber="s"} 0+120x30`}, silent: []string{`tasker_domain_events_dropped_total{subscriber="s"} 0+6x30`}},
	{name: "TaskerQueueDeadLetters", expr: `sum by (queue) (increase(tasks_dead_lettered_total[1h])) > 10`, hold: "0m", severity: warning,
		summary: "More than 10 tasks of a queue became DEAD within an hour.", do: "The reasons are a label of the metric.",
		labels: of("queue", "mail"), wait: "70m",
		fires: []string{`tasks_dead_lettered_total{queue="mail",reason="exhausted"} 0+1x80`}, silent: []string{`tasks_dead_lettered_total{queue="mail",reason="exhausted"} 1x80`}},
	{name: "TaskerBrokerUnreachable", expr: `min by (instance, connection) (tasker_broker_up) == 0`, hold: "1m", severity: critical,
		summary: "RabbitMQ or Redis does not do what a daemon asks of it.", do: "tasker_broker_errors_total has the reason, the log of the daemon the error. Work is found by polls meanwhile; jobs and messages wait where they are.",
		labels: of("instance", "a", "connection", "signals"), fires: []string{`tasker_broker_up{instance="a",connection="signals"} 0x10`},
		silent: []string{`tasker_broker_up{instance="a",connection="signals"} 1x10`}},
	{name: "TaskerBrokerBlocked", expr: `max by (instance) (tasker_broker_blocked) > 0`, hold: "1m", severity: critical,
		summary: "RabbitMQ takes no messages of a daemon.", do: "It is short of memory or disk: rabbitmq-diagnostics status names the alarm.",
		labels: of("instance", "a"), fires: []string{`tasker_broker_blocked{instance="a"} 1x10`}, silent: []string{`tasker_broker_blocked{instance="a"} 0x10`}},
	{name: "TaskerBrokerRefuses", expr: brokerErrors("refused"), hold: "0m", severity: critical,
		summary: "RabbitMQ or Redis answers a daemon with a refusal.", do: "Its user lacks rights, its memory or disk is full, or it is no primary; the log of the daemon has its words.",
		labels: of("instance", "a", "connection", "redis_queue"), wait: "8m",
		fires:  []string{`tasker_broker_errors_total{instance="a",connection="redis_queue",reason="refused"} 0x5 2x10`},
		silent: []string{`tasker_broker_errors_total{instance="a",connection="redis_queue",reason="refused"} 2x20`, `tasker_broker_errors_total{instance="a",connection="redis_queue",reason="unreachable"} 0+1x20`}},
	{name: "TaskerBrokerTopology", expr: brokerErrors("topology"), hold: "0m", severity: critical,
		summary: "RabbitMQ lacks an exchange or a queue, or has one with other properties than the configuration wants.", do: "tasker-ctl broker init names it, and declares what is missing.",
		labels: of("instance", "a", "connection", "signals"), wait: "8m",
		fires:  []string{`tasker_broker_errors_total{instance="a",connection="signals",reason="topology"} 0x5 2x10`},
		silent: []string{`tasker_broker_errors_total{instance="a",connection="signals",reason="topology"} 2x20`}},
	{name: "TaskerSignalsUnused", hold: "10m", severity: warning,
		expr: `sum by (instance, system) (rate(tasker_found_total{by="poller"}[5m])) > 0.2 * sum by (instance, system) (rate(tasker_found_total[5m])) and on (instance, system) ` +
			`max by (instance, system) (tasker_event_listener_active{mode=~"hybrid|event_driven"}) >= 0 and on (instance) tasker_broker_up{connection="signals"} == 1`,
		summary: "The broker takes signals, and more than a fifth of the work is found by polls.", do: "Some daemons send to another broker, prefix or virtual host, or another event source; compare their configurations.",
		labels: of("instance", "a", "system", "worker"), wait: "30m",
		fires: []string{`tasker_found_total{instance="a",system="worker",by="poller"} 0+30x40`, `tasker_found_total{instance="a",system="worker",by="listener"} 0+60x40`,
			`tasker_event_listener_active{instance="a",system="worker",mode="hybrid"} 1x40`, `tasker_broker_up{instance="a",connection="signals"} 1x40`},
		silent: []string{`tasker_found_total{instance="a",system="worker",by="poller"} 0+1x40`, `tasker_found_total{instance="a",system="worker",by="listener"} 0+60x40`,
			`tasker_event_listener_active{instance="a",system="worker",mode="hybrid"} 1x40`, `tasker_broker_up{instance="a",connection="signals"} 1x40`,
			`tasker_found_total{instance="b",system="worker",by="poller"} 0+60x40`, `tasker_event_listener_active{instance="b",system="worker",mode="polling"} 0x40`, `tasker_broker_up{instance="b",connection="signals"} 1x40`}},
	{name: "TaskerBridgeWaits", expr: `time() - (max by (instance, bridge) (tasker_bridge_waiting_since_timestamp_seconds) > 0) > 300`, hold: "0m", severity: warning,
		summary: "A bridge has not been able to make tasks of jobs for 5 minutes.", do: "New tasks are refused (back-pressure, a quota, a throttle), or the database does not answer; the log of the orchestrator has the error.",
		labels: of("instance", "a", "bridge", "rabbitmq"), fires: []string{`tasker_bridge_waiting_since_timestamp_seconds{instance="a",bridge="rabbitmq"} 60x10`},
		silent: []string{`tasker_bridge_waiting_since_timestamp_seconds{instance="a",bridge="rabbitmq"} 420x10`, `tasker_bridge_waiting_since_timestamp_seconds{instance="a",bridge="redis"} 0x10`}},
	{name: "TaskerBridgeEventsWait", expr: `max by (namespace) (tasker_bridge_events_lag_seconds) > 300`, hold: "1m", severity: warning,
		summary: "Events of a namespace have not been published to RabbitMQ for 5 minutes.",
		do:      "The broker refuses or blocks, or with mandatory no queue is bound for the next event; the log of the orchestrators has the error. Events are kept for orchestration.retention.event_ttl_seconds.",
		labels:  of("namespace", "shop"), fires: []string{`tasker_bridge_events_lag_seconds{instance="a",namespace="shop"} 240+60x10`, `tasker_bridge_events_lag_seconds{instance="b",namespace="shop"} 0x10`},
		silent: []string{`tasker_bridge_events_lag_seconds{instance="a",namespace="shop"} 200x10`}},
	{name: "TaskerBridgeDeadLetters", expr: `sum by (bridge) (increase(tasker_bridge_jobs_total{outcome="refused"}[15m])) > 0`, hold: "0m", severity: warning,
		summary: "Jobs of other programs can be no tasks.", do: "They are in the dead letters of the broker (tasker.dlq, tq:dlq), each with its reason: correct the cause, and send them again.",
		labels: of("bridge", "redis"), wait: "8m",
		fires:  []string{`tasker_bridge_jobs_total{instance="a",bridge="redis",outcome="refused"} 0x5 1x10`},
		silent: []string{`tasker_bridge_jobs_total{instance="a",bridge="redis",outcome="refused"} 3x20`, `tasker_bridge_jobs_total{instance="a",bridge="redis",outcome="created"} 0+9x20`}},
}

// record is a recording rule.
type record struct{ name, expr string }

var records = []record{
	{"tasker:steps_claimed:rate5m", `sum by (namespace) (rate(tasker_steps_claimed_total[5m]))`},
	{"tasker:step_errors:ratio5m", `sum by (namespace) (rate(tasker_step_results_total{outcome="error"}[5m])) / (sum by (namespace) (rate(tasker_step_results_total[5m])) > 0)`},
}
