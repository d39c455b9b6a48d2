package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ScheduleMetrics are the metrics of schedules. Each run is counted by the replica that made
// it.
type ScheduleMetrics struct {
	ScheduleRuns *prometheus.CounterVec // outcome
	ScheduleLag  prometheus.Histogram   // seconds
}

func newScheduleMetrics(reg prometheus.Registerer) ScheduleMetrics {
	return ScheduleMetrics{
		ScheduleRuns: counters(reg, "tasker_schedule_runs_total",
			"Runs of schedules: created, duplicate, by_hand, and those that made no task: missed, overlap, failed.", "outcome"),
		ScheduleLag: registered(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tasker_schedule_lag_seconds", Help: "From the time that a run is for to its transaction.", Buckets: latencies(),
		})),
	}
}
