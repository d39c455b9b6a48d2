package deploymode_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	. "github.com/tasker-go/tasker/deploymode"
)

func anyConfig(t *rapid.T) Config {
	return Config{
		Mode:                        rapid.SampledFrom([]Mode{PollingOnly, EventDrivenOnly, Hybrid, Disabled}).Draw(t, "mode"),
		HealthCheckInterval:         time.Duration(rapid.IntRange(1, 60).Draw(t, "interval")) * time.Second,
		FallbackActivationThreshold: time.Duration(rapid.IntRange(1, 20).Draw(t, "threshold")) * time.Second,
		RecoveryThreshold:           rapid.IntRange(1, 4).Draw(t, "recovery"),
		MaxReconnectAttempts:        rapid.IntRange(0, 4).Draw(t, "attempts"),
		OnListenerFailure:           rapid.SampledFrom([]OnListenerFailure{Unready, Poll, Exit}).Draw(t, "on_failure"),
		Reconnect:                   Backoff{Base: time.Second, Max: 10 * time.Second, Multiplier: 2, Jitter: 0.5},
	}
}

func anyEvent(t *rapid.T, cfg Config) Event {
	e := Event{
		Kind: rapid.SampledFrom([]EventKind{
			Connected, Connected, ConnectFailed, ConnectionLost,
			ProbeReturned, ProbeReturned, Tick, Tick, Tick, ModeChanged,
		}).Draw(t, "kind"),
		Jitter: rapid.Float64Range(0, 0.999).Draw(t, "jitter"),
	}
	switch e.Kind {
	case ProbeReturned:
		e.RoundTrip = time.Duration(rapid.IntRange(0, 3).Draw(t, "rtt")) * cfg.FallbackActivationThreshold / 2
	case ModeChanged:
		e.Mode = rapid.SampledFrom([]Mode{PollingOnly, EventDrivenOnly, Hybrid, Disabled}).Draw(t, "to")
	}
	return e
}

// legal holds the transitions of the state machine; off is entered and left only by a change
// of mode.
var legal = map[State][]State{
	Off:          {Connecting},
	Connecting:   {Listening, Off},
	Listening:    {Deaf, Reconnecting, Off},
	Deaf:         {Reconnecting, Off},
	Reconnecting: {Listening, Off},
}

func TestMachineProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyConfig(t)
		m := NewMachine(cfg)
		now := time.Duration(0)
		good, fatals := 0, 0 // good probes on this connection, counted independently
		out := false         // a probe is under way
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 40).Draw(t, "pass")) * time.Second / 2
			e := anyEvent(t, cfg)
			before := m.Snapshot()
			next, effects := m.Step(e, now)
			s := next.Snapshot()

			for _, f := range effects {
				switch f.Kind {
				case Probe:
					out = true
				case Fatal:
					fatals++
				case Reconnect:
					if f.After < 0 || f.After > cfg.Reconnect.Max {
						t.Fatalf("reconnect after %s is out of bounds", f.After)
					}
				case CatchUp:
					if e.Kind != Connected {
						t.Fatalf("catch-up after %s", e.Kind)
					}
				}
			}
			if e.Kind == ProbeReturned && before.State == Listening && out {
				out = false
				if e.RoundTrip < cfg.FallbackActivationThreshold {
					good++
				}
			}
			if s.State != Listening {
				good, out = 0, false
			}
			check(t, cfg, before, s, effects, good)
			if next.Snapshot().State == Listening {
				if _, ok := next.NextTick(); !ok {
					t.Fatal("a connection that is never probed")
				}
			}
			m = next
		}
		if fatals > 1 {
			t.Fatalf("fatal requested %d times", fatals)
		}
	})
}

