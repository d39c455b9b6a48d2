package breaker

import "fmt"

// State is whether calls go through. Its numbers are those of the metric.
type State uint8

// The states of a breaker.
const (
	Closed   State = 0 // calls go through
	HalfOpen State = 1 // trials go through
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

// Control is who decides about the state.
type Control uint8

// The controls of a breaker.
const (
	Automatic    Control = iota // the outcomes of calls
	ForcedOpen                  // an operator: nothing goes through
	ForcedClosed                // an operator: everything goes through
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

// ParseControl reads what String wrote, and the short forms that operators use:
// auto, open, closed.
func ParseControl(s string) (Control, error) {
	switch s {
	case "automatic", "auto":
		return Automatic, nil
	case "forced_open", "open":
		return ForcedOpen, nil
	case "forced_closed", "closed":
		return ForcedClosed, nil
	}
	return Automatic, fmt.Errorf("%q is none of automatic, open and closed", s)
}

// Verdict is what the outcome of a call says about the dependency.
type Verdict uint8

// The verdicts on a call.
const (
	Ignored Verdict = iota // nothing: the caller left, or the dependency was never asked
	Success                // it answered, be it with a refusal
	Failure                // it is away
	// Late: no answer came in time. That is a failure unless the dependency has
	// answered other calls meanwhile (Seen): then this call asked for too much,
	// and says nothing about theirs.
	Late
)
