package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/order/simulate"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

const (
	orderPermits = 8
	// orderWarmUp is how long the fleets learn the times of handlers, at half of what they can do.
	orderWarmUp = time.Minute
	orderSeed   = 17
	orderRounds = 3
)

// arrivalsOf are the ways of arriving: a minute of three times what the permits can do, then
// nothing until it is drained, and nine tenths of it.
var arrivalsOf = []struct {
	key, label string
	load       float64
	lasting    time.Duration
}{
	{"burst", "3 times the capacity for a minute, then drained", 3, time.Minute},
	{"steady", "0.9 of the capacity for five minutes", 0.9, 5 * time.Minute},
}

// orderPolicies: the first is what the other one is compared with, and what both are forecast from.
var orderPolicies = []order.Policy{order.FIFO, order.ShortestExpected}

// orderCase is what each policy does in a round.
type orderCase struct {
	key, handlers, arrivals string
	policies                [2]struct {
		stats.Summary
		mean, foretoldMean, foretoldP95, foretoldP99 time.Duration
	}
}

// off is by how much a forecast was off, in per cent.
func off(foretold, was time.Duration) float64 {
	return 100 * math.Abs(foretold.Seconds()/was.Seconds()-1)
}

// order compares the policy shortest_expected with fifo, with the same arrivals for both, and
// both with what the simulator makes of the recording of fifo. The handlers sleep, so the
// fleets of a round run at the same time. Figures are the medians of the rounds.
func (b *Bench) order(ctx context.Context) error {
	t := b.Report.Table("Shortest expected first", "round", "handlers", "arrivals", "policy", "tasks", "mean s", "p50 s", "p95 s", "p99 s", "max s", "mean by fifo's", "p99 by fifo's")
	t.Notes = []string{fmt.Sprintf("From the arrival in the line to the report of the handler, %d permits, sleeping handlers, the same arrivals for both policies. "+
		"Before it %v at half the load, from which the times are learned.", orderPermits, orderWarmUp)}
	f := b.Report.Table("Forecasts", "round", "handlers", "arrivals", "policy", "mean s", "forecast", "off %", "p95 s", "forecast", "off %", "p99 s", "forecast", "off %")
	f.Notes = []string{"What `tasker-ctl schedule simulate` makes of the recording of fifo, beside what each policy did."}
	figures := map[string][]float64{}
	note := func(name string, v float64) float64 {
		figures[name] = append(figures[name], v)
		return v
	}
	percent := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	for round := range uint64(orderRounds) {
		cases, err := b.orderRound(ctx, round)
		if err != nil {
			return err
		}
		for i := range cases {
			c := &cases[i]
			base := c.policies[0]
			for k, p := range c.policies {
				mean, p99 := p.mean.Seconds()/base.mean.Seconds(), p.P99.Seconds()/base.P99.Seconds()
				t.Add(round+1, c.handlers, c.arrivals, orderPolicies[k], p.N, sec(p.mean), sec(p.P50), sec(p.P95), sec(p.P99), sec(p.Max), fmt.Sprintf("%.2f", mean), fmt.Sprintf("%.2f", p99))
				if k > 0 {
					note("order."+c.key+".mean", mean)
					note("order."+c.key+".p99", p99)
				}
				key := "order.forecast." + c.key + "." + string(orderPolicies[k])
				offMean, offP95, offP99 := note(key+".mean", off(p.foretoldMean, p.mean)), note(key+".p95", off(p.foretoldP95, p.P95)), note(key+".p99", off(p.foretoldP99, p.P99))
				f.Add(round+1, c.handlers, c.arrivals, orderPolicies[k], sec(p.mean), sec(p.foretoldMean), percent(offMean), sec(p.P95), sec(p.foretoldP95), percent(offP95),
					sec(p.P99), sec(p.foretoldP99), percent(offP99))
				b.logf("order: round %d, %s, %s: mean %.2f, p99 %.2f of fifo's; forecasts off by %.1f %%, %.1f %%, %.1f %%", round+1, c.key, orderPolicies[k], mean, p99, offMean, offP95, offP99)
			}
		}
	}
	for name, values := range figures {
		slices.Sort(values)
		b.Report.Set(name, values[len(values)/2])
	}
	return nil
}

