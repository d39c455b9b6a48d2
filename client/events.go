package client

// EventMetrics count the domain events of a worker since it was started, in
// the form of GET /metrics/events. The names rust and ffi are those of the
// protocol: the worker's own subscribers, and events from other replicas.
type EventMetrics struct {
	Router     EventRouterStats `json:"router"`
	Bus        EventBusStats    `json:"in_process_bus"`
	CapturedAt Time             `json:"captured_at" format:"date-time"`
	WorkerID   string           `json:"worker_id"`
}

// EventRouterStats count events once the ends of their steps were accepted.
type EventRouterStats struct {
	TotalRouted        uint64 `json:"total_routed"`
	DurableRouted      uint64 `json:"durable_routed"`
	FastRouted         uint64 `json:"fast_routed"`
	BroadcastRouted    uint64 `json:"broadcast_routed"`
	FastDeliveryErrors uint64 `json:"fast_delivery_errors" doc:"Fast events that were lost before they came to the bus"`
	RoutingErrors      uint64 `json:"routing_errors" doc:"Durable events that were not published for a failure"`
}

// EventBusStats count what came to the subscribers in the process.
type EventBusStats struct {
	TotalEventsDispatched  uint64 `json:"total_events_dispatched"`
	RustHandlerDispatches  uint64 `json:"rust_handler_dispatches" doc:"Handled by subscribers of this process"`
	FFIChannelDispatches   uint64 `json:"ffi_channel_dispatches" doc:"0: no other language runs in this process"`
	RustHandlerErrors      uint64 `json:"rust_handler_errors"`
	FFIChannelDrops        uint64 `json:"ffi_channel_drops" doc:"Lost because the buffer of a subscriber was full"`
	RustSubscriberPatterns int    `json:"rust_subscriber_patterns"`
	RustHandlerCount       int    `json:"rust_handler_count"`
	FFISubscriberCount     int    `json:"ffi_subscriber_count"`
}
