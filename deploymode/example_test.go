package deploymode_test

import (
	"fmt"
	"time"

	"github.com/tasker-go/tasker/deploymode"
)

// A Hybrid listener proves its connection, loses it, and polls tightly meanwhile.
func ExampleMachine() {
	m := deploymode.NewMachine(deploymode.Config{
		Mode:                        deploymode.Hybrid,
		HealthCheckInterval:         30 * time.Second,
		FallbackActivationThreshold: 5 * time.Second,
		RecoveryThreshold:           1,
		Reconnect:                   deploymode.Backoff{Base: time.Second, Max: time.Minute, Multiplier: 2},
	})
	for at, event := range []deploymode.Event{
		{Kind: deploymode.Connected},
		{Kind: deploymode.Tick},
		{Kind: deploymode.ProbeReturned, RoundTrip: time.Millisecond},
		{Kind: deploymode.ConnectionLost},
	} {
		var effects []deploymode.Effect
		m, effects = m.Step(event, time.Duration(at)*time.Second)
		s := m.Snapshot()
		fmt.Print(event.Kind, ": ", s.State, ", pace ", s.Pace, ";")
		for _, effect := range effects {
			fmt.Print(" ", effect.Kind)
		}
		fmt.Println()
	}
	// Output:
	// connected: listening, pace tight; catch_up state_changed
	// tick: listening, pace tight; probe
	// probe_returned: listening, pace relaxed; pace_changed
	// connection_lost: reconnecting, pace tight; reconnect state_changed pace_changed
}

func ExampleParse() {
	for _, name := range []string{"Hybrid", "event_driven"} {
		mode, ok := deploymode.Parse(name)
		fmt.Printf("%q %t\n", mode, ok)
	}
	// Output:
	// "Hybrid" true
	// "" false
}

// A fleet in which nothing polls is one lost signal away from work that waits.
func ExampleFleetWarning() {
	warning, warn := deploymode.FleetWarning([]deploymode.Replica{
		{ID: "a", System: "orchestrator", Mode: deploymode.Hybrid, Live: true},
		{ID: "b", System: "worker", Mode: deploymode.EventDrivenOnly, Live: true},
		{ID: "c", System: "worker", Mode: deploymode.PollingOnly, Live: false},
	})
	fmt.Println(warn)
	fmt.Println(warning)
	// Output:
	// true
	// worker: none of 1 live replicas polls: a lost signal delays its work until the next one; run one in Hybrid or PollingOnly
}

func ExampleWorst() {
	fmt.Println(deploymode.Worst(deploymode.Healthy, deploymode.Degraded, deploymode.Unknown))
	// Output: degraded
}
