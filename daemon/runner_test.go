//go:build unix

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// fakeProcess runs the functions of a test; nil ones succeed at once.
type fakeProcess struct {
	start, stop func(ctx context.Context) error
	reloads     func(ctx context.Context, next *config.Loaded) error
	failed      chan error
}

func (f *fakeProcess) Start(ctx context.Context) error {
	if f.start == nil {
		return nil
	}
	return f.start(ctx)
}

func (f *fakeProcess) Stop(ctx context.Context) error {
	if f.stop == nil {
		return nil
	}
	return f.stop(ctx)
}

func (f *fakeProcess) reload(ctx context.Context, next *config.Loaded) error {
	if f.reloads == nil {
		return nil
	}
	return f.reloads(ctx, next)
}

func (f *fakeProcess) Failed() <-chan error { return f.failed }
func (f *fakeProcess) status() []part {
	return []part{{"fake", []zap.Field{zap.Int("answer", 42)}}}
}

// running is a runner in the background. The signals are sent to this process
// for real, so these tests are not parallel.
type running struct {
	*runner
	t    *testing.T
	logs *observer.ObservedLogs
	file string // of the configuration
	code chan int
}

func launch(t *testing.T, f *fakeProcess) *running {
	t.Helper()
	if f.failed == nil {
		f.failed = make(chan error, 1)
	}
	return launchProgram(t, Program{
		Name:            "fake",
		New:             func(context.Context, *config.Loaded, *zap.Logger) (process, error) { return f, nil },
		ShutdownTimeout: func(*config.Loaded) time.Duration { return time.Minute },
	})
}

func launchProgram(t *testing.T, p Program) *running {
	t.Helper()
	r := &running{t: t, file: filepath.Join(t.TempDir(), "tasker.toml"), code: make(chan int, 1)}
	r.write("info")
	opts := config.Options{Path: r.file, LookupEnv: onlyDatabase}
	loaded, err := config.Load(opts)
	require.NoError(t, err)
	var core zapcore.Core
	core, r.logs = observer.New(zapcore.DebugLevel)
	levels := info(t)
	all := zap.New(core)
	r.runner = &runner{program: p, opts: opts, loaded: loaded, log: levels.Over(all), levels: levels,
		status: all, since: time.Now(), overdue: time.Minute, ignore: 0}
	return r
}

// info are levels from info on.
func info(t *testing.T) *telemetry.Levels {
	t.Helper()
	levels, err := telemetry.NewLevels("info", nil)
	require.NoError(t, err)
	return levels
}

// onlyDatabase is an environment with only the database set.
func onlyDatabase(name string) (value string, set bool) {
	if name == "DATABASE_URL" {
		return "postgresql://nowhere/tasker", true
	}
	return "", false
}

func (r *running) run() *running {
	go func() { r.code <- r.runner.run() }()
	return r
}

func (r *running) write(level string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(r.file, []byte("[common.telemetry]\nlog_level = \""+level+"\"\nlog_levels = [\"store=error\"]\n"), 0o600))
}

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// kill sends a signal to this process. The runner must be listening.
func (r *running) kill(s syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(os.Getpid(), s))
}

// ends returns the exit code.
func (r *running) ends() int {
	r.t.Helper()
	select {
	case code := <-r.code:
		return code
	case <-time.After(patience):
		r.t.Fatal("it does not end")
		return 0
	}
}

// logged waits for a message.
func (r *running) logged(message string) observer.LoggedEntry {
	r.t.Helper()
	var found []observer.LoggedEntry
	pgtest.Eventually(r.t, patience, func() (bool, string) {
		found = r.logs.FilterMessage(message).All()
		return len(found) > 0, "not logged: " + message
	})
	return found[0]
}

// await waits for a channel.
func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

// up returns a Start that signals when the runner listens.
func up() (started chan struct{}, start func(context.Context) error) {
	started = make(chan struct{})
	return started, func(context.Context) error { close(started); return nil }
}

func TestRunStopsInOrderOnASignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		started, start := up()
		var left time.Duration
		r := launch(t, &fakeProcess{start: start, stop: func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			left = time.Until(deadline)
			return nil
		}}).run()
		<-started
		r.kill(s)
		require.Equal(t, exitOK, r.ends())
		require.InDelta(t, time.Minute, left, float64(20*time.Second))
	}
}

