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
	// Until is the moment at which a step of KindSleep ends: RFC 3339 or a
	// reference. One that has passed ends it at once.
	Until string `json:"until,omitempty"`
	// Event is the name of the event that a step of KindWaitForEvent waits for.
	Event string `json:"event,omitempty"`
	// Key tells events of one name apart: a text or a reference. Without one the
	// step waits for an event that is sent to its task.
	Key string `json:"key,omitempty"`
	// Prompt tells whoever approves what it is about.
	Prompt string `json:"prompt,omitempty"`
	// Timeout bounds the wait, as a duration; empty: it does not end by itself.
	Timeout string `json:"timeout,omitempty"`
	// OnTimeout and OnRejection say what becomes of the step: WaitFails (the
	// default) or WaitContinues.
	OnTimeout   string `json:"on_timeout,omitempty"`
	OnRejection string `json:"on_rejection,omitempty"`
}

// The values of WaitSettings.OnTimeout and OnRejection; the empty string means
// WaitFails.
const (
	WaitFails     = "fail"     // the step fails; its retry block says whether it waits again
	WaitContinues = "continue" // the step completes, and its result says so
)

// TaskSettings say which task a step of KindTask is.
type TaskSettings struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // empty: that of the template
	Version   string `json:"version"`
	// Context is that of the task; texts in it may be references. Nil: the
	// context of the task that the step belongs to.
	Context json.RawMessage `json:"context,omitempty"`
	// Priority is that of the task; nil: that of the task it belongs to.
	Priority *int `json:"priority,omitempty"`
	// Timeout bounds the task, as a duration, after which it is cancelled and the
	// step fails; empty: none.
	Timeout string `json:"timeout,omitempty"`
}

// ByEngine reports whether steps of the kind are run by the engine itself: no
// worker claims them and no handler is needed.
func (k StepKind) ByEngine() bool {
	return k == KindSleep || k == KindWaitForEvent || k == KindApproval || k == KindTask
}

// The bounds of a span: what is shorter or longer is a mistake.
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
