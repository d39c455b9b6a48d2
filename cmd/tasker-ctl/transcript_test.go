package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the expected outputs anew")

// session is one user at a terminal: a fake API, a clock and an environment.
type session struct {
	t    testing.TB
	api  *fakeAPI
	env  map[string]string
	now  time.Time
	live terminal
	// errors says what stderr can do.
	errors terminal
	// deaf: nothing listens at the usual address of a worker.
	deaf bool
	// pauses are the times waited; nothing is really waited for.
	pauses []time.Duration
	// beforePause may change something while a command waits.
	beforePause func()
	// secret parts of addresses, replaced in what is compared.
	replace []string
}

func newSession(t testing.TB) *session {
	t.Helper()
	api, server := newFakeAPI(t)
	closed := closedPort(t)
	return &session{
		t: t, api: api, now: fakeStart.Add(8 * time.Second),
		env: map[string]string{
			"TASKER_ORCHESTRATION_URL": server.URL, "TASKER_WORKER_URL": server.URL,
			"NOWHERE": "http://" + closed,
		},
		replace: []string{strings.TrimPrefix(server.URL, "http://"), "SERVER", closed, "CLOSED"},
	}
}

// closedPort is an address without a listener, and to stay so until the test ends: that of
// the client of an open connection.
func closedPort(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.Close(), l.Close() })
	return c.LocalAddr().String()
}

type outcome struct {
	stdout, stderr string
	code           int
}

// run executes one command line.
func (s *session) run(ctx context.Context, stdin string, args ...string) outcome {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(strings.NewReader(stdin), &stdout, &stderr, func(name string) (string, bool) {
		v, ok := s.env[name]
		return v, ok
	})
	a.screen, a.errors = s.live, s.errors
	a.now = func() time.Time { return s.now }
	a.pause = func(ctx context.Context, d time.Duration) error {
		s.pauses = append(s.pauses, d)
		s.now = s.now.Add(d)
		if s.beforePause != nil {
			s.beforePause()
		}
		return ctx.Err()
	}
	if s.deaf {
		a.answers = func(context.Context, string) bool { return false }
	}
	code := a.execute(ctx, args)
	tidy := strings.NewReplacer(s.replace...)
	return outcome{tidy.Replace(stdout.String()), tidy.Replace(stderr.String()), code}
}

// TestTranscripts replays the sessions in testdata/transcripts. In them,
//
//	# …        before the first command is a comment
//	$ …        is a command, without "tasker-ctl"; VAR=value before it sets the
//	           environment, < text after it is stdin
//
// and what follows is stdout, stderr with "! " before each line, and [exit N]
// unless that is 0.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := replay(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
				return
			}
			require.Equal(t, string(text), got)
		})
	}
}

// replay runs the commands of a transcript and writes it anew.
func replay(t *testing.T, transcript string) string {
	var b strings.Builder
	heading := true
	for line := range strings.Lines(transcript) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "$ "):
			if !heading {
				b.WriteString("\n")
			}
			heading = false
			b.WriteString(line + "\n" + play(t, strings.TrimPrefix(line, "$ ")))
		case heading:
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// play runs one command in a session of its own.
func play(t *testing.T, line string) string {
	s := newSession(t)
	line, stdin, _ := strings.Cut(line, " < ")
	words := split(t, line)
	for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
		name, value, _ := strings.Cut(words[0], "=")
		if strings.HasPrefix(value, "$") {
			value = s.env[value[1:]]
		}
		s.env[name] = value
		words = words[1:]
	}
	o := s.run(t.Context(), stdin, words...)
	var b strings.Builder
	b.WriteString(o.stdout)
	if o.stdout != "" && !strings.HasSuffix(o.stdout, "\n") {
		b.WriteString("\n")
	}
	for l := range strings.Lines(o.stderr) {
		b.WriteString("! " + strings.TrimRight(l, "\n") + "\n")
	}
	if o.code != 0 {
		fmt.Fprintf(&b, "[exit %d]\n", o.code)
	}
	return b.String()
}

// split takes a command line apart; '…' quotes.
func split(t *testing.T, line string) (words []string) {
	var word strings.Builder
	quoted, begun := false, false
	flush := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			flush()
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	require.False(t, quoted, "a quote is not closed: %s", line)
	flush()
	return words
}
