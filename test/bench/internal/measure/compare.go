package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// orders are those of the fleets in a round: each comes once in each place and once after
// each other, so that neither a drift nor what a round leaves behind favours one.
var orders = [][]int{{0, 1, 3, 2}, {1, 2, 0, 3}, {3, 0, 2, 1}, {2, 3, 1, 0}}

// variant is a setting of a fleet of its own.
type variant struct {
	key, label string
	fleet      rig.FleetOptions
	// prepare sets up a fleet that has started; nil: nothing is to do.
	prepare func(ctx context.Context, s *ours) error
	// beside runs while the fleet is measured; nil: nothing does.
	beside func(ctx context.Context, s *ours)
}

// way is a way of using a fleet; it returns a rate.
type way struct {
	key, label string
	rate       func(b *Bench, ctx context.Context, s *ours) (float64, error)
	rounds     int // 0: those of the comparison
}

// A fleet may be faster than another of the same setting for as long as both live, by as much as telemetry
// costs: a comparison measures fleetsAtOnce fleets in turn, and starts all of them anew fleetSets times.
const fleetsAtOnce, fleetSets = 4, 6

// comparison holds variants, two or four, against the first of them. Two have two fleets each at once.
type comparison struct {
	*Bench
	section    string
	rounds     int // how many pairs there are of each: a multiple of fleetSets
	mix        []load.Workflow
	variants   []variant
	rates, cpu *report.Table
}

func (b *Bench) newComparison(section, title string, rounds int, variants []variant) *comparison {
	columns := func(unit string) []string {
		return []string{"what", "with", unit, variants[0].label, "ratio", "95 % from", "to", "lost %"}
	}
	c := &comparison{Bench: b, section: section, rounds: rounds, mix: load.Plain, variants: variants, rates: b.Report.Table(title, columns("per second")...),
		cpu: b.Report.Table("CPU time of the daemons", columns("us each")[:7]...)}
	c.rates.Notes = []string{fmt.Sprintf("%d rounds; each has four fleets one after the other, %d of each setting, in orders that put each in each place and after each other equally often. "+
		"The fleets are started anew for every %d of them. The ratio is the geometric mean of the rounds', with the interval of the paired logarithms of the %d sets of fleets; rates are medians.",
		rounds, fleetsAtOnce/len(variants), rounds/fleetSets, fleetSets)}
	c.cpu.Notes = []string{"Of the same rounds, all daemons of a fleet. It has none of the noise of disks and of the database, which does the same work for all."}
	return c
}

func (c *comparison) measure(ctx context.Context, ways []way, workers int) error {
	found := make([][]samples, len(ways))
	for i := range found {
		found[i] = make([]samples, len(c.variants))
	}
	for set := range fleetSets {
		if err := c.measureSet(ctx, set, ways, workers, found); err != nil {
			return err
		}
	}
	for i, way := range ways {
		for k := range c.variants[1:] {
			c.add(way, &c.variants[k+1], &found[i][k+1], &found[i][0])
		}
	}
	return nil
}

// samples are what the rounds of one variant in one way have given, set by set.
type samples struct{ rates, costs [fleetSets][]float64 }

// measureSet starts fleets, and measures a part of the rounds with them.
func (c *comparison) measureSet(ctx context.Context, set int, ways []way, workers int, found [][]samples) error {
	fleets := make([]*ours, fleetsAtOnce)
	for i := range fleets {
		v := &c.variants[i%len(c.variants)]
		s, err := c.fleet(ctx, c.Rig.Stock(), v.fleet, c.mix, 1, workers)
		if err != nil {
			return fmt.Errorf("fleet with %s: %w", v.label, err)
		}
		defer s.Close()
		if v.prepare != nil {
			if err := v.prepare(ctx, s); err != nil {
				return fmt.Errorf("prepare the fleet with %s: %w", v.label, err)
			}
		}
		fleets[i] = s
	}
	for i, way := range ways {
		rounds := cmp.Or(way.rounds, c.rounds) / fleetSets
		for round := range rounds + 1 {
			for _, fleet := range orders[(set*rounds+round)%len(orders)] {
				k := fleet % len(c.variants)
				rate, cost, err := c.round(ctx, way, fleets[fleet], c.variants[k].beside)
				if err != nil {
					return fmt.Errorf("%s with %s: %w", way.label, c.variants[k].label, err)
				}
				if round > 0 { // the first warms up
					s := &found[i][k]
					s.rates[set], s.costs[set] = append(s.rates[set], rate), append(s.costs[set], cost)
				}
			}
		}
	}
	return nil
}