func TestASecondSignalForcesTheEnd(t *testing.T) {
	started, start := up()
	stopping, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	r := launch(t, &fakeProcess{start: start, stop: func(context.Context) error {
		close(stopping)
		<-never
		return nil
	}}).run()
	<-started
	r.kill(syscall.SIGTERM)
	await(t, stopping)
	r.kill(syscall.SIGUSR1)
	r.logged("status")
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitFailure, r.ends())
	require.Equal(t, "terminated", r.logged("forced to end; leases of running steps will run out").ContextMap()["signal"])
}

// TestASecondSignalAtOnceIsIgnored: a sender that signals a process and its group means
// to end it once.
func TestASecondSignalAtOnceIsIgnored(t *testing.T) {
	started, start := up()
	stopping, stop := make(chan struct{}), make(chan struct{})
	r := launch(t, &fakeProcess{start: start, stop: func(context.Context) error {
		close(stopping)
		<-stop
		return nil
	}})
	r.ignore = time.Hour
	r.run()
	<-started
	r.kill(syscall.SIGTERM)
	await(t, stopping)
	r.kill(syscall.SIGTERM)
	r.logged("a second signal this soon is ignored; a later one ends the process at once")
	close(stop)
	require.Equal(t, exitOK, r.ends())

	// The same while it starts.
	starting := make(chan struct{})
	r = launch(t, &fakeProcess{start: func(ctx context.Context) error {
		close(starting)
		<-ctx.Done()
		<-stop
		r.logged("a second signal this soon is ignored; a later one ends the process at once")
		return ctx.Err()
	}})
	r.ignore = time.Hour
	r.run()
	await(t, starting)
	r.kill(syscall.SIGTERM)
	r.logged("stopped while starting")
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitOK, r.ends())
}

// TestTheFirstSignalDoesNotForceADaemonThatGivesUp: its supervisor sees it end and
// signals it.
func TestTheFirstSignalDoesNotForceADaemonThatGivesUp(t *testing.T) {
	started, start := up()
	stopping, stop := make(chan struct{}), make(chan struct{})
	f := &fakeProcess{start: start, failed: make(chan error, 1), stop: func(context.Context) error { close(stopping); <-stop; return nil }}
	r := launch(t, f).run()
	<-started
	f.failed <- errors.New("the listener is gone for good")
	await(t, stopping)
	r.kill(syscall.SIGTERM)
	r.logged("stopping already")
	close(stop)
	require.Equal(t, exitFailure, r.ends(), "because it gave up")
	require.Zero(t, r.logs.FilterMessage("forced to end; leases of running steps will run out").Len())
}

func TestAStopThatIgnoresItsTimeIsEnded(t *testing.T) {
	started, start := up()
	never := make(chan struct{})
	defer close(never)
	f := &fakeProcess{start: start, failed: make(chan error, 1), stop: func(context.Context) error { <-never; return nil }}
	r := launch(t, f)
	r.program.ShutdownTimeout = func(*config.Loaded) time.Duration { return time.Millisecond }
	r.overdue = time.Millisecond
	r.run()
	<-started
	f.failed <- errors.New("the listener is gone for good")
	require.Equal(t, exitFailure, r.ends())
	r.logged("the daemon gives up")
	r.logged("did not stop in time and is ended; leases of running steps will run out")
	require.Equal(t, "fake", r.logs.FilterMessage("status").All()[1].ContextMap()["part"], "the remaining part")
}

func TestAStopThatPanicsIsAFailure(t *testing.T) {
	started, start := up()
	r := launch(t, &fakeProcess{start: start, stop: func(context.Context) error { panic("no") }}).run()
	<-started
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitFailure, r.ends())
	require.Contains(t, r.logged("stopped, but not in order").ContextMap()["stack"], "runner_test.go")
}

func TestAStartThatFails(t *testing.T) {
	r := launch(t, &fakeProcess{start: func(context.Context) error { return errors.New("no port") }}).run()
	require.Equal(t, exitFailure, r.ends())
	require.Equal(t, "no port", r.logged("could not start").ContextMap()["error"])

	// A panic while handlers are registered: Go's own exit code for it is 2, which stands
	// for an invalid configuration.
	r = launchProgram(t, Program{New: func(context.Context, *config.Loaded, *zap.Logger) (process, error) { panic("twice") }}).run()
	require.Equal(t, exitFailure, r.ends())
	require.Contains(t, r.logged("could not start").ContextMap()["stack"], "runner_test.go")
}

