package deploymode

import "time"

// Config holds the thresholds of a [Machine]. All are required in the listening modes,
// unless the field gives 0 a meaning.
type Config struct {
	// Mode is the initial mode.
	Mode Mode
	// HealthCheckInterval is the time between probes of a proven connection.
	HealthCheckInterval time.Duration
	// FallbackActivationThreshold is how long a probe may be missing before the listener
	// counts as deaf. It is also the probe interval of an unproven connection, where it is
	// shorter.
	FallbackActivationThreshold time.Duration
	// RecoveryThreshold is the number of consecutive good probes that prove a new
	// connection.
	RecoveryThreshold int
	// MaxReconnectAttempts is the number of consecutive failed attempts before
	// EventDrivenOnly applies OnListenerFailure; 0 means never. An attempt has failed
	// when it did not lead to a proven connection.
	MaxReconnectAttempts int
	// OnListenerFailure is the reaction of EventDrivenOnly.
	OnListenerFailure OnListenerFailure
	// Reconnect is the delay between attempts.
	Reconnect Backoff
}

// Machine is the state of one listener, which determines the poller's pace and readiness.
// It is a value: Step returns the next machine and does not change the receiver. The zero
// Machine is not usable; see [NewMachine].
type Machine struct {
	cfg   Config
	mode  Mode
	state State
	since time.Duration

	connectedOnce bool
	goodProbes    int
	proven        bool
	attempts      int // consecutive attempts that did not lead to a proven connection
	exhausted     bool
	fatal         bool

	probeOut  bool
	probeAt   time.Duration // when the probe under way was requested
	nextProbe time.Duration
	roundTrip time.Duration

	reconnects uint64
	switches   uint64
}

// NewMachine returns the machine of a connecting listener, or of no listener where the mode
// has none.
func NewMachine(cfg Config) Machine {
	m := Machine{cfg: cfg, mode: cfg.Mode, state: Off}
	if m.mode.Listens() {
		m.state = Connecting
	}
	return m
}

// Step takes one event at a time that never goes backwards and returns the next machine with
// the actions to take now, in order. An event without a meaning in the present state changes
// nothing.
func (m Machine) Step(event Event, now time.Duration) (Machine, []Effect) {
	before := m.Snapshot()
	next, effects := m, []Effect(nil)
	switch event.Kind {
	case Connected:
		effects = next.connected(now)
	case ConnectFailed:
		effects = next.connectFailed(event)
	case ConnectionLost:
		effects = next.connectionLost(event, now)
	case ProbeReturned:
		effects = next.probeReturned(event, now)
	case Tick:
		effects = next.tick(event, now)
	case ModeChanged:
		effects = next.modeChanged(event, now)
	}
	return next, append(effects, next.changesSince(before)...)
}

// NextTick returns the time of the next Tick; ok is false when passing time changes nothing.
func (m Machine) NextTick() (at time.Duration, ok bool) {
	if m.state != Listening {
		return 0, false
	}
	if m.probeOut {
		return m.probeAt + m.cfg.FallbackActivationThreshold, true
	}
	return m.nextProbe, true
}

func (m *Machine) connected(now time.Duration) []Effect {
	if m.state != Connecting && m.state != Reconnecting {
		return nil
	}
	if m.connectedOnce {
		m.reconnects++
	}
	m.connectedOnce = true
	m.nextProbe = now // prove it at once: the poller is tight until then
	m.enter(Listening, now)
	return []Effect{{Kind: CatchUp}}
}

func (m *Machine) connectFailed(event Event) []Effect {
	if m.state != Connecting && m.state != Reconnecting {
		return nil
	}
	m.attempts++
	return m.again(event)
}

// connectionLost handles a connection that broke, or was dropped because it was deaf.
func (m *Machine) connectionLost(event Event, now time.Duration) []Effect {
	if m.state != Listening && m.state != Deaf {
		return nil
	}
	if !m.wasProven() {
		// Without this a source that accepts every connection and delivers
		// nothing (LISTEN through a transaction pooler) would never count as
		// failed.
		m.attempts++
	}
	m.forget()
	m.enter(Reconnecting, now)
	return m.again(event)
}

// wasProven holds for a connection that was ever proven: proving resets attempts, so
// goodProbes shows it even after going deaf.
func (m *Machine) wasProven() bool { return m.goodProbes >= m.cfg.RecoveryThreshold }

func (m *Machine) again(event Event) []Effect {
	effects := []Effect{{Kind: Reconnect, After: m.cfg.Reconnect.Delay(m.attempts, event.Jitter)}}
	if limit := m.cfg.MaxReconnectAttempts; limit > 0 && m.attempts >= limit {
		m.exhausted = true
		if m.mode == EventDrivenOnly && m.cfg.OnListenerFailure == Exit && !m.fatal {
			m.fatal = true
			effects = append(effects, Effect{Kind: Fatal})
		}
	}
	return effects
}

func (m *Machine) probeReturned(event Event, now time.Duration) []Effect {
	if m.state != Listening || !m.probeOut {
		return nil
	}
	m.roundTrip = event.RoundTrip
	if event.RoundTrip >= m.cfg.FallbackActivationThreshold {
		// As late as missing: the result must not depend on whether the tick or the probe
		// came first.
		return m.deafen(now)
	}
	m.probeOut = false
	m.goodProbes++
	if m.wasProven() {
		m.proven = true
		m.attempts = 0
		m.exhausted = false
	}
	m.nextProbe = max(now, m.probeAt+m.probeInterval())
	return nil
}

func (m *Machine) tick(event Event, now time.Duration) []Effect {
	switch {
	case m.state != Listening:
		return nil
	case m.probeOut && now-m.probeAt >= m.cfg.FallbackActivationThreshold:
		return m.deafen(now)
	case !m.probeOut && (event.Probing || now >= m.nextProbe):
		// The deadline runs from here, so that a hanging send counts as deaf too.
		m.probeOut = true
		m.probeAt = now
		return []Effect{{Kind: Probe}}
	}
	return nil
}

func (m *Machine) modeChanged(event Event, now time.Duration) []Effect {
	if event.Mode == m.mode || event.Mode == "" {
		return nil
	}
	m.mode = event.Mode
	switch {
	case m.mode.Listens() && m.state == Off:
		m.enter(Connecting, now)
		return []Effect{{Kind: Reconnect}}
	case !m.mode.Listens() && m.state != Off:
		m.forget()
		m.attempts = 0
		m.exhausted = false
		m.connectedOnce = false
		m.enter(Off, now)
		return []Effect{{Kind: Drop}}
	}
	return nil
}

func (m *Machine) deafen(now time.Duration) []Effect {
	m.probeOut = false
	m.proven = false
	m.enter(Deaf, now)
	return []Effect{{Kind: Drop}}
}

func (m *Machine) forget() {
	m.goodProbes = 0
	m.proven = false
	m.probeOut = false
}

func (m *Machine) enter(state State, now time.Duration) {
	m.state = state
	m.since = now
}

func (m *Machine) probeInterval() time.Duration {
	if m.proven {
		return m.cfg.HealthCheckInterval
	}
	return min(m.cfg.HealthCheckInterval, m.cfg.FallbackActivationThreshold)
}
