package deploymode

import (
	"fmt"
	"time"
)

// Pace is the polling rate.
type Pace string

// The paces of a poller.
const (
	// PaceOff: no polls.
	PaceOff Pace = "off"
	// PaceTight: at its interval; no other way to find work is proven.
	PaceTight Pace = "tight"
	// PaceRelaxed: rarely, as the fallback of a healthy listener.
	PaceRelaxed Pace = "relaxed"
)

// Snapshot is the externally visible state of a [Machine].
type Snapshot struct {
	Mode  Mode  `json:"mode"`
	State State `json:"state"`
	// Pace is what the poller must do.
	Pace Pace `json:"pace"`
	// Proven says that signals arrive: connected, and enough consecutive probes came
	// back in time.
	Proven bool `json:"proven"`
	// GoodProbes in a row on this connection.
	GoodProbes int `json:"good_probes"`
	// Exhausted says that too many consecutive attempts failed.
	Exhausted bool `json:"exhausted"`
	// Ready is the contribution to readiness; Reason says why not, or what is wrong
	// although it is ready.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Attempts is the number of consecutive attempts without a proven connection.
	Attempts int `json:"attempts"`
	// Reconnects counts connections after the first.
	Reconnects uint64 `json:"reconnects"`
	// Switches counts changes of the mode or of the pace.
	Switches uint64 `json:"switches"`
	// RoundTrip of the latest probe; 0 before the first.
	RoundTrip time.Duration `json:"round_trip_ns"`
	// Since is when State was entered, on the caller's time line.
	Since time.Duration `json:"-"`
}

// FallbackActive reports whether polling replaces a listener.
func (s Snapshot) FallbackActive() bool { return s.Mode.Listens() && s.Pace == PaceTight }

// Level returns the health level of the listener's state.
func (s Snapshot) Level() Level {
	switch {
	case !s.Ready && (s.Exhausted || s.Mode == ""):
		return Unhealthy
	case !s.Mode.Listens() || s.Proven:
		return Healthy
	case s.State == Connecting && s.Attempts == 0:
		return Unknown
	default:
		return Degraded
	}
}

// Snapshot returns the present state.
func (m Machine) Snapshot() Snapshot {
	ready, reason := m.readiness()
	return Snapshot{
		Mode:       m.mode,
		State:      m.state,
		Pace:       m.pace(),
		Proven:     m.proven,
		GoodProbes: m.goodProbes,
		Exhausted:  m.exhausted,
		Ready:      ready,
		Reason:     reason,
		Attempts:   m.attempts,
		Reconnects: m.reconnects,
		Switches:   m.switches,
		RoundTrip:  m.roundTrip,
		Since:      m.since,
	}
}

func (m Machine) pace() Pace {
	switch m.mode {
	case PollingOnly:
		return PaceTight
	case Hybrid:
		if m.proven {
			return PaceRelaxed
		}
		return PaceTight
	case EventDrivenOnly:
		if m.exhausted && m.cfg.OnListenerFailure == Poll {
			return PaceTight
		}
	}
	return PaceOff
}

func (m Machine) readiness() (ready bool, reason string) {
	if !m.mode.Listens() || m.proven {
		return true, ""
	}
	switch {
	case m.exhausted:
		reason = fmt.Sprintf("the listener failed %d times in a row", m.attempts)
	case m.state == Listening:
		reason = "the listener is not proven yet"
	default:
		reason = fmt.Sprintf("the listener is %s", m.state)
	}
	switch {
	case m.pace() != PaceOff:
		return true, reason // the poller finds the work
	case m.exhausted:
		return false, reason
	default:
		return m.connectedOnce, reason
	}
}

// changesSince counts and reports the differences between before and m.
func (m *Machine) changesSince(before Snapshot) (effects []Effect) {
	after := m.Snapshot()
	if after.Mode != before.Mode || after.Pace != before.Pace {
		m.switches++
	}
	if after.State != before.State {
		effects = append(effects, Effect{Kind: StateChanged})
	}
	if after.Pace != before.Pace {
		effects = append(effects, Effect{Kind: PaceChanged})
	}
	if after.Ready != before.Ready {
		effects = append(effects, Effect{Kind: ReadinessChanged})
	}
	return effects
}
