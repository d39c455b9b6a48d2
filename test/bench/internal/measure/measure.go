// Package measure holds the sections of the benchmark. Each sets figures and adds tables
// to the report; none depends on the goals.
//
// Read measure.go first (what a run consists of), then system.go (Tasker and the others
// behind one interface), then the sections; each has a file.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
)

// Sizes are how much and how long is measured.
type Sizes struct {
	// Tasks one after the other per row of the latency table, idle, with load, and in
	// PollingOnly, where each takes seconds.
	Latency, Loaded, Polling int
	// Waited is how many tasks a client waits for, one after the other; OneByOne how many
	// run one after the other in the search for stalls.
	Waited, OneByOne int
	// AllLoaded measures with load in every event-driven setting, otherwise
	// with the defaults only.
	AllLoaded bool
	// Drain is the backlog that is drained; the slower peers get their own.
	Drain, DrainDefaults, DrainSlow int
	// Steady is how long a steady load lasts where a rate is wanted.
	Steady time.Duration
	// Create is how long each way of creating tasks is tried.
	Create time.Duration
	// Secure is how long one round of requests of the section secure lasts.
	Secure time.Duration
	// Waiting and Finished are the sizes of the growth section, Queues its
	// numbers of namespaces.
	Waiting, Finished, Queues []int
	// Before, Hold and After are the phases of a disturbance. Disturbances are those to
	// cause.
	Before, Hold, After time.Duration
	Disturbances        []string
	// Cost is how many tasks the cost is divided by.
	Cost int
	// Idle is how long idle daemons are watched.
	Idle time.Duration
	// SourceRounds is how often each event source has its turn.
	SourceRounds int
	// Flood is how many tasks one tenant of a hundred creates at once.
	Flood int
	// PeerLatency is how many jobs a peer's latency is measured with.
	PeerLatency int
}

// Short fits in six minutes, roughly.
func Short() Sizes {
	return Sizes{
		Latency: 25, Loaded: 10, Polling: 1, Waited: 100, OneByOne: 100, Drain: 30_000, DrainDefaults: 2000, DrainSlow: 100, Steady: 2 * time.Second, Create: time.Second, Secure: 125 * time.Millisecond,
		Waiting: []int{1000, 100_000}, Finished: []int{100_000},
		Before: 2 * time.Second, Hold: 4 * time.Second, After: 2 * time.Second, Disturbances: []string{"snapshot"},
		Cost: 10_000, Idle: 6 * time.Second, SourceRounds: 2, Flood: 50_000, PeerLatency: 20,
	}
}

// Normal fits in twenty minutes, roughly.
func Normal() Sizes {
	return Sizes{
		Latency: 150, Loaded: 100, Polling: 2, Waited: 500, OneByOne: 1000, AllLoaded: true, Drain: 200_000, DrainDefaults: 10_000, DrainSlow: 500,
		Steady: 8 * time.Second, Create: 4 * time.Second, Secure: 500 * time.Millisecond,
		Waiting: []int{1000, 100_000, 1_000_000}, Finished: []int{1_000_000}, Queues: []int{1, 100, 1000},
		Before: 5 * time.Second, Hold: 10 * time.Second, After: 11 * time.Second, Disturbances: allDisturbances(),
		Cost: 20_000, Idle: 20 * time.Second, SourceRounds: 3, Flood: 200_000, PeerLatency: 200,
	}
}

// Full has the sizes of the goals; it takes an hour.
func Full() Sizes {
	s := Normal()
	s.Steady, s.Create = 20*time.Second, 10*time.Second
	s.Waiting, s.Finished = []int{1000, 100_000, 1_000_000, 5_000_000}, []int{1_000_000, 10_000_000}
	s.Before, s.Hold, s.After = 20*time.Second, 2*time.Minute, 20*time.Second
	s.Idle, s.Flood = time.Minute, 1_000_000
	return s
}

// Bench is one run. It is not safe for concurrent use.
type Bench struct {
	Rig    *rig.Rig
	Report *report.Report
	Sizes  Sizes
	// Progress receives lines about the progress.
	Progress io.Writer
	// Self is the program that runs a peer's workers: Self peer-work <name> -dsn <dsn>.
	Self string
	// Charts is the folder for pictures.
	Charts string
	// Recordings is the folder for what the section order has recorded; "": it is not kept.
	Recordings string
	// Former is the folder of the programs of a former version, for the section former.
	Former string

	begin     time.Time
	sustained float64 // plain tasks per second with creation going on
}

// Section is a part of the run.
type Section struct {
	Name, About string
	// Extra sections run only on request.
	Extra bool
	run   func(*Bench, context.Context) error
}

