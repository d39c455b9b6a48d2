package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/telemetry"
)

// Exit codes of the daemons.
const (
	ExitOK      = 0 // stopped on request
	ExitFailure = 1 // could not start, or had to give up
	ExitConfig  = 2 // the configuration or the command line is wrong
)

// Process is a daemon that Main runs.
type Process interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Failed() <-chan error
	Reload(ctx context.Context, next *config.Loaded) error
}

// Program describes a daemon to Main.
type Program struct {
	Name    string // of the binary
	About   string // one sentence for --help
	Context config.Context
	New     func(ctx context.Context, loaded *config.Loaded, log *zap.Logger) (Process, error)
	// ShutdownTimeout bounds the stopping.
	ShutdownTimeout func(*config.Loaded) time.Duration
}

// OrchestratorProgram is the orchestrator daemon.
func OrchestratorProgram() Program {
	return Program{
		Name: "orchestrator", About: "Runs the orchestrator: creates tasks, applies results, serves the API.",
		Context: config.ContextOrchestration,
		New: func(ctx context.Context, loaded *config.Loaded, log *zap.Logger) (Process, error) {
			return NewOrchestrator(ctx, loaded, log)
		},
		ShutdownTimeout: func(l *config.Loaded) time.Duration { return l.Orchestration.ShutdownTimeout() },
	}
}

// WorkerProgram is a worker daemon with the handlers that register adds.
func WorkerProgram(name string, register Register) Program {
	return Program{
		Name: name, About: "Runs a worker: claims steps, runs their handlers, reports the results.",
		Context: config.ContextWorker,
		New: func(ctx context.Context, loaded *config.Loaded, log *zap.Logger) (Process, error) {
			return NewWorker(ctx, loaded, register, log)
		},
		// Handlers get their time limit, reporting gets a moment more.
		ShutdownTimeout: func(l *config.Loaded) time.Duration {
			return l.Worker.MPSCChannels.HandlerDispatch.HandlerTimeout() + 5*time.Second
		},
	}
}

// Main runs a daemon until a signal ends it and returns its exit code. SIGTERM
// and SIGINT stop it in order, a second one at once; SIGHUP reads the
// configuration again.
func Main(p Program, args []string, stderr io.Writer) int {
	opts, code, done := parseFlags(p, args, stderr)
	if done {
		return code
	}
	loaded, err := config.Load(opts)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return ExitConfig
	}
	log, err := telemetry.NewLogger(loaded.Common.Telemetry.LogLevel, loaded.Common.Telemetry.LogFormat, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return ExitConfig
	}
	defer func() { _ = log.Sync() }() // a terminal cannot be synced
	for _, w := range loaded.Warnings {
		log.Warn("configuration", zap.Stringer("problem", w))
	}
	opts.WorkerID = loaded.Worker.WorkerID
	return run(p, opts, loaded, log)
}

func parseFlags(p Program, args []string, stderr io.Writer) (opts config.Options, code int, done bool) {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	opts.Context = p.Context
	flags.StringVar(&opts.Path, "config", "", "one merged configuration `file` (or $TASKER_CONFIG_PATH)")
	flags.StringVar(&opts.Root, "config-root", "", "`folder` with base/ and environments/ (or $TASKER_CONFIG_ROOT)")
	flags.StringVar(&opts.Environment, "environment", "", "`name` of the environment (or $TASKER_ENV; default development)")
	version := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "%s\n\nUsage: %s [flags]\n\n", p.About, p.Name)
		flags.PrintDefaults()
		fmt.Fprintf(stderr, "\nThe database is $DATABASE_URL. Signals: SIGTERM stops, a second one at once; SIGHUP reads the configuration again.\n"+
			"Exit codes: 0 stopped on request, 1 failure, 2 wrong configuration or command line.\n")
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return opts, ExitOK, true
	case err != nil:
		return opts, ExitConfig, true
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", p.Name, flags.Arg(0))
		return opts, ExitConfig, true
	}
	if *version {
		fmt.Fprintf(stderr, "%s %s\n", p.Name, Version())
		return opts, ExitOK, true
	}
	return opts, 0, false
}

func run(p Program, opts config.Options, loaded *config.Loaded, log *zap.Logger) int {
	memory := tuneMemory(os.Getenv)
	stop := make(chan os.Signal, 2)
	ossignal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer ossignal.Stop(stop)
	hup := make(chan os.Signal, 1)
	ossignal.Notify(hup, syscall.SIGHUP)
	defer ossignal.Stop(hup)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan error, 1)
	var process Process
	go func() { // so that a signal can end the waiting for a database
		defer close(started)
		var err error
		if process, err = p.New(ctx, loaded, log); err == nil {
			err = process.Start(ctx)
		}
		started <- err
	}()
	select {
	case err := <-started:
		if err != nil {
			log.Error("could not start", zap.Error(err))
			return ExitFailure
		}
	case s := <-stop:
		log.Info("stopped while starting", zap.Stringer("signal", s))
		cancel()
		if err := <-started; err != nil {
			log.Debug("gave up starting", zap.Error(err))
			return ExitOK
		}
		return shutDown(process, p.ShutdownTimeout(loaded), stop, log) // it was up a moment earlier
	}
	code := ExitOK
	follow := time.NewTicker(memoryInterval)
	defer follow.Stop()
	for waiting := true; waiting; {
		select {
		case <-follow.C:
			memory.follow()
		case s := <-stop:
			log.Info("stopping", zap.Stringer("signal", s))
			waiting = false
		case err := <-process.Failed():
			log.Error("the daemon gives up", zap.Error(err))
			code, waiting = ExitFailure, false
		case <-hup:
			reload(ctx, process, opts, log)
		}
	}
	return max(code, shutDown(process, p.ShutdownTimeout(loaded), stop, log))
}

// shutDown stops the process; a second signal cuts it short.
func shutDown(process Process, limit time.Duration, stop <-chan os.Signal, log *zap.Logger) int {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- process.Stop(ctx) }()
	select {
	case err := <-ended:
		if err := joined(err); err != nil {
			log.Error("stopped, but not in order", zap.Error(err))
			return ExitFailure
		}
		log.Info("stopped")
		return ExitOK
	case s := <-stop:
		log.Warn("forced to end; leases of running steps will run out", zap.Stringer("signal", s))
		return ExitFailure
	}
}

func reload(ctx context.Context, process Process, opts config.Options, log *zap.Logger) {
	next, err := config.Load(opts)
	if err != nil {
		log.Error("the configuration was not read again; the old one stays", zap.Error(err))
		return
	}
	if err := process.Reload(ctx, next); err != nil {
		log.Error("the new configuration is not in force", zap.Error(err))
		return
	}
	log.Info("read the configuration again")
}
