package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/wording"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup; else its terminal is gone
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// run is the whole program without the process around it: it executes one
// command line and returns the exit code. Cancelling ctx interrupts whatever
// is waited for.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env lookupFunc) int {
	return newApp(stdin, stdout, stderr, env).execute(ctx, args)
}

func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started && !isA[hinted](err) { // a flag before the command
		err = seeHelp(cmd, withNearestFlag(cmd, err))
	}
	for _, c := range a.closers {
		_ = c.Close() // every call has ended
	}
	return a.finish(ctx, err)
}

// lookupFunc reads an environment variable, as os.LookupEnv does.
type lookupFunc func(name string) (value string, ok bool)

// app is what all commands share: the streams, the environment, the clock and
// the global flags. A command line is executed by one goroutine; nothing here
// is safe for more.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    lookupFunc
	now    func() time.Time
	// pause is lifecycle.Pause, but in tests.
	pause func(ctx context.Context, d time.Duration) error
	// answers reports whether something listens at a URL.
	answers func(ctx context.Context, base string) bool
	// screen says what stdout can do.
	screen terminal
	// errors says what stderr can do.
	errors terminal
	global globalOptions
	// view is how a list is shown; nil: as it is.
	view *listView
	// started is set when a command begins to work: an error before that is a
	// mistake on the command line.
	started bool
	// closers are the connections that were opened.
	closers []io.Closer
}

// verbosity counts how often -v was given.
type verbosity int

// globalOptions are the values of the global flags.
type globalOptions struct {
	config           string
	profile          string
	verbose          verbosity
	output           outputFormat
	orchestrationURL string
	workerURL        string
	timeout          time.Duration // 0: the profile's
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env lookupFunc) *app {
	// Everything that is written may be somebody else's text.
	a := &app{stdin: stdin, stdout: wording.Escaping{To: stdout}, stderr: wording.Escaping{To: stderr}, env: env, now: time.Now, pause: lifecycle.Pause, answers: answers}
	a.global.output = formatTable
	a.screen, a.errors = detectTerminal(stdout, env), detectTerminal(stderr, env)
	return a
}

// getenv treats an empty variable as unset: container tools pass variables
// through that way.
func (a *app) getenv(name string) string {
	value, _ := a.env(name)
	return value
}

// warnf tells something on stderr that does not stop the command.
func (a *app) warnf(format string, args ...any) {
	fmt.Fprintf(a.stderr, "tasker-ctl: warning: "+format+"\n", args...)
}

// logf tells what the command is doing to those who asked with -v; level 1
// needs one -v, level 2 two.
func (a *app) logf(level verbosity, format string, args ...any) {
	if a.global.verbose >= level {
		fmt.Fprintf(a.stderr, "tasker-ctl: "+format+"\n", args...)
	}
}

// readInput reads a value given as text, as @file or, for "-", from stdin; at
// most limit bytes.
func (a *app) readInput(value string, limit int64) ([]byte, error) {
	var from io.Reader
	switch {
	case value == "-":
		from = a.stdin
	case len(value) > 1 && value[0] == '@':
		file, err := os.Open(value[1:])
		if err != nil {
			return nil, usageError{fmt.Errorf("read the input: %w", err)}
		}
		defer func() { _ = file.Close() }() // only read
		from = file
	default:
		return []byte(value), nil
	}
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, usagef("the input is larger than %d bytes", limit)
	}
	return data, nil
}

// readJSON reads JSON from the value of a flag.
func (a *app) readJSON(flag, value string, object bool) (json.RawMessage, error) {
	data, err := a.readInput(value, maxInput)
	if err != nil {
		return nil, err
	}
	var document json.RawMessage
	if err := json.Unmarshal(data, &document); err != nil {
		if syntax, is := errors.AsType[*json.SyntaxError](err); is {
			return nil, usagef("read %s: %w at byte %d", flag, err, syntax.Offset)
		}
		return nil, usagef("read %s: %w", flag, err)
	}
	if document = bytes.TrimSpace(document); object && document[0] != '{' {
		return nil, usagef("read %s: want a JSON object", flag)
	}
	return document, nil
}

// moment reads a time, or how long ago it was unless it lies ahead; nil where
// there is none.
func (a *app) moment(what, text string, ahead bool) (*client.Time, error) {
	if text == "" {
		return nil, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 && !ahead {
		return &client.Time{Time: a.now().Add(-ago).UTC()}, nil
	}
	var t client.Time
	if err := t.UnmarshalText([]byte(text)); err == nil {
		return &t, nil
	}
	want := "a time such as 2026-03-21T10:00:00Z"
	if !ahead {
		want += " or an age such as 24h"
	}
	return nil, invalid(what, text, want)
}
