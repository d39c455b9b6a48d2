package telemetry

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is the catalogue. Each field is a collector; its labels are in the comment, in the
// order of WithLabelValues. It is safe for concurrent use.
type Metrics struct {
	ListenerMetrics
	PollerMetrics
	EventSystemMetrics
	CommandMetrics
	EngineMetrics
	CheckpointMetrics
	SignalMetrics
	BreakerMetrics
	BackpressureMetrics
	SweepMetrics
	DeadLetterMetrics
	TransactionMetrics
	ScheduleMetrics
	WaitMetrics
	DomainEventMetrics
}

// ListenerMetrics are the metrics of listeners. system is the id of an event system, mode
// the short form of its deployment mode.
type ListenerMetrics struct {
	ListenerActive        *prometheus.GaugeVec     // system, mode
	ListenerLag           *prometheus.GaugeVec     // system, mode; milliseconds
	ProbeLag              *prometheus.HistogramVec // system
	NotificationsReceived *prometheus.CounterVec   // system
	Reconnections         *prometheus.CounterVec   // system
	WALLag                *prometheus.GaugeVec     // system; bytes, of sources that read the WAL
}

// PollerMetrics are the metrics of pollers.
type PollerMetrics struct {
	PollingCycles        *prometheus.CounterVec   // system
	PollingMessagesFound *prometheus.CounterVec   // system
	PollingErrors        *prometheus.CounterVec   // system
	PollingDuration      *prometheus.HistogramVec // system
}

// EventSystemMetrics are the metrics of event systems: how work is found.
type EventSystemMetrics struct {
	PollingFallbackActive *prometheus.GaugeVec     // system, mode
	ModeSwitches          *prometheus.CounterVec   // system, mode (the mode after the switch)
	Found                 *prometheus.CounterVec   // system, by
	EmptyWakes            *prometheus.CounterVec   // system, by
	LooksRepeated         *prometheus.CounterVec   // system, missing
	Missed                *prometheus.CounterVec   // system
	CatchUpScans          *prometheus.CounterVec   // system
	EventProcessing       *prometheus.HistogramVec // system
}

// CommandMetrics are the metrics of bounded channels, commands, batches and loops.
type CommandMetrics struct {
	ChannelSaturation *prometheus.GaugeVec     // channel; 0 to 1
	ChannelCapacity   *prometheus.GaugeVec     // channel
	ChannelFull       *prometheus.CounterVec   // channel
	CommandDuration   *prometheus.HistogramVec // command
	Commands          *prometheus.CounterVec   // command, outcome
	BatchSize         *prometheus.HistogramVec // batch
	LoopRestarts      *prometheus.CounterVec   // loop
}

// EngineMetrics are the metrics of tasks, steps, leases and statements.
type EngineMetrics struct {
	TasksCreated   *prometheus.CounterVec   // namespace
	TasksCompleted *prometheus.CounterVec   // namespace, state
	StepsClaimed   *prometheus.CounterVec   // namespace
	StepResults    *prometheus.CounterVec   // namespace, outcome
	StepsCreated   *prometheus.CounterVec   // namespace
	BatchesCreated *prometheus.CounterVec   // namespace
	StepDuration   *prometheus.HistogramVec // namespace
	StaleResults   prometheus.Counter
	// StepsSettled counts successes that the worker itself settled.
	StepsSettled  *prometheus.CounterVec // way
	LeasesExpired prometheus.Counter
	ClaimsUnbegun prometheus.Counter
	// StuckSessionsEnded counts sessions of processes that froze holding locks.
	StuckSessionsEnded prometheus.Counter
	// TasksQuarantined counts tasks that ended as failed because their records or reports
	// could not be applied; TasksAside those left unchanged for now.
	TasksQuarantined *prometheus.CounterVec // reason
	TasksAside       prometheus.Gauge
	LeasesLost       prometheus.Counter
	StoreStatement   *prometheus.HistogramVec // flow
	HandlersActive   prometheus.Gauge
	HandlersLimit    prometheus.Gauge
	HandlersZombie   prometheus.Gauge
}

