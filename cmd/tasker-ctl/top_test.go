package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The fleet is written once where stdout is no terminal, in every format.
func TestTheFleetIsWrittenOnce(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, format := range []string{"table", "json", "yaml"} {
		s := newSession(t)
		s.api.near = true
		o := s.run(t.Context(), "", "-o", format, "top")
		require.Zero(t, o.code, o.stderr)
		require.Len(t, s.pauses, 1)
		fmt.Fprintf(&b, "--- %s\n%s", format, o.stdout)
	}
	golden(t, "top.txt", b.String())
	o := newSession(t).run(t.Context(), "", "top", "--interval", "1ms")
	require.Equal(t, exitUsage, o.code)
	s := newSession(t)
	s.env["TASKER_ORCHESTRATION_URL"] = s.env["NOWHERE"]
	require.Equal(t, exitUnavailable, s.run(t.Context(), "", "top").code)
}

// watchFleet runs top on a terminal, until the user ends it after so many frames.
func watchFleet(t *testing.T, rows, frames int, during func(s *session)) (outcome, []string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSession(t)
	s.api.near = true
	s.live = terminal{live: true, size: func() (int, int) { return 100, rows }}
	s.beforePause = func() {
		if len(s.pauses) == frames {
			cancel()
		}
		if during != nil {
			during(s)
		}
	}
	o := s.run(ctx, "", "top")
	return o, strings.Split(o.stdout, wrapOff)[1:]
}

// On a terminal every frame fits, and Ctrl-C is how it ends.
func TestTheFleetIsWatched(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{1, 5, 12, 18, 50} {
		o, frames := watchFleet(t, rows, 3, nil)
		require.Zero(t, o.code, o.stderr)
		require.Len(t, frames, 3)
		for _, frame := range frames {
			if rows > 1 {
				require.Less(t, strings.Count(frame, "\n"), rows)
			}
		}
		require.Equal(t, rows == 12, strings.Contains(frames[0], "… and "), "%d rows", rows)
		require.Contains(t, frames[2], "created 20.0/s", "two daemons, 20 more each in 2 s")
	}
}

// A silent orchestrator is waited for, but not for ever.
func TestTheFleetOfASilentOrchestrator(t *testing.T) {
	t.Parallel()
	o, frames := watchFleet(t, 50, 100, func(s *session) { s.api.silent = true })
	require.Equal(t, exitUnavailable, o.code)
	require.Len(t, frames, 1+maxLosses)
	require.Contains(t, frames[1], "no answer since 10:11:20, trying again")
}

// The key q ends it.
func TestQuitting(t *testing.T) {
	t.Parallel()
	a := newApp(strings.NewReader("xyzQ"), nil, nil, func(string) (string, bool) { return "", false })
	ctx, restore := a.untilQuit(t.Context())
	<-ctx.Done()
	restore()
	none, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, none.Close()) })
	a.stdin = none // no terminal
	ctx, restore = a.untilQuit(t.Context())
	require.NoError(t, ctx.Err())
	restore()
	require.Error(t, ctx.Err())
}

func TestMetricsAreRead(t *testing.T) {
	t.Parallel()
	f := parseMetrics([]byte("# HELP tasker_a x\ntasker_a{namespace=\"x\\\"y\",state=\"error\"} 2\ntasker_a{state=\"complete\"} 1e3\ntasker_b 3\ntasker_a nonsense\n\ntasker_c{x=\"y\"} NaN\n"))
	require.InDelta(t, 1002, f.total("tasker_a", ""), 0)
	require.InDelta(t, 2, f.total("tasker_a", `state="error"`), 0)
	require.Equal(t, map[string]float64{`x"y`: 2}, f.byNamespace("tasker_a"))
	require.NotNil(t, parseMetrics(nil), "it has answered")
}

// Workers are asked at the addresses that they have registered.
func TestHealthOfWorkers(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, line := range []string{"worker health --all", "worker health worker-2", "-o json worker health worker-2", "-o yaml worker health worker-2"} {
		s := newSession(t)
		s.api.near = true
		o := s.run(t.Context(), "", strings.Fields(line)...)
		require.Zero(t, o.code, o.stderr)
		fmt.Fprintf(&b, "--- %s\n%s", line, o.stdout)
	}
	golden(t, "worker-health.txt", b.String())
}

// Progress is told on a terminal, and nowhere else.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"task", "import", "testdata/tasks.jsonl"}, {"task", "import", "-"},
		{"dlq", "replay", "--all", "-l", "200", "--per-second", "5", "-r", "x", "--yes"},
	} {
		s := newSession(t)
		plain := s.run(t.Context(), `{"name":"diamond","namespace":"shapes","version":"1.0.0","context":{}}`, args...)
		require.NotContains(t, plain.stderr, "\r")
		s = newSession(t)
		s.errors = terminal{live: true}
		shown := s.run(t.Context(), `{"name":"diamond","namespace":"shapes","version":"1.0.0","context":{}}`, args...)
		require.Equal(t, plain.stdout, shown.stdout)
		require.Contains(t, shown.stderr, clearLine+"\r"+clearLine, "the line is taken away")
		require.Equal(t, args[2] != "-", strings.Contains(shown.stderr, "[########################] 100%  "), "%q", shown.stderr)
	}
}
