package telemetry

import "github.com/prometheus/client_golang/prometheus"

// WaitMetrics tell of what steps wait for. Each event is counted by the replica
// that took it.
type WaitMetrics struct {
	EventsReceived *prometheus.CounterVec // outcome
}

func newWaitMetrics(reg prometheus.Registerer) WaitMetrics {
	return WaitMetrics{
		EventsReceived: counters(reg, "tasker_events_received_total",
			"Events from outside: delivered to steps, kept for one that will wait, duplicate.", "outcome"),
	}
}
