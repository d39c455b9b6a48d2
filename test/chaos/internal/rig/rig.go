// Package rig is the system under test: a PostgreSQL server, a broker where the event source
// has one, the daemons as processes, and a proxy in front of the servers for each daemon and
// purpose.
//
// What may not enter: when faults strike (schedule), and which ones for how long
// (faults).
package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/chaos/internal/volume"
	"github.com/tasker-go/tasker/test/fleet"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Short times, so that their effects show within seconds.
const (
	Lease     = 5 * time.Second
	Heartbeat = time.Second
	// MaxCrashes is high: whatever strikes, no step may become poison.
	MaxCrashes = 1000
	// permits of a worker: a single one must be able to do all the work, or the run would
	// measure the slow steps.
	permits = 60
	// executorPermits of a process are those that executor.py asks for.
	executorPermits = 30
)

// Executor is the kind of the processes with sessions: executor/executor.py.
const Executor fleet.Kind = "executor"

// sessions have short times too: a frozen process loses its session within seconds.
const sessions = "[worker.sessions]\nreclaim_grace_ms = 2000\nmax_wait_ms = 1000\nmax_losses = 1000\n"

// Options describe the ground of a run.
type Options struct {
	Dir    string // for everything that is written; kept
	BinDir string // where Build put the programs
	Source string // event source of the fleet; "" is the default
	// Standby gives the server a synchronous standby.
	Standby bool
	// Pooled makes the ordinary connections of daemons use a pooler in transaction mode,
	// without prepared statements. The server must not be replaced then.
	Pooled bool
	// Volumes gives the log of each server a volume that can be filled up.
	Volumes bool
	// DefaultLeases keeps the default leases and heartbeats, and lets handlers run for
	// three minutes.
	DefaultLeases bool
	Permits       int // of each worker; 60 where it is 0
	// OnlyReport leaves all decisions to the orchestrators.
	OnlyReport bool
	// Serves are the handlers of workers, by worker name; see workload.EnvServes.
	Serves map[string]string
	// Modes of the orchestrators and of the workers; one daemon each.
	Orchestrators, Workers []string
	// Access has the orchestrators want credentials: the keys of Keys.
	Access bool
	// Executors is how many processes in Python hold sessions with the workers, and have
	// the work handler in their place.
	Executors int
}

// The keys of the orchestrators with Options.Access: of the client that orders tasks, and of one that takes
// all that it can get.
const (
	ClientKey = "the-key-of-the-client"
	GreedyKey = "the-key-of-the-greedy-one"
)

// Keys are all of them.
var Keys = []string{ClientKey, GreedyKey}

// Build compiles the daemons into dir: the shipped orchestrator and the suite's
// worker, and puts executor.py and its SDK beside them. suite is the folder of the suite. race adds the race detector.
func Build(ctx context.Context, suite, dir string, race bool) error {
	args := []string{"build"}
	if race {
		args = append(args, "-race")
	}
	args = append(args, "-o", dir+string(filepath.Separator), "github.com/tasker-go/tasker/cmd/orchestrator", "./worker")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = suite
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the daemons: %w\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(suite, "executor", "executor.py"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, string(Executor)), program, 0o700) // #nosec G306 -- it is a program
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "tasker"), os.DirFS(filepath.Join(suite, "../../sdk/python/src/tasker")))
	}
	if err != nil {
		return fmt.Errorf("copy the executor: %w", err)
	}
	return nil
}

// Rig is the ground of one run. Its methods are safe for concurrent use.
type Rig struct {
	Daemons []*Daemon
	Broker  *Broker // nil where PostgreSQL carries signals

	o        Options
	busy     chan struct{}   // holds one token while a fault has the server
	guarded  context.Context // of goroutines beside the run
	guardEnd context.CancelFunc
	guarding sync.WaitGroup

	mu        sync.Mutex
	cluster   *pgcluster.Cluster                    // that accepts writes
	standby   *pgtest.Standby                       // nil without
	volumes   map[*pgcluster.Cluster]*volume.Volume // of the log of each; empty without
	pooler    *pgtest.Pooler                        // nil without
	stopped   map[string]bool                       // instances that were asked to stop
	surprises []string
}

