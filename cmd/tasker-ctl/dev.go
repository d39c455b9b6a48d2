package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	sdk "github.com/tasker-go/tasker/worker"
)

const devHelp = `Runs an orchestrator and a worker with the example handlers in one process.

Without DATABASE_URL it runs a PostgreSQL of its own: it looks for the server's
programs on this machine, else fetches them once from Maven Central (15 to 70
MB, with a pinned checksum) into the cache of the user. It keeps the data in
--data-dir between runs, listens on a Unix socket and on loopback only, and
stops the server when it ends. TASKER_POSTGRES_VERSION is the major version to
use for new data, TASKER_POSTGRES_MIRROR another Maven repository to fetch from,
TASKER_PG_BIN a folder with initdb and postgres, besides which it looks nowhere.

With DATABASE_URL set it uses that database and migrates its schema.

Workers of your own join with the same DATABASE_URL; it is printed once
everything runs, and stays the same for a folder of data: they go on when dev is
stopped or killed and started again. Its own worker takes sessions of every
namespace, unless worker.namespaces (WORKER_NAMESPACES) names some. Ctrl-C ends
it, with exit code 0.

With --attached it is a part of the program that starts it, such as a test:
without the examples, for handlers of every namespace. It writes one line once
everything runs, the JSON object {"orchestrator", "worker", "database_url"}, and
ends with its standard input, also when that program is killed.`

// devDatabase is the database inside the embedded cluster.
const devDatabase = "tasker"

type devOptions struct {
	app          *app
	dataDir      string
	ephemeral    bool
	demo         bool
	exit         bool
	attached     bool
	orchestrator string
	worker       string
	mode         string
	logLevel     string
	url          string // of the database
	embedded     bool   // it is ours, so that others do not know the url
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
			opt(&o.attached, "attached", "write the addresses as JSON, serve every namespace without examples, and end with standard input"),
			opt(&o.orchestrator, "orchestrator-address", "`host:port` of the orchestrator's API; gRPC has the port 1110 above"),
			opt(&o.worker, "worker-address", "`host:port` of the worker's API; 8081 stays free for a worker of yours"),
			opt(&o.mode, "mode", "deployment `mode`: Hybrid, EventDrivenOnly or PollingOnly (default as configured)"),
			opt(&o.logLevel, "log-level", "`level` of the daemons' logs: debug, info, warn, error"),
		),
		local: func(ctx context.Context, _ []string) error {
			if o.attached && o.demo {
				return usagef("--demo needs the examples, which --attached leaves out")
			}
			ctx, end := context.WithCancel(ctx)
			defer end()
			if o.attached {
				go func() { // until the process ends: a read cannot be interrupted
					_, _ = io.Copy(io.Discard, a.stdin)
					end()
				}()
			}
			err := o.run(ctx)
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil // Ctrl-C, or the end of its input, is how it ends, also while it starts
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
		url, o.embedded = cluster.SocketDSN(devDatabase), true
	}
	o.url = url
	levels, err := telemetry.NewLevels(o.logLevel, nil)
	if err != nil {
		return usageError{err}
	}
	all, err := telemetry.NewLogger("debug", "auto", o.app.stderr)
	if err != nil {
		return usageError{err}
	}
	log := levels.Over(all) // system log-level changes them
	orchestrator, worker, err := o.build(ctx, url, log)
	if err != nil {
		return err
	}
	return o.serve(ctx, orchestrator, worker)
}

func (o *devOptions) startCluster(ctx context.Context) (*pgcluster.Cluster, error) {
	opts := pgcluster.Options{DataDir: o.dataDir, Ephemeral: o.ephemeral, Tell: func(what string) { o.tell("%s\n", what) }}
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
	o.tell("PostgreSQL %s   %s (log: %s)\n", cluster.Binaries().Version, cluster.DataDir(), cluster.LogFile())
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
	loaded.Orchestration.GRPC.BindAddress, loaded.Worker.GRPC.BindAddress = besideREST(o.orchestrator), besideREST(o.worker)
	register := daemons.Register(examples.Register)
	if o.attached {
		register = func(*sdk.Worker) error { return nil }
	}
	if s, ok := loaded.Setting("worker.namespaces"); o.attached || ok && s.Default {
		loaded.Worker.Namespaces = []string{"*"} // remote handlers may join with any
	}
	return daemons.NewEmbedded(ctx, loaded, register, log)
}

// tell says to people what goes on; a program that dev is attached to reads one line only.
func (o *devOptions) tell(format string, args ...any) {
	if !o.attached {
		o.app.printf(format, args...)
	}
}

// attachment has the addresses that an attached dev prints for the program that started it.
type attachment struct {
	Orchestrator string `json:"orchestrator"`
	Worker       string `json:"worker"`
	DatabaseURL  string `json:"database_url"`
}

// grpcAbove is how far the ports of gRPC are above those of REST: 9190 for 8080.
const grpcAbove = 1110

