package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

const (
	orderPermits = 8
	// orderWarmUp is how long the fleets learn the times of handlers, at half of what they can do.
	orderWarmUp = time.Minute
	orderSeed   = 17
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

// orderRun is the outcome of one fleet.
type orderRun struct {
	mean time.Duration
	stats.Summary
}

// order compares the policy shortest_expected with fifo, with the same arrivals for both. The
// handlers sleep, so all fleets run at the same time.
func (b *Bench) order(ctx context.Context) error {
	t := b.Report.Table("Shortest expected first", "handlers", "arrivals", "policy", "tasks", "mean s", "p50 s", "p95 s", "p99 s", "max s", "mean by fifo's", "p99 by fifo's")
	t.Notes = []string{fmt.Sprintf("From the request of a task to its end, %d permits, sleeping handlers, the same arrivals for both policies. "+
		"Before it %v at half the load, from which the times are learned.", orderPermits, orderWarmUp)}
	policies := []string{"fifo", "shortest_expected"}
	mixes := load.Mixes()
	runs, errs := make([]orderRun, len(mixes)*len(arrivalsOf)*len(policies)), make([]error, len(mixes)*len(arrivalsOf)*len(policies))
	var wg sync.WaitGroup
	for i := range runs {
		policy, a, mix := policies[i%2], arrivalsOf[i/2%len(arrivalsOf)], mixes[i/2/len(arrivalsOf)]
		s, err := b.orderFleet(ctx, policy)
		if err != nil {
			return fmt.Errorf("%s of %s under %s: %w", a.key, mix.Key, policy, err)
		}
		defer s.Close()
		wg.Go(func() {
			if err := s.arrive(ctx, mix.Arrivals(orderSeed+1, 0.5, orderPermits, orderWarmUp), "warm-up"); err != nil {
				errs[i] = err
				return
			}
			if errs[i] = s.arrive(ctx, mix.Arrivals(orderSeed, a.load, orderPermits, a.lasting), "measured"); errs[i] == nil {
				runs[i], errs[i] = s.orderTimes(ctx)
			}
		})
	}
	wg.Wait()
	for i, run := range runs {
		if errs[i] != nil {
			return errs[i]
		}
		a, mix, base := arrivalsOf[i/2%len(arrivalsOf)], mixes[i/2/len(arrivalsOf)], runs[i-i%2]
		mean, p99 := run.mean.Seconds()/base.mean.Seconds(), run.P99.Seconds()/base.P99.Seconds()
		t.Add(mix.Label, a.label, policies[i%2], run.N, sec(run.mean), sec(run.P50), sec(run.P95), sec(run.P99), sec(run.Max), fmt.Sprintf("%.2f", mean), fmt.Sprintf("%.2f", p99))
		if i%2 == 1 {
			b.Report.Set("order."+mix.Key+"."+a.key+".mean", mean)
			b.Report.Set("order."+mix.Key+"."+a.key+".p99", p99)
			b.logf("order: %s of %s: mean %.2f, p99 %.2f of fifo's", a.key, mix.Key, mean, p99)
		}
	}
	return nil
}

// orderFleet is a fleet whose line of sleeping handlers has a policy.
func (b *Bench) orderFleet(ctx context.Context, policy string) (*ours, error) {
	o := rig.FleetOptions{WorkerConfig: fmt.Sprintf("[worker.mpsc_channels.handler_dispatch]\nmax_concurrent_handlers = %d\n", orderPermits)}
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
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	wire, err := load.Dial(ctx, s.server())
	if err != nil {
		return err
	}
	defer wire.Close()
	status, answer, err := wire.Put(path, text)
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("status %d: %.300s", status, answer)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	return nil
}

// arrive creates tasks at their times and waits until all have ended.
func (s *ours) arrive(ctx context.Context, list []load.Arrival, reason string) error {
	if err := load.Arrive(ctx, s.server(), list, reason); err != nil {
		return err
	}
	return s.drained(ctx)
}

// orderTimes are the times of the measured tasks.
func (s *ours) orderTimes(ctx context.Context) (run orderRun, err error) {
	took, err := s.board.TimesFor(ctx, "measured")
	if err != nil {
		return run, err
	}
	for _, d := range took {
		run.mean += d / time.Duration(len(took))
	}
	run.Summary = stats.Summarize(took)
	return run, nil
}
