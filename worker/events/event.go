package events

import (
	"context"
	"encoding/json"
	"time"
)

// Event is a domain event as subscribers, consumers and other languages see it. Receivers
// must not change what it points to.
type Event struct {
	ID       string          `json:"event_id"` // a UUID of version 7
	Name     string          `json:"event_name"`
	Version  string          `json:"event_version"`
	Payload  json.RawMessage `json:"payload"`
	Metadata Metadata        `json:"metadata"`
}

// Metadata describes the origin of an event.
type Metadata struct {
	TaskUUID      string    `json:"task_uuid"`
	StepUUID      string    `json:"step_uuid"`
	StepName      string    `json:"step_name"`
	Namespace     string    `json:"namespace"`
	CorrelationID string    `json:"correlation_id"`
	FiredAt       time.Time `json:"fired_at"`
	FiredBy       string    `json:"fired_by"` // the publisher, or the handler where there is none
	// Success says whether the handler returned a result.
	Success bool `json:"success"`
	Attempt int  `json:"attempt"`
	// Added is the publisher's addition, an object.
	Added json.RawMessage `json:"added,omitempty"`
}

// Subscriber receives fast events in its process. One goroutine calls its functions, one
// event after the other; ctx ends with the bus's time limit.
type Subscriber struct {
	// Name identifies the subscriber in logs and metrics.
	Name string
	// Patterns are names in which * stands for any characters: payment.*, *, or
	// the name itself.
	Patterns []string
	// Handle handles an event. An error is counted and, unless that is turned off,
	// logged; there is no retry.
	Handle func(ctx context.Context, e Event) error

	// The rest may be nil. Before is called before Handle; its error skips Handle. After
	// is called after a Handle that succeeded, Failed after one that failed or panicked.
	Before func(ctx context.Context, e Event) error
	After  func(ctx context.Context, e Event)
	Failed func(ctx context.Context, e Event, err error)
}