// besideREST is the address of the gRPC server of a daemon whose API has an address.
func besideREST(address string) string {
	host, text, err := net.SplitHostPort(address)
	port, wrong := strconv.ParseUint(text, 10, 16)
	if err != nil || wrong != nil {
		return address // REST refuses it
	}
	if port > 0 {
		port += grpcAbove
	}
	if port > math.MaxUint16 {
		port = 0
	}
	return net.JoinHostPort(host, strconv.FormatUint(port, 10))
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
	o.tell("orchestrator     %s\nworker           http://%s\n", base, worker.Addr())
	if a, b := orchestrator.GRPCAddr(), worker.GRPCAddr(); a != nil && b != nil {
		o.tell("over gRPC        %s and %s\n", a, b)
	}
	if o.demo {
		if err := o.demonstrate(ctx, base); err != nil {
			return err
		}
		if o.exit {
			return nil
		}
	}
	if err := o.ready(base, "http://"+worker.Addr().String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		o.tell("\nstopping\n")
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
			if err := o.app.pause(ctx, 10*time.Millisecond); err != nil {
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

// sample is a workflow of package examples with an input.
type sample struct {
	name, about, input string
	ends               string // "": complete
}

// samples are what the demonstration runs; the first is shown in full.
var samples = []sample{
	{name: "diamond", about: "two branches side by side", input: `{"even_number": 6}`},
	{name: "mathematical_sequence", about: "four steps in a line", input: `{"even_number": 6}`},
	{name: "order_fulfillment", about: "a payment that fails twice and is retried", input: `{"customer": {"id": 7, "email": "a@example.org"},
		"items": [{"sku": "WIDGET", "quantity": 2, "unit_price_cents": 2999}],
		"payment": {"method": "card", "token": "tok_flaky"}, "shipping": {"method": "standard", "address": {"city": "Bern"}}}`},
	{name: "expense_approval", about: "a decision that creates two branches", input: `{"amount": 5000}`},
	{name: "count_primes", about: "batches side by side, added up", input: `{"below": 100000}`},
	{name: "book_trip", about: "a saga: the payment fails, the bookings are cancelled", input: `{"traveller": "a", "fails_at": "pay"}`, ends: "error"},
}

// demoPatience bounds each call and each wait of the demonstration.
const demoPatience = 30 * time.Second

// demonstrate runs the samples as a client would and shows what happened.
func (o *devOptions) demonstrate(ctx context.Context, base string) error {
	c := client.New(client.Config{BaseURL: base, Timeout: demoPatience})
	first := samples[0]
	o.app.printf("\nPOST /v1/tasks   examples/%s 1.0.0 %s\n", first.name, first.input)
	task, err := o.runSample(ctx, c, first)
	if err != nil {
		return err
	}
	timeline, err := c.Timeline(ctx, task.TaskUUID)
	if err != nil {
		return fmt.Errorf("read the timeline: %w", err)
	}
	o.app.printf("task %s is %s\n\n", task.TaskUUID, task.Status)
	o.app.showTimeline(timeline)
	o.app.showOutcome(ctx, c, task)
	o.app.printf("\nmore samples\n")
	t := o.app.newTable("WORKFLOW", "SHOWS", "STATUS", "STEPS", "TASK")
	for _, s := range samples[1:] {
		task, err := o.runSample(ctx, c, s)
		if err != nil {
			return err
		}
		t.row(s.name, s.about, stateCell(task.Status), task.TotalSteps, task.TaskUUID)
	}
	t.write(o.app.stdout)
	return nil
}

// runSample creates a task and waits for its end.
func (o *devOptions) runSample(ctx context.Context, c *api, s sample) (*client.Task, error) {
	task, err := c.CreateTask(ctx, client.TaskRequest{Name: s.name, Namespace: "examples", Version: "1.0.0",
		Context: json.RawMessage(s.input), Initiator: "tasker-ctl", SourceSystem: "cli", Reason: "demonstration",
		IdempotencyKey: "demo-" + o.app.now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return nil, fmt.Errorf("submit the sample %s: %w", s.name, err)
	}
	if task, err = c.Task(ctx, task.TaskUUID, demoPatience); err != nil {
		return nil, fmt.Errorf("wait for the sample %s: %w", s.name, err)
	}
	if want := cmp.Or(s.ends, "complete"); task.Status != want {
		return nil, failure(fmt.Sprintf("the sample %s is %s, not %s", s.name, task.Status, want))
	}
	return task, nil
}

// ready tells that everything runs.
func (o *devOptions) ready(orchestrator, worker string) error {
	if !o.attached {
		o.suggest(orchestrator)
		return nil
	}
	line, err := marshal(attachment{orchestrator, worker, o.url}, "")
	if err == nil {
		_, err = o.app.stdout.Write(line)
	}
	if err != nil {
		return fmt.Errorf("write the addresses: %w", err)
	}
	return nil
}

// suggest tells what can be done now.
func (o *devOptions) suggest(base string) {
	self := commandName()
	if base != "http://127.0.0.1:8080" {
		self += " --orchestration-url " + base
	}
	o.app.printf("\nTry in another terminal:\n  curl %s/health/detailed\n  curl '%s/v1/tasks?per_page=5'\n"+
		"  %s template list\n  %s task create --name diamond -n examples -i '{\"even_number\": 8}' --wait 10s\n", base, base, self, self)
	if o.embedded {
		o.app.printf("\nA worker of yours joins after:\n  export DATABASE_URL='%s'\n", o.url)
	}
	o.app.printf("\nCtrl-C ends it.\n")
}

// commandName is how this program is called in a shell: by its name where that
// leads to it, else by its path.
func commandName() string {
	self, err := os.Executable()
	if err != nil {
		return "tasker-ctl"
	}
	name := filepath.Base(self)
	if found, err := exec.LookPath(name); err == nil && sameFile(found, self) {
		return name
	}
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, self); err == nil && filepath.IsLocal(rel) {
			return "." + string(filepath.Separator) + rel
		}
	}
	if strings.ContainsAny(self, " '\"$") {
		return "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
	}
	return self
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
