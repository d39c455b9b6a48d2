package measure

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/board"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

const (
	// warmTasks run before those that count: plans get cached, statements
	// prepared.
	warmTasks = 10
	// restBetween lets the daemons become idle between two tasks.
	restBetween = 5 * time.Millisecond
	// taskLimit bounds one task.
	taskLimit = 30 * time.Second
)

// timed are the workflows whose time is taken, by their names in figures.
func timed() []struct {
	key, label string
	load.Workflow
} {
	return []struct {
		key, label string
		load.Workflow
	}{
		{"linear", "linear, 4 steps", load.Linear}, {"diamond", "diamond, 4 steps", load.Diamond},
		{"graph", "graph, 7 steps", load.Graph}, {"tree", "tree, 8 steps", load.Tree},
		{"conditional", "conditional approval, 5 steps", load.Conditional}, {"batch", "1,000 rows of a file, 7 steps", load.Batch},
	}
}

// setting is a deployment mode with an event source.
type setting struct{ mode, source string }

func (s setting) key() string { return strings.ToLower(s.mode) + "." + s.source }

// latency measures the time of tasks that run one after the other.
func (b *Bench) latency(ctx context.Context) error {
	t := b.Report.Table("Latency in ms", "mode", "source", "load", "workflow", "p50", "p95", "p99", "claimed p50")
	t.Notes = []string{"From requested_at of a task to the time stamp of the transaction that ends it; claimed is the first claim.",
		"submit → handler: until the handler reads the clock of the machine, in a one-step task.",
		"Half load: one-step tasks at half the sustained rate beside them."}
	for _, s := range []setting{{"Hybrid", "notify"}, {"Hybrid", "wal"}, {"EventDrivenOnly", "notify"}, {"EventDrivenOnly", "wal"}} {
		loaded := b.Sizes.AllLoaded || s == setting{"Hybrid", "notify"}
		if err := b.latencyOf(ctx, s, loaded, t); err != nil {
			return fmt.Errorf("%s with %s: %w", s.mode, s.source, err)
		}
	}
	b.Report.Set("latency.wal_ratio", walRatio(b.Report.Figures))
	if err := b.latencyPolling(ctx, t); err != nil {
		return fmt.Errorf("PollingOnly: %w", err)
	}
	t.Add("PollingOnly", "wal", "idle", "not measured apart: nothing listens in this mode", "–", "–", "–", "–")
	if err := b.latencyEmbedded(ctx, t); err != nil {
		return fmt.Errorf("one process: %w", err)
	}
	return nil
}

// walRatio is the idle p50 with signals from the WAL by that with notify, the worst
// of the modes and of the loads that have a goal.
func walRatio(figures map[string]float64) (worst float64) {
	for _, mode := range []string{"hybrid", "eventdrivenonly"} {
		for _, w := range []string{"start", "linear", "graph", "tree", "conditional"} {
			worst = max(worst, figures["latency."+mode+".wal.idle."+w+".p50_ms"]/figures["latency."+mode+".notify.idle."+w+".p50_ms"])
		}
	}
	return worst
}

// latencyRun is one fleet to measure times on.
type latencyRun struct {
	b            *Bench
	api          load.Server
	board        *board.Board
	table        *report.Table
	mode, source string
	key, load    string
}

func (b *Bench) latencyOf(ctx context.Context, set setting, loaded bool, t *report.Table) error {
	background := 0.0
	if loaded {
		rate, err := b.sustainedPlain(ctx)
		if err != nil {
			return err
		}
		background = rate / 2
	}
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{Mode: set.mode, Source: set.source}, load.Plain, 1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	r := &latencyRun{b: b, api: s.server(), board: s.board, table: t, mode: set.mode, source: set.source,
		key: "latency." + set.key() + ".idle.", load: "idle"}
	if err := r.all(ctx, b.Sizes.Latency, true); err != nil {
		return err
	}
	if !loaded {
		return nil
	}
	r.key, r.load = "latency."+set.key()+".half.", fmt.Sprintf("half (%s/s)", num(background))
	if err := r.under(ctx, s, background); err != nil {
		// The machine may be slower today than when the rate was measured. The idle rows
		// are still useful.
		t.Add(r.mode, r.source, r.load, "given up: "+err.Error(), "–", "–", "–", "–")
	}
	return ctx.Err()
}

// under measures times while a system is kept at a rate.
func (r *latencyRun) under(ctx context.Context, s load.System, rate float64) error {
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	kept := make(chan error, 1)
	go func() {
		_, err := load.Keep(loadCtx, s, load.Feed{Rate: func(time.Duration) float64 { return rate }}, patience)
		if loadCtx.Err() != nil {
			err = nil // stopped
		}
		kept <- err
	}()
	err := wait(ctx, warmUp)
	if err == nil {
		err = r.all(ctx, r.b.Sizes.Loaded, true)
	}
	stop()
	if e := <-kept; e != nil {
		return fmt.Errorf("keep the load up: %w", e)
	}
	return err
}

