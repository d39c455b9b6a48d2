package deploymode

import "time"

// State is where a listener stands.
type State string

// The states of a listener.
const (
	// Off: the mode has no listener.
	Off State = "off"
	// Connecting: it has not been connected yet.
	Connecting State = "connecting"
	// Listening: connected; see Snapshot.Proven for whether signals are known
	// to arrive.
	Listening State = "listening"
	// Deaf: connected, but a probe did not come back in time; the connection
	// is being dropped.
	Deaf State = "deaf"
	// Reconnecting: not connected, after it once was.
	Reconnecting State = "reconnecting"
)

// EventKind says what happened to a listener.
type EventKind string

// The events a Machine is stepped with.
const (
	// Connected: a connection is subscribed.
	Connected EventKind = "connected"
	// ConnectFailed: an attempt to connect ended in an error. Carries Jitter.
	ConnectFailed EventKind = "connect_failed"
	// ConnectionLost: the connection broke, or was closed after Drop. Carries Jitter.
	ConnectionLost EventKind = "connection_lost"
	// ProbeReturned: the latest probe came back. Carries RoundTrip.
	ProbeReturned EventKind = "probe_returned"
	// Tick: time has passed; see Machine.NextTick. Carries Probing.
	Tick EventKind = "tick"
	// ModeChanged: the mode was changed. Carries Mode.
	ModeChanged EventKind = "mode_changed"
)

// Event is one input of a [Machine].
type Event struct {
	Kind      EventKind
	RoundTrip time.Duration // of ProbeReturned
	Mode      Mode          // of ModeChanged
	Jitter    float64       // in [0, 1), drawn by the caller
	Probing   bool          // of Tick: a probe is sent in any case, and counts for this machine
}

// EffectKind names an action.
type EffectKind string

// The effects a Machine asks for.
const (
	// Probe: send a probe now. Its deadline is running already.
	Probe EffectKind = "probe"
	// Drop: close the connection; a ConnectionLost follows unless the mode
	// has no listener any more.
	Drop EffectKind = "drop"
	// Reconnect: connect after the delay After.
	Reconnect EffectKind = "reconnect"
	// CatchUp: look at all rows; signals may have been missed.
	CatchUp EffectKind = "catch_up"
	// Fatal: the process should end (Exit); requested once.
	Fatal EffectKind = "fatal"
	// StateChanged, PaceChanged, ReadinessChanged: the snapshot differs from the
	// previous one in this respect; at most one of each per step.
	StateChanged     EffectKind = "state_changed"
	PaceChanged      EffectKind = "pace_changed"
	ReadinessChanged EffectKind = "readiness_changed"
)

// Effect is an action to take after a step.
type Effect struct {
	Kind  EffectKind
	After time.Duration // of Reconnect
}

// OnListenerFailure is the reaction of EventDrivenOnly after too many failed attempts to
// connect. The attempts continue in every case.
type OnListenerFailure string

// The reactions to a listener's failure.
const (
	// Unready: report unready, so that no requests are routed here.
	Unready OnListenerFailure = "unready"
	// Poll: poll until the listener is proven again.
	Poll OnListenerFailure = "poll"
	// Exit: report unready and request the end of the process.
	Exit OnListenerFailure = "exit"
)