const database = "chaos"

// poolerSize is how many connections a pooler has; daemons have more.
const poolerSize = 20

// Start starts the server and the links, then the fleet, and waits until it is ready. The
// caller closes the rig, also after an error.
func Start(ctx context.Context, o Options) (*Rig, error) {
	r := &Rig{o: o, busy: make(chan struct{}, 1), stopped: map[string]bool{},
		volumes: map[*pgcluster.Cluster]*volume.Volume{}}
	r.guarded, r.guardEnd = context.WithCancel(context.WithoutCancel(ctx))
	for _, dir := range []string{r.Ledger(), r.Gates()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return r, fmt.Errorf("make a folder: %w", err)
		}
	}
	var err error
	if r.cluster, err = r.serve(ctx, nil, func(o pgcluster.Options) (*pgcluster.Cluster, error) { return pgcluster.Start(ctx, o) }); err != nil {
		return r, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := r.cluster.CreateDatabase(ctx, database); err != nil {
		return r, err
	}
	if o.Standby {
		if err := r.follow(ctx); err != nil {
			return r, err
		}
	}
	if o.Pooled {
		if r.pooler, err = pgtest.StartPooler(ctx, r.DSN(), pgtest.PoolTransactions, poolerSize); err != nil {
			return r, err
		}
	}
	c, err := newCarrier(ctx, o.Source)
	if err != nil {
		return r, err
	}
	if c != nil {
		r.Broker = &Broker{carrier: c, rig: r, busy: make(chan struct{}, 1)}
	}
	if err := r.man(ctx); err != nil {
		return r, err
	}
	r.guarding.Go(func() { r.guard(r.guarded) })
	return r, nil
}

// serve starts a server on its own port and with its own settings.
func (r *Rig) serve(ctx context.Context, settings map[string]string, start func(pgcluster.Options) (*pgcluster.Cluster, error)) (*pgcluster.Cluster, error) {
	port, err := quietPort(ctx)
	if err != nil {
		return nil, err
	}
	o := pgcluster.Options{Ephemeral: true, Port: port, Settings: settings}
	if !r.o.Volumes {
		return start(o)
	}
	return r.onVolume(o, start)
}

// man starts the fleet.
func (r *Rig) man(ctx context.Context) error {
	for _, part := range []struct {
		kind  fleet.Kind
		modes []string
	}{{fleet.Orchestrator, r.o.Orchestrators}, {fleet.Worker, r.o.Workers}} {
		for i, mode := range part.modes {
			d := r.newDaemon(part.kind, i, mode)
			upstream := "127.0.0.1:" + strconv.Itoa(r.Server().Port())
			pool, err := r.poolAddress(upstream)
			if err != nil {
				return err
			}
			if d.Pool, err = newLink(ctx, d.Name, pool); err != nil {
				return err
			}
			r.Daemons = append(r.Daemons, d)
			if r.Broker != nil {
				upstream = r.Broker.address()
			}
			if d.Ears, err = newLink(ctx, d.Name+" ears", upstream); err != nil {
				return err
			}
			if err := d.Start(); err != nil {
				return err
			}
		}
		// Workers need the schema that orchestrators migrate.
		if err := r.WaitReady(ctx); err != nil {
			return err
		}
	}
	return r.execute(ctx)
}

func (r *Rig) newDaemon(kind fleet.Kind, n int, mode string) *Daemon {
	return &Daemon{Name: fmt.Sprintf("%s-%c", kind, 'a'+n), Kind: kind, mode: mode, rig: r, busy: make(chan struct{}, 1)}
}

