// Command bench measures the product as it is shipped: it builds the daemons,
// starts a fresh PostgreSQL with stock settings and the daemons with their
// defaults, runs workflows and prints one table.
//
// All times are taken from the database's own timestamps, so neither the
// clock nor the delays of this program are in them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/fleet"
	"github.com/tasker-go/tasker/internal/pgcluster"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "folder of the product's go.mod")
	flag.IntVar(&o.tasks, "tasks", 200, "tasks per row of the latency table, one after the other")
	flag.IntVar(&o.burst, "burst", 1000, "diamond tasks submitted at once")
	flag.IntVar(&o.drain, "drain", 20_000, "one-step tasks in the backlog that is drained; 0 for none")
	flag.BoolVar(&o.statements, "statements", false, "count statements (pg_stat_statements, so settings are not stock) and show the dearest")
	flag.BoolVar(&o.all, "all", true, "every mode and source; otherwise Hybrid with notify only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	root  string
	tasks int
	burst int
	drain int
	// statements makes drain show where the database spends its time.
	statements bool
	all        bool
}

type setting struct{ mode, source string }

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "tasker-bench-*")
	if err != nil {
		return fmt.Errorf("make a work directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := fleet.Build(ctx, o.root, dir, false); err != nil {
		return err
	}
	settings := map[string]string{}
	if o.statements {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	cluster, err := pgcluster.Start(ctx, pgcluster.Options{Ephemeral: true, Settings: settings})
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = cluster.Stop(stopCtx)
	}()
	fmt.Printf("%s/%s, %d CPUs, %s, PostgreSQL %s with stock settings, 1 orchestrator, 1 worker, defaults\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), cluster.Binaries().Version)
	if o.drain > 0 {
		if err := drained(ctx, cluster, dir, o); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	runs := []setting{{"Hybrid", "notify"}}
	if o.all {
		runs = []setting{{"Hybrid", "notify"}, {"Hybrid", "wal"}, {"EventDrivenOnly", "notify"}, {"EventDrivenOnly", "wal"}, {"PollingOnly", "notify"}}
	}
	fmt.Printf("%-16s %-7s %-22s %9s %9s %9s %12s\n", "mode", "source", "workflow", "p50", "p95", "p99", "submit→start")
	for i, s := range runs {
		if err := measure(ctx, cluster, dir, i, s, o); err != nil {
			return fmt.Errorf("%s with %s: %w", s.mode, s.source, err)
		}
	}
	return nil
}

// drained measures the plain queue: a backlog, then a worker that comes to it.
func drained(ctx context.Context, cluster *pgcluster.Cluster, dir string, o options) error {
	const name = "bench_drain"
	if err := cluster.CreateDatabase(ctx, name); err != nil {
		return err
	}
	dsn := cluster.DSN(name)
	f := &daemons{dir: dir, name: name, dsn: dsn}
	defer f.stop()
	if err := f.start(ctx, fleet.Orchestrator, setting{}); err != nil {
		return err
	}
	if err := backlog(ctx, dsn, o.drain); err != nil {
		return err
	}
	b, err := newBoard(ctx, dsn, f.all[0].URL)
	if err != nil {
		return err
	}
	defer b.close()
	if err := f.start(ctx, fleet.Worker, setting{}); err != nil {
		return err
	}
	if !o.statements {
		return b.drain(ctx, o.drain)
	}
	if _, err := b.db.Exec(ctx, `create extension pg_stat_statements`); err != nil {
		return err
	}
	if err := b.drain(ctx, o.drain); err != nil {
		return err
	}
	return b.statements(ctx)
}

// daemons are the processes of one measurement.
type daemons struct {
	dir, name, dsn string
	all            []*fleet.Process
}

func (d *daemons) start(ctx context.Context, kind fleet.Kind, s setting) error {
	p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: d.dir, WorkDir: filepath.Join(d.dir, d.name), Name: string(kind),
		DatabaseURL: d.dsn, Mode: s.mode, EventSource: s.source, Env: []string{"TASKER_ENV=development"},
		Config: "[common.task_templates]\nsearch_paths = []\n"})
	if err != nil {
		return err
	}
	d.all = append(d.all, p)
	readyCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.WaitReady(readyCtx)
}

func (d *daemons) stop() {
	for _, p := range d.all {
		stopCtx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_ = p.Stop(stopCtx)
		cancel()
	}
}

func measure(ctx context.Context, cluster *pgcluster.Cluster, dir string, n int, s setting, o options) error {
	name := fmt.Sprintf("bench_%d", n)
	if err := cluster.CreateDatabase(ctx, name); err != nil {
		return err
	}
	f := &daemons{dir: dir, name: name, dsn: cluster.DSN(name)}
	defer f.stop()
	for _, kind := range []fleet.Kind{fleet.Orchestrator, fleet.Worker} {
		if err := f.start(ctx, kind, s); err != nil {
			return err
		}
	}
	b, err := newBoard(ctx, f.dsn, f.all[0].URL)
	if err != nil {
		return err
	}
	defer b.close()
	tasks, warm := o.tasks, warmUp
	if s.mode == "PollingOnly" { // seconds each: a poll per step
		tasks, warm = min(tasks, 10), 1
	}
	for _, w := range []struct{ label, name string }{
		{"linear, 4 steps", "mathematical_sequence"}, {"diamond, 4 steps", "diamond"},
		{"graph, 7 steps", "mixed_dag"}, {"tree, 8 steps", "tree"}} {
		r, err := b.latency(ctx, w.name, tasks, warm)
		if err != nil {
			return err
		}
		fmt.Printf("%-16s %-7s %-22s %9s %9s %9s %12s\n", s.mode, s.source, w.label, ms(r.p50), ms(r.p95), ms(r.p99), ms(r.start))
	}
	if n == 0 {
		return b.burst(ctx, o.burst)
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
