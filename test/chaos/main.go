// Command chaos runs the fleet under random faults and checks afterwards that nothing was
// lost, nothing counted twice and nothing is stuck.
//
//	make chaos                     10,000 workflows in 10 minutes, with a standby; and with executors
//	make chaos-brokers             as many with RabbitMQ, and with Redis, whose faults strike too
//	make chaos-greedy              as many with access on, beside a principal that takes its whole share
//	make chaos-short               the scenarios and four short runs
//	CHAOS_SEED=7 make chaos-short  the orders and faults of seed 7 again
//	go run . -operators            operators act at random, without faults
//
// The same seed gives the same orders and the same faults at the same times; how
// they coincide depends on the machine. A failed run keeps its folder: the schedule,
// the logs of every daemon and of the server, the handlers' ledger, and the report.
// To make a test of it, add its options to the list in scenarios/seeds_test.go.
//
// The packages: internal/schedule (which fault strikes when), internal/workload (the
// workflows, their handlers and the submitting client), internal/ledger (the handlers'
// own record), internal/rig (server, daemons and the network between them),
// internal/volume (file systems to fill up), internal/faults (causing faults),
// internal/check (the rules), internal/trial (one run), scenarios (single tests),
// worker (the worker daemon with these handlers), executor (a process in Python with the work
// handler and a session with one of them).
//
// A full disk needs a volume to fill up, so the program runs itself again in a mount
// namespace. If that is not allowed the run says so, and its schedule has no such
// fault.
//
// It is a separate module: its dependencies for bad networks do not become
// dependencies of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
	"github.com/tasker-go/tasker/test/chaos/internal/trial"
	"github.com/tasker-go/tasker/test/chaos/internal/volume"
)

func main() {
	os.Exit(volume.Confined(func(unmountable error) int { return code(os.Args[1:], unmountable) }))
}

// code runs the program and returns its exit code: 1 if a rule did not hold, 2 if that
// could not be determined. unmountable is why no volume can be filled here; nil if one
// can.
func code(args []string, unmountable error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, args, unmountable)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	case !ok:
		return 1
	}
	return 0
}

// program is the parsed command line.
type program struct {
	trial.Options
	sources   []string
	chosen    bool // the kinds of faults are
	race      bool
	operators bool
}

func parse(args []string, unmountable error) (*program, error) {
	p := &program{}
	var kinds, sources string
	var standby bool
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&p.Seed, "seed", 0, "seed of orders and faults; 0 takes CHAOS_SEED, or draws one")
	flags.IntVar(&p.Tasks, "tasks", 10_000, "how many tasks are submitted")
	flags.DurationVar(&p.Length, "length", 10*time.Minute, "how long orders come and faults strike")
	flags.StringVar(&sources, "source", "notify", "event source: notify, wal, relay, amqp or redis; with commas for one run after the other")
	flags.StringVar(&kinds, "faults", "", "kinds of faults, with commas; all but promote when empty, fill-wal where a volume can be mounted, and those of the broker twice as often where there is one")
	flags.BoolVar(&standby, "standby", false, "give the server a standby, and add promote to the faults")
	flags.DurationVar(&p.Calm, "calm", 3*time.Second, "least time between faults that do not strike together")
	flags.DurationVar(&p.Longest, "longest", 8*time.Second, "longest duration of a fault")
	flags.StringVar(&p.Dir, "dir", "", "where everything is written; a temporary folder, removed when all is well, when empty")
	flags.IntVar(&p.Executors, "executors", 0, "processes in Python that have the work handler and hold sessions with the workers; all faults strike them too")
	flags.BoolVar(&p.Greedy, "greedy", false, "have the orchestrators want credentials, beside a principal that takes all that it can get of what requests share")
	flags.BoolVar(&p.operators, "operators", false, "have operators act at random on three orchestrators, without orders and faults")
	flags.BoolVar(&p.race, "race", false, "build the daemons with the race detector")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is one argument too many", flags.Arg(0))
	}
	var err error
	if err = p.choose(kinds, standby, unmountable); err != nil {
		return nil, err
	}
	if text := os.Getenv("CHAOS_SEED"); p.Seed == 0 && text != "" {
		if p.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("read CHAOS_SEED: %w", err)
		}
	}
	if p.Seed == 0 {
		p.Seed = uint64(rand.Uint32()) // short enough to be typed
	}
	for source := range strings.SplitSeq(sources, ",") {
		if !slices.Contains([]string{"notify", "wal", "relay", "amqp", "redis"}, source) {
			return nil, fmt.Errorf("invalid event source %q: want notify, wal, relay, amqp or redis", source)
		}
		p.sources = append(p.sources, source)
	}
	return p, nil
}

