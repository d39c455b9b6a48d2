package telemetry

import "github.com/prometheus/client_golang/prometheus"

// BreakerMetrics are the metrics of circuit breakers.
type BreakerMetrics struct {
	BreakerState       *prometheus.GaugeVec   // component
	BreakerTransitions *prometheus.CounterVec // component, to
	BreakerRejected    *prometheus.CounterVec // component
}

// BackpressureMetrics are the metrics of rejected new work.
type BackpressureMetrics struct {
	BackpressureTier     *prometheus.GaugeVec   // namespace
	BackpressureRefusals *prometheus.CounterVec // reason
	DrainRate            prometheus.Gauge       // steps per second
	WebBudget            *prometheus.GaugeVec   // budget; bytes
	WebBudgetHeld        *prometheus.GaugeVec   // budget; bytes
	WebBudgetRefused     *prometheus.CounterVec // budget
}

func newBreakerMetrics(reg prometheus.Registerer) BreakerMetrics {
	return BreakerMetrics{
		BreakerState:       gauges(reg, "tasker_circuit_breaker_state", "State of a circuit breaker: 0 closed, 1 half-open, 2 open.", "component"),
		BreakerTransitions: counters(reg, "tasker_circuit_breaker_transitions_total", "Changes of the state of a circuit breaker, by the state after it.", "component", "to"),
		BreakerRejected:    counters(reg, "tasker_circuit_breaker_rejected_total", "Calls that a circuit breaker refused.", "component"),
	}
}

func newBackpressureMetrics(reg prometheus.Registerer) BackpressureMetrics {
	return BackpressureMetrics{
		BackpressureTier:     gauges(reg, "tasker_backpressure_tier", "How full the queue of a namespace is: 0 normal, 1 warning, 2 critical, 3 overflow; measured while tasks are being created.", "namespace"),
		BackpressureRefusals: counters(reg, "tasker_backpressure_refusals_total", "Requests for new work that were turned away.", "reason"),
		DrainRate:            gauge(reg, "tasker_drain_rate", "Claims of steps per second of late, in the whole fleet; measured while tasks are being created."),
		WebBudget:            gauges(reg, "tasker_web_budget_bytes", "Bytes that requests may take up together: bodies, or answers.", "budget"),
		WebBudgetHeld:        gauges(reg, "tasker_web_budget_held_bytes", "Bytes of the budget that requests under way take up.", "budget"),
		WebBudgetRefused:     counters(reg, "tasker_web_budget_refused_total", "Requests that were turned away (503) because the budget was exhausted.", "budget"),
	}
}
