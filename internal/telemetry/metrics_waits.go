package telemetry

import "github.com/prometheus/client_golang/prometheus"

// WaitMetrics are the metrics of waiting steps. Each event is counted by the replica that
// received it.
type WaitMetrics struct {
	EventsReceived *prometheus.CounterVec // outcome
}

func newWaitMetrics(reg prometheus.Registerer) WaitMetrics {
	return WaitMetrics{
		EventsReceived: counters(reg, "tasker_events_received_total",
			"Events from outside: delivered to steps, kept for one that will wait, duplicate.", "outcome"),
	}
}
