package deploymode_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/tasker-go/tasker/deploymode"
)

const (
	threshold = 5 * time.Second
	interval  = 30 * time.Second
)

func config(mode Mode) Config {
	return Config{
		Mode:                        mode,
		HealthCheckInterval:         interval,
		FallbackActivationThreshold: threshold,
		RecoveryThreshold:           2,
		MaxReconnectAttempts:        3,
		Reconnect:                   Backoff{Base: time.Second, Max: 8 * time.Second, Multiplier: 2},
	}
}

// at is one step of a scenario: an event at a time, and the expected result.
type at struct {
	when    time.Duration
	event   Event
	state   State
	pace    Pace
	ready   bool
	effects []Effect
}

func kinds(effects ...EffectKind) (out []Effect) {
	for _, k := range effects {
		out = append(out, Effect{Kind: k})
	}
	return out
}

func tell(t *testing.T, cfg Config, story []at) Machine {
	t.Helper()
	m := NewMachine(cfg)
	for i, line := range story {
		var effects []Effect
		m, effects = m.Step(line.event, line.when)
		s := m.Snapshot()
		require.Equal(t, line.state, s.State, "line %d: state", i)
		require.Equal(t, line.pace, s.Pace, "line %d: pace", i)
		require.Equal(t, line.ready, s.Ready, "line %d: ready (%s)", i, s.Reason)
		require.Equal(t, line.effects, effects, "line %d: effects", i)
	}
	return m
}

func TestHybridStory(t *testing.T) {
	t.Parallel()
	good := Event{Kind: ProbeReturned, RoundTrip: 3 * time.Millisecond}
	m := tell(t, config(Hybrid), []at{
		{0, Event{Kind: ConnectFailed}, Connecting, PaceTight, true, []Effect{{Kind: Reconnect, After: 2 * time.Second}}},
		{2 * time.Second, Event{Kind: Connected}, Listening, PaceTight, true, kinds(CatchUp, StateChanged)},
		{2 * time.Second, Event{Kind: Tick}, Listening, PaceTight, true, kinds(Probe)},
		{2*time.Second + 1, good, Listening, PaceTight, true, nil},
		// Not proven yet: the next probe comes after the threshold, not the interval.
		{6 * time.Second, Event{Kind: Tick}, Listening, PaceTight, true, nil},
		{7 * time.Second, Event{Kind: Tick}, Listening, PaceTight, true, kinds(Probe)},
		{7*time.Second + 1, good, Listening, PaceRelaxed, true, kinds(PaceChanged)},
		{36 * time.Second, Event{Kind: Tick}, Listening, PaceRelaxed, true, nil},
		{37 * time.Second, Event{Kind: Tick}, Listening, PaceRelaxed, true, kinds(Probe)},
		{41 * time.Second, Event{Kind: Tick}, Listening, PaceRelaxed, true, nil},
		{42 * time.Second, Event{Kind: Tick}, Deaf, PaceTight, true, kinds(Drop, StateChanged, PaceChanged)},
		{42 * time.Second, Event{Kind: ConnectionLost}, Reconnecting, PaceTight, true,
			[]Effect{{Kind: Reconnect, After: time.Second}, {Kind: StateChanged}}},
		{43 * time.Second, Event{Kind: Connected}, Listening, PaceTight, true, kinds(CatchUp, StateChanged)},
		{43 * time.Second, Event{Kind: Tick}, Listening, PaceTight, true, kinds(Probe)},
		// A round trip as long as the threshold is as bad as a missing probe.
		{48 * time.Second, Event{Kind: ProbeReturned, RoundTrip: threshold}, Deaf, PaceTight, true, kinds(Drop, StateChanged)},
		{48 * time.Second, Event{Kind: ConnectionLost}, Reconnecting, PaceTight, true,
			[]Effect{{Kind: Reconnect, After: 2 * time.Second}, {Kind: StateChanged}}},
	})
	require.EqualValues(t, 2, m.Snapshot().Switches)
	require.EqualValues(t, 1, m.Snapshot().Reconnects)
}

