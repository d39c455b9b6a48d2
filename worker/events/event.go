package events

import (
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
