// Package trial is one run of the suite: a fleet under load, a schedule of faults, and
// the check of everything afterwards.
//
// Reading order: trial.go (the run), recovery.go (the time to recover), signals.go (what found
// the work while a broker failed), vitals.go (what must not grow), report.go (the report).
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/tasker-go/tasker/test/chaos/internal/check"
	"github.com/tasker-go/tasker/test/chaos/internal/faults"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/schedule"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Options determine a run; the same ones give the same orders and the same faults.
type Options struct {
	Seed          uint64
	Tasks         int
	Length        time.Duration // of the time of orders and faults
	Source        string        // event source
	Kinds         []schedule.Kind
	LeftOut       []string // kinds that are impossible here, and why
	Orchestrators []string // modes at the beginning, one for each
	Workers       []string
	Executors     int           // processes in Python that hold sessions with the workers
	Calm, Longest time.Duration // of the schedule
	// Greedy has the orchestrators want credentials, and a principal beside the client that holds its whole
	// share of batches and streams all the time.
	Greedy bool

	BinDir string // where the programs are
	Dir    string // for what is written down
}

// WithDefaults sets missing options.
func (o Options) WithDefaults() Options {
	def(&o.Tasks, 1000)
	def(&o.Length, time.Minute)
	def(&o.Source, "notify")
	def(&o.Calm, 3*time.Second)
	def(&o.Longest, 8*time.Second)
	if o.Kinds == nil {
		o.Kinds = schedule.Kinds()
	}
	if o.Orchestrators == nil {
		o.Orchestrators = []string{"Hybrid", "EventDrivenOnly"}
	}
	if o.Workers == nil && (o.Source == "amqp" || o.Source == "redis") {
		o.Workers = []string{"Hybrid", "Hybrid", "EventDrivenOnly"} // one that only polls would find all work while the broker fails
	}
	if o.Workers == nil {
		o.Workers = []string{"Hybrid", "PollingOnly", "EventDrivenOnly"}
	}
	return o
}

func def[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// drainLimit bounds the wait for the end of the last task: many leases, and the longest
// delay before the product looks again.
const drainLimit = 90 * time.Second

// slack is how far a fault may exceed its time without a message.
const slack = 500 * time.Millisecond

// trial is a run under way.
type trial struct {
	o   Options
	out io.Writer
	rig *rig.Rig

	start     time.Time
	submitter *workload.Submitter
	accepted  []workload.Accepted

	mu      sync.Mutex
	strikes []faults.Strike
	broken  []error // errors of the suite itself
	health  []Vitals
}

// Run makes a run and writes its events to out. The error says that the run could not be
// made; the report has the results.
func Run(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	o = o.WithDefaults()
	t := &trial{o: o, out: out}
	r, err := rig.Start(ctx, rig.Options{Dir: o.Dir, BinDir: o.BinDir, Source: o.Source, Standby: slices.Contains(o.Kinds, schedule.Promote),
		Volumes: slices.Contains(o.Kinds, schedule.FillWAL), Orchestrators: o.Orchestrators, Workers: o.Workers, Executors: o.Executors, Access: o.Greedy})
	t.rig = r
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := r.Do(ctx, func(conn *pgx.Conn) error { return workload.Prepare(ctx, conn) }); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	report, err := t.run(ctx)
	return report, errors.Join(err, r.Close())
}

func (t *trial) run(ctx context.Context) (*Report, error) {
	t.start = time.Now()
	plan := schedule.Draw(schedule.Options{Seed: t.o.Seed, Length: t.o.Length, Kinds: t.o.Kinds, Daemons: t.rig.Names(), Calm: t.o.Calm, Longest: t.o.Longest})
	if t.rig.Broker != nil {
		keepPollers(plan)
	}
	if err := t.writeDown("schedule.json", plan); err != nil {
		return nil, err
	}
	t.say("%d tasks and %d faults in %v, event source %s", t.o.Tasks, len(plan), t.o.Length, t.o.Source)
	watched, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { t.health = t.watch(watched) })
	err := t.disturb(ctx, plan)
	end()
	watching.Wait()
	if err != nil {
		return nil, err
	}
	drained, err := t.drain(ctx)
	if err != nil {
		return nil, err
	}
	heard, unheard := t.hear(ctx)
	stopErr := t.rig.Stop(ctx)
	facts, err := t.facts(ctx)
	if err != nil {
		return nil, errors.Join(err, stopErr)
	}
	if err := t.writeDown("facts.json", facts); err != nil {
		return nil, err
	}
	report := t.report(facts, drained)
	report.Heard, report.Violations = heard, append(report.Violations, unheard...)
	if stopErr != nil {
		report.Violations = append(report.Violations, check.Violation{Rule: check.RunsToTheEnd, What: stopErr.Error()})
	}
	return report, t.writeDown("report.json", report)
}