// execute starts the executors, each with a link to every worker.
func (r *Rig) execute(ctx context.Context) error {
	workers := r.workers()
	for i := range r.o.Executors {
		d := r.newDaemon(Executor, i, "")
		for _, w := range workers {
			door, err := newLink(ctx, d.Name+" to "+w.Name, w.address())
			if err != nil {
				return err
			}
			d.Doors = append(d.Doors, door)
		}
		d.Ears = d.Doors[0]
		r.Daemons = append(r.Daemons, d)
		if err := d.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rig) workers() (list []*Daemon) {
	for _, d := range r.Daemons {
		if d.Kind == fleet.Worker {
			list = append(list, d)
		}
	}
	return list
}

// lead has the executors find a worker that was started again.
func (r *Rig) lead(w *Daemon, address string) error {
	var errs []error
	n := slices.Index(r.workers(), w)
	for _, d := range r.Daemons {
		if d.Kind == Executor {
			errs = append(errs, d.Doors[n].Lead(address))
		}
	}
	return errors.Join(errs...)
}

// poolAddress is where ordinary connections go.
func (r *Rig) poolAddress(upstream string) (string, error) {
	if r.pooler == nil {
		return upstream, nil
	}
	u, err := url.Parse(r.pooler.DSN(database))
	if err != nil {
		return "", fmt.Errorf("read the pooler's address: %w", err)
	}
	return u.Host, nil
}

// config is a daemon's configuration beyond its defaults.
func (r *Rig) config(d *Daemon) (string, error) {
	kind, c := d.Kind, fmt.Sprintf("[common.database]\nprepared_statements = %v\n", r.pooler == nil)
	if r.Broker == nil {
		ears, err := d.Ears.DSN(r.DSN())
		if err != nil {
			return "", err
		}
		c += fmt.Sprintf("listener_url = %q\n", ears)
	} else {
		c += r.Broker.config(kind, d.Ears.address)
	}
	c += "[common.task_templates]\nsearch_paths = []\n"
	if kind == fleet.Orchestrator {
		if r.o.Access {
			c += "[orchestration.web.auth]\nenabled = true\napi_keys_enabled = true\npublic_endpoints = [\"metrics\"]\n"
			for _, key := range Keys {
				c += fmt.Sprintf("[[orchestration.web.auth.api_keys]]\nkey = %q\ndescription = %[1]q\npermissions = [\"tasks:*\", \"events:*\", \"system:*\"]\nnamespaces = [\"*\"]\n", key)
			}
		}
		return c + fmt.Sprintf("[orchestration.leases]\nmax_crashes = %d\nmax_losses = %[1]d\n", MaxCrashes), nil
	}
	limit := 3 * time.Minute
	if !r.o.DefaultLeases {
		limit = 4 * time.Second
		c += fmt.Sprintf("[worker]\nlease_seconds = %d\nheartbeat_interval_ms = %d\n", int(Lease.Seconds()), Heartbeat.Milliseconds())
	}
	if r.o.OnlyReport {
		c += "[worker.report]\nsettle = false\n"
	}
	if r.o.Executors > 0 {
		c += sessions
	}
	return c + fmt.Sprintf("[worker.mpsc_channels.handler_dispatch]\nhandler_timeout_ms = %d\nmax_concurrent_handlers = %d\n"+
		"[worker.transactions]\nmax_connections = 5\n", limit.Milliseconds(), cmp.Or(r.o.Permits, permits)+r.o.Executors*executorPermits), nil
}

// guard looks after daemons that end by themselves.
func (r *Rig) guard(ctx context.Context) {
	for lifecycle.Pause(ctx, 200*time.Millisecond) == nil {
		for _, d := range r.Daemons {
			surprise, err := d.guard()
			if err != nil {
				surprise += "\nand could not be started again: " + err.Error()
			}
			if surprise != "" {
				r.surprise(surprise)
			}
		}
	}
}

func (r *Rig) surprise(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surprises = append(r.surprises, text)
}

// willStop records that an instance will be stopped, and so may hand back steps that
// have begun.
func (r *Rig) willStop(instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped[instance] = true
}

// Stopped are the instances that were asked to stop.
func (r *Rig) Stopped() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	stopped := make(map[string]bool, len(r.stopped))
	for name := range r.stopped {
		stopped[name] = true
	}
	return stopped
}

// Surprises are the last words of daemons that ended by themselves, or did not end when
// they were asked to.
func (r *Rig) Surprises() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.surprises)
}

