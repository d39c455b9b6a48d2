package scenarios

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
)

// envLimits is for how long tasks come to the limited handlers; ten seconds when empty.
const envLimits = "CHAOS_LIMITS"

// TestLimitsWhileWorkersAreKilled: of four workers one is killed every five seconds and is
// back at once. By the ledger and the database's clock, never more than seven claims of one
// handler are alive; another begins 50 times a second, with a burst of ten, and no less
// while steps wait; and of the tasks of one key one runs at a time, in the order of
// creation, also while a retry waits.
func TestLimitsWhileWorkersAreKilled(t *testing.T) {
	const most, perSecond, burst, pause = 7, 50, 10, 5 * time.Second
	over := 2 * pause
	if text := os.Getenv(envLimits); text != "" {
		var err error
		over, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	r := startRig(t, rig.Options{Permits: 8, Orchestrators: []string{"Hybrid", "EventDrivenOnly"}, Workers: []string{"Hybrid", "Hybrid", "EventDrivenOnly", "PollingOnly"}})
	c := client.New(client.Config{BaseURL: r.Orchestrators()[0]})
	for callable, limit := range map[string]map[string]any{
		workload.SortHandler: {"max_running": most},
		workload.PackHandler: {"per_second": perSecond, "burst": burst},
		workload.WorkHandler: {"ordered": true, "key_path": []string{"shard"}},
	} {
		limit["reason"], limit["actor"] = "chaos", "chaos"
		require.NoError(t, c.Call(t.Context(), "PUT", []string{"v1", "namespaces", workload.Namespace, "limits", callable}, limit, &struct{}{}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), over+2*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	var shared, ordered []workload.Accepted
	start := time.Now()
	group.Go(func() (err error) { // two steps of each are under the rate
		s := &workload.Submitter{URLs: r.Orchestrators}
		shared, err = s.Run(ctx, start, workload.AtOnce("shared", int(over.Seconds())*perSecond/2, workload.Shared))
		return err
	})
	group.Go(func() (err error) {
		s := &workload.Submitter{URLs: r.Orchestrators, Clients: 1}
		ordered, err = s.Run(ctx, start, workload.Steadily("ordered", 20, over, workload.Brief))
		return err
	})
	workers := r.ByName([]string{"worker-a", "worker-b", "worker-c", "worker-d"})
	for at := pause / 2; at < over; at += pause {
		<-time.After(time.Until(start.Add(at)))
		victim := workers[rand.IntN(len(workers))]
		victim.Kill()
		restart(t, r, victim)
	}
	require.NoError(t, group.Wait())
	drain(t, r, over+2*time.Minute)

	// The attempts of a handler, with the number of their tasks.
	const attempts = `with a as (
		select a.claimed_at, a.reported_at, a.attempt, t.context ->> 'shard' as shard, substring(t.context ->> 'key' from '[0-9]+$')::int as n
		from tasker.step_attempts a join tasker.tasks t using (task_uuid) join tasker.plans p on p.plan_id = t.plan_id
		join tasker.callables c on c.callable_id = p.callables[a.step_no + 1] where c.callable = $1) `
	alive := number(t, r, attempts+`, e as (select claimed_at as at, 1 as d from a union all select reported_at, -1 from a)
		select max(alive)::int from (select sum(d) over (order by at, d rows unbounded preceding) as alive from e) s`, workload.SortHandler)
	require.LessOrEqual(t, alive, most, "claims that are alive at once")
	begun := map[time.Duration]int{}
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
		begun[window] = number(t, r, attempts+`select max(n)::int from (
			select count(*) over (order by claimed_at range between $2::interval preceding and current row) as n from a) w`, workload.PackHandler, window)
		require.LessOrEqual(t, float64(begun[window]), perSecond*window.Seconds()+burst, "claims in any %v", window)
	}
	used := number(t, r, attempts+`, w as (select min(claimed_at) as begin, (max(claimed_at) - min(claimed_at)) * 0.8 as length from a)
		select (100 * count(*) / (extract(epoch from w.length) * $2::int))::int from a, w where a.claimed_at < w.begin + w.length group by w.length`, workload.PackHandler, perSecond)
	require.GreaterOrEqual(t, used, 95, "per cent of the rate")
	require.Zero(t, number(t, r, attempts+`select count(*)::int from (
		select claimed_at < max(reported_at) over w or n < max(n) over w as wrong from a
		window w as (partition by shard order by claimed_at rows between unbounded preceding and 1 preceding)) o where wrong`, workload.WorkHandler), "claims of keys before their turn")
	retried := number(t, r, attempts+`select count(*)::int from a where attempt > 1 and n >= 0`, workload.WorkHandler)
	t.Logf("%d + %d tasks: at most %d alive, most claims %v, %d %% of the rate, %d retries of ordered steps", len(shared), len(ordered), alive, begun, used, retried)
	verify(t, r, append(shared, ordered...))
}