// all measures the times of every workflow, and with stamped the time to the beginning of
// the handler.
func (r *latencyRun) all(ctx context.Context, n int, stamped bool) error {
	if stamped {
		ids, err := r.tasks(ctx, r.board, load.Stamp, n, warmTasks)
		if err != nil {
			return err
		}
		starts, err := r.board.Starts(ctx, ids)
		if err != nil {
			return err
		}
		s := stats.Summarize(starts)
		r.b.Report.SetSummary(r.key+"start", s)
		r.table.Add(r.mode, r.source, r.load, "submit → handler", ms(s.P50), ms(s.P95), ms(s.P99), "–")
	}
	for _, w := range timed() {
		if w.Namespace == load.Namespace && !stamped {
			continue // its handlers are the benchmark's own
		}
		ids, err := r.tasks(ctx, r.board, w.Workflow, n, warmTasks)
		if err != nil {
			return err
		}
		if err := r.record(ctx, w.key, w.label, ids); err != nil {
			return err
		}
	}
	return nil
}

func (r *latencyRun) record(ctx context.Context, key, label string, ids []string) error {
	claimed, ended, err := r.board.Times(ctx, ids)
	if err != nil {
		return err
	}
	s := stats.Summarize(ended)
	r.b.Report.SetSummary(r.key+key, s)
	r.table.Add(r.mode, r.source, r.load, label, ms(s.P50), ms(s.P95), ms(s.P99), ms(stats.Summarize(claimed).P50))
	return nil
}

// tasks runs tasks one after the other and returns the ids of those that count.
func (r *latencyRun) tasks(ctx context.Context, watch *board.Board, w load.Workflow, n, warm int) ([]string, error) {
	creator := load.NewCreator(r.api, []load.Workflow{w})
	wire, err := load.Dial(ctx, r.api)
	if err != nil {
		return nil, err
	}
	defer wire.Close()
	var ids []string
	expected := time.Duration(0)
	for i := range n + warm {
		id, err := creator.One(wire)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := awaitEnd(ctx, watch, id, expected); err != nil {
			return nil, err
		}
		expected = time.Since(begin) * 8 / 10
		if i >= warm {
			ids = append(ids, id)
		}
		if err := wait(ctx, restBetween); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// awaitEnd waits for the end of a task. To disturb little, it queries the database first
// when the task is nearly done, then every millisecond. Waiting over the API would write
// to the task's row.
func awaitEnd(ctx context.Context, watch *board.Board, id string, expected time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, taskLimit)
	defer cancel()
	for pause := expected; ; pause = time.Millisecond {
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("wait for task %s: %w", id, err)
		}
		alive, err := watch.Alive(ctx, id)
		if err != nil || !alive {
			return err
		}
	}
}

// latencyPolling runs the workflows concurrently: each step waits for a poll, so they do
// not disturb each other.
func (b *Bench) latencyPolling(ctx context.Context, t *report.Table) error {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{Mode: "PollingOnly"}, load.Plain, 1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	r := &latencyRun{b: b, api: s.server(), board: s.board, table: t, mode: "PollingOnly", source: "–", key: "latency.pollingonly.idle.", load: "idle"}
	list := timed()
	ids, errs := make([][]string, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, w := range list {
		wg.Go(func() {
			watch, err := board.Open(ctx, s.DSN)
			if err != nil {
				errs[i] = err
				return
			}
			defer watch.Close()
			ids[i], errs[i] = r.tasks(ctx, watch, w.Workflow, b.Sizes.Polling, 0)
		})
	}
	wg.Wait()
	for i, w := range list {
		if errs[i] != nil {
			return errs[i]
		}
		if err := r.record(ctx, w.key, w.label, ids[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) latencyEmbedded(ctx context.Context, t *report.Table) error {
	d, err := b.Rig.Database(ctx, b.Rig.Stock())
	if err != nil {
		return err
	}
	e, err := b.Rig.Embedded(ctx, d)
	if err != nil {
		return err
	}
	defer e.Close()
	watch, err := board.Open(ctx, d.DSN)
	if err != nil {
		return err
	}
	defer watch.Close()
	r := &latencyRun{b: b, api: load.Server{URL: e.URL}, board: watch, table: t, mode: "one process", source: "notify", key: "latency.embedded.idle.", load: "idle"}
	return r.all(ctx, b.Sizes.Latency, false)
}
