package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tasker-go/tasker/test/bench/internal/board"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
	"github.com/tasker-go/tasker/test/fleet"
)

// waitingClients are the clients beside the measured one.
const waitingClients = 8

// waiting looks for stalls: tasks that take far longer than others because the signal of
// a step was used up in vain. It measures the slowest of many, and the work that only a
// poll has found.
func (b *Bench) waiting(ctx context.Context) error {
	t := b.Report.Table("Stalls: times of tasks in ms", "mode", "source", "tasks", "p50", "p99", "max", "found by polls", "missed")
	t.Notes = []string{"From requested_at of a task to the time stamp of the transaction that ends it.",
		fmt.Sprintf("Waiting clients: linear, 4 steps, created with ?wait one after the other, beside %d clients that do the same; "+
			"and the same without ?wait, where the clients look into the database for the end.", waitingClients),
		"Found by polls: also what became ready in the moment of a poll. Missed: what had been ready for long (tasker_missed_total)."}
	if err := b.waitingBeside(ctx, t); err != nil {
		return fmt.Errorf("clients that wait: %w", err)
	}
	for _, set := range []setting{{"Hybrid", "notify"}, {"Hybrid", "wal"}, {"EventDrivenOnly", "notify"}, {"EventDrivenOnly", "wal"}} {
		if err := b.idleStalls(ctx, set, t); err != nil {
			return fmt.Errorf("%s with %s: %w", set.mode, set.source, err)
		}
	}
	return nil
}

// waitingBeside compares clients that wait over the API with those that do not.
func (b *Bench) waitingBeside(ctx context.Context, t *report.Table) error {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, []load.Workflow{load.Linear}, 1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	creator := load.NewCreator(s.server(), []load.Workflow{load.Linear})
	for _, way := range []struct {
		key, label string
		one        func(ctx context.Context, wire *load.Wire, watch *board.Board) (string, error)
	}{
		{"without", "4 steps, 9 clients that do not wait", func(ctx context.Context, wire *load.Wire, watch *board.Board) (string, error) {
			id, err := creator.One(wire)
			if err == nil {
				err = awaitEnd(ctx, watch, id, restBetween)
			}
			return id, err
		}},
		{"with", "4 steps, 9 clients that wait", func(_ context.Context, wire *load.Wire, _ *board.Board) (string, error) {
			return creator.Waited(wire, taskLimit)
		}},
	} {
		counted, err := b.counting(ctx, s)
		if err != nil {
			return err
		}
		ids, err := clientsBeside(ctx, s, b.Sizes.Waited, way.one)
		if err != nil {
			return err
		}
		if err := counted(t, "Hybrid", "notify", way.label, "waiting."+way.key, ids); err != nil {
			return err
		}
	}
	return nil
}

// clientsBeside has one client create n tasks one after the other, and the others the
// same for as long as that takes. It returns the tasks of the one.
func clientsBeside(ctx context.Context, s *ours, n int, one func(context.Context, *load.Wire, *board.Board) (string, error)) ([]string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	client := func(while func(made int) bool) (ids []string, err error) {
		wire, err := load.Dial(ctx, s.server())
		if err != nil {
			return nil, err
		}
		defer wire.Close()
		watch, err := board.Open(ctx, s.DSN)
		if err != nil {
			return nil, err
		}
		defer watch.Close()
		for while(len(ids)) && ctx.Err() == nil {
			id, err := one(ctx, wire, watch)
			if err != nil {
				return ids, err
			}
			ids = append(ids, id)
		}
		return ids, nil
	}
	var wg sync.WaitGroup
	errs := make([]error, waitingClients)
	for i := range errs {
		wg.Go(func() {
			if _, err := client(func(int) bool { return true }); ctx.Err() == nil {
				errs[i] = err
			}
		})
	}
	ids, err := client(func(made int) bool { return made < n+warmTasks })
	stop()
	wg.Wait()
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return nil, err
	}
	return ids[warmTasks:], nil
}

// idleStalls runs tasks one after the other on an otherwise idle fleet.
func (b *Bench) idleStalls(ctx context.Context, set setting, t *report.Table) error {
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{Mode: set.mode, Source: set.source}, load.Plain, 1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	r := &latencyRun{b: b, api: s.server(), board: s.board}
	for _, w := range []struct {
		key, label string
		load.Workflow
	}{{"tree", "tree, 8 steps, idle", load.Tree}, {"diamond", "diamond, 4 steps, idle", load.Diamond}} {
		counted, err := b.counting(ctx, s)
		if err != nil {
			return err
		}
		ids, err := r.tasks(ctx, s.board, w.Workflow, b.Sizes.OneByOne, warmTasks)
		if err != nil {
			return err
		}
		if err := counted(t, set.mode, set.source, w.label, "waiting."+set.key()+"."+w.key, ids); err != nil {
			return err
		}
	}
	return nil
}

// counting begins to count what polls find; the returned function adds a row.
func (b *Bench) counting(ctx context.Context, s *ours) (func(t *report.Table, mode, source, label, key string, ids []string) error, error) {
	daemons := append(append([]*fleet.Process{}, s.Orchestrators...), s.Workers...)
	before, err := proven(ctx, daemons)
	if err != nil {
		return nil, err
	}
	return func(t *report.Table, mode, source, label, key string, ids []string) error {
		after, err := rig.Scrape(ctx, daemons)
		if err != nil {
			return err
		}
		_, ended, err := s.board.Times(ctx, ids)
		if err != nil {
			return err
		}
		since := func(name string, labels ...string) float64 {
			return after.Sum(name, labels...) - before.Sum(name, labels...)
		}
		sum, polled, missed := stats.Summarize(ended), since("tasker_found_total", `by="poller"`), since("tasker_missed_total")
		b.Report.SetSummary(key, sum)
		b.Report.Set(key+".max_ms", report.Millis(sum.Max))
		b.Report.Set(key+".missed", missed)
		t.Add(mode, source, fmt.Sprintf("%d × %s", len(ids), label), ms(sum.P50), ms(sum.P99), ms(sum.Max), num(polled), num(missed))
		b.logf("%s, %s: %d × %s: p50 %s, p99 %s, max %s ms; %s found by polls, %s missed", mode, source, len(ids), label,
			ms(sum.P50), ms(sum.P99), ms(sum.Max), num(polled), num(missed))
		return nil
	}, nil
}

// proven waits until no daemon polls in place of an unproven listener, and then returns
// their metrics.
func proven(ctx context.Context, daemons []*fleet.Process) (rig.Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, taskLimit)
	defer cancel()
	for {
		m, err := rig.Scrape(ctx, daemons)
		if err != nil || m.Sum("tasker_polling_fallback_active") == 0 {
			return m, err
		}
		if err := wait(ctx, taskLimit/100); err != nil {
			return nil, fmt.Errorf("wait for the listeners: %w", err)
		}
	}
}
