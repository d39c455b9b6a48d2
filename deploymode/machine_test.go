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
