package measure

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	all, err := Choose("")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, s := range all {
		require.False(t, s.Extra, s.Name)
	}
	two, err := Choose("snapshot, drain")
	require.NoError(t, err)
	require.Equal(t, "snapshot", two[0].Name)
	require.Equal(t, "drain", two[1].Name)
	_, err = Choose("drain,unknown")
	require.ErrorContains(t, err, `"unknown"`)
}

func TestRunGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	b := &Bench{Report: report.New(), Progress: io.Discard}
	ran := false
	err := b.Run(t.Context(), []Section{
		{Name: "bad", run: func(*Bench, context.Context) error { return errors.New("no luck") }},
		{Name: "good", run: func(*Bench, context.Context) error { ran = true; return nil }},
	})
	require.EqualError(t, err, "section bad: no luck")
	require.True(t, ran)
	require.Len(t, b.Report.Tables[0].Rows, 2)
}

func TestPerStep(t *testing.T) {
	t.Parallel()
	before := rig.ParseMetrics(`tasker_steps_claimed_total{namespace="a"} 1000`)
	after := rig.ParseMetrics(`
tasker_steps_claimed_total{namespace="a"} 2000
tasker_steps_claimed_total{namespace="b"} 1000
tasker_step_results_total{namespace="a",outcome="success"} 1000
tasker_store_statement_seconds_sum{flow="claim"} 0.3
tasker_store_statement_seconds_count{flow="claim"} 3
tasker_store_statement_seconds_sum{flow="claim_full"} 0.1
tasker_store_statement_seconds_count{flow="claim_full"} 1
tasker_store_statement_seconds_sum{flow="report"} 0.2
tasker_store_statement_seconds_sum{flow="take"} 0.4
tasker_store_statement_seconds_sum{flow="apply"} 0.2`)
	var g grown
	g.perStep(before, after)
	require.InDelta(t, 100, g.claimMS, 1e-6)
	require.InDelta(t, 500, g.claimSize, 1e-6)
	require.InDelta(t, 200, g.claim, 1e-6)
	require.InDelta(t, 100, g.report, 1e-6)
	require.InDelta(t, 600, g.apply, 1e-6, "half of the steps were applied")
	g = grown{}
	g.perStep(after, after)
	require.Equal(t, grown{}, g, "nothing was claimed")
}

func TestWALRatio(t *testing.T) {
	t.Parallel()
	figures := map[string]float64{}
	for _, mode := range []string{"hybrid", "eventdrivenonly"} {
		for i, w := range []string{"start", "linear", "graph", "tree", "conditional"} {
			figures["latency."+mode+".notify.idle."+w+".p50_ms"] = 4
			figures["latency."+mode+".wal.idle."+w+".p50_ms"] = 4 + float64(i)
		}
	}
	require.InDelta(t, 2, walRatio(figures), 1e-9)
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	names, mix := namespaces(1)
	require.Len(t, names, 1)
	require.Len(t, mix, 1)
	names, mix = namespaces(100)
	require.Len(t, names, 100)
	for i, w := range mix {
		require.Equal(t, names[i], w.Namespace)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	z := Sizes{Before: 8*time.Second + 500*time.Millisecond, Hold: 20 * time.Second, After: 20 * time.Second}
	// 100/s for 10 s, 50/s for 20 s and 5 s more, then 100/s.
	samples := []stats.Sample{{}, {At: 10 * time.Second, Count: 1000}, {At: 35 * time.Second, Count: 2250}, {At: 50 * time.Second, Count: 3750}}
	b := &Bench{Report: report.New()}
	b.judge(b.Report.Table("t"), "k", "label", "ours", samples, z)
	require.InDelta(t, 0.5, b.Report.Figures["k.ratio"], 1e-9)
	require.InDelta(t, 5, b.Report.Figures["k.recovery_s"], 0.26)

	b.judge(b.Report.Table("t"), "never", "label", "ours", []stats.Sample{{}, {At: 10 * time.Second, Count: 1000}, {At: 50 * time.Second, Count: 1000}}, z)
	require.InDelta(t, 20, b.Report.Figures["never.recovery_s"], 1e-9, "the watched time is the known minimum")
	require.NotEmpty(t, b.Report.Absent["never.recovery_s"])
}

func TestDisturbancesHaveGoals(t *testing.T) {
	t.Parallel()
	goals := map[string]bool{}
	for _, g := range report.Goals() {
		for _, f := range g.Figures {
			goals[f] = true
		}
	}
	for _, key := range allDisturbances() {
		require.True(t, goals["disturb."+key+".ratio"], key)
	}
}

// TestOrdersAreBalanced: no fleet has a place or a predecessor more often than others.
func TestOrdersAreBalanced(t *testing.T) {
	t.Parallel()
	require.Len(t, orders, fleetsAtOnce)
	require.Len(t, protections, fleetsAtOnce)
	for _, rounds := range []int{secureSlices, secureRounds, telemetryRounds, secureSlices / allTracesPart, telemetryRounds / allTracesPart, limitRounds} {
		require.Zero(t, rounds%len(orders))
		require.Zero(t, rounds%fleetSets, "each set of fleets has as many")
	}
	places, after := map[[2]int]int{}, map[[2]int]int{}
	for _, order := range orders {
		for place, k := range order {
			places[[2]int{place, k}]++
			if place > 0 {
				after[[2]int{order[place-1], k}]++
			}
		}
	}
	require.Len(t, places, 16)
	require.Len(t, after, 12)
}