// choose selects the kinds of faults: the named ones, or all. Kinds that are impossible
// here are left out and reported.
func (p *program) choose(names string, standby bool, unmountable error) (err error) {
	p.chosen = names != ""
	if p.Kinds = append(schedule.Kinds(), schedule.FillWAL); p.chosen {
		if p.Kinds, err = faults.ParseKinds(names); err != nil {
			return err
		}
	}
	if standby && !slices.Contains(p.Kinds, schedule.Promote) {
		p.Kinds = append(p.Kinds, schedule.Promote)
	}
	if unmountable != nil && slices.Contains(p.Kinds, schedule.FillWAL) {
		p.Kinds = slices.DeleteFunc(p.Kinds, func(k schedule.Kind) bool { return k == schedule.FillWAL })
		p.LeftOut = append(p.LeftOut, fmt.Sprintf("%s, since no volume can be mounted here (it takes root or a user namespace): %v", schedule.FillWAL, unmountable))
	}
	if len(p.Kinds) == 0 {
		return fmt.Errorf("no fault is left: %s", strings.Join(p.LeftOut, "; "))
	}
	return nil
}

// again is how to make the same run.
func again(o trial.Options) string {
	kinds := make([]string, len(o.Kinds))
	for i, k := range o.Kinds {
		kinds[i] = string(k)
	}
	return fmt.Sprintf("CHAOS_SEED=%d go run . -tasks %d -length %v -source %s -calm %v -longest %v -executors %d -greedy=%t -faults %s",
		o.Seed, o.Tasks, o.Length, o.Source, o.Calm, o.Longest, o.Executors, o.Greedy, strings.Join(kinds, ","))
}

func run(ctx context.Context, args []string, unmountable error) (ok bool, err error) {
	p, err := parse(args, unmountable)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stdout, "seed %d\n", p.Seed)
	for _, what := range p.LeftOut {
		fmt.Fprintf(os.Stdout, "WITHOUT %s\n", what)
	}
	keep := p.Dir != ""
	if !keep {
		if p.Dir, err = os.MkdirTemp("", "tasker-chaos-*"); err != nil {
			return false, fmt.Errorf("make a work folder: %w", err)
		}
	}
	p.BinDir = filepath.Join(p.Dir, "bin")
	if err := os.MkdirAll(p.BinDir, 0o750); err != nil {
		return false, fmt.Errorf("make a work folder: %w", err)
	}
	if err := rig.Build(ctx, ".", p.BinDir, p.race); err != nil {
		return false, err
	}
	for i, source := range p.sources {
		o := p.Options
		o.Source, o.Dir = source, filepath.Join(p.Dir, source)
		o.Seed += uint64(i) // each run has its own faults
		if !p.chosen && (source == "amqp" || source == "redis") {
			o.Kinds = slices.Concat(o.Kinds, schedule.Brokers(), schedule.Brokers())
		}
		if ok, err = p.try(ctx, o); !ok || err != nil {
			return ok, err
		}
	}
	if keep {
		return true, nil
	}
	return true, os.RemoveAll(p.Dir)
}

// try makes one run and prints the result.
func (p *program) try(ctx context.Context, o trial.Options) (ok bool, err error) {
	if p.operators {
		return operate(ctx, o)
	}
	fmt.Fprintf(os.Stdout, "\nto repeat: %s\n", again(o))
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return false, fmt.Errorf("make a work folder: %w", err)
	}
	report, err := trial.Run(ctx, o, os.Stdout)
	if err != nil {
		return false, fmt.Errorf("%w\nseed %d; everything is in %s", err, o.Seed, o.Dir)
	}
	report.Print(os.Stdout)
	if !report.OK() {
		fmt.Fprintf(os.Stdout, "\nFAILED with seed %d; everything is in %s\nto repeat: %s\nto keep it: add it to the list in scenarios/seeds_test.go\n", o.Seed, o.Dir, again(o))
	}
	return report.OK(), nil
}

// operate makes one run of operators and prints the result.
func operate(ctx context.Context, o trial.Options) (ok bool, err error) {
	again := fmt.Sprintf("CHAOS_SEED=%d go run . -operators -length %v -source %s", o.Seed, o.Length, o.Source)
	fmt.Fprintf(os.Stdout, "\nto repeat: %s\n", again)
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return false, fmt.Errorf("make a work folder: %w", err)
	}
	if ok, err = trial.Operate(ctx, o, os.Stdout); err != nil {
		return false, fmt.Errorf("%w\nseed %d; everything is in %s", err, o.Seed, o.Dir)
	}
	if !ok {
		fmt.Fprintf(os.Stdout, "\nFAILED with seed %d; everything is in %s\nto repeat: %s\n", o.Seed, o.Dir, again)
	}
	return ok, nil
}
