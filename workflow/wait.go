package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// WaitSettings say what a step of KindSleep, KindWaitForEvent or KindApproval
// waits for.
type WaitSettings struct {
	// For is how long a step of KindSleep waits: a duration or a reference.
	For string `json:"for,omitempty"`
	// Until is when a step of KindSleep ends: RFC 3339 or a reference. A time in the past
	// ends it at once.
	Until string `json:"until,omitempty"`
	// Event is the name of the event that a step of KindWaitForEvent waits for.
	Event string `json:"event,omitempty"`
	// Key identifies the event among those of one name: a text or a reference. Without
	// it the step waits for an event that is sent to its task.
	Key string `json:"key,omitempty"`
	// Prompt is the text for the approver.
	Prompt string `json:"prompt,omitempty"`
	// Timeout bounds the wait, as a duration; empty: no bound.
	Timeout string `json:"timeout,omitempty"`
	// OnTimeout and OnRejection decide the end of the step: WaitFails (the default) or
	// WaitContinues.
	OnTimeout   string `json:"on_timeout,omitempty"`
	OnRejection string `json:"on_rejection,omitempty"`
}

// The values of WaitSettings.OnTimeout and OnRejection; the empty string means
// WaitFails.
const (
	WaitFails     = "fail"     // the step fails; its retry block says whether it waits again
	WaitContinues = "continue" // the step completes, and its result says so
)

// TaskSettings describe the task that a step of KindTask runs.
type TaskSettings struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // empty: the template's
	Version   string `json:"version"`
	// Context is the context of the task; texts in it may be references. Nil: the
	// context of the parent task.
	Context json.RawMessage `json:"context,omitempty"`
	// Priority is the priority of the task; nil: the parent's.
	Priority *int `json:"priority,omitempty"`
	// Timeout bounds the task, as a duration, after which it is cancelled and the step
	// fails; empty: none.
	Timeout string `json:"timeout,omitempty"`
}

// ByEngine reports whether the engine itself runs steps of the kind: no worker claims them
// and no handler is needed.
func (k StepKind) ByEngine() bool {
	return k == KindSleep || k == KindWaitForEvent || k == KindApproval || k == KindTask
}

// The bounds of a span: shorter or longer ones are a mistake.
const (
	minSpan   = time.Millisecond
	maxSpan   = 366 * 24 * time.Hour
	usualSpan = 31 * 24 * time.Hour
)

// ParseSpan reads a length of time, as ParseDelay does: from 1 ms to 366 days.
func ParseSpan(text string) (time.Duration, error) {
	span, ok := ParseDelay(strings.TrimSpace(text))
	switch {
	case !ok:
		return 0, fmt.Errorf("%q is not a duration such as 90s, 1h30m or 2d", clip(text, 32))
	case span < minSpan || span > maxSpan:
		return 0, fmt.Errorf("%q is not from 1ms to 366d", clip(text, 32))
	}
	return span, nil
}
