// Command bench measures the shipped product beside other queues: it builds the daemons,
// starts a fresh PostgreSQL, runs its sections and prints one table, the goals with their
// results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/measure"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/peers"
)

func main() { os.Exit(code(os.Args[1:])) }

// code runs the program and returns its exit code.
func code(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "peer-work" {
		return peerWork(ctx, args[1:])
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.bench(ctx, strings.Join(append([]string{"bench"}, args...), " "))
}

// peerWork runs the workers of another queue until it is stopped; the benchmark starts
// itself with it.
func peerWork(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("peer-work: want the name of a peer")
	}
	p, err := peers.ByName(args[0])
	if err != nil {
		return err
	}
	f := flag.NewFlagSet("peer-work", flag.ContinueOnError)
	dsn := f.String("dsn", "", "the database")
	var pace peers.Pace
	f.DurationVar(&pace.Takes, "takes", 0, "how long a job waits")
	f.IntVar(&pace.Permits, "permits", 0, "jobs at once; 0 leaves it to the peer's settings")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	return p.Work(ctx, *dsn, pace)
}

type options struct {
	root, out   string
	recordings  string
	former      string
	short, full bool
	secure      bool
	sections    []measure.Section
	partial     bool
	sizes       measure.Sizes
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.root, "root", "../..", "folder of the product's go.mod; the benchmark's is test/bench in it")
	f.StringVar(&o.out, "out", "", "write the report to <out>.json and <out>.md")
	f.StringVar(&o.recordings, "recordings", "", "folder for the recordings of the section order, which tasker-ctl schedule simulate --file reads")
	f.StringVar(&o.former, "former", "", "folder of the programs of a former version, for the section former")
	f.BoolVar(&o.short, "short", false, "smaller sizes: about six minutes")
	f.BoolVar(&o.full, "full", false, "the sizes of the goals: 5 M waiting, 10 M finished, disturbances of 2 minutes")
	only := f.String("only", "", "sections to run, separated by commas; all but the extra ones when empty:\n"+sectionList())
	f.BoolVar(&o.secure, "secure", false, "the daemons want tokens and serve TLS (not those in one process)")
	tasks := f.Int("drain", 0, "tasks to drain instead of the usual number")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("what is %q?", f.Arg(0))
	}
	switch {
	case o.short && o.full:
		return o, errors.New("want at most one of -short and -full")
	case o.short:
		o.sizes = measure.Short()
	case o.full:
		o.sizes = measure.Full()
	default:
		o.sizes = measure.Normal()
	}
	if *tasks > 0 {
		o.sizes.Drain = *tasks
	}
	var err error
	o.partial = *only != ""
	o.sections, err = measure.Choose(*only)
	return o, err
}

func sectionList() string {
	var b strings.Builder
	for _, s := range measure.Sections() {
		extra := ""
		if s.Extra {
			extra = " (extra)"
		}
		fmt.Fprintf(&b, "  %-10s %s%s\n", s.Name, s.About, extra)
	}
	return b.String()
}

// method is part of every report.
var method = []string{
	"The daemons run with their defaults, one orchestrator and one worker unless it says otherwise; the load runs on the same machine.",
	"Times are differences of the database's timestamps unless a table says otherwise; each measurement has a new database, after a checkpoint.",
}

func (o *options) bench(ctx context.Context, command string) error {
	r := report.New()
	r.Command, r.Method, r.Partial = command, method, o.partial
	root, err := filepath.Abs(o.root)
	if err != nil {
		return fmt.Errorf("resolve the root: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	ground, err := rig.New(ctx, root, filepath.Join(root, "test", "bench"))
	if err != nil {
		return err
	}
	if ground.Secure = o.secure; o.secure {
		r.Method = append(slices.Clone(method), "With -secure: every request has a token, and the daemons serve TLS; everything in one process does not.")
	}
	b := &measure.Bench{Rig: ground, Report: r, Sizes: o.sizes, Progress: os.Stderr, Self: self, Charts: filepath.Join(root, "docs", "benchmarks"), Recordings: o.recordings, Former: o.former}
	if o.out != "" {
		b.Charts = filepath.Dir(o.out)
	}
	err = o.measured(ctx, b, root)
	return errors.Join(err, ground.Close(), o.write(r))
}

func (o *options) measured(ctx context.Context, b *measure.Bench, root string) error {
	machine, err := b.Rig.Machine(ctx, root)
	if err != nil {
		return fmt.Errorf("describe the machine: %w", err)
	}
	for _, p := range peers.All() {
		machine.Peers = append(machine.Peers, fmt.Sprintf("%s %s: %s", p.Name(), p.Version(), p.Settings()))
	}
	b.Report.Machine = machine
	err = b.Run(ctx, o.sections)
	b.Report.Took = time.Since(b.Report.Date)
	b.Report.Evaluate(report.Goals())
	return err
}

func (o *options) write(r *report.Report) error {
	if err := r.Text(os.Stdout); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if o.out == "" {
		return nil
	}
	return r.Write(o.out)
}
