package telemetry

import "github.com/prometheus/client_golang/prometheus"

// DomainEventMetrics are the metrics of domain events. Durable ones are counted by the
// orchestrator that commits them, fast ones by the worker that ran the step.
type DomainEventMetrics struct {
	DomainEventsPublished       *prometheus.CounterVec // event_name, namespace
	DomainEventsFailed          *prometheus.CounterVec // event_name, namespace, reason
	DomainEventsDropped         *prometheus.CounterVec // subscriber
	DomainEventSubscriberErrors *prometheus.CounterVec // subscriber
	DomainEventsSent            *prometheus.CounterVec // outcome
	DomainEventsReceived        *prometheus.CounterVec // outcome
	EventStreamsRefused         prometheus.Counter
}

func newDomainEventMetrics(reg prometheus.Registerer) DomainEventMetrics {
	return DomainEventMetrics{
		DomainEventsPublished: counters(reg, "tasker_domain_events_published_total",
			"Domain events: durable ones that were committed, and fast ones that were handed to the subscribers.", "event_name", "namespace"),
		DomainEventsFailed: counters(reg, "tasker_domain_events_failed_total",
			"Domain events that were not published: schema, too_large, not_storable, unknown_publisher, publisher_error, publisher_panic, publisher_timeout, busy.",
			"event_name", "namespace", "reason"),
		DomainEventsDropped: counters(reg, "tasker_domain_events_dropped_total",
			"Fast domain events that a subscriber lost because its buffer was full; without a name: the buffer before all of them.", "subscriber"),
		DomainEventSubscriberErrors: counters(reg, "tasker_domain_event_subscriber_errors_total",
			"Fast domain events over which a subscriber failed.", "subscriber"),
		DomainEventsSent: counters(reg, "tasker_domain_events_sent_total",
			"Fast domain events for the other workers: sent (handed to the sender of signals), too_large, not_sendable.", "outcome"),
		DomainEventsReceived: counters(reg, "tasker_domain_events_received_total",
			"Fast domain events from the other workers: delivered, duplicate, malformed; lost counts gaps, where senders or receivers gave up some.", "outcome"),
		EventStreamsRefused: counter(reg, "tasker_event_streams_refused_total",
			"Streams of events that were refused (503) because there were as many as there may be."),
	}
}
