package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Exit codes of the daemons.
const (
	exitOK      = 0 // stopped on request
	exitFailure = 1 // could not start, or had to end
	exitConfig  = 2 // the configuration or the command line is wrong
)

// process is a daemon that Main runs. Its methods may be called at the same
// time once Start has returned.
type process interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Failed() <-chan error
	reload(ctx context.Context, next *config.Loaded) error
	// status reports the state of each part without I/O.
	status() []part
}

// Program describes a daemon to Main.
type Program struct {
	Name    string // of the binary
	About   string // one sentence for --help
	Context config.Context
	New     func(ctx context.Context, loaded *config.Loaded, log *zap.Logger) (process, error)
	// ShutdownTimeout bounds the stopping.
	ShutdownTimeout func(*config.Loaded) time.Duration
}

// OrchestratorProgram is the orchestrator daemon.
func OrchestratorProgram() Program {
	return Program{
		Name: "orchestrator", About: "Runs the orchestrator: creates tasks, applies results, serves the API.",
		Context: config.ContextOrchestration,
		New: func(ctx context.Context, loaded *config.Loaded, log *zap.Logger) (process, error) {
			return newOrchestrator(ctx, loaded, nil, log)
		},
		ShutdownTimeout: func(l *config.Loaded) time.Duration {
			return shutdownDelay(l.Common.Shutdown, l.Orchestration.Web.Web, l.Orchestration.GRPC) + l.Orchestration.ShutdownTimeout
		},
	}
}

// WorkerProgram is a worker daemon with the handlers that register adds.
func WorkerProgram(name string, register Register) Program {
	return Program{
		Name: name, About: "Runs a worker: claims steps, runs their handlers, reports the results.",
		Context: config.ContextWorker,
		New: func(ctx context.Context, loaded *config.Loaded, log *zap.Logger) (process, error) {
			return newWorker(ctx, loaded, register, nil, log)
		},
		// Handlers get their time limit, reporting gets a moment more.
		ShutdownTimeout: func(l *config.Loaded) time.Duration {
			return shutdownDelay(l.Common.Shutdown, l.Worker.Web, l.Worker.GRPC) + l.Worker.MPSCChannels.HandlerDispatch.HandlerTimeout + 5*time.Second
		},
	}
}

// Main runs a daemon until a signal ends it and returns its exit code. SIGTERM and SIGINT
// stop it in order, another one 2 s later at once; SIGHUP reloads the configuration;
// SIGUSR1 logs a status.
func Main(p Program, args []string, stderr io.Writer) int {
	opts, code, done := parseFlags(p, args, stderr)
	if done {
		return code
	}
	loaded, levels, err := load(opts)
	var all *zap.Logger // a status is logged at any level
	if err == nil {
		all, err = telemetry.NewLogger("debug", loaded.Common.Telemetry.LogFormat, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return exitConfig
	}
	log := levels.Over(all)
	defer func() { _ = log.Sync() }() // a terminal cannot be synced
	warnOf(log, loaded)
	warnOfIdle(log, loaded.WithoutEffect)
	log.Info("starting", zap.String("version", version()), zap.Int("termination_grace_seconds", grace(p, loaded)))
	opts.WorkerID = loaded.Worker.WorkerID
	r := &runner{program: p, opts: opts, loaded: loaded, log: log, levels: levels, status: all, since: time.Now(), overdue: overdueAfter, ignore: secondSignal}
	return r.run()
}

// load reads a configuration with which a daemon may start, and its levels of logging.
func load(opts config.Options) (*config.Loaded, *telemetry.Levels, error) {
	loaded, err := config.Load(opts)
	if err == nil {
		err = loaded.Refused()
	}
	if err == nil {
		err = checkServers(loaded)
	}
	if err != nil {
		return nil, nil, err
	}
	levels, err := telemetry.NewLevels(loaded.Common.Telemetry.LogLevel, loaded.Common.Telemetry.LogLevels)
	return loaded, levels, err
}

func warnOf(log *zap.Logger, loaded *config.Loaded) {
	for _, w := range loaded.Warnings {
		log.Warn("configuration", zap.Stringer("problem", w))
	}
}

func parseFlags(p Program, args []string, stderr io.Writer) (opts config.Options, code int, done bool) {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	opts.Context = p.Context
	flags.StringVar(&opts.Path, "config", "", "one merged configuration `file` (or $TASKER_CONFIG_PATH)")
	flags.StringVar(&opts.Root, "config-root", "", "`folder` with base/ and environments/ (or $TASKER_CONFIG_ROOT)")
	flags.StringVar(&opts.Environment, "environment", "", "`name` of the environment (or $TASKER_ENV; default development)")
	show := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "%s\n\nUsage: %s [flags]\n"+
			"       %[2]s [flags] healthcheck [ready|live|accepting]   asks the daemon that runs here with the same configuration; exit code 0 or 1\n"+
			"       %[2]s [flags] grace                      prints how many seconds a supervisor should wait before it kills\n\n", p.About, p.Name)
		flags.PrintDefaults()
		fmt.Fprintf(stderr, "\nThe database is $DATABASE_URL.\nSignals: SIGTERM stops, another one 2 s later at once; SIGHUP reads the configuration again; SIGUSR1 logs a status.\n"+
			"Exit codes: 0 stopped on request, 1 failure, 2 wrong configuration or command line.\n")
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return opts, exitOK, true
	case err != nil:
		return opts, exitConfig, true
	}
	if *show {
		fmt.Fprintf(stderr, "%s %s\n", p.Name, version())
		return opts, exitOK, true
	}
	code, done = command(p, opts, flags.Args(), os.Stdout, stderr)
	return opts, code, done
}