// CheckpointMetrics are the metrics of checkpoints, isolated items and yields.
type CheckpointMetrics struct {
	CheckpointsSaved     *prometheus.CounterVec // namespace
	CheckpointsRefused   *prometheus.CounterVec // reason
	CheckpointsStalled   prometheus.Gauge       // of the fleet, read by every orchestrator
	CheckpointRedispatch prometheus.Histogram
	ItemsIsolated        *prometheus.CounterVec // namespace
	ItemsNotIsolated     *prometheus.CounterVec // namespace
	StepYields           *prometheus.CounterVec // namespace
}

// SignalMetrics are the metrics of signals sent and relayed.
type SignalMetrics struct {
	SignalsSent      prometheus.Counter
	SignalsCoalesced prometheus.Counter
	SignalsFailed    prometheus.Counter
	SignalsDropped   prometheus.Counter
	RelayLeader      prometheus.Gauge
	WALSlotsLost     prometheus.Counter // persistent slots that were made anew
	RelayForwarded   prometheus.Counter
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
	return &Metrics{
		ListenerMetrics:     newListenerMetrics(reg),
		PollerMetrics:       newPollerMetrics(reg),
		EventSystemMetrics:  newEventSystemMetrics(reg),
		CommandMetrics:      newCommandMetrics(reg),
		EngineMetrics:       newEngineMetrics(reg),
		CheckpointMetrics:   newCheckpointMetrics(reg),
		SignalMetrics:       newSignalMetrics(reg),
		BreakerMetrics:      newBreakerMetrics(reg),
		BackpressureMetrics: newBackpressureMetrics(reg),
		SweepMetrics:        newSweepMetrics(reg),
		DeadLetterMetrics:   newDeadLetterMetrics(reg),
		TransactionMetrics:  newTransactionMetrics(reg),
		ScheduleMetrics:     newScheduleMetrics(reg),
		WaitMetrics:         newWaitMetrics(reg),
		DomainEventMetrics:  newDomainEventMetrics(reg),
	}
}

// Discard returns metrics without a reader, for components that were given none.
func Discard() *Metrics { return NewMetrics(prometheus.NewRegistry()) }

// OrDiscard returns m, or Discard if m is nil.
func (m *Metrics) OrDiscard() *Metrics {
	if m == nil {
		return Discard()
	}
	return m
}

func newListenerMetrics(reg prometheus.Registerer) ListenerMetrics {
	return ListenerMetrics{
		ListenerActive:        gauges(reg, "tasker_event_listener_active", "1 while the listener is connected and not deaf.", "system", "mode"),
		ListenerLag:           gauges(reg, "tasker_event_listener_lag_ms", "Round trip of the latest probe in milliseconds.", "system", "mode"),
		ProbeLag:              seconds(reg, "tasker_probe_lag_seconds", "Round trips of probes through the path of the signals.", "system"),
		NotificationsReceived: counters(reg, "tasker_event_notifications_received_total", "Signals received, probes left out.", "system"),
		Reconnections:         counters(reg, "tasker_listener_reconnections_total", "Connections of the listener after its first.", "system"),
		WALLag:                gauges(reg, "tasker_wal_lag_bytes", "Bytes of WAL that the reader of signals has not received yet; only where the WAL is read.", "system"),
	}
}

func newPollerMetrics(reg prometheus.Registerer) PollerMetrics {
	return PollerMetrics{
		PollingCycles:        counters(reg, "tasker_polling_cycles_total", "Polls made.", "system"),
		PollingMessagesFound: counters(reg, "tasker_polling_messages_found_total", "Work found by polls; near 0 in a healthy Hybrid fleet.", "system"),
		PollingErrors:        counters(reg, "tasker_polling_errors_total", "Polls that failed.", "system"),
		PollingDuration:      seconds(reg, "tasker_polling_duration_seconds", "Duration of a poll.", "system"),
	}
}