// Sections lists what can be measured, in the order in which it is.
func Sections() []Section {
	return []Section{
		{Name: "drain", About: "plain tasks through both daemons", run: (*Bench).drain},
		{Name: "peers", About: "the same through other queues", run: (*Bench).peers},
		{Name: "create", About: "creating tasks over REST", run: (*Bench).create},
		{Name: "sustained", About: "work while tasks are being created, and steps per second", run: (*Bench).steady},
		{Name: "latency", About: "time of a task, idle and with load, in every mode", run: (*Bench).latency},
		{Name: "waiting", About: "stalls: tasks that clients wait for, and 1,000 one after the other in every mode with a listener", run: (*Bench).waiting},
		{Name: "growth", About: "many waiting and finished tasks, many queues", run: (*Bench).growth},
		{Name: "callables", About: "many callables offered by a worker, one or all of them called", run: (*Bench).callables},
		{Name: "neutral", About: "handlers of a millisecond and 4,000 tasks kept waiting, by permits", run: (*Bench).neutral},
		{Name: "disturb", About: "held snapshot, burst, idle readers, no autovacuum", run: (*Bench).disturb},
		{Name: "cost", About: "what a task costs the database and the machine", run: (*Bench).cost},
		{Name: "idle", About: "what waiting costs", run: (*Bench).idle},
		{Name: "replicas", About: "one orchestrator with more and more workers, four with eight", run: (*Bench).replicas},
		{Name: "statements", About: "where the database spends its time under a steady load", Extra: true, run: (*Bench).statements},
		{Name: "streams", About: "a thousand clients that follow transitions, and one that never reads", Extra: true, run: (*Bench).streams},
		{Name: "secure", About: "what credentials and TLS cost, fleets compared in turn", Extra: true, run: (*Bench).secure},
		{Name: "telemetry", About: "what traces and the scraping of metrics cost, fleets compared in turn", Extra: true, run: (*Bench).telemetry},
		{Name: "order", About: "shortest expected first against first come, first served, in a burst and under a steady load", Extra: true, run: (*Bench).order},
		{Name: "limits", About: "shares of a hundred tenants, a flood of one, a rate, and 10,000 ordered keys", Extra: true, run: (*Bench).limits},
		{Name: "limit-cost", About: "what limits cost that hold nothing up, fleets compared in turn, and a held snapshot", Extra: true, run: (*Bench).limitCost},
		{Name: "former", About: "tasks created in bulk and run by a former version (-former) and this one, fleets compared in turn", Extra: true, run: (*Bench).formerVersion},
		{Name: "sources", About: "every event source: latency, signals per second, cost, and what a killed one costs", Extra: true, run: (*Bench).sources},
		{Name: "ageing", About: "how long tasks wait behind a flood of urgent ones for ten minutes, with ageing", Extra: true, run: (*Bench).ageing},
		{Name: "snapshot", About: "a snapshot held for ten minutes, ours and River's, as a picture", Extra: true, run: (*Bench).snapshot},
	}
}

// Choose returns the sections of a list of names separated by commas; an empty list means
// all but the extra ones.
func Choose(names string) ([]Section, error) {
	all := Sections()
	if names == "" {
		return slices.DeleteFunc(all, func(s Section) bool { return s.Extra }), nil
	}
	var chosen []Section
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(s Section) bool { return s.Name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("no section is called %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Run measures the sections. One that fails is reported and skipped; the error holds all
// failures.
func (b *Bench) Run(ctx context.Context, sections []Section) error {
	b.begin = time.Now()
	t := &report.Table{Title: "Sections", Columns: []string{"section", "took s", "our CPU %", "other programs' CPU %", "waiting for the disk %", "taken by the host %"},
		Notes: []string{fmt.Sprintf("What others take is missing to us and to the peers: no goal is judged where other programs took more than %d %%.", report.Quiet)}}
	var errs []error
	for _, s := range sections {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		b.logf("%s: %s", s.Name, s.About)
		began := time.Now()
		shares, err := watchOthers(func() error { return s.run(b, ctx) })
		if err != nil {
			err = fmt.Errorf("section %s: %w", s.Name, err)
			b.logf("%v", err)
			errs = append(errs, err)
		}
		took := time.Since(began)
		t.Add(s.Name, sec(took), num(shares.Own*100), num(shares.Others*100), num(shares.Waited*100), num(shares.Stolen*100))
		b.Report.Beside(shares.Others * 100)
		b.logf("%s took %v; other programs used %s %% of the CPUs", s.Name, took.Round(time.Second/10), num(shares.Others*100))
	}
	b.Report.Tables = append(b.Report.Tables, t)
	return errors.Join(errs...)
}

// watchOthers measures the use of the machine during f.
func watchOthers(f func() error) (rig.Shares, error) {
	before, err := rig.ReadBusy()
	if err != nil {
		return rig.Shares{}, err
	}
	if err := f(); err != nil {
		return rig.Shares{}, err
	}
	after, err := rig.ReadBusy()
	return after.Since(before, runtime.NumCPU()), err
}

// logf writes a line of progress.
func (b *Bench) logf(format string, args ...any) {
	fmt.Fprintf(b.Progress, "%6.1f s  "+format+"\n", append([]any{time.Since(b.begin).Seconds()}, args...)...)
}

// wait lets time pass where time itself is measured.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// num formats a figure of a table.
func num(v float64) string { return report.Number(v) }

// ms formats a duration of a table in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f", report.Millis(d)) }

// sec formats a duration of a table in seconds.
func sec(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
