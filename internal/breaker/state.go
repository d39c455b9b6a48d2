package breaker

import "fmt"

// State says whether calls pass. Its numbers are the values of the metric.
type State uint8

// The states of a breaker.
const (
	Closed   State = 0 // calls pass
	HalfOpen State = 1 // trials pass
	Open     State = 2 // calls are refused
)

// String implements fmt.Stringer.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	case Open:
		return "open"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Control says what decides about the state.
type Control uint8

// The controls of a breaker.
const (
	Automatic    Control = iota // the outcomes of calls
	ForcedOpen                  // an operator: no call passes
	ForcedClosed                // an operator: every call passes
)

// String implements fmt.Stringer.
func (c Control) String() string {
	switch c {
	case Automatic:
		return "automatic"
	case ForcedOpen:
		return "forced_open"
	case ForcedClosed:
		return "forced_closed"
	}
	return fmt.Sprintf("control(%d)", uint8(c))
}

// MarshalText implements encoding.TextMarshaler.
func (c Control) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// ParseControl is the inverse of String, and accepts the operators' short forms: auto,
// open, closed.
func ParseControl(s string) (Control, error) {
	switch s {
	case "automatic", "auto":
		return Automatic, nil
	case "forced_open", "open":
		return ForcedOpen, nil
	case "forced_closed", "closed":
		return ForcedClosed, nil
	}
	return Automatic, fmt.Errorf("invalid control %q: want automatic, open or closed", s)
}

// Verdict classifies the outcome of a call.
type Verdict uint8

// The verdicts on a call.
const (
	Ignored Verdict = iota // nothing: the caller left, or the dependency was never called
	Success                // it answered, even with a rejection
	Failure                // it is away
	// Late: no answer came in time. That is a failure unless the dependency has answered
	// other calls meanwhile (Seen): then this call was too expensive, and says nothing
	// about the others.
	Late
)