func newEventSystemMetrics(reg prometheus.Registerer) EventSystemMetrics {
	return EventSystemMetrics{
		PollingFallbackActive: gauges(reg, "tasker_polling_fallback_active", "1 while polling stands in for a listener.", "system", "mode"),
		ModeSwitches:          counters(reg, "tasker_mode_switches_total", "Changes of the mode or between relaxed and tight polling.", "system", "mode"),
		Found:                 counters(reg, "tasker_found_total", "Work found, by what made the system look.", "system", "by"),
		EmptyWakes:            counters(reg, "tasker_empty_wakes_total", "Looks that found nothing, by what made the system look.", "system", "by"),
		LooksRepeated:         counters(reg, "tasker_looks_repeated_total", "Looks that are repeated within milliseconds, because what they were told of was locked, or was not seen.", "system", "missing"),
		Missed:                counters(reg, "tasker_missed_total", "Work that only a poll found, long after it was ready and beside a healthy listener; 0 in a healthy fleet.", "system"),
		CatchUpScans:          counters(reg, "tasker_catch_up_scans_total", "Looks at everything after a connection was made.", "system"),
		EventProcessing:       seconds(reg, "tasker_event_processing_duration_seconds", "From the first signal of a wake-up to the end of the look.", "system"),
	}
}

func newCommandMetrics(reg prometheus.Registerer) CommandMetrics {
	return CommandMetrics{
		ChannelSaturation: gauges(reg, "mpsc_channel_saturation", "Share of a bounded channel in use, 0 to 1.", "channel"),
		ChannelCapacity:   gauges(reg, "mpsc_channel_capacity", "Places of a bounded channel.", "channel"),
		ChannelFull:       counters(reg, "mpsc_channel_full_events_total", "Sends that had to wait because a bounded channel was full.", "channel"),
		CommandDuration:   seconds(reg, "tasker_command_duration_seconds", "Duration of a command.", "command"),
		Commands:          counters(reg, "tasker_commands_total", "Commands run.", "command", "outcome"),
		BatchSize: histograms(reg, "tasker_batch_size", "Items per batch.",
			prometheus.ExponentialBuckets(1, 2, 12), "batch"),
		LoopRestarts: counters(reg, "tasker_loop_restarts_total", "Loops that died and were restarted.", "loop"),
	}
}

func newEngineMetrics(reg prometheus.Registerer) EngineMetrics {
	return EngineMetrics{
		TasksCreated:       counters(reg, "tasker_tasks_created_total", "Tasks created.", "namespace"),
		TasksCompleted:     counters(reg, "tasker_tasks_completed_total", "Tasks that reached a terminal state, at the daemon that decided so: add those of workers and orchestrators.", "namespace", "state"),
		StepsClaimed:       counters(reg, "tasker_steps_claimed_total", "Steps claimed by workers.", "namespace"),
		StepResults:        counters(reg, "tasker_step_results_total", "Step results applied, at the daemon that did; see tasker_tasks_completed_total.", "namespace", "outcome"),
		StepsCreated:       counters(reg, "tasker_decision_steps_created_total", "Steps created by the results of decisions and batchable steps.", "namespace"),
		BatchesCreated:     counters(reg, "tasker_batches_created_total", "Batches created by the results of batchable steps.", "namespace"),
		StepDuration:       seconds(reg, "tasker_step_duration_seconds", "Duration of a handler.", "namespace"),
		StaleResults:       counter(reg, "tasker_stale_results_total", "Results refused because their claim was no longer valid."),
		StepsSettled:       counters(reg, "tasker_steps_settled_total", "Successes whose consequences the worker made true where they happened; way is lone for the only step in hand, else taken.", "way"),
		StuckSessionsEnded: counter(reg, "tasker_stuck_sessions_ended_total", "Database sessions that were ended because their process froze while it held locks which others need."),
		TasksQuarantined:   counters(reg, "tasker_tasks_quarantined_total", "Tasks that ended as failed and have an entry in the dead letter queue, because their reports could not be applied.", "reason"),
		TasksAside:         gauge(reg, "tasker_tasks_set_aside", "Tasks that this orchestrator leaves as they are for now, because their reports cannot be applied; the log names them."),
		LeasesExpired:      counter(reg, "tasker_leases_expired_total", "Leases that ran out and were taken back."),
		ClaimsUnbegun:      counter(reg, "tasker_claims_unbegun_total", "Claims whose leases ran out before a handler had begun; they use up no attempt."),
		LeasesLost:         counter(reg, "tasker_leases_lost_total", "Leases a worker learnt it no longer held."),
		StoreStatement:     seconds(reg, "tasker_store_statement_seconds", "Duration of a database flow.", "flow"),
		HandlersActive:     gauge(reg, "tasker_worker_handlers_active", "Handlers running now."),
		HandlersLimit:      gauge(reg, "tasker_worker_handlers_limit", "Handlers that may run at once."),
		HandlersZombie:     gauge(reg, "tasker_worker_handlers_zombie", "Handlers still running after the time limit or the loss of the lease."),
	}
}