func check(t *rapid.T, cfg Config, before, s Snapshot, effects []Effect, good int) {
	has := func(kind EffectKind) bool {
		for _, f := range effects {
			if f.Kind == kind {
				return true
			}
		}
		return false
	}
	if s.State != before.State {
		ok := false
		for _, to := range legal[before.State] {
			ok = ok || to == s.State
		}
		if !ok {
			t.Fatalf("%s → %s", before.State, s.State)
		}
	}
	if (s.State == Listening && before.State != Listening) != has(CatchUp) {
		t.Fatal("want a catch-up exactly after a connection")
	}
	if s.Mode.Listens() && s.State != before.State && (s.State == Reconnecting || before.State == Off) && !has(Reconnect) {
		t.Fatalf("%s without an attempt to follow", s.State)
	}
	if (s.State == Deaf && before.State != Deaf) && !has(Drop) {
		t.Fatal("a deaf connection is not dropped")
	}
	if s.Proven != (s.State == Listening && good >= cfg.RecoveryThreshold) {
		t.Fatalf("proven=%t after %d good probes in %s", s.Proven, good, s.State)
	}
	switch s.Mode {
	case Hybrid:
		if s.Pace == PaceOff || !s.Ready {
			t.Fatalf("Hybrid with pace %s, ready %t", s.Pace, s.Ready)
		}
		if (s.Pace == PaceRelaxed) != s.Proven {
			t.Fatalf("pace %s, proven %t", s.Pace, s.Proven)
		}
	case EventDrivenOnly:
		fallback := cfg.OnListenerFailure == Poll && s.Exhausted
		if (s.Pace != PaceOff) != fallback {
			t.Fatalf("pace %s in EventDrivenOnly, fallback %t", s.Pace, fallback)
		}
		if s.Exhausted && !fallback && s.Ready {
			t.Fatal("ready without any way to find work")
		}
	case PollingOnly:
		if s.Pace != PaceTight || s.State != Off || !s.Ready {
			t.Fatalf("PollingOnly: %+v", s)
		}
	case Disabled:
		if s.Pace != PaceOff || s.State != Off {
			t.Fatalf("Disabled: %+v", s)
		}
	}
	if s.Exhausted && cfg.MaxReconnectAttempts == 0 {
		t.Fatal("exhausted without a limit")
	}
	switched := s.Mode != before.Mode || s.Pace != before.Pace
	if switched != (s.Switches == before.Switches+1) {
		t.Fatalf("switches %d → %d, switched %t", before.Switches, s.Switches, switched)
	}
	if has(PaceChanged) != (s.Pace != before.Pace) || has(StateChanged) != (s.State != before.State) ||
		has(ReadinessChanged) != (s.Ready != before.Ready) {
		t.Fatalf("effects %v do not report %+v → %+v", effects, before, s)
	}
}

// A late probe and the tick have the same result in either order.
func TestLateProbeAndTickConfluence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyConfig(t)
		cfg.Mode = Hybrid
		m, _ := NewMachine(cfg).Step(Event{Kind: Connected}, 0)
		m, _ = m.Step(Event{Kind: Tick}, 0)
		late := cfg.FallbackActivationThreshold
		a, _ := m.Step(Event{Kind: Tick}, late)
		a, _ = a.Step(Event{Kind: ProbeReturned, RoundTrip: late}, late)
		b, _ := m.Step(Event{Kind: ProbeReturned, RoundTrip: late}, late)
		b, _ = b.Step(Event{Kind: Tick}, late)
		if a.Snapshot().State != Deaf || b.Snapshot().State != Deaf {
			t.Fatalf("%s, %s", a.Snapshot().State, b.Snapshot().State)
		}
	})
}

func TestBackoffBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base:       time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "base")),
			Max:        time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "max")),
			Multiplier: rapid.Float64Range(0, 10).Draw(t, "multiplier"),
			Jitter:     rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.IntRange(0, 1_000_000_000).Draw(t, "n")
		r := rapid.Float64Range(0, 0.999).Draw(t, "random")
		full, jittered := b.Delay(n, 0), b.Delay(n, r)
		limit := max(b.Base, b.Max)
		if full < min(b.Base, limit)-1 || full > limit || jittered > full || jittered < 0 {
			t.Fatalf("%+v: full %s, jittered %s", b, full, jittered)
		}
		if next := b.Delay(min(n+1, 1_000_000_000), 0); next < full {
			t.Fatalf("shrinks from %s to %s", full, next)
		}
	})
}
