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
	all   bool
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
	cluster, err := pgcluster.Start(ctx, pgcluster.Options{Ephemeral: true})
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
	settings := []setting{{"Hybrid", "notify"}}
	if o.all {
		settings = []setting{{"Hybrid", "notify"}, {"Hybrid", "wal"}, {"EventDrivenOnly", "notify"}, {"EventDrivenOnly", "wal"}, {"PollingOnly", "notify"}}
	}
	fmt.Printf("%-16s %-7s %-22s %9s %9s %9s %12s\n", "mode", "source", "workflow", "p50", "p95", "p99", "submit→start")
	for i, s := range settings {
		if err := measure(ctx, cluster, dir, i, s, o); err != nil {
			return fmt.Errorf("%s with %s: %w", s.mode, s.source, err)
		}
	}
	return nil
}

func measure(ctx context.Context, cluster *pgcluster.Cluster, dir string, n int, s setting, o options) error {
	name := fmt.Sprintf("bench_%d", n)
	if err := cluster.CreateDatabase(ctx, name); err != nil {
		return err
	}
	dsn := cluster.DSN(name)
	var processes []*fleet.Process
	defer func() {
		for _, p := range processes {
			stopCtx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			_ = p.Stop(stopCtx)
			cancel()
		}
	}()
	for _, kind := range []fleet.Kind{fleet.Orchestrator, fleet.Worker} {
		p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: dir, WorkDir: filepath.Join(dir, name), Name: string(kind),
			DatabaseURL: dsn, Mode: s.mode, EventSource: s.source, Env: []string{"TASKER_ENV=development"},
			Config: "[common.task_templates]\nsearch_paths = []\n"})
		if err != nil {
			return err
		}
		processes = append(processes, p)
		readyCtx, cancel := context.WithTimeout(ctx, time.Minute)
		err = p.WaitReady(readyCtx)
		cancel()
		if err != nil {
			return err
		}
	}
	b, err := newBoard(ctx, dsn, processes[0].URL)
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
