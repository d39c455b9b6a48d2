package telemetry

import "github.com/prometheus/client_golang/prometheus"

// SweepMetrics are the metrics of sweeps and their findings. Each run is counted by the
// replica that made it.
type SweepMetrics struct {
	SweepRuns         *prometheus.CounterVec   // sweep, outcome
	SweepDuration     *prometheus.HistogramVec // sweep
	SweepItems        *prometheus.CounterVec   // sweep, action
	SweepLastSuccess  *prometheus.GaugeVec     // sweep; seconds since 1970, of this replica
	WorkersDied       prometheus.Counter
	WorkersCleaned    prometheus.Counter
	TasksCleaned      prometheus.Counter
	StalenessRuns     prometheus.Counter
	StalenessDetected prometheus.Counter
	StalenessToError  prometheus.Counter
	StalenessDuration prometheus.Histogram // milliseconds
}

// DeadLetterMetrics are the metrics of the dead letter queue.
type DeadLetterMetrics struct {
	DLQEntriesCreated *prometheus.CounterVec // reason
	DLQPending        prometheus.Gauge       // of the fleet, read by every orchestrator
}

func newSweepMetrics(reg prometheus.Registerer) SweepMetrics {
	return SweepMetrics{
		SweepRuns:         counters(reg, "tasker_sweep_runs_total", "Runs of sweeps by this replica, dry ones as well.", "sweep", "outcome"),
		SweepDuration:     seconds(reg, "tasker_sweep_duration_seconds", "Duration of a run of a sweep.", "sweep"),
		SweepItems:        counters(reg, "tasker_sweep_items_total", "What sweeps found, by what they did about it; would_ means a dry run.", "sweep", "action"),
		SweepLastSuccess:  gauges(reg, "tasker_sweep_last_success_timestamp_seconds", "End of the last successful run by this replica; the fleet's is the greatest of all.", "sweep"),
		WorkersDied:       counter(reg, "tasker_workers_died_total", "Workers given up because they sent no heartbeat any more."),
		WorkersCleaned:    counter(reg, "tasker_workers_cleaned_total", "Workers, and orchestrators, that are gone and were deleted by retention."),
		TasksCleaned:      counter(reg, "tasker_tasks_cleaned_total", "Ended tasks deleted one by one by retention; most go with their day."),
		StalenessRuns:     counter(reg, "tasker_staleness_detection_runs_total", "Looks for stale tasks."),
		StalenessDetected: counter(reg, "tasker_staleness_tasks_detected_total", "Stale tasks found, by dry runs as well."),
		StalenessToError:  counter(reg, "tasker_staleness_tasks_transitioned_to_error_total", "Stale tasks moved to error."),
		StalenessDuration: registered(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tasker_staleness_detection_duration", Help: "Duration of a look for stale tasks in milliseconds.",
			Buckets: []float64{1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000},
		})),
	}
}

func newDeadLetterMetrics(reg prometheus.Registerer) DeadLetterMetrics {
	return DeadLetterMetrics{
		DLQEntriesCreated: counters(reg, "tasker_dlq_entries_created_total", "Entries of the dead letter queue created.", "reason"),
		DLQPending:        gauge(reg, "tasker_dlq_pending_investigations", "Open entries of the dead letter queue; the same at every orchestrator."),
	}
}