func TestEventDrivenOnlyThatCannotConnect(t *testing.T) {
	t.Parallel()
	failed := Event{Kind: ConnectFailed}
	after := func(d time.Duration, more ...EffectKind) []Effect {
		return append([]Effect{{Kind: Reconnect, After: d}}, kinds(more...)...)
	}
	t.Run("unready", func(t *testing.T) {
		t.Parallel()
		tell(t, config(EventDrivenOnly), []at{
			{0, failed, Connecting, PaceOff, false, after(2 * time.Second)},
			{1, Event{Kind: Connected}, Listening, PaceOff, true, kinds(CatchUp, StateChanged, ReadinessChanged)},
			{2, Event{Kind: ConnectionLost}, Reconnecting, PaceOff, true, after(4*time.Second, StateChanged)},
			{3, failed, Reconnecting, PaceOff, false, after(8*time.Second, ReadinessChanged)},
			{4, failed, Reconnecting, PaceOff, false, after(8 * time.Second)},
			// Connected is not enough to be ready again: it must be proven.
			{5, Event{Kind: Connected}, Listening, PaceOff, false, kinds(CatchUp, StateChanged)},
			{5, Event{Kind: Tick}, Listening, PaceOff, false, kinds(Probe)},
			{6, Event{Kind: ProbeReturned, RoundTrip: 1}, Listening, PaceOff, false, nil},
			{6 + threshold, Event{Kind: Tick}, Listening, PaceOff, false, kinds(Probe)},
			{7 + threshold, Event{Kind: ProbeReturned, RoundTrip: 1}, Listening, PaceOff, true, kinds(ReadinessChanged)},
		})
	})
	t.Run("poll", func(t *testing.T) {
		t.Parallel()
		cfg := config(EventDrivenOnly)
		cfg.OnListenerFailure = Poll
		tell(t, cfg, []at{
			{0, failed, Connecting, PaceOff, false, after(2 * time.Second)},
			{1, failed, Connecting, PaceOff, false, after(4 * time.Second)},
			{2, failed, Connecting, PaceTight, true, after(8*time.Second, PaceChanged, ReadinessChanged)},
			{3, Event{Kind: Connected}, Listening, PaceTight, true, kinds(CatchUp, StateChanged)},
			{3, Event{Kind: Tick}, Listening, PaceTight, true, kinds(Probe)},
			{4, Event{Kind: ProbeReturned, RoundTrip: 1}, Listening, PaceTight, true, nil},
			{4 + threshold, Event{Kind: Tick}, Listening, PaceTight, true, kinds(Probe)},
			{5 + threshold, Event{Kind: ProbeReturned, RoundTrip: 1}, Listening, PaceOff, true, kinds(PaceChanged)},
		})
	})
	t.Run("exit", func(t *testing.T) {
		t.Parallel()
		cfg := config(EventDrivenOnly)
		cfg.OnListenerFailure = Exit
		tell(t, cfg, []at{
			{0, failed, Connecting, PaceOff, false, after(2 * time.Second)},
			{1, failed, Connecting, PaceOff, false, after(4 * time.Second)},
			{2, failed, Connecting, PaceOff, false, after(8*time.Second, Fatal)},
			{3, failed, Connecting, PaceOff, false, after(8 * time.Second)}, // requested once
		})
	})
}

// A transaction pooler accepts LISTEN and delivers nothing.
func TestDeafConnectionsExhaustTheAttempts(t *testing.T) {
	t.Parallel()
	m := NewMachine(config(EventDrivenOnly))
	now := time.Duration(0)
	for range 3 {
		require.False(t, m.Snapshot().Exhausted)
		m, _ = m.Step(Event{Kind: Connected}, now)
		m, _ = m.Step(Event{Kind: Tick}, now)
		now += threshold
		m, _ = m.Step(Event{Kind: Tick}, now)
		require.Equal(t, Deaf, m.Snapshot().State)
		m, _ = m.Step(Event{Kind: ConnectionLost}, now)
	}
	require.True(t, m.Snapshot().Exhausted)
	require.False(t, m.Snapshot().Ready)
	require.Equal(t, Unhealthy, m.Snapshot().Level())
}

func TestModeChanges(t *testing.T) {
	t.Parallel()
	tell(t, config(PollingOnly), []at{
		{0, Event{Kind: Connected}, Off, PaceTight, true, nil}, // without a meaning here
		{1, Event{Kind: ModeChanged, Mode: Hybrid}, Connecting, PaceTight, true, kinds(Reconnect, StateChanged)},
		{2, Event{Kind: Connected}, Listening, PaceTight, true, kinds(CatchUp, StateChanged)},
		{3, Event{Kind: ModeChanged, Mode: EventDrivenOnly}, Listening, PaceOff, true, kinds(PaceChanged)},
		{4, Event{Kind: ModeChanged, Mode: EventDrivenOnly}, Listening, PaceOff, true, nil},
		{5, Event{Kind: ModeChanged, Mode: PollingOnly}, Off, PaceTight, true, kinds(Drop, StateChanged, PaceChanged)},
		{6, Event{Kind: ModeChanged, Mode: Disabled}, Off, PaceOff, true, kinds(PaceChanged)},
		{7, Event{Kind: ModeChanged, Mode: EventDrivenOnly}, Connecting, PaceOff, false, kinds(Reconnect, StateChanged, ReadinessChanged)},
	})
}

func TestEventsThatMeanNothingChangeNothing(t *testing.T) {
	t.Parallel()
	fresh := NewMachine(config(Hybrid))
	listening, _ := fresh.Step(Event{Kind: Connected}, 0)
	for name, c := range map[string]struct {
		m Machine
		e Event
	}{
		"a second connect":      {listening, Event{Kind: Connected}},
		"a failure afterwards":  {listening, Event{Kind: ConnectFailed}},
		"a probe not asked for": {listening, Event{Kind: ProbeReturned}},
		"a loss beforehand":     {fresh, Event{Kind: ConnectionLost}},
		"a tick beforehand":     {fresh, Event{Kind: Tick}},
		"an unknown event":      {fresh, Event{Kind: "?"}},
		"no mode":               {fresh, Event{Kind: ModeChanged}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, effects := c.m.Step(c.e, time.Hour)
			require.Equal(t, c.m, next)
			require.Empty(t, effects)
		})
	}
}
