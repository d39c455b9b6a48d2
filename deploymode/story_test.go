package deploymode_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	. "github.com/tasker-go/tasker/deploymode"
)

// TestStories plays the text files of testdata: what happened to a listener and when,
// and below it what the machine decided. `go test ./deploymode -run TestStories
// -rewrite` writes the decisions anew.
//
// Commands: listener MODE [on-failure=unready|poll|exit] begins a story, events
// continues it, counts prints the counters. A line of events is a time and one of connected, connect failed,
// connection lost, probe back in DURATION, tick, mode MODE.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m Machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "listener" {
				c := config(Mode(d.CmdArgs[0].Key))
				failure := ""
				d.MaybeScanArgs(t, "on-failure", &failure)
				c.OnListenerFailure = OnListenerFailure(failure)
				m = NewMachine(c)
				return stands(m.Snapshot()) + "\n"
			}
			if d.Cmd == "counts" {
				return fmt.Sprintf("%d reconnects, %d switches\n", m.Snapshot().Reconnects, m.Snapshot().Switches)
			}
			require.Equal(t, "events", d.Cmd, d.Pos)
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				var effects []Effect
				when, what, _ := strings.Cut(strings.TrimSpace(line), " ")
				at, err := time.ParseDuration(when)
				require.NoError(t, err, d.Pos)
				m, effects = m.Step(eventOf(t, strings.TrimSpace(what)), at)
				fmt.Fprintln(&b, strings.Join(append([]string{stands(m.Snapshot())}, actions(effects)...), ", "))
			}
			return b.String()
		})
	})
}

func eventOf(t *testing.T, what string) Event {
	t.Helper()
	if text, ok := strings.CutPrefix(what, "probe back in "); ok {
		took, err := time.ParseDuration(text)
		require.NoError(t, err)
		return Event{Kind: ProbeReturned, RoundTrip: took}
	}
	if mode, ok := strings.CutPrefix(what, "mode "); ok {
		return Event{Kind: ModeChanged, Mode: Mode(mode)}
	}
	kind, ok := map[string]EventKind{"connected": Connected, "connect failed": ConnectFailed, "connection lost": ConnectionLost, "tick": Tick}[what]
	require.True(t, ok, what)
	return Event{Kind: kind}
}

// stands is where the machine stands, and what that means for the poller and for
// readiness.
func stands(s Snapshot) string {
	ready := "ready"
	if !s.Ready {
		ready = "not ready"
	}
	text := fmt.Sprintf("%s, poller %s, %s", s.State, s.Pace, ready)
	if s.Reason != "" {
		text += " (" + s.Reason + ")"
	}
	return text
}

// actions are what the caller has to do; changes are seen in the line anyway.
func actions(effects []Effect) (list []string) {
	for _, e := range effects {
		switch e.Kind {
		case StateChanged, PaceChanged, ReadinessChanged:
		case Reconnect:
			list = append(list, fmt.Sprintf("-> reconnect in %v", e.After))
		default:
			list = append(list, "-> "+strings.ReplaceAll(string(e.Kind), "_", " "))
		}
	}
	return list
}
