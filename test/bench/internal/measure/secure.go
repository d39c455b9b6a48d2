package measure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

const (
	// secureRounds is how many pairs there are of each.
	secureRounds = 12
	// secureClients send requests at once; secureBulk is how many tasks one of them has.
	secureClients, secureBulk = 16, 1000
	// secureTasks are what a fleet works off in a round.
	secureTasks = 40_000
)

// protections are compared with the first. Each has its own fleet.
var protections = []struct {
	is         rig.Protection
	key, label string
}{
	{rig.Open, "", "neither"},
	{rig.Token, "token", "JWT"},
	{rig.Key, "key", "API key"},
	{rig.TokenAndTLS, "tls", "JWT and TLS"},
}

// orders are those of the fleets in a round: each comes once in each place and once after
// each other, so that neither a drift nor what a round leaves behind favours one.
var orders = [][]int{{0, 1, 3, 2}, {1, 2, 0, 3}, {3, 0, 2, 1}, {2, 3, 1, 0}}

// guarded is a way of using a fleet; it returns a rate.
type guarded struct {
	key, label string
	rate       func(b *Bench, ctx context.Context, s *ours) (float64, error)
}

// secure compares fleets whose APIs want credentials, and TLS, with one that does not.
func (b *Bench) secure(ctx context.Context) error {
	t := b.Report.Table("What credentials and TLS cost", "what", "with", "per second", "neither", "ratio", "95 % from", "to", "lost %")
	t.Notes = []string{fmt.Sprintf("%d rounds; each has all four fleets one after the other, in orders that put each in each place and after each other equally often. "+
		"The ratio is the geometric mean of the rounds', with the interval of its paired logarithms; rates are medians.", secureRounds),
		fmt.Sprintf("%d keep-alive connections; a request in bulk has %d tasks. No worker runs but for the last rows, where %d tasks are created in bulk and worked off.",
			secureClients, secureBulk, secureTasks)}
	cpu := b.Report.Table("CPU time of the orchestrator", "what", "with", "us each", "neither", "ratio", "95 % from", "to")
	cpu.Notes = []string{"Of the same rounds. It has none of the noise of disks and of the database, which does the same work for all."}
	ways := []guarded{
		{"single", "POST /v1/tasks", (*Bench).singleRate},
		{"bulk", "POST /v1/tasks/batch, tasks", (*Bench).bulkRate},
		{"get", "GET /v1/tasks/{uuid}", (*Bench).getRate},
	}
	if err := b.secured(ctx, t, cpu, ways, 0); err != nil {
		return err
	}
	return b.secured(ctx, t, cpu, []guarded{{"fleet", "tasks created in bulk and run", (*Bench).fleetRate}}, 1)
}

func (b *Bench) secured(ctx context.Context, t, cpu *report.Table, ways []guarded, workers int) error {
	fleets := make([]*ours, len(protections))
	for i, p := range protections {
		s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{Protection: p.is}, load.Plain, 1, workers)
		if err != nil {
			return fmt.Errorf("fleet with %s: %w", p.label, err)
		}
		defer s.Close()
		fleets[i] = s
	}
	for _, way := range ways {
		rates, costs := make([][]float64, len(fleets)), make([][]float64, len(fleets))
		for round := range secureRounds + 1 {
			for _, k := range orders[round%len(orders)] {
				rate, cost, err := b.round(ctx, way, fleets[k])
				if err != nil {
					return fmt.Errorf("%s with %s: %w", way.label, protections[k].label, err)
				}
				if round > 0 { // the first warms up
					rates[k], costs[k] = append(rates[k], rate), append(costs[k], cost)
				}
			}
		}
		for k, p := range protections[1:] {
			b.compare(t, way, p.key, p.label, rates[k+1], rates[0])
			r := stats.Paired(costs[k+1], costs[0])
			cpu.Add(way.label, p.label, num(median(costs[k+1])), num(median(costs[0])), fmt.Sprintf("%.3f", r.Value), fmt.Sprintf("%.3f", r.Low), fmt.Sprintf("%.3f", r.High))
			b.logf("secure: CPU of the orchestrator per unit: %.1f us for %.1f: %.3f (%.3f to %.3f)", median(costs[k+1]), median(costs[0]), r.Value, r.Low, r.High)
		}
	}
	return nil
}

// round returns the rate of a way, and the microseconds of CPU time that the orchestrator
// spent on one.
func (b *Bench) round(ctx context.Context, way guarded, s *ours) (rate, cost float64, err error) {
	pid := s.Orchestrators[0].PID()
	before, err := rig.CPU(pid)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if rate, err = way.rate(b, ctx, s); err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	after, err := rig.CPU(pid)
	return rate, float64((after - before).Microseconds()) / (rate * took.Seconds()), err
}

func (b *Bench) compare(t *report.Table, way guarded, key, label string, with, without []float64) {
	r := stats.Paired(with, without)
	b.Report.Set("secure."+key+"."+way.key+".lost_percent", 100*(1-r.Value))
	t.Add(way.label, label, num(median(with)), num(median(without)), fmt.Sprintf("%.3f", r.Value), fmt.Sprintf("%.3f", r.Low), fmt.Sprintf("%.3f", r.High),
		fmt.Sprintf("%.1f", 100*(1-r.Value)))
	b.logf("secure: %s with %s: %.3f (%.3f to %.3f)", way.label, label, r.Value, r.Low, r.High)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func (b *Bench) singleRate(ctx context.Context, s *ours) (float64, error) {
	return b.requests(ctx, s, func(w *load.Wire) (int, error) {
		_, err := s.creator.One(w)
		return 1, err
	})
}

func (b *Bench) bulkRate(ctx context.Context, s *ours) (float64, error) {
	return b.requests(ctx, s, func(w *load.Wire) (int, error) { return secureBulk, s.creator.Batch(w, secureBulk) })
}

func (b *Bench) getRate(ctx context.Context, s *ours) (float64, error) {
	wire, err := load.Dial(ctx, s.server())
	if err != nil {
		return 0, err
	}
	defer wire.Close()
	id, err := s.creator.One(wire)
	if err != nil {
		return 0, err
	}
	return b.requests(ctx, s, func(w *load.Wire) (int, error) {
		status, answer, err := w.Get("/v1/tasks/" + id)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("read a task: status %d: %.300s", status, answer)
		}
		return 1, err
	})
}

// fleetRate is that of creating tasks in bulk and working them off.
func (b *Bench) fleetRate(ctx context.Context, s *ours) (float64, error) {
	before, err := s.Finished(ctx)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := s.Submit(ctx, secureTasks); err != nil {
		return 0, err
	}
	err = load.Await(ctx, s, before+secureTasks)
	return secureTasks / time.Since(begin).Seconds(), err
}

// requests has clients send requests for a while and returns what they did per second.
func (b *Bench) requests(ctx context.Context, s *ours, one func(*load.Wire) (int, error)) (float64, error) {
	done, errs := make([]int, secureClients), make([]error, secureClients)
	wires := make([]*load.Wire, secureClients)
	for i := range wires {
		wire, err := load.Dial(ctx, s.server())
		if err != nil {
			return 0, err
		}
		defer wire.Close()
		wires[i] = wire
	}
	begin := time.Now()
	var wg sync.WaitGroup
	for i, wire := range wires {
		wg.Go(func() {
			for time.Since(begin) < b.Sizes.Secure && errs[i] == nil && ctx.Err() == nil {
				n, err := one(wire)
				done[i], errs[i] = done[i]+n, err
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range done {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds(), errors.Join(errs...)
}