func TestASignalEndsTheStarting(t *testing.T) {
	starting := make(chan struct{})
	r := launch(t, &fakeProcess{start: func(ctx context.Context) error {
		close(starting)
		<-ctx.Done()
		return ctx.Err()
	}}).run()
	await(t, starting)
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitOK, r.ends())

	starting = make(chan struct{})
	never := make(chan struct{})
	defer close(never)
	r = launch(t, &fakeProcess{start: func(context.Context) error { close(starting); <-never; return nil }}).run()
	await(t, starting)
	r.kill(syscall.SIGUSR1)
	require.Equal(t, "process", r.logged("status").ContextMap()["part"])
	r.kill(syscall.SIGTERM)
	r.logged("stopped while starting")
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitFailure, r.ends())
	r.logged("forced end while starting")

	var stopped atomic.Bool
	starting, late := make(chan struct{}), make(chan struct{})
	r = launch(t, &fakeProcess{
		start: func(context.Context) error { close(starting); <-late; return nil },
		stop:  func(context.Context) error { stopped.Store(true); return nil },
	}).run()
	await(t, starting)
	r.kill(syscall.SIGTERM)
	r.logged("stopped while starting")
	close(late)
	require.Equal(t, exitOK, r.ends())
	require.True(t, stopped.Load(), "it was up a moment earlier")
}

func TestReloadChangesTheLevelOfTheLog(t *testing.T) {
	started, start := up()
	levels := make(chan string, 1)
	r := launch(t, &fakeProcess{start: start, reloads: func(_ context.Context, next *config.Loaded) error {
		level := next.Common.Telemetry.LogLevel
		levels <- level
		if level == "warn" {
			panic("not that")
		}
		return nil
	}}).run()
	<-started
	r.write("debug")
	r.kill(syscall.SIGHUP)
	require.Equal(t, "debug", await(t, levels))
	r.logged("reloaded the configuration")
	require.True(t, r.log.Core().Enabled(zapcore.DebugLevel))
	require.Nil(t, r.log.Named("store").Check(zapcore.WarnLevel, "a room with its own level"))
	require.NotNil(t, r.log.Named("worker").Check(zapcore.DebugLevel, "a room without"))

	r.write("nonsense")
	r.kill(syscall.SIGHUP)
	e := r.logged("the new configuration is not in force")
	require.Contains(t, e.ContextMap()["error"], "log_level")
	require.True(t, r.log.Core().Enabled(zapcore.DebugLevel), "the old one stays")

	r.logs.TakeAll()
	r.write("warn")
	r.kill(syscall.SIGHUP)
	require.Equal(t, "warn", await(t, levels))
	require.Contains(t, r.logged("the new configuration is not in force").ContextMap()["stack"], "runner_test.go")
	require.False(t, r.log.Core().Enabled(zapcore.InfoLevel))
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitOK, r.ends())
}

func TestAReloadDoesNotHoldUpTheEnd(t *testing.T) {
	started, start := up()
	reloading := make(chan struct{}, 2)
	r := launch(t, &fakeProcess{start: start, reloads: func(ctx context.Context, _ *config.Loaded) error {
		reloading <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}).run()
	<-started
	r.kill(syscall.SIGHUP)
	await(t, reloading)
	r.kill(syscall.SIGHUP) // waits for the first
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitOK, r.ends())
	require.Empty(t, reloading)
}

func TestStatusIsLoggedAtAnyLevel(t *testing.T) {
	started, start := up()
	r := launch(t, &fakeProcess{start: start})
	require.NoError(t, r.levels.Change("error", nil, func() {}))
	r.run()
	<-started
	r.logs.TakeAll()
	pgtest.Eventually(t, patience, func() (bool, string) { // it may still be starting
		r.kill(syscall.SIGUSR1)
		return r.logs.FilterMessage("status").Len() >= 2, "no status"
	})
	parts := map[any]map[string]any{}
	for _, e := range r.logs.FilterMessage("status").All() {
		parts[e.ContextMap()["part"]] = e.ContextMap()
	}
	require.EqualValues(t, 42, parts["fake"]["answer"])
	require.Positive(t, parts["process"]["goroutines"])
	require.Positive(t, parts["process"]["heap_bytes"])
	require.Contains(t, parts["process"], "uptime")
	r.kill(syscall.SIGTERM)
	require.Equal(t, exitOK, r.ends())
}
