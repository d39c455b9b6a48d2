package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/telemetry"
)

const devHelp = `Runs an orchestrator and a worker with the example handlers in one process.

Without DATABASE_URL it runs a PostgreSQL of its own: it looks for the server's
programs on this machine, keeps the data in --data-dir between runs, listens on
a Unix socket and on loopback only, and stops it when it ends. It installs
nothing: when PostgreSQL is missing it says what to install.

With DATABASE_URL set it uses that database and migrates its schema.`

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
}

// newDevCommand runs everything in one process.
func newDevCommand(a *app) *cobra.Command {
	o := &devOptions{app: a}
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything in one process on an embedded PostgreSQL", Long: devHelp,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "`folder` of the embedded database (default ~/.local/share/tasker/dev)")
	f.BoolVar(&o.ephemeral, "ephemeral", false, "use a temporary database and remove it at the end")
	f.BoolVar(&o.demo, "demo", false, "run a diamond workflow and show its timeline and result, then stay up")
	f.BoolVar(&o.exit, "exit", false, "with --demo: end after the demonstration")
	f.StringVar(&o.orchestrator, "orchestrator-address", "127.0.0.1:8080", "`host:port` of the orchestrator's API")
	f.StringVar(&o.worker, "worker-address", "127.0.0.1:8081", "`host:port` of the worker's API")
	f.StringVar(&o.mode, "mode", "", "deployment `mode`: Hybrid, EventDrivenOnly or PollingOnly (default as configured)")
	f.StringVar(&o.logLevel, "log-level", "warn", "`level` of the daemons' logs: debug, info, warn, error")
	return cmd
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
	fmt.Fprintf(o.app.stdout, "\nTry:\n  curl %s/health/detailed\n  curl '%s/v1/tasks?per_page=5'\n"+
		"  tasker-ctl task create --name diamond -n examples -i '{\"even_number\": 8}' --wait 10s\n\nCtrl-C ends it.\n", base, base)
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
			timer := time.NewTimer(10 * time.Millisecond)
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
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

// demonstrate runs a diamond as a client would and shows what happened.
func (o *devOptions) demonstrate(ctx context.Context, base string) error {
	c := client.New(client.Config{BaseURL: base, Timeout: 30 * time.Second})
	input := fmt.Sprintf(`{"even_number": 6, "run": %q}`, o.app.now().UTC().Format(time.RFC3339Nano))
	fmt.Fprintf(o.app.stdout, "\nPOST /v1/tasks   examples/diamond 1.0.0 %s\n", input)
	task, err := c.CreateTask(ctx, client.TaskRequest{Name: "diamond", Namespace: "examples", Version: "1.0.0",
		Context: json.RawMessage(input), Initiator: "tasker-ctl", SourceSystem: "cli", Reason: "demonstration"})
	if err != nil {
		return fmt.Errorf("submit the demonstration: %w", err)
	}
	if task, err = c.Task(ctx, task.TaskUUID, 30*time.Second); err != nil {
		return fmt.Errorf("wait for the demonstration: %w", err)
	}
	timeline, err := c.Timeline(ctx, task.TaskUUID)
	if err != nil {
		return fmt.Errorf("read the timeline: %w", err)
	}
	fmt.Fprintf(o.app.stdout, "task %s is %s\n\n", task.TaskUUID, task.Status)
	o.app.showTimeline(timeline)
	steps, err := c.Steps(ctx, task.TaskUUID)
	if err != nil {
		return fmt.Errorf("read the results: %w", err)
	}
	fmt.Fprintln(o.app.stdout, "\nresults")
	for _, s := range steps {
		var result client.StepResult
		if len(s.Results) == 0 || json.Unmarshal(s.Results, &result) != nil {
			continue // a step without a result; the timeline shows why
		}
		fmt.Fprintf(o.app.stdout, "  %-14s %s\n", s.Name, result.Result)
	}
	if task.Status != "complete" {
		return failure("the demonstration ended as " + task.Status)
	}
	return nil
}