// orderRound measures each mix with each way of arriving under both policies.
func (b *Bench) orderRound(ctx context.Context, round uint64) ([]orderCase, error) {
	var wg sync.WaitGroup
	var cases []orderCase
	for _, mix := range load.Mixes() {
		for _, a := range arrivalsOf {
			cases = append(cases, orderCase{key: mix.Key + "." + a.key, handlers: mix.Label, arrivals: a.label})
		}
	}
	recorded, errs := make([][]simulate.Record, 2*len(cases)), make([]error, 2*len(cases))
	for i := range recorded {
		a, mix := arrivalsOf[i/2%len(arrivalsOf)], load.Mixes()[i/2/len(arrivalsOf)]
		s, err := b.orderFleet(ctx, orderPolicies[i%2], "")
		if err != nil {
			return nil, fmt.Errorf("%s under %s: %w", cases[i/2].key, orderPolicies[i%2], err)
		}
		defer s.Close()
		wg.Go(func() {
			if errs[i] = s.arrive(ctx, mix.Arrivals(orderSeed+1, 0.5, orderPermits, orderWarmUp), "warm-up"); errs[i] != nil {
				return
			}
			if errs[i] = s.arrive(ctx, mix.Arrivals(orderSeed+10*round, a.load, orderPermits, a.lasting), "measured"); errs[i] == nil {
				recorded[i], errs[i] = s.board.Recorded(ctx)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, records := range recorded {
		if err := b.keep(fmt.Sprintf("%s.%s.%d.jsonl", cases[i/2].key, orderPolicies[i%2], round+1), records); err != nil {
			return nil, err
		}
		p := &cases[i/2].policies[i%2]
		var took []time.Duration
		for k := range records {
			if r := &records[k]; r.Tenant == "measured" {
				took = append(took, r.Ended.Sub(r.Enqueued))
			}
		}
		for _, d := range took {
			p.mean += d / time.Duration(len(took))
		}
		p.Summary = stats.Summarize(took)
		jobs, err := simulate.Jobs(recorded[i-i%2], orderPermits)
		if err != nil {
			return nil, err
		}
		o, err := simulate.Line{Policy: orderPolicies[i%2], Permits: orderPermits}.Replay(jobs)
		if err != nil {
			return nil, err
		}
		for k := range o.Tenants {
			if t := &o.Tenants[k]; t.Name == "measured" {
				p.foretoldMean, p.foretoldP95, p.foretoldP99 = t.Flow.Mean, t.Flow.P95, t.Flow.P99
			}
		}
	}
	return cases, nil
}

// keep writes a recording as `tasker-ctl schedule simulate` reads it.
func (b *Bench) keep(name string, records []simulate.Record) error {
	if b.Recordings == "" {
		return nil
	}
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	for i := range records {
		if err := out.Encode(&records[i]); err != nil {
			return fmt.Errorf("write a recording: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.Recordings, name), lines.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write a recording: %w", err)
	}
	return nil
}

// orderFleet is a fleet whose line of sleeping handlers has a policy.
func (b *Bench) orderFleet(ctx context.Context, policy order.Policy, orchestrators string) (*ours, error) {
	o := rig.FleetOptions{WorkerConfig: fmt.Sprintf("[worker.mpsc_channels.handler_dispatch]\nmax_concurrent_handlers = %d\n", orderPermits), OrchestratorConfig: orchestrators}
	s, err := b.fleet(ctx, b.Rig.Stock(), o, []load.Workflow{load.Sleeping}, 1, 1)
	if err != nil {
		return nil, err
	}
	if err = s.put(ctx, "/v1/namespaces/"+load.Namespace+"/policies/"+load.SleepHandler, map[string]any{"policy": policy, "features": []string{"ms"}, "reason": "compare", "actor": "bench"}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// put calls a route of the orchestrator.
func (s *ours) put(ctx context.Context, path string, body any) error {
	return s.send(ctx, (*load.Wire).Put, path, body)
}

func (s *ours) send(ctx context.Context, by func(*load.Wire, string, []byte) (int, []byte, error), path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	wire, err := load.Dial(ctx, s.server())
	if err != nil {
		return err
	}
	defer wire.Close()
	status, answer, err := by(wire, path, text)
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("status %d: %.300s", status, answer)
	}
	if err != nil {
		return fmt.Errorf("send %s: %w", path, err)
	}
	return nil
}

// arrive creates tasks at their times and waits until all have ended.
func (s *ours) arrive(ctx context.Context, list []load.Arrival, reason string) error {
	if err := load.Arrive(ctx, s.server(), list, reason, 0); err != nil {
		return err
	}
	return s.drained(ctx)
}

// The flood of the section ageing: urgent tasks so that as many are always waiting, beside
// others that come one after the other.
const (
	ageingBound  = time.Minute
	ageingFlood  = 64
	ageingLasts  = 10 * time.Minute
	ageingPeriod = 200 * time.Millisecond // between two tasks of low priority
	ageingTakes  = 50 * time.Millisecond
	urgent       = 50
)

// ageing keeps more urgent tasks waiting than the permits can take for ten minutes, and
// looks at how long the others have waited for their claims.
func (b *Bench) ageing(ctx context.Context) error {
	s, err := b.orderFleet(ctx, order.Priority, fmt.Sprintf("[orchestration.sweeps.ageing]\nbound_seconds = %d\n", int(ageingBound.Seconds())))
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	idle, made := 0, 0
	for ordinary := 0; time.Since(began) < ageingLasts; {
		live, err := s.board.LiveOf(ctx, urgent)
		if err != nil {
			return err
		}
		if live < orderPermits && ordinary > 0 {
			idle++
		}
		var missing []load.Arrival
		for range ageingFlood - live {
			missing = append(missing, load.Arrival{Takes: ageingTakes, Priority: urgent})
		}
		for ; time.Duration(ordinary)*ageingPeriod <= time.Since(began); ordinary++ {
			missing = append(missing, load.Arrival{Takes: ageingTakes})
		}
		if err := load.Arrive(ctx, s.server(), missing, "flood", made); err != nil {
			return err
		}
		made += len(missing)
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if err := s.drained(ctx); err != nil {
		return err
	}
	records, err := s.board.Recorded(ctx)
	if err != nil {
		return err
	}
	waits := map[bool][]time.Duration{}
	for i := range records {
		r := &records[i]
		waits[r.Priority == urgent] = append(waits[r.Priority == urgent], r.Claimed.Sub(r.Enqueued))
	}
	t := b.Report.Table("Ageing under a flood", "tasks", "number", "wait p50 s", "p99 s", "longest s")
	t.Notes = []string{fmt.Sprintf("From the arrival in the line to the claim; %d permits, handlers of %v, %d urgent tasks kept waiting for %v (%d looks found fewer than the permits), one task of priority 0 every %v; bound of %v, swept every %v.",
		orderPermits, ageingTakes, ageingFlood, ageingLasts, idle, ageingPeriod, ageingBound, ageingBound/10)}
	for _, first := range []bool{true, false} {
		w := stats.Summarize(waits[first])
		t.Add(map[bool]string{true: "urgent", false: "priority 0"}[first], w.N, sec(w.P50), sec(w.P99), sec(w.Max))
		b.logf("ageing: urgent %v: %d tasks, p50 %v, p99 %v, longest %v", first, w.N, w.P50, w.P99, w.Max)
	}
	b.Report.Set("ageing.longest_seconds", stats.Summarize(waits[false]).Max.Seconds())
	return nil
}
