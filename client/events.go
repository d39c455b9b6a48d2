package client

import "encoding/json"

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

// Bounds of requests about domain events.
const (
	MaxEventsPerPage     = 1000
	DefaultEventsPerPage = 100
	MaxClaimedEvents     = 1000
	DefaultClaimedEvents = 100
	MaxEventLeaseSeconds = 86_400
	DefaultEventLease    = 30 // seconds
	MaxEventPatterns     = 100
)

// The places that EventConsumerRequest.From and EventReset.To name, beside
// positions as text.
const (
	EventsFromBeginning = "beginning"
	EventsFromNow       = "now"
)

// Event is a durable domain event.
type Event struct {
	// Position rises in the order in which events become visible.
	Position int64           `json:"position"`
	ID       string          `json:"event_id"`
	Name     string          `json:"event_name"`
	Version  string          `json:"event_version"`
	Payload  json.RawMessage `json:"payload"`
	Metadata EventMetadata   `json:"metadata"`
}

// EventMetadata says where an event comes from.
type EventMetadata struct {
	TaskUUID      string `json:"task_uuid"`
	StepUUID      string `json:"step_uuid"`
	StepName      string `json:"step_name"`
	Namespace     string `json:"namespace"`
	CorrelationID string `json:"correlation_id"`
	FiredAt       Time   `json:"fired_at" format:"date-time"`
	FiredBy       string `json:"fired_by" doc:"The publisher, or the handler where there is none"`
	Attempt       int    `json:"attempt"`
	Outcome       string `json:"outcome" enum:"success,failed,error" doc:"How the attempt ended; after failed the step runs again"`
	// Added is what a publisher has added.
	Added json.RawMessage `json:"added,omitempty"`
}

// EventList is a piece of a list of events, by position.
type EventList struct {
	Events []Event `json:"events"`
	// Next is the position to go on after.
	Next int64 `json:"next" doc:"The position to go on after; others may have been passed over"`
	More bool  `json:"more" doc:"There is more at once, though perhaps nothing that fits"`
}

// EventListOptions select events; zero values select everything.
type EventListOptions struct {
	Namespace string
	Name      string // a pattern, such as payment.*
	TaskUUID  string
	After     int64
	// FromNow asks for no events, but for the place behind all there are, to go
	// on from.
	FromNow bool
	Limit   int // 1 to MaxEventsPerPage; 0 means DefaultEventsPerPage
}

// EventConsumerRequest makes a consumer.
type EventConsumerRequest struct {
	Name      string   `json:"name" doc:"Lower case letters, digits, . - and _; at most 64"`
	Namespace string   `json:"namespace"`
	Patterns  []string `json:"patterns,omitempty" doc:"Names of events in which * stands for any characters; none: every event"`
	From      string   `json:"from,omitempty" doc:"beginning (default), now, or the position behind which it begins"`
	Actor     string   `json:"actor,omitempty"`
	Reason    string   `json:"reason,omitempty"`
}

// EventConsumer reads the durable events of a namespace from a place of its own
// on.
type EventConsumer struct {
	Name           string   `json:"name"`
	Namespace      string   `json:"namespace"`
	Patterns       []string `json:"patterns"`
	Position       int64    `json:"position" doc:"Everything up to it is done"`
	Holder         *string  `json:"holder" doc:"Who has events in hand"`
	LeaseUntil     *Time    `json:"lease_until" format:"date-time"`
	Unread         int      `json:"unread" doc:"Events that fit, among the next 1,000 of the namespace"`
	OldestUnreadAt *Time    `json:"oldest_unread_at" format:"date-time"`
	CreatedAt      Time     `json:"created_at" format:"date-time"`
	UpdatedAt      Time     `json:"updated_at" format:"date-time"`
	LastClaimedAt  *Time    `json:"last_claimed_at" format:"date-time"`
	LastAckedAt    *Time    `json:"last_acked_at" format:"date-time"`
}

// EventConsumerList is all consumers by name.
type EventConsumerList struct {
	Consumers []EventConsumer `json:"consumers"`
}

// EventClaim asks for the next events of a consumer.
type EventClaim struct {
	Worker       string `json:"worker" doc:"Who is to have them"`
	Limit        int    `json:"limit,omitempty" doc:"1 to 1,000; default 100"`
	LeaseSeconds int    `json:"lease_seconds,omitempty" doc:"1 to 86,400; default 30"`
}

// ClaimedEvents are events in the hands of a worker.
type ClaimedEvents struct {
	Token  int64   `json:"token" doc:"Fences the acknowledgement; 0 where there are no events"`
	Events []Event `json:"events"`
}

// EventAck says that everything up to a position is done.
type EventAck struct {
	Token    int64 `json:"token"`
	Position int64 `json:"position"`
	Release  bool  `json:"release,omitempty" doc:"What is left may be claimed again at once"`
}

// EventReset puts a consumer somewhere else.
type EventReset struct {
	To     string `json:"to" doc:"beginning, now, or the position behind which it goes on"`
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty"`
}
