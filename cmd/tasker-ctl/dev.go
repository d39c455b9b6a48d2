package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/store"
)

const devHelp = `Runs an orchestrator and a worker with the example handlers in one process.

Without DATABASE_URL it runs a PostgreSQL of its own: it looks for the server's
programs on this machine, keeps the data in --data-dir between runs, listens on
a Unix socket and on loopback only, and stops it when it ends. It installs
nothing: when PostgreSQL is missing it says what to install.

With DATABASE_URL set it uses that database and migrates its schema.

Workers of your own join with the same DATABASE_URL; it is printed once
everything runs. Ctrl-C ends it, with exit code 0.`

// devDatabase is the database inside the embedded cluster.
const devDatabase = "tasker"

type devOptions struct {
	app          *app
	dataDir      string
	ephemeral    bool
	demo         bool
	exit         bool
	orchestrator string
	worker       string
	mode         string
	logLevel     string
	join         string // DATABASE_URL for other daemons; empty: theirs is known
}

// dev runs everything in one process.
func (a *app) dev() command {
	o := &devOptions{app: a, orchestrator: "127.0.0.1:8080", worker: "127.0.0.1:8082", logLevel: "warn"}
	return command{
		use: "dev", short: "Run everything in one process on an embedded PostgreSQL", long: devHelp,
		flags: all(
			opt(&o.dataDir, "data-dir", "`folder` of the embedded database (default ~/.local/share/tasker/dev)"),
			opt(&o.ephemeral, "ephemeral", "use a temporary database and remove it at the end"),
			opt(&o.demo, "demo", "run sample workflows, show the timeline and the results of one, then stay up"),
			opt(&o.exit, "exit", "with --demo: end after the demonstration"),
			opt(&o.orchestrator, "orchestrator-address", "`host:port` of the orchestrator's API"),
			opt(&o.worker, "worker-address", "`host:port` of the worker's API; 8081 stays free for a worker of yours"),
			opt(&o.mode, "mode", "deployment `mode`: Hybrid, EventDrivenOnly or PollingOnly (default as configured)"),
			opt(&o.logLevel, "log-level", "`level` of the daemons' logs: debug, info, warn, error"),
		),
		local: func(ctx context.Context, _ []string) error {
			err := o.run(ctx)
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil // Ctrl-C is how it ends, also while it starts
			}
			return err
		},
	}
}

func (o *devOptions) run(ctx context.Context) (err error) {
	url := o.app.getenv("DATABASE_URL")
	if url == "" {
		cluster, err := o.startCluster(ctx)
		if err != nil {
			return err
		}
		defer func() {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgcluster.DefaultStopTimeout)
			defer cancel()
			if stopErr := cluster.Stop(stopCtx); stopErr != nil {
				o.app.warnf("stop the embedded database: %v", stopErr)
			}
		}()
		url = cluster.SocketDSN(devDatabase)
		o.join = url
	}
	log, err := telemetry.NewLogger(o.logLevel, "auto", o.app.stderr)
	if err != nil {
		return usageError{err}
	}
	orchestrator, worker, err := o.build(ctx, url, log)
	if err != nil {
		return err
	}
	return o.serve(ctx, orchestrator, worker)
}

func (o *devOptions) startCluster(ctx context.Context) (*pgcluster.Cluster, error) {
	opts := pgcluster.Options{DataDir: o.dataDir, Ephemeral: o.ephemeral}
	if !o.ephemeral {
		if opts.DataDir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, usagef("find a folder for the database: %w; name one with --data-dir", err)
			}
			opts.DataDir = filepath.Join(home, ".local", "share", "tasker", "dev")
		}
		dir, reason, err := pgcluster.SuggestDataDir(opts.DataDir)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			o.app.warnf("%s", reason)
		}
		opts.DataDir = dir
	}
	cluster, err := pgcluster.Start(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("start the embedded database: %w", err)
	}
	fmt.Fprintf(o.app.stdout, "PostgreSQL %s   %s (log: %s)\n", cluster.Binaries().Version, cluster.DataDir(), cluster.LogFile())
	if err := cluster.CreateDatabase(ctx, devDatabase); err != nil {
		return cluster, fmt.Errorf("create the database: %w", errors.Join(err, cluster.Stop(ctx)))
	}
	return cluster, nil
}

// build wires both daemons with the ordinary configuration; only the database,
// the addresses and the mode are given here.
func (o *devOptions) build(ctx context.Context, url string, log *zap.Logger) (*daemons.Orchestrator, *daemons.Worker, error) {
	loaded, err := config.Load(config.Options{LookupEnv: func(name string) (string, bool) {
		switch {
		case name == "DATABASE_URL":
			return url, true
		case name == "TASKER_DEPLOYMENT_MODE" && o.mode != "":
			return o.mode, true
		default:
			return o.app.env(name)
		}
	}})
	if err != nil {
		return nil, nil, usageError{err}
	}
	if s, ok := loaded.Setting("common.task_templates.immutable"); ok && s.Default {
		loaded.Common.TaskTemplates.Immutable = string(store.VersionsWarn) // templates are being written
	}
	loaded.Orchestration.Web.BindAddress, loaded.Worker.Web.BindAddress = o.orchestrator, o.worker
	return daemons.NewEmbedded(ctx, loaded, examples.Register, log)
}

func (o *devOptions) serve(ctx context.Context, orchestrator *daemons.Orchestrator, worker *daemons.Worker) (err error) {
	if err := orchestrator.Start(ctx); err != nil {
		return fmt.Errorf("start the orchestrator: %w", err)
	}
	defer func() { err = errors.Join(err, o.stop(ctx, orchestrator)) }()
	if err := worker.Start(ctx); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer func() { err = errors.Join(err, o.stop(ctx, worker)) }()
	base := "http://" + orchestrator.Addr().String()
	if err := o.awaitListeners(ctx, base, "http://"+worker.Addr().String()); err != nil {
		return err
	}
	fmt.Fprintf(o.app.stdout, "orchestrator     %s\nworker           http://%s\n", base, worker.Addr())
	if o.demo {
		if err := o.demonstrate(ctx, base); err != nil {
			return err
		}
		if o.exit {
			return nil
		}
	}
	o.suggest(base)
	select {
	case <-ctx.Done():
		fmt.Fprintln(o.app.stdout, "\nstopping")
		return nil
	case err := <-orchestrator.Failed():
		return fmt.Errorf("the orchestrator gave up: %w", err)
	case err := <-worker.Failed():
		return fmt.Errorf("the worker gave up: %w", err)
	}
}

// listenersTimeout is how long dev waits for its listeners; without them work
// is found by polling.
const listenersTimeout = 5 * time.Second

// awaitListeners waits until everything that listens is connected, so that the
// first task shows the speed of signals.
func (o *devOptions) awaitListeners(ctx context.Context, urls ...string) error {
	deadline := o.app.now().Add(listenersTimeout)
	for _, url := range urls {
		c := client.New(client.Config{BaseURL: url, Timeout: listenersTimeout})
		for {
			health, err := c.DetailedHealth(ctx)
			if err != nil {
				return fmt.Errorf("ask %s for its health: %w", url, err)
			}
			if listening(health) || o.app.now().After(deadline) {
				break
			}
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func listening(health *client.DetailedHealth) bool {
	for _, system := range health.EventSystems {
		if system.Listener != nil && system.Listener.State != "listening" {
			return false
		}
	}
	return len(health.EventSystems) > 0
}

func (o *devOptions) stop(ctx context.Context, d interface{ Stop(context.Context) error }) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return d.Stop(ctx)
}