func newCheckpointMetrics(reg prometheus.Registerer) CheckpointMetrics {
	return CheckpointMetrics{
		CheckpointsSaved:   counters(reg, "tasker_checkpoints_saved_total", "Checkpoints of running steps that were saved, those of yields as well.", "namespace"),
		CheckpointsRefused: counters(reg, "tasker_checkpoints_refused_total", "Checkpoints that were not saved: lease_lost, too_large or not_storable.", "reason"),
		CheckpointsStalled: gauge(reg, "tasker_checkpoints_stalled", "Running steps whose last checkpoint is older than checkpoint_stall_minutes, up to 1,000; the same at every orchestrator."),
		CheckpointRedispatch: registered(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tasker_checkpoint_redispatch_seconds", Help: "From the end of a handler that yields until its step is in line again.", Buckets: latencies()})),
		ItemsIsolated:    counters(reg, "tasker_batch_items_isolated_total", "Items that handlers of batches could not process and have isolated, in batches that succeeded.", "namespace"),
		ItemsNotIsolated: counters(reg, "tasker_batch_items_not_isolated_total", "Items of batches that could not be isolated: too many, too large, or without a JSON form. Their batches fail.", "namespace"),
		StepYields:       counters(reg, "tasker_step_yields_total", "Handlers that ended to go on from a checkpoint.", "namespace"),
	}
}

func newSignalMetrics(reg prometheus.Registerer) SignalMetrics {
	return SignalMetrics{
		SignalsSent:      counter(reg, "tasker_signals_sent_total", "Signals sent."),
		SignalsCoalesced: counter(reg, "tasker_signals_coalesced_total", "Signals that joined an equal one waiting to be sent."),
		SignalsFailed:    counter(reg, "tasker_signals_failed_total", "Signals that could not be sent."),
		SignalsDropped:   counter(reg, "tasker_signals_dropped_total", "Signals given up because too many were waiting."),
		WALSlotsLost:     counter(reg, "tasker_wal_slots_lost_total", "Persistent replication slots whose WAL the server had given up, and which were made anew."),
		RelayLeader:      gauge(reg, "tasker_relay_leader", "1 while this replica relays the signals of the fleet."),
		RelayForwarded:   counter(reg, "tasker_relay_forwarded_total", "Signals read from the WAL and announced again."),
	}
}

// latencies spans the measured durations: half a millisecond to a minute.
func latencies() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

func counters(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return registered(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func counter(reg prometheus.Registerer, name, help string) prometheus.Counter {
	return registered(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func gauges(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return registered(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func gauge(reg prometheus.Registerer, name, help string) prometheus.Gauge {
	return registered(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func seconds(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.HistogramVec {
	return histograms(reg, name, help, latencies(), labels...)
}

func histograms(reg prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registered(reg, prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

func registered[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if err == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	panic(err) //nolint:forbidigo // two metrics of one name are a programming error, found at the first start
}