// Ledger is the folder that handlers write to.
func (r *Rig) Ledger() string { return filepath.Join(r.o.Dir, "ledger") }

// Gates is the folder of the gates.
func (r *Rig) Gates() string { return filepath.Join(r.o.Dir, "gates") }

// DSN leads to the database directly, past every link.
func (r *Rig) DSN() string { return r.Server().DSN(database) }

// TakeServer reserves the server for one fault; the returned function releases it.
func (r *Rig) TakeServer(ctx context.Context) (release func(), err error) {
	return take(ctx, r.busy, "the server")
}

func take(ctx context.Context, busy chan struct{}, what string) (release func(), err error) {
	select {
	case busy <- struct{}{}:
		return func() { <-busy }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("take %s: %w", what, context.Cause(ctx))
	}
}

// Server is the one that accepts writes now.
func (r *Rig) Server() *pgcluster.Cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cluster
}

// Names of all daemons.
func (r *Rig) Names() []string {
	var names []string
	for _, d := range r.Daemons {
		names = append(names, d.Name)
	}
	return names
}

// ByName returns daemons; unknown names are ignored.
func (r *Rig) ByName(names []string) []*Daemon {
	var list []*Daemon
	for _, d := range r.Daemons {
		if slices.Contains(names, d.Name) {
			list = append(list, d)
		}
	}
	return list
}

// Orchestrators are the URLs of the running ones.
func (r *Rig) Orchestrators() []string {
	var urls []string
	for _, d := range r.Daemons {
		if d.Kind != fleet.Orchestrator {
			continue
		}
		if url := d.URL(); url != "" {
			urls = append(urls, url)
		}
	}
	return urls
}

// Starts is how often daemons were started.
func (r *Rig) Starts() int {
	n := 0
	for _, d := range r.Daemons {
		n += d.Starts()
	}
	return n
}

// WaitReady waits until every daemon is ready.
func (r *Rig) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, d := range r.Daemons {
		if err := d.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Do runs fn on a direct connection.
func (r *Rig) Do(ctx context.Context, fn func(*pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.DSN())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return fn(conn)
}

// Stop ends the fleet in order, executors and workers first.
func (r *Rig) Stop(ctx context.Context) error {
	r.guardEnd()
	r.guarding.Wait()
	var errs []error
	for _, kind := range []fleet.Kind{Executor, fleet.Worker, fleet.Orchestrator} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, d := range r.Daemons {
			if d.Kind == kind {
				wg.Go(func() {
					d.settle(ctx)
					err := d.Stop(ctx)
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				})
			}
		}
		wg.Wait()
	}
	return errors.Join(errs...)
}

// Close kills running processes and writes the logs.
func (r *Rig) Close() error {
	r.guardEnd()
	r.guarding.Wait()
	var errs []error
	for _, d := range r.Daemons {
		d.Kill()
		for _, link := range d.Links() {
			if link != nil {
				link.close()
			}
		}
		for name, text := range d.logs() {
			errs = append(errs, os.WriteFile(filepath.Join(r.o.Dir, "daemons", name+".log"), []byte(text), 0o600))
		}
	}
	return errors.Join(append(errs, r.closeServers())...)
}

// closeServers stops them and keeps the last one's log.
func (r *Rig) closeServers() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	if r.cluster != nil {
		if raw, err := os.ReadFile(r.cluster.LogFile()); err == nil {
			errs = append(errs, os.WriteFile(filepath.Join(r.o.Dir, "postgres.log"), raw, 0o600))
		}
	}
	if r.pooler != nil {
		errs = append(errs, r.pooler.Stop(ctx))
	}
	if r.Broker != nil {
		errs = append(errs, r.Broker.close())
	}
	// The standby stops first: the server would wait for it.
	if r.standby != nil {
		errs = append(errs, r.standby.Stop(ctx))
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop(ctx))
	}
	for _, v := range r.volumes {
		errs = append(errs, v.Close())
	}
	clear(r.volumes)
	return errors.Join(errs...)
}