// brokerClients are enough that orders over REST go on while those that wait for the broker are
// tried again and again.
const brokerClients = 256

// keepPollers has the first daemon of each kind be in Hybrid, as it begins: where nothing polls, work
// may wait for the broker to come back.
func keepPollers(plan []schedule.Fault) {
	for i, f := range plan {
		if f.Kind == schedule.Roll && (slices.Contains(f.Targets, "orchestrator-a") || slices.Contains(f.Targets, "worker-a")) {
			plan[i].Mode = "Hybrid"
		}
	}
}

// disturb submits the orders while the faults strike. It returns when both are over: an
// order that is not accepted within the drain limit is an error.
func (t *trial) disturb(ctx context.Context, plan []schedule.Fault) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.Length+2*drainLimit)
	defer cancel()
	t.submitter = &workload.Submitter{URLs: t.rig.Orchestrators}
	if t.o.Greedy {
		t.submitter.Key = rig.ClientKey
		held, end := context.WithCancel(ctx)
		var greedy sync.WaitGroup
		greedy.Go(func() { t.greed(held) })
		defer greedy.Wait()
		defer end()
	}
	if t.rig.Broker != nil {
		t.submitter.Post, t.submitter.Clients = t.rig.Broker.Post, brokerClients
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		t.accepted, err = t.submitter.Run(ctx, t.start, workload.Orders(t.o.Seed, t.o.Tasks, t.o.Length, workload.Workflows()))
		return err
	})
	for _, f := range plan {
		group.Go(func() error {
			if err := lifecycle.Pause(ctx, time.Until(t.start.Add(f.At))); err != nil {
				return err
			}
			t.say("%v", f)
			s, err := faults.Run(ctx, t.rig, f)
			if took := s.Ended.Sub(s.Began); took > f.For+slack {
				t.say("#%d ended after %v", f.N, took.Round(time.Millisecond))
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.strikes = append(t.strikes, s)
			if err != nil {
				t.broken = append(t.broken, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("submit %d tasks under faults (%d accepted): %w", t.o.Tasks, t.submitter.Accepted(), err)
	}
	t.say("all orders are accepted, all faults are over")
	return nil
}

// drain waits until all orders are tasks and the board is empty, and returns how long that took.
func (t *trial) drain(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		var live, tasks int
		err := t.rig.Do(ctx, func(db *pgx.Conn) error {
			return db.QueryRow(ctx, `select (select count(*) from tasker.tasks), (select count(*) from tasker.board where slot = 0)`).Scan(&tasks, &live)
		})
		if err == nil && live == 0 && tasks >= len(t.accepted) {
			t.say("the last task has ended")
			return time.Since(begin), nil
		}
		if lifecycle.Pause(ctx, 100*time.Millisecond) != nil {
			if err != nil {
				return 0, fmt.Errorf("look at the board: %w", err)
			}
			t.say("%d tasks of %d orders, %d of them not at an end after %v", tasks, len(t.accepted), live, drainLimit)
			return time.Since(begin), nil // the checker reports which
		}
	}
}

func (t *trial) facts(ctx context.Context) (check.Facts, error) {
	f := check.Facts{Ordered: t.accepted, Stopped: t.rig.Stopped()}
	var err error
	if f.Executions, err = ledger.Read(t.rig.Ledger()); err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return f, f.Load(ctx, t.rig.DSN(), rig.MaxCrashes)
}

func (t *trial) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	progress := ""
	if t.submitter != nil {
		progress = fmt.Sprintf(" [%d]", t.submitter.Accepted())
	}
	fmt.Fprintf(t.out, "%7.1fs%s %s\n", time.Since(t.start).Seconds(), progress, fmt.Sprintf(format, args...))
}

func (t *trial) writeDown(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(t.o.Dir, name), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