// round returns the rate of a way, and the microseconds of CPU time that the daemons spent on
// one.
func (c *comparison) round(ctx context.Context, way way, s *ours, beside func(context.Context, *ours)) (rate, cost float64, err error) {
	if beside != nil {
		during, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); beside(during, s) }()
		defer func() { stop(); <-done }()
	}
	before, err := spent(s)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if rate, err = way.rate(c.Bench, ctx, s); err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	after, err := spent(s)
	return rate, float64((after - before).Microseconds()) / (rate * took.Seconds()), err
}

// spent is the CPU time of the daemons of a fleet so far.
func spent(s *ours) (sum time.Duration, err error) {
	for _, p := range slices.Concat(s.Orchestrators, s.Workers) {
		own, err := rig.CPU(p.PID())
		if err != nil {
			return 0, err
		}
		sum += own
	}
	return sum, nil
}

func (c *comparison) add(way way, v *variant, with, without *samples) {
	cells := func(with, without *[fleetSets][]float64) (stats.Ratio, []any) {
		r := stats.PairedSets(with[:], without[:])
		rate := func(sets *[fleetSets][]float64) string { return num(median(slices.Concat(sets[:]...))) }
		return r, []any{way.label, v.label, rate(with), rate(without), fmt.Sprintf("%.3f", r.Value), fmt.Sprintf("%.3f", r.Low), fmt.Sprintf("%.3f", r.High)}
	}
	r, rates := cells(&with.rates, &without.rates)
	of, costs := cells(&with.costs, &without.costs)
	c.Report.Set(c.section+"."+v.key+"."+way.key+".lost_percent", 100*(1-r.Value))
	c.rates.Add(append(rates, fmt.Sprintf("%.1f", 100*(1-r.Value)))...)
	c.cpu.Add(costs...)
	c.logf("%s: %s with %s: rate %.3f (%.3f to %.3f), CPU %.3f (%.3f to %.3f)", c.section, way.label, v.label, r.Value, r.Low, r.High, of.Value, of.Low, of.High)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// fleetRate is that of creating tasks in bulk and working them off.
func fleetRate(tasks int) func(*Bench, context.Context, *ours) (float64, error) {
	return func(_ *Bench, ctx context.Context, s *ours) (float64, error) {
		begin := time.Now()
		if err := s.Submit(ctx, tasks); err != nil {
			return 0, err
		}
		err := s.drained(ctx)
		return float64(tasks) / time.Since(begin).Seconds(), err
	}
}

// drained waits for the end of all tasks. It looks in the database, so that metrics are
// scraped only by variants that have that.
func (s *ours) drained(ctx context.Context) error {
	for {
		if drained, err := s.board.Drained(ctx); err != nil || drained {
			return err
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// formerVersion compares this version with a former one, where no limit, policy or other rule is set.
func (b *Bench) formerVersion(ctx context.Context) error {
	if b.Former == "" {
		return errors.New("want -former, the folder of the programs of a former version")
	}
	c := b.newComparison("former", "This version and a former one", formerRounds, []variant{
		{label: "former version", fleet: rig.FleetOptions{Programs: b.Former}}, {key: "this", label: "this version"}})
	c.mix = []load.Workflow{load.OneStep}
	return c.measure(ctx, []way{{"fleet", "tasks created in bulk and run", fleetRate(formerTasks), 0}}, 1)
}

const (
	formerRounds = 24
	formerTasks  = 40_000 // that a fleet works off in a round
)
