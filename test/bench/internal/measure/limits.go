package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

const (
	limitWorkers = 2
	limitPermits = 16 // of each of them
	limitService = 20 * time.Millisecond
	limitTenants = 100
	limitWindow  = 30 * time.Second
)

// limits measures limits with real daemons and handlers that sleep for 20 ms.
func (b *Bench) limits(ctx context.Context) error {
	rate, err := b.limitShares(ctx)
	if err != nil {
		return fmt.Errorf("shares: %w", err)
	}
	if err := b.limitFlood(ctx, rate); err != nil {
		return fmt.Errorf("flood: %w", err)
	}
	if err := b.limitRate(ctx); err != nil {
		return fmt.Errorf("rate: %w", err)
	}
	if err := b.limitOrder(ctx); err != nil {
		return fmt.Errorf("ordered keys: %w", err)
	}
	return nil
}

// limited is a fleet with 32 permits whose sleeping handlers have a limit.
func (b *Bench) limited(ctx context.Context, limit map[string]any) (*ours, error) {
	o := rig.FleetOptions{WorkerConfig: fmt.Sprintf("[worker.mpsc_channels.handler_dispatch]\nmax_concurrent_handlers = %d\n", limitPermits)}
	s, err := b.fleet(ctx, b.Rig.Stock(), o, []load.Workflow{load.Sleeping}, 1, limitWorkers)
	if err != nil {
		return nil, err
	}
	if err = s.limit(ctx, load.SleepHandler, limit); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// limit sets the limit of a handler.
func (s *ours) limit(ctx context.Context, handler string, limit map[string]any) error {
	limit = maps.Clone(limit)
	limit["reason"], limit["actor"] = "measure", "bench"
	return s.put(ctx, "/v1/namespaces/"+load.Namespace+"/limits/"+handler, limit)
}

const (
	limitRounds = 12
	limitTasks  = 30_000 // that a fleet works off in a round
)

// limitCost compares fleets whose handler has a limit, which never holds a step up, with one
// that has none, and holds a snapshot while a limit is used.
func (b *Bench) limitCost(ctx context.Context) error {
	with := func(limit map[string]any) func(context.Context, *ours) error {
		return func(ctx context.Context, s *ours) error { return s.limit(ctx, load.OneStepHandler, limit) }
	}
	mix := make([]load.Workflow, limitTenants)
	for i := range mix {
		mix[i] = load.OneStep
		mix[i].Fields = fmt.Sprintf(`"tenant":%q,`, tenantName(i))
	}
	byTenant := with(map[string]any{"key_path": []string{"tenant"}, "max_running": 10_000})
	for _, limit := range []variant{
		{key: "running", label: "max_running", prepare: with(map[string]any{"max_running": 10_000})},
		{key: "rate", label: "per_second", prepare: with(map[string]any{"per_second": 1_000_000, "burst": 1_000_000})},
		{key: "key", label: "max_running of each of 100 keys", prepare: byTenant},
	} {
		c := b.newComparison("limit-cost", "What "+limit.label+" costs", limitRounds, []variant{{label: "no limit"}, limit})
		c.mix = mix
		c.rates.Notes = append(c.rates.Notes, fmt.Sprintf("%d tasks are created in bulk and worked off in a round; the limit holds none up.", limitTasks))
		if err := c.measure(ctx, []way{{"fleet", "tasks created in bulk and run", fleetRate(limitTasks), 0}}, 1); err != nil {
			return err
		}
	}
	s, err := b.fleet(ctx, b.Rig.Stock(), rig.FleetOptions{}, mix, 1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := byTenant(ctx, s); err != nil {
		return err
	}
	samples, err := b.disturbed(ctx, s, s.Database, disturbances()[0], feedFor(mix), b.Sizes)
	if err != nil {
		return fmt.Errorf("held snapshot: %w", err)
	}
	t := b.Report.Table(fmt.Sprintf("A snapshot held for %v while a limit of 100 keys is used", b.Sizes.Hold),
		"what", "system", "tasks/s before", "meanwhile", "last quarter", "last quarter ÷ before", "95 % again after s")
	b.judge(t, "limit-cost.snapshot", "held snapshot", "ours", samples, b.Sizes)
	return nil
}

// sleepers are contexts of tasks of tenants; n numbers them.
func sleepers(count int, tenant func(i int) string) []json.RawMessage {
	list := make([]json.RawMessage, count)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"tenant":%q,"ms":%d,"n":%d}`, tenant(i), limitService.Milliseconds(), i)
	}
	return list
}

func tenantName(i int) string { return fmt.Sprintf("t%d", i%limitTenants) }

// limitShares has a hundred tenants with weights of 1 to 4, all of them with a backlog, and
// returns how many steps begin in a second.
func (b *Bench) limitShares(ctx context.Context) (rate float64, err error) {
	weights, total := map[string]float64{}, 0.0
	var pattern []string // each tenant as often as its weight says
	for i := range limitTenants {
		w := i%4 + 1
		weights[tenantName(i)], total = float64(w), total+float64(w)
		for range w {
			pattern = append(pattern, tenantName(i))
		}
	}
	s, err := b.limited(ctx, map[string]any{"key_path": []string{"tenant"}, "weights": weights})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	const windows = 2
	warm := 10 * time.Second
	most := int((warm + (windows+1)*limitWindow).Seconds() / limitService.Seconds() * limitWorkers * limitPermits)
	if err := s.board.CreateFor(ctx, load.Sleeping, "backlog", sleepers(most, func(i int) string { return pattern[i%len(pattern)] })); err != nil {
		return 0, err
	}
	t := b.Report.Table("Shares of 100 tenants with weights of 1 to 4, 32 permits, handlers of 20 ms", "time", "claims/s", "worst tenant off by its share")
	t.Notes = []string{fmt.Sprintf("%d workers with %d permits each. Claims by the database's clock, of the ledger.", limitWorkers, limitPermits)}
	if err := wait(ctx, warm); err != nil {
		return 0, err
	}
	worst := 0.0
	for i := range windows {
		from, err := s.board.Now(ctx)
		if err != nil {
			return 0, err
		}
		if err := wait(ctx, limitWindow+time.Second); err != nil { // the last ones of the window end, too
			return 0, err
		}
		counts, err := s.board.Claims(ctx, "tenant", from, from.Add(limitWindow))
		if err != nil {
			return 0, err
		}
		all, off := 0, 0.0
		for _, n := range counts {
			all += n
		}
		for tenant, w := range weights {
			off = max(off, 100*math.Abs(float64(counts[tenant])*total/(w*float64(all))-1))
		}
		rate, worst = float64(all)/limitWindow.Seconds(), max(worst, off)
		t.Add(fmt.Sprintf("%d: %v", i+1, limitWindow), num(rate), fmt.Sprintf("%.1f %%", off))
		b.logf("limits: %.0f claims/s, the worst tenant is off by %.1f %%", rate, off)
	}
	b.Report.Set("limits.share_off", worst)
	return rate, nil
}

// limitFlood has 99 tenants at half their share, without and with one that creates a flood.
func (b *Bench) limitFlood(ctx context.Context, rate float64) error {
	s, err := b.limited(ctx, map[string]any{"key_path": []string{"tenant"}})
	if err != nil {
		return err
	}
	defer s.Close()
	others := func(lasting time.Duration) (list []load.Arrival) {
		r := rand.New(rand.NewPCG(orderSeed, 1)) // #nosec G404 -- to be repeated
		gap := limitTenants / (0.5 * rate * (limitTenants - 1))
		for at := 0.0; at < lasting.Seconds(); at += r.ExpFloat64() * gap {
			list = append(list, load.Arrival{At: time.Duration(at * float64(time.Second)), Takes: limitService, Tenant: tenantName(1 + r.IntN(limitTenants-1))})
		}
		return list
	}
	t := b.Report.Table("99 tenants at half their share, alone and while one floods", "", "tasks", "p50 ms", "p95 ms", "p99 ms", "max ms")
	t.Notes = []string{fmt.Sprintf("From the request of a task to its end. The flood are %d tasks of one tenant, created through one connection, 1,000 in a transaction, as fast as it can, "+
		"while the others arrive for a minute.", b.Sizes.Flood)}
	var times [2]stats.Summary
	for i, reason := range []string{"alone", "flooded"} {
		if i == 0 {
			if err := s.arrive(ctx, others(5*time.Second), "warm-up"); err != nil {
				return err
			}
		}
		var wg sync.WaitGroup
		var flooding error
		took := time.Duration(0)
		if i == 1 {
			wg.Go(func() {
				begin := time.Now()
				flooding = s.board.CreateFor(ctx, load.Sleeping, "flood", sleepers(b.Sizes.Flood, func(int) string { return tenantName(0) }))
				took = time.Since(begin)
			})
		}
		list := others(time.Minute)
		err := load.Arrive(ctx, s.server(), list, reason, 0)
		wg.Wait()
		if err == nil {
			err = flooding
		}
		if err != nil {
			return err
		}
		if err := wait(ctx, 5*time.Second); err != nil {
			return err
		}
		ended, err := s.board.TimesFor(ctx, reason)
		if err != nil {
			return err
		}
		times[i] = stats.Summarize(ended)
		t.Add(reason, fmt.Sprintf("%d of %d", len(ended), len(list)), ms(times[i].P50), ms(times[i].P95), ms(times[i].P99), ms(times[i].Max))
		if i == 1 {
			t.Notes = append(t.Notes, fmt.Sprintf("The creation of the flood took %v.", took.Round(time.Second)))
		}
		b.logf("limits: %s: p50 %v, p99 %v of %d", reason, times[i].P50, times[i].P99, len(ended))
		if len(ended) < len(list) {
			b.Report.Missing("limits.flood.p50", fmt.Sprintf("%d of %d tasks had not ended 5 s after the last one came", len(list)-len(ended), len(list)))
			b.Report.Missing("limits.flood.p99_services", "as above")
			return nil
		}
	}
	b.Report.Set("limits.flood.p50", times[1].P50.Seconds()/times[0].P50.Seconds())
	b.Report.Set("limits.flood.p99_services", max(times[1].P99-times[0].P99, 0).Seconds()/limitService.Seconds())
	return nil
}

// limitRate has a backlog under 50 beginnings per second.
func (b *Bench) limitRate(ctx context.Context) error {
	const perSecond, burst = 50, 10
	s, err := b.limited(ctx, map[string]any{"per_second": perSecond, "burst": burst})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.board.CreateFor(ctx, load.Sleeping, "rate", sleepers(perSecond*60, tenantName)); err != nil {
		return err
	}
	from, err := s.board.Now(ctx)
	if err != nil {
		return err
	}
	if err := wait(ctx, limitWindow+2*time.Second); err != nil {
		return err
	}
	from = from.Add(time.Second) // the first claims
	counts, err := s.board.Claims(ctx, "ms", from, from.Add(limitWindow))
	if err != nil {
		return err
	}
	used := float64(counts[fmt.Sprint(limitService.Milliseconds())]) / (perSecond * limitWindow.Seconds())
	t := b.Report.Table("50 beginnings per second with a burst of 10, under backlog", "any time of", "most claims", "allowed")
	t.Notes = []string{fmt.Sprintf("%.3f of the rate is used in %v.", used, limitWindow)}
	worst := 0.0
	for _, window := range []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second} {
		n, err := s.board.MostClaims(ctx, window)
		if err != nil {
			return err
		}
		allowed := perSecond*window.Seconds() + burst
		worst = max(worst, float64(n)/allowed)
		t.Add(window, n, num(allowed))
	}
	b.Report.Set("limits.rate.most", worst)
	b.Report.Set("limits.rate.used", used)
	b.logf("limits: %.3f of the rate is used, at most %.2f of what is allowed", used, worst)
	return nil
}

// limitOrder drains tasks of 10,000 ordered keys.
func (b *Bench) limitOrder(ctx context.Context) error {
	const keys, each = 10_000, 3
	s, err := b.limited(ctx, map[string]any{"key_path": []string{"tenant"}, "ordered": true})
	if err != nil {
		return err
	}
	defer s.Close()
	begin := time.Now()
	if err := s.board.CreateFor(ctx, load.Sleeping, "ordered", sleepers(keys*each, func(i int) string { return fmt.Sprint(i % keys) })); err != nil {
		return err
	}
	if err := s.drained(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	tasks, wrong, err := s.board.Disorder(ctx, "tenant")
	if err != nil {
		return err
	}
	t := b.Report.Table("10,000 ordered keys with three tasks each", "tasks", "seconds", "claims before the end of the task before")
	t.Add(tasks, sec(took), wrong)
	b.Report.Set("limits.disorder", float64(wrong))
	b.logf("limits: %d ordered tasks in %v, %d out of order", tasks, took.Round(time.Second), wrong)
	return nil
}
