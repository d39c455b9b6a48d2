package client

import "encoding/json"

// Values of EventConsumerRequest.From and EventReset.To besides positions as text.
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

// EventMetadata is the origin of an event.
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
	// Added is metadata from a publisher.
	Added json.RawMessage `json:"added,omitempty"`
}

// EventList is a piece of a list of events, by position.
type EventList struct {
	Events []Event `json:"events"`
	// Next is the position to go on after.
	Next int64 `json:"next" doc:"The position to continue after; others may have been skipped"`
	More bool  `json:"more" doc:"There are more, though perhaps no matching ones"`
}

// EventListOptions select events; zero values select everything.
type EventListOptions struct {
	Namespace string
	Name      string // a pattern, such as payment.*
	TaskUUID  string
	After     int64
	// FromNow requests no events, but the position after all of them, to continue from.
	FromNow bool
	Limit   int // 1 to 1000; 0 means 100
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

// EventConsumer reads the durable events of a namespace from its own position.
type EventConsumer struct {
	Name           string   `json:"name"`
	Namespace      string   `json:"namespace"`
	Patterns       []string `json:"patterns"`
	Position       int64    `json:"position" doc:"Everything up to it is done"`
	Holder         *string  `json:"holder" doc:"Worker with claimed events"`
	LeaseUntil     *Time    `json:"lease_until" format:"date-time"`
	Unread         int      `json:"unread" doc:"Events that fit, among the next 1,000 of the namespace"`
	OldestUnreadAt *Time    `json:"oldest_unread_at" format:"date-time"`
	CreatedAt      Time     `json:"created_at" format:"date-time"`
	UpdatedAt      Time     `json:"updated_at" format:"date-time"`
	LastClaimedAt  *Time    `json:"last_claimed_at" format:"date-time"`
	LastAckedAt    *Time    `json:"last_acked_at" format:"date-time"`
}

// EventClaim requests the next events of a consumer.
type EventClaim struct {
	Worker       string `json:"worker" doc:"Worker that claims them"`
	Limit        int    `json:"limit,omitempty" doc:"1 to 1,000; default 100"`
	LeaseSeconds int    `json:"lease_seconds,omitempty" doc:"1 to 86,400; default 30"`
}

// ClaimedEvents are events that a consumer has claimed and not acknowledged yet.
type ClaimedEvents struct {
	Token  int64   `json:"token" doc:"Fences the acknowledgement; 0 without events"`
	Events []Event `json:"events"`
}

// EventAck acknowledges everything up to a position.
type EventAck struct {
	Token    int64 `json:"token"`
	Position int64 `json:"position"`
	Release  bool  `json:"release,omitempty" doc:"The other events may be claimed again at once"`
}

// EventReset moves a consumer to another position.
type EventReset struct {
	To     string `json:"to" doc:"beginning, now, or the position to continue after"`
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty"`
}
