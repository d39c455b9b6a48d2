package deploymode

import (
	"fmt"
	"strings"
)

// Mode is how an event system finds work.
type Mode string

// The deployment modes, spelled as in configuration files.
const (
	PollingOnly     Mode = "PollingOnly"
	EventDrivenOnly Mode = "EventDrivenOnly"
	Hybrid          Mode = "Hybrid"
	// Disabled turns an event system off; other replicas serve its work.
	Disabled Mode = "Disabled"
)

// Parse reads a mode: the configured spelling, or its snake_case, kebab-case and lower-case
// forms. ok is false when s names no mode (including the empty string).
func Parse(s string) (m Mode, ok bool) {
	folded := strings.NewReplacer("_", "", "-", "", " ", "").Replace(s)
	for _, m := range []Mode{PollingOnly, EventDrivenOnly, Hybrid, Disabled} {
		if strings.EqualFold(string(m), folded) {
			return m, true
		}
	}
	return "", false
}

// Listens reports whether the mode keeps a listener.
func (m Mode) Listens() bool { return m == EventDrivenOnly || m == Hybrid }

// Polls reports whether the mode keeps a poller.
func (m Mode) Polls() bool { return m == PollingOnly || m == Hybrid }

// Label is the short form of the mode for metric labels.
func (m Mode) Label() string {
	switch m {
	case Hybrid:
		return "hybrid"
	case EventDrivenOnly:
		return "event_driven"
	case PollingOnly:
		return "polling"
	default:
		return "disabled"
	}
}

// EffectiveMode returns the effective mode with a source of signals, named as in
// configuration ("notify", "wal", "relay", "amqp", "redis", "inproc"). Any source keeps the
// mode's meaning: the rows stay the truth, and a broker only says when to look at them.
// Without a source ("" or "none") the listening modes poll instead; why is the reason.
func EffectiveMode(mode Mode, source string) (effective Mode, why string) {
	absent := source == "" || source == "none"
	switch {
	case absent && mode.Listens():
		return PollingOnly, fmt.Sprintf("%s needs an event source and none is configured", mode)
	case !absent && mode == PollingOnly:
		return PollingOnly, fmt.Sprintf("PollingOnly does not use the event source %s", source)
	default:
		return mode, ""
	}
}
