package ledger

import (
	"cmp"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

var (
	ratedCallables = flag.Int("rates.callables", 0, "callables with rates (default: a hundred)")
	ratedDays      = flag.Int("rates.days", 0, "days of rates (default: one)")
)

// openRates returns a ledger over a database with a namespace, callables and a plan, and its counter.
func openRates(t *testing.T, callables int) (*Ledger, *rates.Counter, func(sql string, args ...any)) {
	t.Helper()
	db := plantest.Open(t)
	opened, err := pg.Open(t.Context(), pg.Options{URL: db.DSN, OnRejected: func(string, string, error) {}})
	require.NoError(t, err)
	t.Cleanup(opened.Server().Close)
	exec := func(sql string, args ...any) { db.Exec(t, sql, args...) }
	exec(`insert into tasker.namespaces (name) values ('shop'), ('other')`)
	exec(`insert into tasker.callables (namespace_id, callable, method, resolver) select 1 + i % 2, 'c' || i, '', '' from generate_series(0, $1::int - 1) i`, callables)
	exec(`insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, template, current)
		values (1, 'p', '1.0.0', 'test', decode(repeat('00', 32), 'hex'), '{a,b}', '{}', true)`)
	counter := rates.NewCounter(10_000)
	_, known := registry.New(opened)
	return New(opened, known, counter), counter, exec
}

// TestRatesAreAddedUpOnce: whatever the batches and the processes, what was counted is in each grain, once.
func TestRatesAreAddedUpOnce(t *testing.T) {
	t.Parallel()
	l, counter, exec := openRates(t, 2)
	begin := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	attempt := func(minute int, outcome workflow.AttemptOutcome, ran time.Duration) rates.Attempt {
		at := begin.Add(time.Duration(minute) * time.Minute)
		return rates.Attempt{Callable: 1, Plan: 1, Step: 1, Outcome: outcome, Enqueued: at.Add(-4 * time.Millisecond), Claimed: at, Reported: at.Add(ran), Applied: at}
	}
	for range 3 { // of as many heartbeats
		for minute := range 90 {
			counter.Count([]rates.Attempt{attempt(minute, workflow.OutcomeSuccess, 100*time.Millisecond), attempt(minute, workflow.OutcomeFailed, time.Second)},
				[]rates.End{{Plan: 1, State: workflow.TaskComplete, Requested: begin, Ended: begin.Add(time.Duration(minute) * time.Minute)}})
		}
		for range 2 { // the second finds nothing
			dropped, err := l.KeepRates(t.Context(), time.Minute)
			require.NoError(t, err)
			require.Zero(t, dropped)
		}
	}
	exec(`insert into tasker.task_counts (plan_id, state, at, count, ms) select 1, 1, $1::timestamptz, 1, 0 from generate_series(1, 5)`, begin)
	require.True(t, l.RatesToAddUp())
	added, more, err := l.AddUpRates(t.Context(), 100)
	require.NoError(t, err)
	require.True(t, more)
	for more {
		var n int
		n, more, err = l.AddUpRates(t.Context(), 100)
		require.NoError(t, err)
		added += n
	}
	require.Equal(t, 3*3*90+5, added)
	require.False(t, l.RatesToAddUp())

	of := workflow.HandlerReference{Callable: "c0"}
	for grain, points := range map[time.Duration]int{time.Minute: 90, 10 * time.Minute: 9, time.Hour: 2, 24 * time.Hour: 1} {
		p := Period{From: begin.Add(-time.Hour), To: begin.Add(2 * time.Hour), Grain: grain}
		s, err := l.CallSeries(t.Context(), p, "shop", of, 1000, time.Minute)
		require.NoError(t, err)
		require.Len(t, s.Points, points, grain)
		var sum CallFigures
		for i := range s.Points {
			sum.Succeeded += s.Points[i].Succeeded
			sum.Failed += s.Points[i].Failed
			sum.RunningMS += s.Points[i].RunningMS
			sum.LongestMS = max(sum.LongestMS, s.Points[i].LongestMS)
			require.Len(t, s.Points[i].Running, rates.Buckets)
		}
		require.Equal(t, CallFigures{Succeeded: 270, Failed: 270, RunningMS: 270 * 1100, LongestMS: 1000}, sum, grain)
		require.Len(t, s.Versions, 1)
		require.Equal(t, "b", s.Versions[0].Step)
		require.Equal(t, 540, s.Versions[0].Waiting[rates.BucketOf(4*time.Millisecond)])
		require.Equal(t, 270, s.Versions[0].Running[rates.BucketOf(time.Second)])
		n, err := l.NamespaceRates(t.Context(), p, []string{"shop"}, true, 1000, time.Minute)
		require.NoError(t, err)
		require.Len(t, n.Points, points, grain)
		require.Len(t, n.Namespaces, 1)
		require.Equal(t, TaskFigures{Created: 5, Completed: 270, EndedMS: 3 * 60_000 * 89 * 90 / 2}, n.Namespaces[0].TaskFigures)
	}
	_, err = l.CallSeries(t.Context(), Period{Last: time.Hour, Grain: time.Minute}, "other", of, 1000, time.Minute)
	require.ErrorIs(t, err, pg.ErrNotFound)
}

// TestDepthsAreSeen: the last look is shown, the most of longer times is kept, and what has nothing to do any more has no depth.
func TestDepthsAreSeen(t *testing.T) {
	t.Parallel()
	l, _, _ := openRates(t, 2)
	read := func() Overview {
		o, err := l.CallOverview(t.Context(), Period{Last: time.Hour, Grain: 10 * time.Minute}, nil, 100, time.Minute)
		require.NoError(t, err)
		return o
	}
	require.Nil(t, read().DepthsSeen)
	require.NoError(t, l.KeepDepths(t.Context(), []CallDepth{{1, 7, 2, time.Minute}, {2, 1, 0, time.Second}}))
	o := read()
	require.NotNil(t, o.DepthsSeen)
	require.Len(t, o.Calls, 2)
	require.Equal(t, 7, o.Calls[1].Depth, "of the namespace shop")
	require.Equal(t, time.Minute, o.Calls[1].Oldest)
	o, err := l.CallOverview(t.Context(), Period{Last: time.Hour, Grain: 10 * time.Minute}, []string{"other"}, 100, time.Minute)
	require.NoError(t, err)
	require.Len(t, o.Calls, 1)
	require.NoError(t, l.KeepDepths(t.Context(), []CallDepth{{1, 3, 5, time.Second}}))
	s, err := l.CallSeries(t.Context(), Period{Last: time.Hour, Grain: 24 * time.Hour}, "shop", workflow.HandlerReference{Callable: "c0"}, 100, time.Minute)
	require.NoError(t, err)
	require.Len(t, s.Depths, 1)
	require.Equal(t, 7, s.Depths[0].Waiting)
	require.Equal(t, 5, s.Depths[0].Running)
	require.NoError(t, l.KeepDepths(t.Context(), nil))
}

// TestGapsAreSaid: a daemon that has ended without signing off is named, one that is alive or has signed off is not.
func TestGapsAreSaid(t *testing.T) {
	t.Parallel()
	l, _, exec := openRates(t, 2)
	exec(`insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, heartbeat_at, stopped_at, schema_version)
		select gen_random_uuid(), id, 'h', 'v', 'Hybrid', '{}', now() - age, case when stopped then now() end, 1
		from (values ('killed', interval '10 minutes', false), ('stopped', interval '10 minutes', true), ('alive', interval '1 second', false), ('long ago', interval '3 hours', false)) w(id, age, stopped)`)
	o, err := l.CallOverview(t.Context(), Period{Last: time.Hour, Grain: time.Minute}, nil, 100, time.Minute)
	require.NoError(t, err)
	require.Len(t, o.Gaps, 1)
	require.Equal(t, "killed", o.Gaps[0].ID)
	require.Equal(t, "worker", o.Gaps[0].Kind)
}

// TestRatesAreReadByTheirIndexes: neither a chart nor the overview reads the board, the ledger, or more rows of rates than it
// sums up.
func TestRatesAreReadByTheirIndexes(t *testing.T) {
	t.Parallel()
	callables, days := cmp.Or(*ratedCallables, 100), cmp.Or(*ratedDays, 1)
	l, _, exec := openRates(t, callables)
	begun := time.Now()
	for _, grain := range Grains { // as they come: by time
		exec(fmt.Sprintf(`insert into tasker.call_rates (callable, grain, at, plan_id, step_no, outcome, count, waiting_ms, running_ms, longest_ms, waiting_1, waiting_3, waiting_5, running_4, running_7, running_9)
			select c, $1::int, a, 1, 0, 1, 60, 100, 1000, 500, 20, 20, 20, 20, 20, 20
			from generate_series(date_bin($1::int * interval '1 second', now() - interval '%d days', '2000-01-01Z'), now(), $1::int * interval '1 second') a,
			generate_series(1, $2::int) c`, days), int(grain.Seconds()), callables)
	}
	exec(`insert into tasker.call_depths select c, 60, date_trunc('minute', now()), 1, 1, 1 from generate_series(1, $1::int) c`, callables)
	exec(`insert into tasker.depths_seen (at) values (now())`)
	exec(`vacuum (analyze) tasker.call_rates, tasker.call_depths`)
	t.Logf("filled %d callables and %d days in %v", callables, days, time.Since(begun).Round(time.Second))
	for _, statement := range []*stmt.Statement{overview, callPoints, callVersions, depthPoints, namespaceTotals, namespacePoints, readRates, readGaps} {
		for _, table := range []string{"board", "step_attempts", "tasks"} {
			require.NotRegexp(t, `tasker\.`+table+`\b`, statement.String())
		}
	}
	measure := func(name string, read func() error) {
		best := time.Hour
		for range 7 {
			begin := time.Now()
			require.NoError(t, read())
			best = min(best, time.Since(begin))
		}
		t.Logf("%-50s %v", name, best)
	}
	for _, p := range []Period{{Last: time.Hour, Grain: time.Minute}, {Last: 24 * time.Hour, Grain: 10 * time.Minute}, {Last: 24 * time.Hour, Grain: time.Minute}, {Last: 7 * 24 * time.Hour, Grain: time.Hour},
		{Last: 14 * 24 * time.Hour, Grain: time.Hour}} {
		measure(fmt.Sprintf("chart of %v in pieces of %v", p.Last, p.Grain), func() error {
			_, err := l.CallSeries(t.Context(), p, "shop", workflow.HandlerReference{Callable: "c0"}, 1500, time.Minute)
			return err
		})
	}
	for _, p := range []Period{{Last: 15 * time.Minute, Grain: time.Minute}, {Last: time.Hour, Grain: 10 * time.Minute}, {Last: 5 * time.Hour, Grain: 10 * time.Minute}, {Last: 24 * time.Hour, Grain: time.Hour},
		{Last: 14 * 24 * time.Hour, Grain: 24 * time.Hour}} {
		measure(fmt.Sprintf("overview of %v by sums of %v", p.Last, p.Grain), func() error {
			_, err := l.CallOverview(t.Context(), p, nil, 5000, time.Minute)
			return err
		})
	}
}
