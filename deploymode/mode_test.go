package deploymode_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/tasker-go/tasker/deploymode"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Mode{
		"Hybrid": Hybrid, "hybrid": Hybrid, "polling_only": PollingOnly, "POLLING-ONLY": PollingOnly,
		"eventdrivenonly": EventDrivenOnly, "Event Driven Only": EventDrivenOnly, "disabled": Disabled, "": "", "both": "",
	} {
		got, ok := Parse(in)
		require.Equal(t, want, got, in)
		require.Equal(t, want != "", ok, in)
	}
}

func TestModeMeaning(t *testing.T) {
	t.Parallel()
	for m, want := range map[Mode]struct {
		listens, polls bool
		label          string
	}{
		PollingOnly:     {false, true, "polling"},
		EventDrivenOnly: {true, false, "event_driven"},
		Hybrid:          {true, true, "hybrid"},
		Disabled:        {false, false, "disabled"},
	} {
		require.Equal(t, want.listens, m.Listens(), m)
		require.Equal(t, want.polls, m.Polls(), m)
		require.Equal(t, want.label, m.Label(), m)
	}
}

func TestEffectiveMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   Mode
		source string
		want   Mode
		says   bool
	}{
		{Hybrid, "notify", Hybrid, false},
		{Hybrid, "amqp", Hybrid, false},
		{EventDrivenOnly, "redis", EventDrivenOnly, false},
		{PollingOnly, "amqp", PollingOnly, true},
		{PollingOnly, "", PollingOnly, false},
		{EventDrivenOnly, "", PollingOnly, true},
		{Hybrid, "none", PollingOnly, true},
		{Disabled, "", Disabled, false},
		{Disabled, "wal", Disabled, false},
	} {
		got, why := EffectiveMode(c.mode, c.source)
		require.Equal(t, c.want, got, "%+v", c)
		require.Equal(t, c.says, why != "", "%+v: %q", c, why)
	}
}

func TestFleetWarning(t *testing.T) {
	t.Parallel()
	events := func(live bool) Replica { return Replica{System: "worker", Mode: EventDrivenOnly, Live: live} }
	for name, c := range map[string]struct {
		fleet []Replica
		want  string
	}{
		"none":                    {nil, ""},
		"mixed":                   {[]Replica{events(true), {System: "worker", Mode: PollingOnly, Live: true}}, ""},
		"hybrid":                  {[]Replica{{Mode: Hybrid, Live: true}}, ""},
		"events only":             {[]Replica{events(true), events(true)}, "worker: none of 2 live replicas polls"},
		"the poller is dead":      {[]Replica{events(true), {System: "worker", Mode: Hybrid}}, "worker: none of 1 live replicas polls"},
		"all dead":                {[]Replica{events(false)}, "worker: no live replica"},
		"another system is fine":  {[]Replica{{System: "orchestrator", Mode: Hybrid, Live: true}, events(true)}, "worker: none of 1"},
		"without a system's name": {[]Replica{{Mode: Disabled, Live: true}}, "none of 1 live replicas polls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warning, warn := FleetWarning(c.fleet)
			require.Equal(t, c.want != "", warn)
			require.Contains(t, warning, c.want)
		})
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	require.Equal(t, Unknown, Worst())
	require.Equal(t, Healthy, Worst(Healthy, Healthy))
	require.Equal(t, Unknown, Worst(Healthy, "?"))
	require.Equal(t, Degraded, Worst(Unknown, Degraded, Healthy))
	require.Equal(t, Unhealthy, Worst(Degraded, Unhealthy))
}

func TestSnapshotLevel(t *testing.T) {
	t.Parallel()
	fresh := NewMachine(Config{Mode: Hybrid})
	require.Equal(t, Unknown, fresh.Snapshot().Level())
	failed, _ := fresh.Step(Event{Kind: ConnectFailed}, 0)
	require.Equal(t, Degraded, failed.Snapshot().Level())
	require.True(t, failed.Snapshot().FallbackActive())
	require.Equal(t, Healthy, NewMachine(Config{Mode: PollingOnly}).Snapshot().Level())
	require.False(t, NewMachine(Config{Mode: PollingOnly}).Snapshot().FallbackActive())
}
