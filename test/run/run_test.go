//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const events = `{"Time":"2026-01-02T10:00:00Z","Action":"start","Package":"github.com/tasker-go/tasker/a"}
{"Time":"2026-01-02T10:00:00Z","Action":"start","Package":"github.com/tasker-go/tasker/b"}
{"Time":"2026-01-02T10:00:01Z","Action":"start","Package":"example/none"}
{"Time":"2026-01-02T10:00:01Z","Action":"run","Package":"github.com/tasker-go/tasker/a","Test":"TestOne"}
{"Time":"2026-01-02T10:00:02Z","Action":"run","Package":"github.com/tasker-go/tasker/a","Test":"TestOne/part"}
{"Time":"2026-01-02T10:00:02Z","Action":"run","Package":"github.com/tasker-go/tasker/a","Test":"TestPaused"}
{"Time":"2026-01-02T10:00:02Z","Action":"pause","Package":"github.com/tasker-go/tasker/a","Test":"TestPaused"}
{"Time":"2026-01-02T10:00:02Z","Action":"run","Package":"github.com/tasker-go/tasker/b","Test":"TestBroker"}
{"Action":"output","Package":"github.com/tasker-go/tasker/b","Test":"TestBroker","Output":"    b_test.go:1: left out: needs RabbitMQ, Node 20 or later: RabbitMQ is missing\n"}
{"Action":"output","Package":"github.com/tasker-go/tasker/b","Test":"TestBroker","Output":"--- SKIP: TestBroker (0.00s)\n"}
{"Action":"skip","Package":"github.com/tasker-go/tasker/b","Test":"TestBroker"}
{"Action":"output","Package":"github.com/tasker-go/tasker/b","Test":"TestAgain","Output":"    left out: run by make test-all: other modes\n"}
{"Action":"skip","Package":"github.com/tasker-go/tasker/b","Test":"TestAgain"}
{"Action":"output","Package":"github.com/tasker-go/tasker/b","Test":"TestQueue","Output":"    left out: needs RabbitMQ: RabbitMQ is missing\n"}
{"Action":"skip","Package":"github.com/tasker-go/tasker/b","Test":"TestQueue"}
{"Action":"skip","Package":"github.com/tasker-go/tasker/b","Test":"TestShort"}
{"Action":"skip","Package":"example/none"}
{"Time":"2026-01-02T10:00:03Z","Acti`

func TestWhatIsUnderWayAndLeftOut(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	c := &course{file: file, total: 7, begun: time.Now()}
	require.NoError(t, c.read(), "gotestsum has not begun")
	require.Contains(t, c.String(), "0 of 7 packages have ended; the next are being compiled")
	require.NoError(t, os.WriteFile(file, []byte(events), 0o600))
	require.NoError(t, c.read())
	require.Regexp(t, `^  0s: 0 of 7 packages have ended; under way: a \(TestOne/part \d+h\d+m\d+s\), b$`, c.String())
	require.Equal(t, []string{
		"left out: 1 test needs Node 20 or later: make test-all installs it",
		"left out: 2 tests need RabbitMQ: make test-all installs it",
		"left out: repetitions and long tests (1): make test-all runs them",
	}, c.leftOut())

	rest := `on":"pass","Package":"github.com/tasker-go/tasker/b"}` + "\n"
	require.NoError(t, os.WriteFile(file, []byte(events+rest), 0o600))
	require.NoError(t, c.read())
	require.Contains(t, c.String(), "1 of 7 packages")
	require.Equal(t, "1, 2, 3, 2 more", few([]string{"1", "2", "3", "4", "5"}))
}

// runner is a program in gotestsum's place.
func runner(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
}

func TestTheClosingLineIsTheLast(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	require.NoError(t, os.WriteFile(file, []byte(events), 0o600))
	for name, c := range map[string]struct {
		script, ends, says string
		code               int
	}{
		"passed": {"echo 'PASS  a'; echo; echo 'DONE 3 tests in 1s'", "left out: repetitions and long tests (1): make test-all runs them\nDONE 3 tests in 1s\n", "", 0},
		"failed": {"echo 'DONE 3 tests, 1 failure in 1s'; exit 4", "DONE 3 tests, 1 failure in 1s\n", "", 4},
		"broken": {"echo 'FAIL  a'", "make test-all runs them\n", "the run has no closing line", 1},
		"killed": {"kill -9 $$", "make test-all runs them\n", "the run has no closing line", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			code, err := follow(runner(t, c.script), &out, &course{file: file, total: 7, begun: time.Now()}, time.Minute)
			require.Equal(t, c.code, code)
			require.True(t, strings.HasSuffix(out.String(), c.ends), out.String())
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.says)
			}
		})
	}
}

// TestAnInterruptEndsWhatTheTestsHaveStarted: also a program that ignores it, which holds the output.
func TestAnInterruptEndsWhatTheTestsHaveStarted(t *testing.T) { // alone: all of the process hear the signal
	read, write := io.Pipe()
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		code, err := follow(runner(t, `trap '' INT; cat /dev/zero >/dev/null & echo begun; trap 'exit 0' INT; wait`), write,
			&course{file: "none"}, 100*time.Millisecond)
		ended <- end{code, err}
	}()
	var begun [6]byte
	_, err := io.ReadFull(read, begun[:])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	e := <-ended
	require.EqualError(t, e.err, "interrupted")
	require.Equal(t, 130, e.code)
}

func TestArguments(t *testing.T) {
	t.Parallel()
	a, err := parse([]string{"-gotestsum", "g", "-short", "-p", "3", "--", "./a", "./b"})
	require.NoError(t, err)
	require.Equal(t, arguments{"g", []string{"-short", "-p", "3"}, []string{"./a", "./b"}}, a)
	for _, wrong := range []string{"", "-gotestsum", "-gotestsum g", "-gotestsum g --", "-- ./a", "-gotestsum -- ./a"} {
		_, err := parse(strings.Fields(wrong))
		require.ErrorContains(t, err, "want -gotestsum PROGRAM [FLAG…] -- PACKAGE…")
	}
}
